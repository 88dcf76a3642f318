"""Write the documentation pages that are made: docs/measures.md and docs/formats.md from their registries,
docs/performance.md from benchmarks/results/, docs/claims.md from docs/training/, docs/papers/ from the ledger and
docs/reproduction/, docs/findings/ from scripts/site/findings/ and the records; the lists of the command line; and the
type stub of the package, whose names are lazy.

python scripts/build_docs.py
"""

import argparse
import json
import runpy
import sys
from pathlib import Path

from clip_geometry import _HOME
from clip_geometry.cli.lists import shipped_lists
from clip_geometry.formats import formats
from clip_geometry.ledger import read_recorded
from clip_geometry.ledger.pages import paper_pages
from clip_geometry.report.explained import measures_page
from clip_geometry.report.words import render

ROOT = Path(__file__).parents[1]


def pages() -> dict[Path, str]:
    results = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    papers = paper_pages(*(read_recorded(ROOT / "docs" / each) for each in ("reproduction", "findings/records")))
    site = ROOT / "scripts" / "site"
    sys.path.insert(0, str(site))  # claims.py imports findings.py
    findings, claims = (runpy.run_path(str(site / f"{name}.py")) for name in ("findings", "claims"))
    outputs = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in results}
    gpu = json.loads((ROOT / "benchmarks/results/gpu/embed.json").read_text(encoding="utf-8"))
    return {
        Path("src/clip_geometry/cli/lists.json"): shipped_lists(),
        Path("src/clip_geometry/__init__.pyi"): stub(),
        Path("docs/measures.md"): measures_page(),
        Path("docs/formats.md"): render(ROOT / "scripts" / "formats.md.j2", formats=formats),
        Path("docs/performance.md"): render(ROOT / "benchmarks" / "performance.md.j2", outputs=outputs, gpu=gpu),
        Path("docs/claims.md"): claims["page"](),
        **{Path("docs/papers") / name: page for name, page in papers.items()},
        **{Path("docs/findings") / name: page for name, page in findings["pages"]().items()},
    }


def stub() -> str:
    """What type checkers and editors see of `import clip_geometry`."""
    head = "# Made from __init__.py by `python scripts/build_docs.py`."
    names = [f"from {home} import {name} as {name}" for home, several in _HOME.items() for name in several]
    return "\n".join([head, "", *sorted(names)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    for path, text in pages().items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()

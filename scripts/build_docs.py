"""Write the generated files that are committed: docs/performance.md from benchmarks/results/, and docs/papers/ from the
ledger and docs/reproduction/.
The other generated pages are rendered when the site is built (scripts/site/generated.py).

python scripts/build_docs.py
"""

import argparse
import json
from pathlib import Path

from clip_geometry.display.words import render
from clip_geometry_experiments.published.pages import paper_pages
from clip_geometry_experiments.published.recorded import read_recorded

ROOT = Path(__file__).parents[1]


def pages() -> dict[Path, str]:
    results = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    papers = paper_pages(*(read_recorded(ROOT / "docs" / folder) for folder in ("reproduction", "findings/records")))
    outputs = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in results}
    gpu = json.loads((ROOT / "benchmarks/results/gpu/embed.json").read_text(encoding="utf-8"))
    return {
        Path("docs/performance.md"): render(ROOT / "benchmarks" / "performance.md.j2", outputs=outputs, gpu=gpu),
        **{Path("docs/papers") / name: page for name, page in papers.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    for path, text in pages().items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()

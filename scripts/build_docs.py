"""Write the documentation pages that are made: docs/measures.md from the registry, docs/performance.md from
benchmarks/results/, docs/reproduction.md from the ledger and docs/reproduction/.

python scripts/build_docs.py
"""

import argparse
import json
from pathlib import Path

from clip_geometry.ledger import read_recorded
from clip_geometry.report.explained import measures_page
from clip_geometry.report.performance import performance_page
from clip_geometry.report.reproduction import reproduction_page

ROOT = Path(__file__).parents[1]


def pages() -> dict[Path, str]:
    results = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    outputs = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in results}
    return {
        Path("docs/measures.md"): measures_page(),
        Path("docs/performance.md"): performance_page(outputs),
        Path("docs/reproduction.md"): reproduction_page(read_recorded(ROOT / "docs" / "reproduction")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    for path, text in pages().items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()

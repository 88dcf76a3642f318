"""Write the documentation pages that are made from the registries: docs/measures.md.

python scripts/build_docs.py
"""

import argparse
from pathlib import Path

from clip_geometry.report.explained import measures_page

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    (DOCS / "measures.md").write_text(measures_page(), encoding="utf-8")
    print(DOCS / "measures.md")


if __name__ == "__main__":
    main()

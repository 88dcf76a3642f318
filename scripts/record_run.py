"""Keep the rows of a run that stand beside published numbers, in docs/reproduction/; then run build_docs.py.

python scripts/record_run.py runs/tyshchuk2023-zero_shot-0123456789 [--label vit-b-32]
"""

import argparse
from pathlib import Path

from clip_geometry.ledger import record_run
from clip_geometry.registry import InputError

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("--label", default="", help="keeps it apart from another recorded run of this config")
    arguments = parser.parse_args()
    try:
        print(record_run(arguments.run, ROOT / "docs" / "reproduction", label=arguments.label))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()

"""Keep the rows of a run that stand beside published numbers, in docs/reproduction/; then run build_docs.py. Of a
training (train_clip) all rows, in docs/training/.

python scripts/record_run.py runs/tyshchuk2023-zero_shot-0123456789 [--label vit-b-32]
python scripts/record_run.py runs/train_scenes_arms-0123456789 --training
"""

import argparse
from pathlib import Path

from clip_geometry.ledger import record_run, record_training
from clip_geometry.registry import InputError

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("--label", default="", help="keeps it apart from another recorded run of this config")
    parser.add_argument("--training", action="store_true", help="of a run of train_clip")
    given = parser.parse_args()
    record, folder = (record_training, "training") if given.training else (record_run, "reproduction")
    try:
        print(record(given.run, ROOT / "docs" / folder, label=given.label))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()

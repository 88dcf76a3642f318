"""Tables 3, 4 and 5 with one command and one embedding of CIFAR-100's 60,000 images; resumes after an interruption.

python scripts/tyshchuk2023/cifar100.py [--model open_clip:ViT-B-32-quickgelu/openai] [--pairs captions_val2014.json]
"""

import argparse
from pathlib import Path

from clip_geometry_experiments.run.runner import run

CONFIGS = Path(__file__).parents[2] / "configs" / "tyshchuk2023"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="default: the small untrained model of the configs")
    parser.add_argument("--pairs", help="pairs to fit maps on instead of COCO (default: scenes)")
    parser.add_argument("--solver", help="solver of the linear probe: sklearn (as published) or torch")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of runs and embeddings")
    options = parser.parse_args()
    # the authors kept the underscores of the class names
    model = {"model": options.model, "probe.prompt": "low-resolution photo of a {_}"} if options.model else {}
    pairs = {"pairs": options.pairs} if options.pairs else {}
    solver = {"solver": options.solver} if options.solver else {}
    changes = {"zero_shot": model | pairs, "generalization": model, "linear_probe": model | pairs | solver}
    for name, own in changes.items():
        print(run(CONFIGS / f"{name}.yaml", own, runs=options.runs))


if __name__ == "__main__":
    main()

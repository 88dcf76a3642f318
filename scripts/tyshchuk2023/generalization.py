"""Table 4 as library calls: maps from prompts to images fitted on half of the classes, scored on both halves.

python scripts/tyshchuk2023/generalization.py [--model scenes-clip/fresh] [--limit 2000]
"""

import argparse
from pathlib import Path

import clip_geometry as cg
from clip_geometry_experiments.tyshchuk2023.generalization import class_generalization

MAPS = {
    "CLIP": "normalize",
    "Procrustes": "normalize,procrustes[text-to-image]",
    "Procrustes, LAPACK": "normalize,procrustes(completion=lapack)[text-to-image]",
    "LSTSQ": "normalize,least_squares[text-to-image]",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="scenes-clip/fresh", help="the paper's: open_clip:ViT-B-32-quickgelu/openai")
    parser.add_argument("--data", default="cifar100", help="a labeled set with class names")
    parser.add_argument("--limit", type=int, default=2000, help="number of images per split")
    options = parser.parse_args()
    sets = {}
    for split in ("train", "test"):
        data = cg.data.resolve_dataset(options.data, split=split, prompt="low-resolution photo of a {}")
        folder = Path("runs/script-zero-shot") / split
        cg.embed(cg.encoders.resolve_encoder(options.model), cg.data.load_dataset(data), folder, limit=options.limit)
        sets[split] = cg.read_store(folder, limit=options.limit)
    train, test, prompts = sets["train"]["image"], sets["test"]["image"], sets["test"]["text"]
    for name, steps in MAPS.items():
        rows = (train.vectors, train.labels, test.vectors, test.labels, prompts.vectors)
        scores = class_generalization(cg.Pipeline(steps), *rows, known=0.5, seed=0)
        print(f"{name:20} known {100 * scores['known']:6.2f} %   new {100 * scores['new']:6.2f} %")


if __name__ == "__main__":
    main()

"""Table 3 as library calls: zero-shot CIFAR-100 before and after maps that were fitted on its training images.

python scripts/tyshchuk2023/zero_shot.py [--model scenes-clip/fresh] [--limit 2000]
"""

import argparse
from pathlib import Path

import clip_geometry as cg

MAPS = {
    "CLIP": "normalize",
    "Whitening-128": "normalize,whiten(128)[image]",
    "Procrustes": "normalize,procrustes[text-to-image]",
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
        data = cg.data.load_dataset(options.data, split=split, prompt="low-resolution photo of a {}")
        folder = Path("runs/script-zero-shot") / split
        cg.embed(cg.encoders.resolve_encoder(options.model), data, folder, limit=options.limit)
        sets[split] = cg.read_store(folder, limit=options.limit)
    pairs = cg.pair(sets["train"]["image"], sets["train"]["text"])  # each image with the prompt of its class
    train, test = ({name: each.vectors for name, each in split.items()} for split in sets.values())
    for name, steps in MAPS.items():
        moved = cg.Pipeline(steps).fit(train, pairs).transform(test)
        accuracy = cg.evaluate.zero_shot(moved["image"], sets["test"]["image"].labels, moved["text"])["top_1"]
        print(f"{name:14} {100 * accuracy:6.2f} %")


if __name__ == "__main__":
    main()

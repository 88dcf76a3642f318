"""The cone of an untrained model as library calls: initialize it, trace its rows, average their cosines.

python scripts/tyshchuk2023/initialization.py [--model scenes-clip/fresh] [--images scenes] [--limit 64] [--seed 0]
"""

import argparse

import torch

import clip_geometry as cg
from clip_geometry_experiments.tyshchuk2023.initialization.fresh_tower import trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="scenes-clip/fresh", help="open_clip:NAME/fresh, for instance")
    parser.add_argument("--images", default="scenes", help="a data set or a folder of images")
    parser.add_argument("--limit", type=int, default=64, help="number of images")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initialization")
    options = parser.parse_args()
    images = cg.data.load_dataset(options.images).image
    assert images is not None, f"{options.images} has no images"

    # the same weights twice, with the initial biases and without
    for zero_bias in (False, True):
        encoder = cg.encoders.load_encoder(options.model, seed=options.seed, zero_bias=zero_bias)
        pixels = torch.stack([encoder.preprocess(images.load(k)) for k in range(min(options.limit, len(images)))])
        # rows after every operation
        traced = trace(encoder, "image", pixels.split(32))
        print(f"{options.model}, {'zero biases' if zero_bias else 'as initialized'}")
        for operation, rows in zip(traced.operations, traced.rows, strict=True):
            cosine = float(cg.geometry.average_cosine(rows)) if rows.any() else float("nan")
            print(f"  block {operation.layer:2d}  {operation.name:24s} {cosine:6.3f}")


if __name__ == "__main__":
    main()

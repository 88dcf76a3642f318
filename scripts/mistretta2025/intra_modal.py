"""Intra-modal misalignment as library calls: the nearest image by an image, and by a text feature that matches it.

python scripts/mistretta2025/intra_modal.py [--model local-dir:shipped/scenes-trained] [--queries 64] [--steps 150]
"""

import argparse
import tempfile

import numpy as np

import clip_geometry as cg
from clip_geometry_experiments.studies.intra_modal.inversion import Inversion, invert


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="local-dir:shipped/scenes-trained", help="a model of open_clip")
    parser.add_argument("--queries", type=int, default=64, help="number of images that are inverted")
    parser.add_argument("--steps", type=int, default=150, help="steps of each inversion")
    options = parser.parse_args()
    data = cg.data.load_dataset("scenes", split="test", size=500)
    model = cg.encoders.resolve_encoder(options.model)
    with tempfile.TemporaryDirectory() as folder:
        cg.embed(model, data, folder)
        images = cg.read_store(folder)["image"]
    rows, labels = np.array(images.vectors), np.array(images.labels)
    index = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    inverted = invert(cg.encoders.load_encoder(model), rows[: options.queries], "text", Inversion(steps=options.steps))
    print(f"cosine of images with the texts found for them: {float(inverted.cosines.mean()):.3f}")
    for name, queries in (("images", rows[: options.queries]), ("texts found for them", inverted.rows.numpy())):
        cosines = queries / np.linalg.norm(queries, axis=1, keepdims=True) @ index.T
        cosines[np.arange(len(queries)), np.arange(len(queries))] = -1  # a query does not find itself
        same = labels[cosines.argmax(1)] == labels[: len(queries)]
        print(f"{name}: the nearest image has the same label for {same.mean():.0%} of {len(same)}")


if __name__ == "__main__":
    main()

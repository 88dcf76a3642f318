"""The embeddings of configs/tyshchuk2023/cifar10.yaml: 500 images of CIFAR-10 by OpenAI's CLIP, halved at random.

CLIP_GEOMETRY_DATA=… python scripts/tyshchuk2023/cifar10.py [--out cifar10-clip]
The texts are CLIP's rows for the names of LVIS (docs/data.md); "ship" is the mean of its three kinds of boats.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np

IN_LVIS = {"ship": ("boat", "cargo_ship", "cruise_ship"), "automobile": ("car_(automobile)",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("cifar10-clip"), help="folder for train/ and test/")
    out = parser.parse_args().out
    data = Path(os.environ["CLIP_GEOMETRY_DATA"]) / "embeddings"
    images, names = data / "cifar10-500-clip-vit-b32", data / "class-names-clip-vit-b32"
    row = {entry["name"]: k for k, entry in enumerate(json.loads((names / "lvis.json").read_text()))}
    lvis = np.load(names / "lvis.npy").astype(np.float32)
    lvis /= np.linalg.norm(lvis, axis=1, keepdims=True)
    classes = json.loads((images / "classes.json").read_text())
    text = np.stack([lvis[[row[name] for name in IN_LVIS.get(each, (each,))]].mean(0) for each in classes])
    image, labels = np.load(images / "image.npy"), np.load(images / "labels.npy")
    order = np.random.default_rng(0).permutation(len(image))
    for part, items in (("train", order[: len(order) // 2]), ("test", order[len(order) // 2 :])):
        folder = out / part
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in (("image", image[items]), ("labels", labels[items]), ("text", text)):
            np.save(folder / f"{name}.npy", rows)


if __name__ == "__main__":
    main()

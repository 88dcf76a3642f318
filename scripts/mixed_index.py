"""The index of the third part of configs/mixed_index.yaml: 500 images of CIFAR-10 and 1,203 object names, labeled.

CLIP_GEOMETRY_DATA=… python scripts/mixed_index.py [--out cifar10-names]
The rows are those of OpenAI's ViT-B/32 (docs/data.md). A name that is a class, a synonym or a kind of it has its label.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np

import clip_geometry as cg

NAMES = {
    "airplane": "airplane jet_plane fighter_jet seaplane",
    "automobile": "car_(automobile) convertible_(automobile) jeep limousine minivan race_car cab_(taxi)",
    "bird": "bird duck duckling eagle goose gull heron hummingbird ostrich owl parrot pigeon seabird cock crow dove "
    "falcon flamingo parakeet pelican penguin puffin vulture",
    "cat": "cat kitten",
    "deer": "deer elk",
    "dog": "dog puppy bulldog dalmatian pug-dog shepherd_dog",
    "frog": "frog",
    "horse": "horse pony foal",
    "ship": "boat cargo_ship cruise_ship passenger_ship ferry yacht river_boat",
    "truck": "truck garbage_truck tow_truck trailer_truck",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("cifar10-names"), help="folder for image and text.parquet")
    out = parser.parse_args().out
    data = Path(os.environ["CLIP_GEOMETRY_DATA"]) / "embeddings"
    images, texts = data / "cifar10-500-clip-vit-b32", data / "class-names-clip-vit-b32"
    classes = np.array(json.loads((images / "classes.json").read_text()), dtype=object)
    names = [entry["name"] for entry in json.loads((texts / "lvis.json").read_text())]
    class_of = {name: label for label, several in NAMES.items() for name in several.split()}
    labels = {
        "image": classes[np.load(images / "labels.npy")],
        "text": np.array([class_of.get(name) for name in names], dtype=object),  # None: of no class
    }
    rows = {"image": np.load(images / "image.npy"), "text": np.load(texts / "lvis.npy").astype(np.float32)}
    cg.export_parquet({name: cg.Embeddings(rows[name], name, labels=labels[name]) for name in rows}, out)


if __name__ == "__main__":
    main()

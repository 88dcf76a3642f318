"""Repairs of three mixed indices, as docs/mixed_index.md has them: their numbers, costs and the one to take.

CLIP_GEOMETRY_DATA=… python scripts/mixed_index.py [--json mixed_index.jsonl]     # a minute and a half on one CPU core
CLIP_GEOMETRY_DATA=… python scripts/mixed_index.py --out=cifar10-names     # only writes the third, for repairs.yaml

- coco500: 500 COCO pairs through OpenAI's ViT-B/16.
- scenes: 1,000 drawn scenes and their captions through the CLIP of the package, labeled with their classes.
- CIFAR-10 and names: 500 images and the names of 1,203 objects through OpenAI's ViT-B/32 (docs/data.md). A name that is
  a class, a synonym or a kind of it has its label; the others are relevant to nothing.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np

import clip_geometry as cg
from clip_geometry.search.repairs import repairs

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


def data() -> Path:
    return Path(os.environ["CLIP_GEOMETRY_DATA"]) / "embeddings"


def coco500():
    return {
        name: cg.Embeddings(np.load(data() / f"coco500-clip-vit-b16/{name}.npy"), name) for name in ("image", "text")
    }


def scenes():
    with tempfile.TemporaryDirectory() as folder:
        encoder = cg.encoders.resolve_encoder("local-dir:shipped/scenes-trained")
        store = Path(folder) / "store"
        cg.embed(encoder, cg.data.load_dataset("scenes", size=1000), store)
        return {
            name: cg.Embeddings(np.array(side.vectors), name, item_id=side.item_id, labels=side.labels)
            for name, side in cg.read_store(store).items()
        }


def cifar10_names():
    images, texts = data() / "cifar10-500-clip-vit-b32", data() / "class-names-clip-vit-b32"
    classes = np.array(json.loads((images / "classes.json").read_text()), dtype=object)
    names = [entry["name"] for entry in json.loads((texts / "lvis.json").read_text())]
    class_of = {name: label for label, several in NAMES.items() for name in several.split()}
    labels = np.array([class_of.get(name) for name in names], dtype=object)  # None: of no class
    return {
        "image": cg.Embeddings(np.load(images / "image.npy"), "image", labels=classes[np.load(images / "labels.npy")]),
        "text": cg.Embeddings(np.load(texts / "lvis.npy").astype(np.float32), "text", labels=labels),
    }


INDICES = {"coco500": coco500, "scenes": scenes, "CIFAR-10 and names": cifar10_names}
SHOWN = ("both", "mrr", "r_at_1", "hit_at_10", "own_share", "cross_r_at_1", "neighbors", "kept", "precision", "ndcg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the index of CIFAR-10 to this folder as Parquet, and stop")
    parser.add_argument("--json", type=Path, help="write a line for each index, repair and number to this file")
    options = parser.parse_args()
    if options.out is not None:
        cg.export(cifar10_names(), options.out, to="parquet")
        return
    lines = []
    for dataset, sets in INDICES.items():
        comparison = cg.search.compare_repairs(cg.search.MixedIndex.of(sets()), [*repairs])
        print(f"\n{dataset}: take {comparison.recommended} for both")
        ranked = sorted(comparison.candidates.items(), key=lambda item: -item[1].numbers["both"].value)
        for name, candidate in ranked:
            numbers = [f"{key} {candidate.numbers[key].value:.3f}" for key in SHOWN if key in candidate.numbers]
            costs = ", ".join(sorted({cost.of for cost in candidate.costs}))
            print(f"{name:24} {', '.join(numbers)}{f'; costs {costs}' if costs else ''}")
            lines += [
                {
                    "dataset": dataset,
                    "repair": name,
                    "number": key,
                    "value": number.value,
                    "standard_error": number.error,
                }
                for key, number in candidate.numbers.items()
            ]
    if options.json is not None:
        options.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()

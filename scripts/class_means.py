"""Least squares from class prompts to labeled images does not read the prompts: accuracy with the prompts, with prompts
of shuffled classes, and with noise, beside the nearest class mean and zero-shot.

CLIP_GEOMETRY_DATA=… python scripts/class_means.py [--json FILE]
The rows are 500 images of CIFAR-10 and object names of LVIS through OpenAI's ViT-B/32; half of the images to fit, half
to score.
"""

import argparse
import json
import os
import warnings
from pathlib import Path

import numpy as np

import clip_geometry as cg

# names of LVIS for the classes that it does not name so
NAMES = {"automobile": ["car_(automobile)"], "ship": ["boat", "cargo_ship", "cruise_ship"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5, help="number of random splits (seeds 0, 1, …)")
    parser.add_argument("--json", type=Path, help="file to write the means and standard deviations over splits to")
    options = parser.parse_args()
    data = Path(os.environ["CLIP_GEOMETRY_DATA"]) / "embeddings"
    images, names = data / "cifar10-500-clip-vit-b32", data / "class-names-clip-vit-b32"
    image, labels = np.load(images / "image.npy").astype(float), np.load(images / "labels.npy")
    row = {entry["name"]: k for k, entry in enumerate(json.loads((names / "lvis.json").read_text()))}
    classes = json.loads((images / "classes.json").read_text())
    prompts = [(row[name], k) for k, each in enumerate(classes) for name in NAMES.get(each, [each])]
    text = np.asarray(
        cg.evaluate.ensemble(np.load(names / "lvis.npy")[[r for r, _ in prompts]], [k for _, k in prompts])
    )
    by_name: dict[str, list[float]] = {}
    for seed in range(options.splits):
        for name, accuracy in accuracies(image, labels, text, seed).items():
            by_name.setdefault(name, []).append(accuracy)
    numbers = {name: {"mean": np.mean(each), "deviation": np.std(each, ddof=1)} for name, each in by_name.items()}
    for name, each in numbers.items():
        print(f"{name}: {each['mean']:.4f} ± {each['deviation']:.4f}")
    if options.json is not None:
        rows = [
            {"run": "class_means", "number": name, "splits": options.splits, **each} for name, each in numbers.items()
        ]
        options.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def accuracies(image: np.ndarray, labels: np.ndarray, text: np.ndarray, seed: int) -> dict[str, float]:
    """The accuracies of one split."""
    rng = np.random.default_rng(seed)
    fit, rest = np.split(rng.permutation(len(image)), 2)
    means = np.stack([image[fit][labels[fit] == k].mean(0) for k in range(len(text))])
    prompts = {
        "the prompts": text,
        "noise": rng.normal(size=text.shape),
        "shuffled prompts": text[rng.permutation(len(text))],
    }
    class_rows = {"zero-shot": text, "nearest class mean": means}
    for name, each in prompts.items():
        # ten prompts leave most of the map free
        with warnings.catch_warnings(action="ignore", category=cg.transforms.RankWarning):
            class_rows[f"least squares from {name}"] = (
                cg.transforms.LeastSquares().fit(each[labels[fit]], image[fit]).transform(each)
            )
    return {name: cg.evaluate.zero_shot(image[rest], labels[rest], rows)["top_1"] for name, rows in class_rows.items()}


if __name__ == "__main__":
    main()

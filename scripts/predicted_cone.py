"""Predicted and measured average cosines of fresh models, architecture by architecture.

python scripts/predicted_cone.py IMAGES CAPTIONS --json FILE     # a folder of images, a file with one caption a line
python scripts/predicted_cone.py IMAGES CAPTIONS --only resnet18 open_clip:ViT-B-32:text

Fresh models embed the first 16 images or captions with --seeds initializations; the prediction takes the statistics of
the same, and never runs a model on them. FILE is appended to, and what it has is skipped. The architectures are in
predicted_cone.json: the rules were worked out on those of `development`, mended where those of `looked_at` had shown
them wrong, and left alone after any of `held_out` was measured.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from PIL import Image

import clip_geometry as cg

ARCHITECTURES = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
SHOWN = 16  # images or captions that are embedded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("captions", type=Path)
    parser.add_argument("--only", nargs="+", help="architectures, by default all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    files = sorted(path for path in options.images.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    captions = options.captions.read_text(encoding="utf-8").splitlines()
    data = {
        "image": [Image.open(file).convert("RGB") for file in files[:SHOWN]],
        "text": captions[:SHOWN],
    }
    statistics: dict[str, Any] = {
        "image": cg.image_statistics(data["image"]),
        "text": cg.text_statistics(data["text"]),
    }
    names = options.only or [name for group in ARCHITECTURES.values() for name in group]
    done = set()
    if options.json and options.json.exists():
        done = {json.loads(line)["architecture"] for line in options.json.read_text(encoding="utf-8").splitlines()}
    for name in names:
        if name in done:
            continue
        row = compared(name, data, statistics, options.seeds)
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def compared(name: str, data: dict[str, Any], statistics: dict[str, Any], seeds: int) -> dict[str, Any]:
    """The row of one architecture."""
    modality = "text" if name.endswith(":text") else "image"
    architecture = name.removesuffix(":text").removesuffix(":image")
    group = next((group for group, names in ARCHITECTURES.items() if name in names), "other")
    row: dict[str, Any] = {"run": "predicted_cone", "architecture": name, "modality": modality, "group": group}
    started = time.monotonic()
    try:
        cone = cg.predicted_cone(architecture, statistics[modality], modality=modality)
        row |= {"predicted": round(cone.average_cosine, 4), "spread": round(cone.deviation, 4), "inputs": cone.inputs}
    except cg.InputError as error:
        row |= {"predicted": None, "note": str(error)}
    row["seconds"] = round(time.monotonic() - started, 1)
    values = [measured(architecture, modality, data[modality], seed) for seed in range(seeds)]
    return row | {"measured": round(fmean(values), 4), "deviation": round(stdev(values), 4), "seeds": seeds, "n": SHOWN}


def measured(architecture: str, modality: str, items: list[Any], seed: int) -> float:
    """The average cosine of the fresh model's embeddings."""
    known = architecture if ":" in architecture else f"timm:{architecture}"
    encoder: Any = cg.load_encoder(cg.resolve_encoder(f"{known}/fresh", seed=seed), device="cpu")
    rows = []
    for start in range(0, len(items), 8):
        batch = items[start : start + 8]
        if modality == "text":
            rows.append(encoder.text_features(encoder.tokenize(batch)))
        else:
            rows.append(encoder.image_features(torch.stack([encoder.preprocess(item) for item in batch])))
    return float(cg.average_cosine(torch.cat(rows)))


if __name__ == "__main__":
    main()

"""The core measures of known models, which `measure` and the page of measures show for comparison.

CLIP_GEOMETRY_DATA=… python scripts/known_models.py     # writes src/clip_geometry/display/known_models.yaml
"""

import argparse
import os
from pathlib import Path

import numpy as np
import yaml

import clip_geometry as cg

FILE = Path(__file__).parents[1] / "src/clip_geometry/display/known_models.yaml"
HEAD = "# Written by scripts/known_models.py from the folder of docs/data.md; rows are made unit length.\n"
GAP = "github.com/Weixin-Liang/Modality-Gap, Figure_1_Modality_Gap"
MODELS = {
    "CLIP ViT-B/16 on COCO": ("coco500-clip-vit-b16", f"{GAP}/features_clip.npy"),
    "untrained CLIP ViT-B/16 on COCO": ("coco500-clip-vit-b16-random-init", f"{GAP}/features_clip_random.npy"),
    "CLIP ViT-B/32 on CIFAR-10": (
        "cifar10-500-clip-vit-b32",
        "github.com/infinitiveaman/clip-cifar10-search, image_embeddings.pt",
    ),
}


def measured(folder: Path) -> list[dict]:
    """The numbers of the core of a folder of embeddings."""
    labels = folder / "labels.npy"
    if labels.exists():
        table = cg.measure(folder / "image.npy", labels=np.load(labels))
    else:
        table = cg.measure(folder)
    keys = ("value", "standard_error", "low", "high")
    return [
        {"measure": each.measure, "set": each.at["modality"], "n": each.n, "d": each.d}
        | {key: float(f"{getattr(each, key):.6g}") for key in keys if getattr(each, key, None) is not None}
        for each in table.records
        if each.value is not None
    ]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    folder = Path(os.environ["CLIP_GEOMETRY_DATA"], "embeddings")
    models = {title: {"source": source, "numbers": measured(folder / name)} for title, (name, source) in MODELS.items()}
    FILE.write_text(
        HEAD + yaml.safe_dump(models, sort_keys=False, default_flow_style=None, width=120), encoding="utf-8"
    )


if __name__ == "__main__":
    main()

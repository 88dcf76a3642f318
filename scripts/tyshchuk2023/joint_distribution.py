"""Figures 8-13 as library calls: cosines of images and texts, raw, after Procrustes, after least squares.

python scripts/tyshchuk2023/joint_distribution.py [FOLDER with image.npy and text.npy] [--out runs/script-joint]
"""

import argparse
from pathlib import Path

import clip_geometry as cg
from clip_geometry.report.gallery import draw_figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="embeddings (default: scenes by an untrained model)")
    parser.add_argument("--out", type=Path, default=Path("runs/script-joint"), help="folder of the figures")
    given = parser.parse_args()
    folder = given.folder or given.out / "scenes"
    if given.folder is None:
        cg.embed(cg.resolve_encoder("scenes-clip/fresh"), cg.load_dataset(cg.resolve_dataset("scenes")), folder)
    found = cg.read_any(folder)
    sets, pairs = {name: each.vectors for name, each in found.items()}, cg.pair(found["image"], found["text"])
    for name in ("normalize", "normalize,procrustes[text-to-image]", "normalize,least_squares[text-to-image]"):
        steps = cg.parse_pipeline(name)
        rows = cg.prepare(steps, sets, pairs).sets
        image, text = rows["image"], rows["text"]
        apart = cg.modality_separability(image, text)["logistic_regression.cross_validated"]
        print(f"{name:42} gap {cg.modality_gap(image, text):.4f}  probe accuracy {apart:.1%}")
        written = [str(step) for step in steps]
        draw_figures(
            image, text, pairs, folder=given.out / written[-1], model="", dataset=str(folder), pipeline=written
        )


if __name__ == "__main__":
    main()

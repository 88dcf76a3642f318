"""Figures 8-13 as library calls: cosines of images and texts, raw, after Procrustes, after least squares.

Maps are fitted on a random 80% of the pairs; numbers and figures are of the others.
python scripts/tyshchuk2023/joint_distribution.py [FOLDER with image.npy and text.npy] [--out runs/script-joint]
"""

import argparse
from pathlib import Path

import numpy as np

import clip_geometry as cg
from clip_geometry_experiments.report.figures import draw_figures, save_drawings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="embeddings (default: scenes by the shipped model)")
    parser.add_argument("--out", type=Path, default=Path("runs/script-joint"), help="folder of the figures")
    args = parser.parse_args()
    folder = args.folder or args.out / "scenes"
    if args.folder is None:
        encoder = cg.encoders.resolve_encoder("local-dir:shipped/scenes-trained")
        cg.embed(encoder, cg.data.load_dataset("scenes"), folder)
    sets = cg.read(folder)
    i, j = np.random.default_rng(0).permutation(np.transpose(cg.pair(sets["image"], sets["text"], distinct=True))).T
    paired, n = {"image": sets["image"].vectors[i], "text": sets["text"].vectors[j]}, len(i) * 4 // 5
    fit, held_out = ({name: x[part] for name, x in paired.items()} for part in (slice(n), slice(n, None)))
    for steps in ("normalize", "normalize,procrustes[text-to-image]", "normalize,least_squares[text-to-image]"):
        fitted = cg.Pipeline(steps).fit(fit)  # row k of both is a pair
        for part, rows in ((f"fitted on {n}", fit), (f"held out {len(i) - n}", held_out)):
            x, y = fitted.transform(rows).values()
            cosines = f"matching {cg.geometry.matching_cosine(x, y):.3f}  random {cg.geometry.random_cosine(x, y):.3f}"
            print(f"{steps:40} {part:14} {cosines}  gap {cg.geometry.modality_gap(x, y):.3f}")
        about = {"model": "", "dataset": f"{folder}, held-out pairs", "pipeline": steps.split(",")}
        save_drawings(draw_figures(x, y, 2 * (np.arange(len(x)),), about), args.out / steps.rpartition(",")[2])


if __name__ == "__main__":
    main()

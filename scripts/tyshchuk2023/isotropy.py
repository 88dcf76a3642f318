"""Table 1 as library calls: I1 and I2 as defined, as published, and over a random basis.

python scripts/tyshchuk2023/isotropy.py [FOLDER with image.npy and text.npy]
"""

import argparse
from pathlib import Path

import numpy as np

import clip_geometry as cg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="embeddings (default: scenes by the shipped model)")
    folder = parser.parse_args().folder
    if folder is None:
        folder = Path("runs/script-isotropy")
        encoder = cg.encoders.resolve_encoder("local-dir:shipped/scenes-trained")
        cg.embed(encoder, cg.data.load_dataset("scenes"), folder)
    sets = {modality: each.vectors for modality, each in cg.read(folder).items()}

    for steps in ("normalize", "normalize,center,normalize", "normalize,whiten(128),normalize"):
        print(f"\n{steps:33} {'I1':>8} {'I2':>8}")
        for modality, x in cg.Pipeline(steps).fit_transform(sets)[1].items():
            for convention in ("invariant", "canonical", "rows"):
                i1, i2 = cg.geometry.partition_isotropy(x, convention=convention)
                print(f"  {modality:6} {convention:24} {i1:8.4f} {i2:8.4f}")
            basis = np.linalg.qr(np.random.default_rng(0).normal(size=(x.shape[1],) * 2))[0]
            i1, i2 = cg.geometry.partition_over(x, basis)
            print(f"  {modality:6} {'a random basis':24} {i1:8.4f} {i2:8.4f}")
            print(f"  {modality:6} {'‖mean‖/√d':24} {'':8} {np.linalg.norm(x.mean(0)) / x.shape[1] ** 0.5:8.4f}")


if __name__ == "__main__":
    main()

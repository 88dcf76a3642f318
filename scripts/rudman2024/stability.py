"""Isotropy from few rows as library calls: draw from a known cloud, score each sample in three ways, print the bias.

python scripts/rudman2024/stability.py [--rows 64] [--draws 50] [--dimension 128] [--zeta 0.2] [--larger 2048]
"""

import argparse

import numpy as np

from clip_geometry import Moments
from clip_geometry.geometry import isoscore, isoscore_star


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64, help="rows per sample")
    parser.add_argument("--draws", type=int, default=50, help="number of samples")
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--zeta", type=float, default=0.2, help="zeta of IsoScore*")
    parser.add_argument("--larger", type=int, default=2048, help="rows behind C_0")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    variances = np.arange(1, args.dimension + 1) ** -0.5
    truth = (variances.sum() ** 2 / (variances**2).sum() - 1) / (args.dimension - 1)

    def draw(n):  # heavy tails: one row in ten is five times longer
        lengths = np.where(rng.random((n, 1)) < 0.1, 5.0, 1.0)
        return lengths * rng.normal(size=(n, args.dimension)) * np.sqrt(variances)

    scores = []
    for _ in range(args.draws):
        x, c_0 = draw(args.rows), Moments.of(draw(args.larger)).covariance
        scores.append([isoscore(x), isoscore(x, unbiased=True), isoscore_star(x, c_0, zeta=args.zeta)])
    print(f"true IsoScore {truth:.3f}; {args.draws} samples of {args.rows} rows in {args.dimension} dimensions")
    for name, error in zip(("plain", "unbiased", "IsoScore*"), np.transpose(scores) - truth, strict=True):
        print(f"{name:10} bias {error.mean():+.3f}  deviation {error.std():.3f}  RMSE {(error**2).mean() ** 0.5:.3f}")


if __name__ == "__main__":
    main()

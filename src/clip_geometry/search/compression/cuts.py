"""Cuts: which columns of a row are stored, or which projections of it."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from clip_geometry.transforms import PCA, Affine

SHARES = (2, 4, 8)  # a cut stores this fraction of the columns


class Cut(NamedTuple):
    """A way to store fewer columns.

    Args:
        name: "all", "first", "random", "pca" (one set), "pca[pooled]" or "pca[each]".
        columns: Number of stored columns.
    """

    name: str
    columns: int


def cuts(d: int, sets: int) -> Iterator[Cut]:
    """Yield all cuts of rows with d columns, for an index of one or more sets."""
    yield Cut("all", d)
    projections = ["pca"] if sets == 1 else ["pca[pooled]", "pca[each]"]
    for share in SHARES:
        if d // share >= 2:
            yield from (Cut(name, d // share) for name in ("first", "random", *projections))


class CutFit:
    """Fits all cuts on the same rows, whose principal axes are computed once.

    Args:
        rows: Modality → (n, d) unit rows to fit on.
        seed: Seed of the random columns and of the rotations.
    """

    def __init__(self, rows: Mapping[str, np.ndarray], seed: int):
        self.rows, self.seed = rows, seed
        self._axes: dict[str, np.ndarray] = {}

    def maps(self, cut: Cut) -> dict[str, Affine] | None:
        """Return modality of the items → the map of items and queries; None if the rows have too few dimensions.

        "first" and "random" scale rows to unit length afterwards. "pca" projects on the principal axes about the
        origin, which keeps inner products best, and rotates these projections at random, so that all columns have
        similar variance, as few bits per column need. With "pca[each]", each modality has its own axes.
        """
        d = next(iter(self.rows.values())).shape[1]
        rng = np.random.default_rng([self.seed, cut.columns])
        if not cut.name.startswith("pca"):
            chosen = rng.permutation(d)[: cut.columns] if cut.name == "random" else np.arange(cut.columns)
            return dict.fromkeys(self.rows, _affine(np.eye(d)[:, chosen], renormalise=True))
        rotation = np.linalg.qr(rng.normal(size=(cut.columns, cut.columns)))[0]
        maps = {}
        for name in self.rows:
            axes = self._axes_of(name if cut.name == "pca[each]" else "")
            if len(axes) < cut.columns:
                return None
            maps[name] = _affine(axes[: cut.columns].T @ rotation, renormalise=False)
        return maps

    def _axes_of(self, name: str) -> np.ndarray:
        """Return the principal axes of one modality, or of all rows ("")."""
        if name not in self._axes:
            rows = self.rows[name] if name else np.concatenate(list(self.rows.values()))
            self._axes[name] = PCA(center=False).fit(rows.astype(np.float64)).components_
        return self._axes[name]


def _affine(weights: np.ndarray, *, renormalise: bool) -> Affine:
    return Affine(weights, np.zeros(weights.shape[1]), renormalise=renormalise, unit_rows_in=True)

"""AnisoAlign: radii and spreads of one modality set to those of another in the principal plane blocks of both."""

import numpy as np

from clip_geometry.geometry._core.arguments import whole_number
from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Rows, register
from clip_geometry.transforms.elementary import Normalize
from clip_geometry.transforms.sets import OntoTransform, in_memory


@register
class AnisoAlign(OntoTransform):
    """Match radii in principal planes, and spreads beside them, to another modality (after Yu et al. 2026). Not affine.

    After arXiv:2605.07825: its global initialization and its final centroid calibration (section 4.4.1 and the end of
    4.4.2), which its ablation (Table 4) calls "global initialization only". Left out are the trained parts, whose
    networks the paper does not specify: the mixing of the planes, the phase prior and the bounded refinement.

    Q holds the k first eigenvectors of Σ_y + Σ_x, taken two by two as planes. A source row w, shifted by μ_x − μ_y,
    keeps its angle in each plane, and its radius there becomes the one at the same quantile of the target's radii. The
    rest of w − μ_y, outside the planes, is scaled column by column by σ_x/σ_y and added to that of μ_x. The result is
    made unit length, e′, and centered once more: (e′ − mean e′ + μ_x)/‖·‖.

    Rows have to be unit length before: write normalize first. Quantiles are interpolated between the fitting rows, and
    radii beyond them become the last. Equal sets of unit rows give the identity. The fitting sets have to be in memory.

    Args:
        k: Number of principal directions, even.

    Attributes:
        axes_: (k, d) Qᵀ.
        mean_, target_mean_: (d,) μ_y and μ_x.
        radii_, target_radii_: (n, k/2) and (m, k/2), ascending.
        scale_: (d,) σ_x/σ_y outside the planes.
        centroid_: (d,) mean e′.

    Raises:
        InputError: k is odd or larger than d.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import AnisoAlign, Normalize
        >>> rng = np.random.default_rng(0)
        >>> text, image = rng.normal(size=(200, 6)) + 1, rng.normal(size=(300, 6)) * [2, 2, 1, 1, 1, 1]
        >>> text, image = Normalize().transform(text), Normalize().transform(image)
        >>> moved = AnisoAlign(2).fit(text, image).transform(text)
        >>> [round(float(np.linalg.norm(x.mean(0) - image.mean(0))), 2) for x in (text, moved)]
        [0.68, 0.02]
    """

    name = "aniso_align"
    summary = "matches radii in principal planes, and spreads beside them, to another modality; needs no pairs"
    formula = "π(e′ − μ′ + μ_x), e′ = π(Q c(T(ρ), θ) + μ_x,V + D(w_V − μ_y,V))"
    axes_: np.ndarray
    mean_: np.ndarray
    target_mean_: np.ndarray
    radii_: np.ndarray
    target_radii_: np.ndarray
    scale_: np.ndarray
    centroid_: np.ndarray

    def __init__(self, k: int = 64):
        self.k = k

    def check(self) -> None:
        if whole_number(self.k, f"k of {self.name}") % 2:
            raise InputError(f"k of {self.name} = {self.k}; expected an even number, two directions for each plane")

    def _learn(self, source: Rows, target: Rows) -> None:
        source, target, k = in_memory(self, source), in_memory(self, target), int(self.k)
        if (d := source.shape[1]) < k:
            given = "n_features = 1" if d == 1 else f"{d} dimensions"
            raise InputError(f"{self.name}({k}) needs {k} dimensions, but the rows have {given}")
        self.mean_, self.target_mean_ = source.mean(0), target.mean(0)
        sides = (source - self.mean_) / np.sqrt(len(source)), (target - self.target_mean_) / np.sqrt(len(target))
        _, _, axes = np.linalg.svd(np.concatenate([*sides, np.zeros((k, d))]), full_matrices=False)
        self.axes_ = axes[:k]
        self.radii_ = np.sort(self._planes(source + (self.target_mean_ - self.mean_))[1], axis=0)
        self.target_radii_ = np.sort(self._planes(target)[1], axis=0)
        spreads = [np.sqrt(np.square(self._outside(side)).sum(0)) for side in sides]
        known = spreads[0] > np.sqrt(d) * np.finfo(np.float64).eps  # of rows of about unit length
        self.scale_ = np.where(known, spreads[1] / np.where(known, spreads[0], 1), 1.0)
        self.centroid_ = self._initialized(source).mean(0)

    def _planes(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates in the planes, (n, k/2, 2), and radii, (n, k/2)."""
        coordinates = (x @ self.axes_.T).reshape(len(x), -1, 2)
        return coordinates, np.linalg.norm(coordinates, axis=2)

    def _outside(self, x: np.ndarray) -> np.ndarray:
        return x - (x @ self.axes_.T) @ self.axes_

    def _initialized(self, x: np.ndarray) -> np.ndarray:
        """e′, the rows before they are centered on the sphere."""
        coordinates, radii = self._planes(x + (self.target_mean_ - self.mean_))
        levels, target_levels = ((np.arange(len(r)) + 0.5) / len(r) for r in (self.radii_, self.target_radii_))
        for plane in range(radii.shape[1]):
            quantiles = np.interp(radii[:, plane], self.radii_[:, plane], levels)
            wanted = np.interp(quantiles, target_levels, self.target_radii_[:, plane])
            old = np.where(radii[:, plane] > 0, radii[:, plane], 1)
            coordinates[:, plane] *= (wanted / old)[:, None]
        inside = coordinates.reshape(len(x), -1) @ self.axes_
        outside = self._outside(self.target_mean_[None]) + self.scale_ * self._outside(x - self.mean_)
        return Normalize().apply(inside + outside)

    def _map(self, x: np.ndarray) -> np.ndarray:
        return Normalize().apply(self._initialized(x) - self.centroid_ + self.target_mean_)

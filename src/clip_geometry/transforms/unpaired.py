"""Maps that are fitted on the rows of two modalities without pairs: isoclip, realign."""

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from clip_geometry.geometry.statistics.spectrum import triangle
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import flag, whole_number
from clip_geometry.transforms.base import NewFeatures, OntoTransform, Rows, as_blocks, in_torch, mean_of, register
from clip_geometry.transforms.elementary import Normalize


@register
class IsoCLIP(NewFeatures):
    """Keep the middle singular directions of the image and text projection heads (Magistri et al. 2026).

    Source: arXiv:2603.19862. Let A, (width, d), be the image head, which maps pooled features f to embeddings w = f A,
    B the text head, and A Bᵀ = U S Vᵀ the singular value decomposition. Image features are projected onto the columns
    of U, except the first `top` and the last `bottom` ones: w = f U Uᵀ A with the remaining columns. As a map of
    embeddings, this is w ↦ w A⁺ U Uᵀ A, which is exact for stored rows up to their length. For texts, V and B take the
    place of U and A. The transform is meant for search within a modality; the authors do not use it across modalities.

    Fit it on the heads and apply it to embeddings: `load_encoder(…).heads()` of an open_clip model returns the heads by
    modality, and `Pipeline("isoclip(150, 50)").fit(heads, origin="heads of MODEL")` fits them. It can also be fitted on
    embeddings, which would give the same map if features were white; they are not, so this is not the method of the
    paper. Directions that only one modality has are not counted.

    `fit_sets(sets)` returns one fitted transform for each of two sets. After `fit(x, y)`, `transform` maps rows of the
    first set.

    Args:
        top: Number of largest singular directions to remove; the default in the authors' code is 150.
        bottom: Number of smallest singular directions to remove; the default in the authors' code is 50.

    Attributes:
        maps_: (2, d, d) the maps of the two modalities, of rank r − top − bottom.
        singular_values_: (r,) the singular values in S that exceed max(width) · ε · S_1, where ε is the rounding unit
            of float64.
        set_: Index of the set that `transform` maps, 0 or 1.

    Raises:
        InputError: There are not exactly two modalities, or `top` and `bottom` leave no direction.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import IsoCLIP
        >>> image_head, text_head = np.diag([3.0, 2.0, 1.0]), np.eye(3)
        >>> IsoCLIP(1, 1).fit_sets([image_head, text_head])[0].transform(np.ones((1, 3))).round(9) + 0.0
        array([[0., 1., 0.]])
    """

    name = "isoclip"
    sets = ("rows", "rows of the other set")
    joint = True
    maps_: np.ndarray
    singular_values_: np.ndarray
    set_: int

    def __init__(self, top: int, bottom: int):
        self.top = top
        self.bottom = bottom

    def check(self) -> None:
        for key in ("top", "bottom"):
            whole_number(getattr(self, key), f"{key} of {self.name}", least=0)

    def fit_sets(self, sets: Sequence[Rows]) -> list[Self]:
        """Fit on the rows of two sets, (n, d) each, and return the transform of each set, in their order.

        Raises:
            InputError: There are not exactly two sets, or their dimensions differ.
        """
        if len(sets) != 2:
            raise InputError(f"{self.name} is fitted on two modalities, but got {len(sets)}")
        first = type(self)(**self.get_params()).fit(*sets)
        second = copy(first)
        second.set_ = 1
        second.fitted_on_ = len(sets[1])
        return [first, second]

    def _learn(self, *sets: Rows) -> None:
        if len({x.shape[1] for x in sets}) > 1:
            dimensions = " and ".join(str(x.shape[1]) for x in sets)
            raise InputError(f"{self.name} needs both sets in one space, but they have dimensions {dimensions}")
        a, b = (triangle(in_torch(x)).numpy() for x in sets)  # R of A = QR suffices, since Q cancels in A⁺ U Uᵀ A
        u, values, vt = np.linalg.svd(a @ b.T, full_matrices=False)
        rank = int((values > max(map(len, sets)) * np.finfo(np.float64).eps * values[0]).sum())
        kept = slice(int(self.top), rank - int(self.bottom))
        if kept.start >= kept.stop:
            samples = " (1 sample)" if min(map(len, sets)) == 1 else ""
            raise InputError(
                f"{self.name}({self.top}, {self.bottom}) leaves no direction: the sets have {rank} in common{samples}; "
                "expected a smaller top or bottom"
            )
        maps = []
        for r, q in ((a, u[:, kept]), (b, vt[kept].T)):
            inverse = np.linalg.pinv(r, rcond=max(r.shape) * np.finfo(np.float64).eps)
            maps.append((inverse @ q) @ (q.T @ r))
        self.maps_ = np.stack(maps)
        self.singular_values_ = values[:rank]
        self.set_ = 0

    def _affine(self) -> tuple[Any, Any, Any]:
        return 0.0, self.maps_[self.set_], 0.0


@register
class ReAlign(OntoTransform):
    """Map source rows to the mean and the total variance of target rows, without pairs (Yu et al. 2026).

    Source: arXiv:2602.07026. The first step is affine: w̃ = μ_x + s(w − μ_y) with s = √(tr Σ_x / tr Σ_y), where μ_y and
    Σ_y are the mean and the covariance (ddof 0) of the source, and μ_x and Σ_x those of the target. The second step
    corrects the mean, which changes when rows are scaled to unit length: the unit rows e′ = w̃/‖w̃‖, whose mean is μ′,
    become e′ − μ′ + μ_x, scaled to unit length again.

    The input rows must have unit length: put a normalize step first. If source and target are equal, the map is the
    identity. Streamed rows are read in blocks.

    Args:
        centroid: Whether to do the second step. Without it, the map is affine, as in the authors' code, and the means
            and total variances of the two sets agree exactly.

    Attributes:
        mean_, target_mean_: (d,) the means μ_y and μ_x.
        scale_: The factor s.
        centroid_: (d,) the mean μ′; μ_x without `centroid`.

    Raises:
        InputError: The source or the target has only one row or only equal rows, so s is undefined.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import ReAlign
        >>> text, image = np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[0.0, 7.0], [0.0, 3.0], [0.0, 5.0]])
        >>> ReAlign(centroid=False).fit(text, image).transform(text).round(3)
        array([[-1.633,  5.   ],
               [ 1.633,  5.   ]])
    """

    name = "realign"
    mean_: np.ndarray
    target_mean_: np.ndarray
    centroid_: np.ndarray
    scale_: float

    def __init__(self, centroid: bool = True):
        self.centroid = centroid

    def check(self) -> None:
        flag(self.centroid, f"centroid of {self.name}")

    def _learn(self, source: Rows, target: Rows) -> None:
        self.mean_, self.target_mean_ = mean_of(source), mean_of(target)
        source_variance = self._variance(source, self.mean_, "source")
        self.scale_ = float(np.sqrt(self._variance(target, self.target_mean_, "target") / source_variance))
        self.centroid_ = self.target_mean_
        if self.centroid:  # the mean of the mapped unit rows, which is then moved to that of the target
            sums = [Normalize().apply(self._aligned(block)).sum(0) for block in as_blocks(source)]
            self.centroid_ = np.sum(sums, axis=0) / len(source)

    def _variance(self, x: Rows, mean: np.ndarray, name: str) -> float:
        """Return the mean squared distance of the rows to their mean; raise InputError if it is only rounding error."""
        total, largest = 0.0, 0.0
        for block in as_blocks(x):
            total += float(np.square(block - mean).sum())
            largest = max(largest, float(np.abs(block).max()))
        if total <= len(x) * x.shape[1] * (4 * np.finfo(np.float64).eps * largest) ** 2:  # rounding error of the mean
            raise InputError(
                f"{self.name} compares the spread of both sets, but the {name} has none: its {len(x)} rows are equal"
            )
        return total / len(x)

    def _aligned(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean_) * self.scale_ + self.target_mean_

    def _affine(self) -> tuple[Any, Any, Any]:
        return super()._affine() if self.centroid else (self.mean_, self.scale_, self.target_mean_)

    def _map(self, x: np.ndarray) -> np.ndarray:
        aligned = self._aligned(x)
        if not self.centroid:
            return aligned
        return Normalize().apply(Normalize().apply(aligned) - self.centroid_ + self.target_mean_)

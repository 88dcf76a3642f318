"""Transforms of each row by its length or by means: normalize, center, scale, cluster_center."""

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags

from clip_geometry import memory
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import SEEDS, positive_number, whole_number
from clip_geometry.rows.matrix import BLOCK, blocks, in_one_piece, unit_array
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.transforms.base import Rows, Transform, mean_of, register


@register
class Normalize(Transform):
    """Scale each row to unit length: w ↦ w/‖w‖. Nothing is fitted.

    Raises:
        InputError: A row is zero.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import Normalize
        >>> Normalize().fit_transform(np.array([[3.0, 4.0], [0.0, 2.0]])).round(2)
        array([[0.6, 0.8],
               [0. , 1. ]])
    """

    name = "normalize"
    fits = False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def apply(self, x: Rows) -> Any:
        unit = unit_array(x)
        self._check_dimension(unit)
        return unit


@register
class Center(Transform):
    """Subtract the mean of the fitting set: w ↦ w − μ.

    Attributes:
        mean_: (d,) mean μ of the fitting set.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import Center
        >>> center = Center().fit(np.array([[1.0, 2.0], [3.0, 6.0]]))
        >>> center.transform(np.array([[2.0, 5.0]]))
        array([[0., 1.]])
    """

    name = "center"
    mean_: np.ndarray

    def _learn(self, x: Rows) -> None:
        self.mean_ = mean_of(x)

    def _affine(self) -> tuple[Any, Any, Any]:
        return self.mean_, 1.0, 0.0


@register
class Scale(Transform):
    """Multiply each row by a positive number: w ↦ factor · w. Nothing is fitted.

    Angles and relative distances do not change. Training on scaled rows gives other results, because the step size of
    the optimizer does not scale with the rows.

    Args:
        factor: The positive number to multiply by.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import Scale
        >>> Scale(2.0).fit_transform(np.array([[1.0, 3.0]]))
        array([[2., 6.]])
    """

    name = "scale"
    fits = False

    def __init__(self, factor: float):
        self.factor = factor

    def check(self) -> None:
        positive_number(self.factor, f"factor of {self.name}")

    def _affine(self) -> tuple[Any, Any, Any]:
        return 0.0, float(self.factor), 0.0


@register
class ClusterCenter(Transform):
    """Subtract from each row the mean of its cluster, the nearest of k cluster means. Not an affine map.

    The clusters come from scikit-learn's KMeans with ten starts, run to convergence (tol=0), so that each center is the
    mean of its cluster (Cai et al. 2021). The fitting set must fit in memory.

    Args:
        k: Number of clusters. Fewer than k distinct rows raise an InputError.
        seed: Seed of the ten starts.

    Attributes:
        cluster_centers_: (k, d) the cluster means.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import ClusterCenter
        >>> x = np.array([[0.0, 0.0], [0.0, 2.0], [9.0, 9.0], [9.0, 11.0]])
        >>> ClusterCenter(2).fit_transform(x)
        array([[ 0., -1.],
               [ 0.,  1.],
               [ 0., -1.],
               [ 0.,  1.]])
    """

    name = "cluster_center"
    cluster_centers_: np.ndarray

    def __init__(self, k: int, seed: int = 0):
        self.k = k
        self.seed = seed

    def check(self) -> None:
        whole_number(self.k, f"k of {self.name}")
        whole_number(self.seed, f"seed of {self.name}", least=0, most=SEEDS)

    def _learn(self, x: Rows) -> None:
        """Fit the cluster means by k-means on the rows minus their mean."""
        from sklearn.cluster import KMeans

        n, d = x.shape
        if isinstance(x, StreamedRows):
            if not memory.can_be_held(x.shape):
                raise InputError(
                    f"{self.name} needs its {n} rows in memory, but they are streamed; fit it on at most "
                    f"{memory.MOST_HELD // (8 * d)} rows"
                )
            x = in_one_piece(blocks(x), n).numpy()
        distinct = 1 if n == 1 else min(n, self.k)
        mean = x.mean(0)  # far from the origin, squared distances would cancel
        if distinct == self.k:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # too few distinct rows raise an error below
                clusters: Any = KMeans(int(self.k), n_init=10, tol=0, max_iter=1000, random_state=int(self.seed))  # pyright: ignore
                clusters.fit(x - mean)
            distinct = len(np.unique(clusters.labels_))
            self.cluster_centers_ = mean + clusters.cluster_centers_
        if distinct < self.k:
            rows = "1 sample" if n == 1 else f"{n} rows, {distinct} of them different"
            raise InputError(f"{self.name}({self.k}) needs {self.k} different rows, but it is fitted on {rows}")

    def _map(self, x: np.ndarray) -> np.ndarray:
        return x - self.cluster_centers_[self.nearest(x)]

    def nearest(self, x: np.ndarray) -> np.ndarray:
        """Return the index of each row's cluster, (n,)."""
        from scipy.spatial.distance import cdist

        blocks = (x[start : start + BLOCK] for start in range(0, len(x), BLOCK))
        return np.concatenate([cdist(block, self.cluster_centers_, "sqeuclidean").argmin(1) for block in blocks])

"""Local intrinsic dimension of large sets: neighborhoods of some rows, looked for among all of them.

Which rows the neighbors are looked for among decides the number: among a tenth of the rows the k-th nearest lies
farther away, and the neighborhood is another. Whose neighborhoods are averaged decides only how sure it is.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from clip_geometry.geometry.dimension import Estimator, NeighborMetric, different, inverse_dimensions, slope_on_ratios
from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.geometry.statistics import Neighbors
from clip_geometry.registry import InputError

DISCARD = 0.1  # of the ratios of two_nn, the largest


class DimensionEstimate(NamedTuple):
    value: float
    standard_error: float


class Neighborhoods(NamedTuple):
    """log(r_k/r_j) of j = 1 … k for each row that was asked about, (m, k); among: of how many different rows."""

    logs: Tensor
    among: int

    def dimension(self, estimator: Estimator) -> DimensionEstimate:
        """local_intrinsic_dimension by this estimator over these rows, and its standard error.

        The error is that of a mean of m independent rows (by the delta method for "mackay", the inverse of a mean):
        what asking about other rows changes. It says nothing of other rows to look among. Raises InputError for
        neighbors that are all equally far.
        """
        inverses = inverse_dimensions(self.logs, estimator)
        m, mean = len(inverses), inverses.mean()
        if (mean if estimator == "mackay" else inverses.amin()) == 0:
            whose = "every row" if estimator == "mackay" else "some row"
            raise InputError(f"the nearest rows of {whose} are equally far from it, a dimension without bound")
        if estimator == "mackay":
            return DimensionEstimate(float(1 / mean), float(inverses.std() / mean.square() / m**0.5))
        return DimensionEstimate(float((1 / inverses).mean()), float((1 / inverses).std() / m**0.5))

    def two_nn(self) -> float:
        """`two_nn` of these rows among all, from the two nearest of each. Raises InputError as it does."""
        logs = (self.logs[:, 0] - self.logs[:, 1]).sort().values
        kept = min(int(len(logs) * (1 - DISCARD)), len(logs) - 1)
        if kept < 1 or logs[kept - 1] == 0:
            raise InputError("the two nearest rows are equally far from every row that is kept, or none is kept")
        return float(slope_on_ratios(logs[:kept], len(logs)))


def neighborhoods(
    x: np.ndarray | Tensor, *, k: int = 100, metric: NeighborMetric = "euclidean", of: int | None = None, seed: int = 0
) -> Neighborhoods:
    """The neighborhoods of `of` rows drawn at random (None: of all rows) among all rows of x.

    With all rows `dimension` is local_intrinsic_dimension, which says what k and metric are; duplicates are dropped as
    there. x: (n, d), at least k + 1 different rows. Exact, blockwise, O(of · n · d). Raises InputError otherwise.
    """
    neighbors = Neighbors(torch.as_tensor(x))
    k = neighbors.checked(k, least_d=2 if metric == "cosine" else 1, least_k=2)
    rows = different(neighbors, metric, least=k + 1).rows
    if of is None or of >= len(rows):
        distances, _ = nearest(rows, k)
    else:
        chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:of].sort().values
        distances, _ = nearest(rows[chosen], k + 1, y=rows)
        distances = distances[:, 1:]  # without the row itself, the only one at no distance
    return Neighborhoods((distances[:, -1:] / distances).log(), len(rows))

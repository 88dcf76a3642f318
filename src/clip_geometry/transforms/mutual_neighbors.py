"""Mutual-nearest-neighbor correction: each row moved by the differences of nearby pairs of mutual neighbors."""

import numpy as np

from clip_geometry.geometry._core.arguments import positive_number, whole_number
from clip_geometry.geometry._core.neighbors import nearest
from clip_geometry.geometry._core.rows import BLOCK
from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Rows, in_torch, register
from clip_geometry.transforms.sets import OntoTransform, in_memory


@register
class MutualNeighbors(OntoTransform):
    """Move source rows by the differences of mutual nearest neighbors around them (Haghverdi et al. 2018). Not affine.

    A source row and a target row are mutual neighbors if each is among the k nearest of the other set. v_l is the mean
    of target − source over the pairs of source row l. A row w becomes

        w + Σ_l K(w, l) v_l / Σ_l K(w, l),  K(w, l) = exp(−‖w − l‖²/sigma) / Σ_l′ exp(−‖l − l′‖²/sigma),

    with sums over the source rows l that have pairs. New rows take the same formula. It has neither the correction of
    variances of mnnCorrect nor its removal of principal directions. sigma = 0.1, as there, is for unit rows: write
    normalize first. With k = 1, equal sets of different rows give the identity. The fitting sets have to be in memory.

    Args:
        k: Number of neighbors; at most all rows of a set are taken.
        sigma: Of the kernel, in squared units of the rows.

    Attributes:
        rows_: (p, d) source rows with pairs.
        vectors_: (p, d) their v_l.
        log_density_: (p,) log Σ_l′ exp(−‖l − l′‖²/sigma).

    Example:
        >>> import numpy as np
        >>> from clip_geometry import MutualNeighbors
        >>> image = np.array([[0.0, 0.0], [2.0, 0.0]])
        >>> MutualNeighbors(1).fit(image + [0.5, 0.0], image).transform(np.array([[1.0, 1.0]]))
        array([[0.5, 1. ]])
    """

    name = "mutual_neighbors"
    summary = "moves each row of one modality by the differences of mutual nearest neighbors around it; needs no pairs"
    formula = "w + Σ K(w, l) v_l / Σ K(w, l)"
    rows_: np.ndarray
    vectors_: np.ndarray
    log_density_: np.ndarray

    def __init__(self, k: int = 20, sigma: float = 0.1):
        self.k = k
        self.sigma = sigma

    def check(self) -> None:
        whole_number(self.k, f"k of {self.name}")
        positive_number(self.sigma, f"sigma of {self.name}")

    def _learn(self, source: Rows, target: Rows) -> None:
        source, target = in_memory(self, source), in_memory(self, target)
        pairs = np.zeros((len(source), len(target)), dtype=np.uint8)  # who is near whom, counted from both sides
        for near, x, y in ((pairs, source, target), (pairs.T, target, source)):
            _, indices = nearest(in_torch(x), min(int(self.k), len(y)), y=in_torch(y))
            np.add.at(near, (np.arange(len(x))[:, None], indices.numpy()), 1)
        i, j = np.nonzero(pairs == 2)
        if len(i) == 0:
            raise InputError(f"{self.name}({self.k}) found no mutual neighbors; take a larger k")
        chosen, starts, counts = np.unique(i, return_index=True, return_counts=True)
        self.rows_ = source[chosen]
        self.vectors_ = np.add.reduceat(target[j] - source[i], starts) / counts[:, None]
        self.log_density_ = np.concatenate([_log_sum(part) for part in self._exponents(self.rows_)])[:, 0]

    def _map(self, x: np.ndarray) -> np.ndarray:
        moved = []
        for part in self._exponents(x):
            logits = part - self.log_density_
            moved.append(np.exp(logits - _log_sum(logits)) @ self.vectors_)
        return x + np.concatenate(moved)

    def _exponents(self, x: np.ndarray):
        """Yield −‖w − l‖²/sigma of blocks of rows, (b, p)."""
        from scipy.spatial.distance import cdist

        for start in range(0, len(x), BLOCK):
            yield -cdist(x[start : start + BLOCK], self.rows_, "sqeuclidean") / float(self.sigma)


def _log_sum(x: np.ndarray) -> np.ndarray:
    largest = x.max(1, keepdims=True)
    return largest + np.log(np.exp(x - largest).sum(1, keepdims=True))

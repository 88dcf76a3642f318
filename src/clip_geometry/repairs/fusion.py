"""The baseline that every search engine has: one index for each modality, and their rankings fused."""

import numpy as np

from clip_geometry.geometry._core.arguments import positive_number
from clip_geometry.repairs.base import Listwise, Sets, register
from clip_geometry.transforms import Normalize

TIE = 1e-6  # of a rank: keeps equal ranks apart, and less than the next rank


class ReciprocalRank(Listwise):
    """Reciprocal-rank fusion of one index for each modality: 1/(constant + rank), ranks by cosine from 1 on.

    Each item is in one index only, so the fused list takes one item of each modality in turn. Equal ranks of several
    modalities are ordered by modality: the query's own last, the others by name, so that an item of another modality
    that is first in its index is first of all. With `own_first` the query's own is first. This order is written into
    the scores, by 10⁻⁶ of a rank. Equal cosines within a modality are ranked by the number of the item. The query
    itself takes no rank.

    Args:
        constant: Added to the rank; 60 in the paper. With an item in one index only, it changes no order.
        own_first: Whether items of the query's own modality come first among equal ranks.
    """

    name = "rrf"

    def __init__(self, constant: float = 60.0, *, own_first: bool = False):
        self.constant, self.own_first = positive_number(constant, "constant"), own_first

    def mixed(self, query: str, q: np.ndarray, items: Sets, itself: np.ndarray | None = None) -> dict[str, np.ndarray]:
        q, found = Normalize().apply(q), {}
        order = sorted(items, key=lambda item: ((item == query) != self.own_first, item))
        for item, x in items.items():
            cosines = q @ Normalize().apply(x).T
            if item == query and itself is not None:
                cosines[np.arange(len(q)), itself] = -np.inf
            ranks = np.empty(cosines.shape)
            best = np.argsort(-cosines, axis=1, kind="stable")
            np.put_along_axis(ranks, best, np.arange(1.0, len(x) + 1)[None], axis=1)
            found[item] = 1 / (self.constant + ranks + TIE * order.index(item))
            found[item][np.isneginf(cosines)] = -np.inf
        return found


register(
    "rrf",
    ReciprocalRank,
    "one index for each modality, fused by rank, other modalities than the query's first",
    "1/(60 + rank in its modality)",
    "Cormack et al. 2009",
    baseline=True,
)
register(
    "rrf[own-first]",
    ReciprocalRank,
    "one index for each modality, fused by rank, the query's modality first",
    "1/(60 + rank in its modality)",
    "Cormack et al. 2009",
    baseline=True,
    own_first=True,
)

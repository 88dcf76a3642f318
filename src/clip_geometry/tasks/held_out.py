"""Which examples are held out, so that no item is on both sides."""

from collections.abc import Hashable, Iterable, Sequence

import numpy as np


def held_out(examples: Sequence[Iterable[Hashable]], share: float, seed: int) -> tuple[np.ndarray, int]:
    """((n,) True for about a `share` of the examples, how many the smallest group has).

    examples: the items of each. Those that share an item, directly or through others, form a group, which stays
    together; groups are drawn as long as they fit into the share, so that there may be none.
    """
    groups, held = _groups(examples), np.zeros(len(examples), bool)
    sizes = np.bincount(groups)
    for group in np.random.default_rng(seed).permutation(len(sizes)):
        if held.sum() + sizes[group] <= share * len(groups):
            held |= groups == group
    return held, int(sizes.min())


def _groups(examples: Sequence[Iterable[Hashable]]) -> np.ndarray:
    """(n,) numbers of the groups of examples that share items."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    place: dict[Hashable, int] = {}
    links = [(row, place.setdefault(item, len(place))) for row, items in enumerate(examples) for item in items]
    row, item = np.array(links).T
    n, m = len(examples), len(place)
    graph = coo_array((np.ones(len(row)), (row, n + item)), shape=(n + m, n + m))
    groups = connected_components(graph, directed=False)[1][:n]
    return np.unique(groups, return_inverse=True)[1]

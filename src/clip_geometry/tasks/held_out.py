"""Splitting off held-out examples so that no item is in both parts."""

from collections.abc import Hashable, Iterable, Sequence

import numpy as np


def held_out(examples: Sequence[Iterable[Hashable]], share: float, seed: int) -> tuple[np.ndarray, int]:
    """Choose about a `share` of the examples to hold out.

    Examples that share an item, directly or through others, form a group that stays together; groups are drawn as long
    as they fit into the share, so none may be held out.

    Args:
        examples: The items of each.
        share: Of the examples to hold out.
        seed: Of the draw.

    Returns:
        (n,) True for held-out examples, and the size of the smallest group.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    place: dict[Hashable, int] = {}
    links = [(row, place.setdefault(item, len(place))) for row, items in enumerate(examples) for item in items]
    row, item = np.array(links).T
    n, m = len(examples), len(place)
    graph = coo_array((np.ones(len(row)), (row, n + item)), shape=(n + m, n + m))
    groups = np.unique(connected_components(graph, directed=False)[1][:n], return_inverse=True)[1]
    held, sizes = np.zeros(n, bool), np.bincount(groups)
    for group in np.random.default_rng(seed).permutation(len(sizes)):
        if held.sum() + sizes[group] <= share * n:
            held |= groups == group
    return held, int(sizes.min())

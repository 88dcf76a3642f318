"""What a repair costs within a modality: whether the nearest rows of a row are still its nearest afterwards."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.evaluators.top import top
from clip_geometry.geometry._core.arguments import Integer, whole_number
from clip_geometry.geometry._core.kinds import as_given, in_kind
from clip_geometry.geometry._core.rows import Rows
from clip_geometry.geometry.agreement.similarity import shared_neighbors
from clip_geometry.registry import InputError, shown


@in_kind
def neighborhood_preservation(before: Rows, after: Rows, *, k: Integer = 10) -> Float[Tensor, ""]:
    """Share of the k nearest neighbors by cosine that rows of one modality keep under a map.

    This is `mutual_knn` of the rows before and after: 1 where the map changes no neighborhood, as every rotation, and
    k/(n − 1) on average where it keeps nothing. Read it beside `two_sided_retrieval`: what a repair of a mixed index
    costs the search within one modality.

    Args:
        before: (n, d) rows, n ≥ k + 1, d ≥ 2.
        after: (n, e) the same rows after the map, e ≥ 2.
        k: Number of neighbors.

    Returns:
        The share, in [0, 1], a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: For zero rows, sets of unequal length, too few rows or columns, rows that are all equal, and k < 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> cg.neighborhood_preservation(x, -2 * x), round(cg.neighborhood_preservation(x, x - 1), 2)
        (1.0, 0.71)
    """
    return shared_neighbors(before, after, k, ("before", "after"))


def preserved_neighbors(before: Any, after: Any, *, k: Integer = 10) -> Any:
    """Share of the k best items of its own modality that each query keeps, from scores before and after.

    For repairs that change scores rather than rows. The queries are the items themselves, in their order, and no item
    is its own neighbor. Equal scores are taken in the order of the items.

    Args:
        before: (n, n) scores of all items for all items of one modality, higher is better; or an iterable of (b, n)
            blocks, each with the next queries.
        after: The same after the repair, in blocks of the same queries.
        k: Number of neighbors, k < n.

    Returns:
        (n,) shares, in [0, 1]; their mean is the neighborhood preservation.

    Raises:
        InputError: For scores of other shapes or with NaN, and k out of range.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> before = np.array([[1, 0.9, 0.5, 0.1], [0.9, 1, 0.4, 0.3], [0.5, 0.4, 1, 0.8], [0.1, 0.3, 0.8, 1]])
        >>> after = before - np.array([0, 0.6, 0, 0])
        >>> cg.preserved_neighbors(before, after, k=1)
        array([0., 1., 1., 1.])
    """
    one, two = _best(before, "before", k), _best(after, "after", k)
    if one.shape != two.shape:
        raise InputError(f"scores before are of {len(one)} items and after of {len(two)}; expected the same items")
    both = torch.cat([one, two.to(one.device)], dim=1).sort(dim=1).values  # an item of both lists is there twice
    shares = (both[:, 1:] == both[:, :-1]).double().sum(1) / one.shape[1]
    return as_given(shares, [each for each in (before, after) if isinstance(each, Tensor)])


def _best(scores: Any, name: str, k: Integer) -> Int[Tensor, "n k"]:
    found: list[Tensor] = []
    start = n = 0
    for block in _blocks(scores, name):
        rows = torch.arange(start, start + len(block), device=block.device)
        start, n = start + len(block), block.shape[1]
        places = whole_number(k, "k", most=n - 1, of=f", below the {n} items")

        def choose(some: Tensor, width: int, block: Tensor = block) -> tuple[Tensor, Tensor]:
            return block[some].topk(width, dim=1)

        # the number of an item in place of its grade: of equal scores the lowest number comes first
        found.append(top(choose, lambda some, columns: columns, rows, n, places).grades.long())
        if start > n:
            break
    if not found or start != n:
        raise InputError(f"scores {name} are of {start} queries and {n} items; expected as many")
    return torch.cat(found)


def _blocks(scores: Any, name: str) -> Iterator[Float[Tensor, "b n"]]:
    whole = hasattr(scores, "ndim") or not isinstance(scores, Iterable)
    for block in [scores] if whole else scores:
        try:
            each = torch.as_tensor(block).detach()
        except (TypeError, ValueError, RuntimeError):
            each = torch.zeros(0)
        if each.ndim != 2 or not each.is_floating_point() or each.isnan().any():
            raise InputError(f"scores {name} are {shown(block)}; expected a matrix of floats without NaN, or blocks")
        yield each

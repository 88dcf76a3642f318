"""The distance of translations (Tyshchuk et al. 2023, Table 6)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import single_is_exact, squared_distances
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import block_number, flag
from clip_geometry.rows.matrix import Rows, as_aligned, blocks, mean_row


@in_kind
@torch.no_grad()
def language_distance(source: Rows, target: Rows, *, squared: bool = False, block_size: int = 1024) -> dict[str, float]:
    """Compute mean Euclidean distances of the same captions in two languages, rows as given.

    Exact, in blocks, O(n²d); products of float16 and float32 rows are float32, for an error of 1e-6.
    Source: Tyshchuk et al. 2023, Table 6; the notebook behind its numbers squares the distances and counts the pairs
    i = j among the global ones too, which changes these by less than 1/n.

    Args:
        source: (n, d) rows, n ≥ 2.
        target: (n, d) rows, aligned with the source.
        squared: Whether to take the mean of the squared distances.
        block_size: Rows and columns of distances computed at a time.

    Returns:
        pair_distance = mean_i ‖x_i − y_i‖; global_distance = mean_{i≠j} ‖x_i − y_j‖; ratio = pair_distance /
        global_distance ≥ 0, where 0 means that translations coincide, 1 that a caption is no nearer to its translation
        than to any other; within_source and within_target = mean_{i<j} in one language. If the global distance exceeds
        both within, the languages are apart.

    Raises:
        InputError: For sets of unequal length, and if all rows coincide (0/0).

    Example:
        >>> import numpy as np
        >>> from clip_geometry_experiments.kit.language_distance import language_distance
        >>> rng = np.random.default_rng(0)
        >>> english = rng.normal(size=(6, 4))
        >>> german = english + 0.3 * rng.normal(size=(6, 4))
        >>> {name: round(value, 2) for name, value in language_distance(english, german).items()}
        {'pair_distance': 0.51, 'global_distance': 2.24, 'ratio': 0.23, 'within_source': 2.28, 'within_target': 2.21}
    """
    source, target = as_aligned(source, target, ("source", "target"))
    squared, block_size = flag(squared, "squared"), block_number(block_size)
    double = torch.float64 in (source.dtype, target.dtype) or not single_is_exact(source.device)
    kind, power = torch.float64 if double else torch.float32, 2 if squared else 1
    # scaled to entries of at most 1 by a power of two, which changes no digit
    largest = max(float(rows.abs().max()) for rows in (source, target))
    unit = 2.0 ** min(max(math.frexp(largest)[1], -126), 126)
    x, y = source.to(kind) / unit, target.to(kind) / unit
    pairs = sum(float((a - b).norm(dim=1).pow(power).sum()) for a, b in zip(blocks(x), blocks(y), strict=True)) / len(x)
    across, unit = _mean_distance(x, y, block_size, squared), unit**power
    if across == 0:
        raise InputError(f"all {len(x)} rows of source and target coincide; the ratio of their distances is 0/0")
    return {
        "pair_distance": pairs * unit,
        "global_distance": across * unit,
        "ratio": pairs / across,
        "within_source": _mean_distance(x, None, block_size, squared) * unit,
        "within_target": _mean_distance(y, None, block_size, squared) * unit,
    }


def _mean_distance(x: Float[Tensor, "n d"], y: Float[Tensor, "n d"] | None, block_size: int, squared: bool) -> float:
    """Return the mean of ‖x_i − y_j‖ over i ≠ j; without y, of ‖x_i − x_j‖, each pair once."""
    centre = mean_row(x if y is None else torch.cat([x, y])).to(x.dtype)
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    for i, a in enumerate(x.split(block_size)):
        for j, b in enumerate((x if y is None else y).split(block_size)):
            if y is not None or j >= i:
                squares = squared_distances(a, b, centre=centre)
                distances = squares if squared else squares.sqrt()
                if i == j:
                    distances.fill_diagonal_(0)
                total += distances.sum() * (2 if y is None and j > i else 1)
    return float(total) / (len(x) * (len(x) - 1))

"""How far translations lie apart, against the size of the cloud (Tyshchuk et al. 2023, Table 6)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.evaluators.base import add_evaluator
from clip_geometry.geometry.distances import single_is_exact, squared_distances
from clip_geometry.geometry.measure import Measure
from clip_geometry.geometry.rows import Rows, as_aligned, blocks, mean_row
from clip_geometry.registry import InputError


@torch.no_grad()
def language_distance(source: Rows, target: Rows, *, block_size: int = 1024) -> dict[str, float]:
    """Mean Euclidean distances of the same captions in two languages, rows as given.

    pair_distance = mean_i ‖x_i − y_i‖; global_distance = mean_{i≠j} ‖x_i − y_j‖, over all cross pairs that do not
    correspond; ratio = pair_distance/global_distance; within_source and within_target = mean_{i<j} of one language.

    source, target: (n, d) aligned rows, n ≥ 2. ratio ≥ 0: 0 where translations coincide, 1 where a caption is no
    nearer to its translation than to any other; lower is better aligned. A global distance above both within means
    that the languages lie apart. Exact in blocks, O(n²d); products of float16 and float32 rows in float32, for an
    error of 1e-6. Raises InputError for unequal sets, and where all rows coincide (0/0).
    Source: Tyshchuk et al. 2023, Table 6, which calls the second "mean global distance" and does not say whether it
    runs within or across the languages; ours is the one across.
    """
    source, target = as_aligned(source, target, ("source", "target"))
    x, y, unit = _comparable(source, target)
    pairs = sum(float((a - b).norm(dim=1).sum()) for a, b in zip(blocks(x), blocks(y), strict=True)) / len(x)
    across = _mean_distance(x, y, block_size)
    if across == 0:
        raise InputError(f"all {len(x)} rows of source and target coincide; the ratio of their distances is 0/0")
    return {
        "pair_distance": pairs * unit,
        "global_distance": across * unit,
        "ratio": pairs / across,
        "within_source": _mean_distance(x, None, block_size) * unit,
        "within_target": _mean_distance(y, None, block_size) * unit,
    }


def _comparable(
    source: Float[Tensor, "n d"], target: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"], float]:
    """Both in the precision of the products and scaled to entries of at most 1; and the unit they are in."""
    double = torch.float64 in (source.dtype, target.dtype) or not single_is_exact(source.device)
    largest = max(float(rows.abs().max()) for rows in (source, target))
    unit = 2.0 ** min(max(math.frexp(largest)[1], -126), 126)  # a power of two, which changes no digit
    kind = torch.float64 if double else torch.float32
    return source.to(kind) / unit, target.to(kind) / unit, unit


def _mean_distance(x: Float[Tensor, "n d"], y: Float[Tensor, "n d"] | None, block_size: int) -> float:
    """Mean of ‖x_i − y_j‖ over i ≠ j; without y, of ‖x_i − x_j‖, each pair once."""
    centre = mean_row(x if y is None else torch.cat([x, y])).to(x.dtype)
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    for i, a in enumerate(x.split(block_size)):
        for j, b in enumerate((x if y is None else y).split(block_size)):
            if y is not None or j >= i:
                distances = squared_distances(a, b, centre=centre).sqrt()
                if i == j:
                    distances.fill_diagonal_(0)
                total += distances.sum() * (2 if y is None and j > i else 1)
    return float(total) / (len(x) * (len(x) - 1))


add_evaluator(
    Measure(
        name="language_distance",
        title="Distance of translations",
        group="languages",
        function=language_distance,
        takes="languages",
        summary="How far a caption lies from its translation, against the distances of unrelated captions.",
        reading="The ratio is 0 where translations coincide and 1 where a translation is no nearer than any caption.",
        trap="Distances scale with the rows: only the ratio compares across models; and a language that a model cannot "
        "read collapses, which makes its own distances small.",
        formula="mean ‖x_i − y_i‖ and mean ‖x_i − y_j‖, i ≠ j",
        range=(0, float("inf")),
        direction="read beside the others",
        at_gaussian=None,
        invariances=("rotation", "translation", "scale"),
        quadratic=True,
        reference="Tyshchuk et al. 2023, doi:10.3390/info14070392, Table 6",
    ),
    {
        "pair_distance": {
            "title": "Distance of translations",
            "invariances": ("rotation", "translation"),
            "direction": "lower is better aligned",
        },
        "global_distance": {"title": "Distance across the languages", "invariances": ("rotation", "translation")},
        "ratio": {
            "title": "Distance of translations relative to that of unrelated captions",
            "direction": "lower is better aligned",
        },
        "within_source": {"title": "Distance within the source language", "invariances": ("rotation", "translation")},
        "within_target": {"title": "Distance within the target language", "invariances": ("rotation", "translation")},
    },
)

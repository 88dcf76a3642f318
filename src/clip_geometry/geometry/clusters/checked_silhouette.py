"""The Euclidean silhouette beside its error: some of its rows are measured again in float64."""

from typing import NamedTuple

import torch

from clip_geometry.geometry._core.arguments import Integer, seed_number, whole_number
from clip_geometry.geometry._core.class_distances import Products, products_of
from clip_geometry.geometry._core.kinds import Value, in_kind
from clip_geometry.geometry._core.row_sums import sums_of_distances
from clip_geometry.geometry._core.rows import Labels, Rows, as_rows
from clip_geometry.geometry.clusters.silhouette import as_classes, from_means, silhouette_samples

CHECKED = 64


class CheckedSilhouette(NamedTuple):
    """error: root mean square difference of the silhouettes of `checked` rows from float64 ones; largest_error: of
    these rows. The value, a mean over all rows, is nearer than that. products: how rows were multiplied."""

    value: Value
    error: Value
    largest_error: Value
    checked: int
    products: str


@in_kind
@torch.no_grad()
def checked_silhouette(
    x: Rows, labels: Labels, *, products: Products | None = None, of: Integer = CHECKED, seed: Integer = 0
) -> CheckedSilhouette:
    """Euclidean silhouette with its numerical error: some rows are measured again in float64.

    Args:
        x: Rows, (n, d), n ≥ 3.
        labels: One label per row, (n,), as in `silhouette`.
        products: How rows are multiplied, as in `silhouette`.
        of: Number of random rows to measure again, from float64 products and differences.
        seed: Seed of the draw.

    Returns:
        A `CheckedSilhouette`: value, error, largest_error, checked and products.

    Raises:
        InputError: `of` is below 1, or as in `silhouette`.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> found = cg.checked_silhouette(x, np.arange(100) % 2)
        >>> round(found.value, 4), found.error < 1e-6
        (0.0084, True)
    """
    x = as_rows(x)
    of, seed = whole_number(of, "of", of=", of rows to check"), seed_number(seed)
    samples = silhouette_samples(x, labels, products=products)
    codes, k = as_classes(labels, x)
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:of].to(x.device)
    chosen = chosen[codes[chosen].argsort(stable=True)]
    sizes = torch.bincount(codes).double()
    errors = []
    for rows, sums in sums_of_distances(x, chosen, torch.arange(len(x), device=x.device), codes, k, exact=True):
        mine = codes[rows]
        own = sums.gather(0, mine[None])[0] / (sizes[mine] - 1).clamp(min=1)
        nearest = (sums / sizes[:, None]).scatter(0, mine[None], torch.inf).amin(0)
        errors.append(samples[rows] - from_means(own, nearest, alone=sizes[mine] == 1))
    error = torch.cat(errors).abs()
    return CheckedSilhouette(
        samples.mean(), error.square().mean().sqrt(), error.amax(), len(error), products_of(x, products)
    )

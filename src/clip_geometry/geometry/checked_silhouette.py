"""The Euclidean silhouette beside its error: some of its rows are measured again in float64."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.class_distances import products_of
from clip_geometry.geometry.fused_distances import Products
from clip_geometry.geometry.row_sums import sums_of_distances
from clip_geometry.geometry.rows import Labels, Rows, as_rows
from clip_geometry.geometry.silhouette import as_classes, from_means, silhouette_samples
from clip_geometry.registry import InputError

CHECKED = 64


class CheckedSilhouette(NamedTuple):
    """error: root mean square difference of the silhouettes of `checked` rows from float64 ones; largest_error: of
    these rows. The value, a mean over all rows, is nearer than that. products: how rows were multiplied."""

    value: Float[Tensor, ""]
    error: Float[Tensor, ""]
    largest_error: Float[Tensor, ""]
    checked: int
    products: str


@torch.no_grad()
def checked_silhouette(
    x: Rows, labels: Labels, *, products: Products | None = None, of: int = CHECKED, seed: int = 0
) -> CheckedSilhouette:
    """silhouette(x, labels, products=products), and how far it is from float64.

    of: rows drawn at random whose silhouettes are taken again, from float64 products and differences. Raises
    InputError for fewer than one, and as silhouette does.
    """
    x = as_rows(x)
    if of < 1:
        raise InputError(f"{of} rows were to be checked; expected at least 1")
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

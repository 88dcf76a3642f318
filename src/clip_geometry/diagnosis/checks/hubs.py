"""Rows that are among the nearest of far too many others."""

from collections.abc import Iterator

import numpy as np
import torch

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import NEIGHBORS, Context, nearest_others
from clip_geometry.diagnosis.finding import Finding, finding

FACTOR = 2.5  # clean CLIP, drawn scenes and untrained models stay below 1.6, 200 to 2,000 rows
DRAWS = 3
LEAST = 100  # rows
NULL_WORK = 3 * 10**7


@add_check(
    "hubs",
    "rows that are among the nearest of far too many others",
    threshold="A row in more top-ten lists than 2.5 times the most of Gaussian rows with the same mean and covariance, "
    "scaled to unit length: clean sets have up to 1.6 times.",
)
def hubs(context: Context) -> Iterator[Finding]:
    for modality in context.sets:
        if context.valid(modality).sum() < LEAST:
            continue
        near = context.neighbors(modality)
        foreign = np.isin(near.numbers, context.foreign_numbers(modality))
        own = ~foreign[near.queries]
        n, lists = int((~foreign).sum()), int(own.sum())
        if n < LEAST or lists < LEAST or near.indices.shape[1] < NEIGHBORS:
            continue
        counts = np.bincount(near.indices[own].ravel(), minlength=len(near.numbers))
        counts[foreign] = 0
        rows = context.unit(modality)[np.isin(context.sample(modality), near.numbers[~foreign])]
        lists_of_noise = min(lists, max(LEAST, NULL_WORK // n))
        null = []
        for noise in _noise_like(rows, context.seed):
            indices = nearest_others(noise, np.arange(lists_of_noise), NEIGHBORS)[1]
            null.append(np.bincount(indices.ravel()).max() / lists_of_noise)
        expected = max(float(np.mean(null)), NEIGHBORS / n)
        limit = FACTOR * expected
        found = np.flatnonzero(counts > limit * lists)
        found = found[np.argsort(-counts[found])]
        if len(found):
            deviation = counts - counts[~foreign].mean()
            skew = float((deviation[~foreign] ** 3).mean() / (deviation[~foreign] ** 2).mean() ** 1.5)
            yield finding(
                "hubs",
                "warning",
                modality,
                count=len(found),
                n=n,
                largest=int(counts[found[0]]),
                lists=lists,
                reached=int(np.isin(near.indices[own], found).any(1).sum()),
                null=expected,
                null_error=float(np.std(null, ddof=1) / np.sqrt(len(null))),
                skewness=skew,
                rows=near.numbers[found].tolist(),
            )


def _noise_like(rows: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """Gaussian rows with the mean and covariance of the rows, of length 1."""
    generator, x = torch.Generator().manual_seed(seed), torch.from_numpy(rows)
    mean = x.mean(0)
    covariance = (x - mean).T.double() @ (x - mean).double() / len(x)
    values, vectors = torch.linalg.eigh(covariance)
    root = (vectors * values.clamp(min=0).sqrt()).T.float()
    for _ in range(DRAWS):
        noise = torch.randn((len(x), len(root)), generator=generator) @ root + mean
        yield (noise / noise.norm(dim=1, keepdim=True)).numpy()

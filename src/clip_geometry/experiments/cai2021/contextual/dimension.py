"""Local intrinsic dimensions of a layer: of sampled rows among themselves, and of some rows among all."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch

from clip_geometry.experiments.cai2021.contextual.config import ContextualConfig
from clip_geometry.experiments.cai2021.contextual.rows import row, tried
from clip_geometry.geometry.dimension import Estimator, Metric
from clip_geometry.geometry.sampled_dimension import Neighbourhoods, neighbourhoods
from clip_geometry.registry import InputError
from clip_geometry.results import Row

# metric → estimator → the registered measure
NAMES: dict[Metric, dict[Estimator, str]] = {
    "euclidean": {"mackay": "lid", "cai2021": "lid[cai2021]"},
    "cosine": {"mackay": "lid[cosine]", "cai2021": "lid[cai2021-cosine]"},
}
STANDARD_K = 100  # that of the registered measures
NULL_PROBES = 1000  # the neighbourhoods of a Gaussian differ little


def dimension_rows(x: np.ndarray, sample: np.ndarray, config: ContextualConfig) -> Iterator[Row]:
    """Of x, (n, d): two_nn and four conventions of the LID among the sample and, where it is not all, among all rows.

    n of a row is the number of different rows among which neighbours were looked for. at.sample: those are a sample,
    at.probes: of so many rows neighbours were looked for; neither: of all rows among all, exactly.
    """
    if len(sample) == len(x):
        yield from _among(x, {}, config)
        return
    yield from _among(x[sample], {"sample": len(sample)}, config)
    if config.probes:
        yield from _among(x, {"probes": config.probes}, config)


def _among(x: np.ndarray, chosen: dict[str, int], config: ContextualConfig) -> Iterator[Row]:
    k, probes = config.neighbours, chosen.get("probes")
    at = chosen if k == STANDARD_K else {"neighbours": k, **chosen}
    for metric, names in NAMES.items():
        try:
            found = neighbourhoods(x, k=k, metric=metric, of=probes, seed=config.seed)
        except InputError as error:
            yield from (row(name, None, n=len(x), d=x.shape[1], at=at, note=str(error)) for name in names.values())
            continue
        told = {"n": found.among, "d": x.shape[1], "at": at, "note": _dropped(len(x), found.among, metric)}
        null = _of_gaussian(*x.shape, k, metric, config.seed)
        if metric == "euclidean" and probes is None:
            yield tried("two_nn", found.two_nn, **told, null_value=float(null.two_nn()))
        for estimator, name in names.items():
            yield _estimate(name, estimator, found, null, told)


def _estimate(name: str, estimator: Estimator, found: Neighbourhoods, null: Neighbourhoods, told: Row) -> Row:
    try:
        value, error = found.dimension(estimator)
    except InputError as reason:
        return row(name, None, **told | {"note": str(reason)})
    expected = float(null.dimension(estimator).value)
    return row(name, float(value), **told, standard_error=float(error), null_value=expected)


def _dropped(n: int, among: int, metric: Metric) -> str | None:
    what = "copies" if metric == "euclidean" else "copies in direction"
    return f"{n - among} of {n} rows are {what} and left out" if among < n else None


@cache
def _of_gaussian(n: int, d: int, k: int, metric: Metric, seed: int) -> Neighbourhoods:
    """What there is to see in isotropic Gaussian rows of the same n and d."""
    rows = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return neighbourhoods(rows, k=k, metric=metric, of=NULL_PROBES, seed=seed)

"""What evaluators share: how their numbers are registered as measures, and scores of classifiers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry import catalog
from clip_geometry.geometry import Measure, add_measure
from clip_geometry.registry import instance


def add_evaluator(shared: Measure, own: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Register each number that the function of `shared` returns, of those that the catalog describes.

    Args:
        shared: The function and what its numbers have in common; its name is that of the evaluator.
        own: Number → fields of `Measure` in which it differs.
    """
    prefix = f"{instance(shared, Measure, 'shared', 'a Measure').name}."
    for name in catalog.names():
        if name.startswith(prefix):
            number = name.removeprefix(prefix)
            add_measure(replace(shared, name=name, attribute=number, **(own or {}).get(number, {})))


def label_ranks(scores: Float[Tensor, "n k"], labels: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Return how many classes precede a row's own: those with a higher score, and equal ones of a lower index.

    NaN never compares, and what does not compare precedes.
    """
    own = scores.gather(1, labels[:, None])
    higher = torch.arange(scores.shape[1], device=scores.device) >= labels[:, None]
    return (~((scores < own) | ((scores == own) & higher))).sum(1)


def accuracies(ranks: Int[Tensor, " n"], labels: Int[Tensor, " n"], k: int) -> dict[str, float]:
    """Return top_1, top_5 (only for k > 5 classes) and mean_per_class, the mean over classes that occur."""
    found = {"top_1": share(ranks == 0)}
    if k > 5:
        found["top_5"] = share(ranks < 5)
    counts = torch.bincount(labels, minlength=k)
    hits = torch.bincount(labels[ranks == 0], minlength=k)
    present = counts > 0
    found["mean_per_class"] = float((hits[present].double() / counts[present]).mean())
    return found


def share(which: Tensor) -> float:
    """Return the share of true values."""
    return int(which.sum()) / len(which)


Z = 1.959963984540054  # 95% of a normal distribution
FEW = 3


@dataclass(frozen=True)
class Effects:
    """By how much the value of a query changes where another item is left out of the index; 0 where it is not listed.

    queries, items, changes: (e,), one entry for each query and item.
    """

    queries: Int[Tensor, " e"]
    items: Int[Tensor, " e"]
    changes: Float[Tensor, " e"]


@dataclass(frozen=True, eq=False)
class Share:
    """A mean over queries, with its error over items: an item is at once a query and a candidate of all other queries.

    Leaving item m out changes Σ values by Σ_i e_im − s_m, where s_m is the sum over its own queries and e_im its effect
    on query i. The jackknife over items, Σ_m (s_m − n_m p − Σ_i e_im)² about its mean, counts what depends on a query
    and another item twice, once for each of them, so that Σ_im e_im² is subtracted. The result is never below the
    variance over the queries alone. Without hubs both are about equal; where one row is in the way of many queries,
    the first is several times larger.

    Args:
        values: (q,) of the queries.
        items: (q,) the item of each query; −1 for queries that are no sample.
        effects: Of other items; None where the index is fixed, as class prompts are.
    """

    values: Float[Tensor, " q"]
    items: Int[Tensor, " q"]
    effects: Effects | None = None

    @cached_property
    def value(self) -> float:
        return float(self.values.double().mean())

    @cached_property
    def by_item(self) -> Float[Tensor, " m"]:
        """The contribution of each item's own queries to the mean, less what is expected of as many queries."""
        sampled = self.items >= 0
        deviations = (self.values[sampled].double() - self.value) / len(self.values)
        sums = torch.zeros(self._count, dtype=torch.float64, device=deviations.device)
        return sums.index_add_(0, self.items[sampled], deviations)

    @cached_property
    def _count(self) -> int:
        largest = self.items.max() if self.effects is None else torch.cat([self.items, self.effects.items]).max()
        return int(largest) + 1

    @cached_property
    def means_of_items(self) -> tuple[list[int], list[float | int]] | None:
        """The items and the sum of the values of each, scaled so that their mean is the value; None where a query
        belongs to none."""
        if (self.items < 0).any():
            return None
        items, which, counts = self.items.unique(return_inverse=True, return_counts=True)
        sums = torch.zeros(len(items), dtype=torch.float64, device=which.device)
        sums.index_add_(0, which, self.values.double())
        values = sums if counts.max() == 1 else sums * len(items) / len(self.items)
        return items.tolist(), [int(v) if v in (0, 1) else v for v in values.tolist()]

    @cached_property
    def variance(self) -> float:
        """Of the mean, over items; 0 where all values are equal."""
        own = self.by_item
        least = total = own.square().sum()
        if self.effects is not None:
            changes = self.effects.changes.double() / len(self.values)
            influence = own.index_add(0, self.effects.items, changes, alpha=-1)
            total = (influence - influence.mean()).square().sum() - changes.square().sum()
        return float(torch.maximum(least, total)) * self._count / max(self._count - 1, 1)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95% score interval of Wilson, for as many independent queries as would have this variance.

        For as many as there are items where all values are equal, so that 0 and 1 have an interval, too. Within three
        misses of 0 or 1 the near end is that of Poisson counts, as Brown, Cai & DasGupta 2001 modify it: Wilson's
        covers only 84% there.
        """
        p, variance = self.value, self.variance
        q = 1 - p
        spread = p * q
        n = spread / variance if spread > 0 and variance > 0 else len(self.items.unique())
        center, half = p + Z**2 / (2 * n), Z * (spread / n + (Z / (2 * n)) ** 2) ** 0.5
        low, high = ((center + sign * half) / (1 + Z**2 / n) for sign in (-1, 1))
        low = min(low, _of_counts(n * p) / n) if 0 < n * p <= FEW else max(low, 0.0) * (p > 0)
        high = max(high, 1 - _of_counts(n * q) / n) if 0 < n * q <= FEW else min(high, 1.0) if q else 1.0
        return low, high

    @property
    def standard_error(self) -> float:
        """Half of the interval over 1.96: never 0."""
        low, high = self.interval
        return (high - low) / (2 * Z)


def _of_counts(mean: float) -> float:
    """The lower end of the interval of Poisson counts with this mean."""
    from scipy.special import gammaincinv  # a fifth of a second, which shares far from 0 and 1 do not need

    return float(gammaincinv(mean, 0.05))

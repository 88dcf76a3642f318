"""Code that evaluators share: registration of their numbers as measures, accuracies, and confidence intervals."""

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
    """Register each number of an evaluator, such as `retrieval.image_to_text.r_at_1`, as a measure.

    An evaluator is a function that returns a dictionary of numbers. The numbers to register are those whose names in
    the catalog start with the name of the evaluator and a dot.

    Args:
        shared: A `Measure` with the name and the function of the evaluator, and with the fields that all of its numbers
            share.
        own: Name of a number → fields of `Measure` in which it differs from `shared`.
    """
    prefix = f"{instance(shared, Measure, 'shared', 'a Measure').name}."
    for name in catalog.names():
        if name.startswith(prefix):
            number = name.removeprefix(prefix)
            add_measure(replace(shared, name=name, attribute=number, **(own or {}).get(number, {})))


def label_ranks(scores: Float[Tensor, "n k"], labels: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Return how many classes precede a row's own class: those with a higher score, or an equal one and a lower index.

    NaN does not compare with any score, and a class whose score does not compare precedes.
    """
    own = scores.gather(1, labels[:, None])
    higher = torch.arange(scores.shape[1], device=scores.device) >= labels[:, None]
    return (~((scores < own) | ((scores == own) & higher))).sum(1)


def accuracies(ranks: Int[Tensor, " n"], labels: Int[Tensor, " n"], k: int) -> dict[str, float]:
    """Return top_1, top_5 (only for more than 5 classes) and mean_per_class, the mean over the classes that occur."""
    numbers = {"top_1": share(ranks == 0)}
    if k > 5:
        numbers["top_5"] = share(ranks < 5)
    counts = torch.bincount(labels, minlength=k)
    hits = torch.bincount(labels[ranks == 0], minlength=k)
    present = counts > 0
    numbers["mean_per_class"] = float((hits[present].double() / counts[present]).mean())
    return numbers


def share(which: Tensor) -> float:
    """Return the share of entries that are true."""
    return int(which.sum()) / len(which)


Z = 1.959963984540054  # 95% of a normal distribution
FEW = 3


@dataclass(frozen=True)
class Effects:
    """How the value of a query changes if another item is removed from the index; 0 for entries that are not listed.

    queries, items, changes: (e,), one entry for each query and item.
    """

    queries: Int[Tensor, " e"]
    items: Int[Tensor, " e"]
    changes: Float[Tensor, " e"]


@dataclass(frozen=True, eq=False)
class Share:
    """A mean over queries with its error over items; an item is both a query and a candidate for all other queries.

    Removing item m changes Σ values by Σ_i e_im − s_m, where s_m is the sum over the item's own queries and e_im is its
    effect on query i. The jackknife over items, Σ_m (s_m − n_m p − Σ_i e_im)² about its mean, counts what depends on a
    query and another item twice, once for each of the two; Σ_im e_im² is subtracted for this. The result is never below
    the variance over the queries alone. Without hubs, both are about equal; if one row is in the way of many queries,
    the first is several times larger.

    Args:
        values: (q,) values of the queries.
        items: (q,) item of each query; −1 for queries that are not a sample.
        effects: Effects of other items; None if the index is fixed, as with class prompts.
    """

    values: Float[Tensor, " q"]
    items: Int[Tensor, " q"]
    effects: Effects | None = None

    @cached_property
    def value(self) -> float:
        return float(self.values.double().mean())

    @cached_property
    def by_item(self) -> Float[Tensor, " m"]:
        """Contribution of each item's own queries to the mean, minus the expected contribution of that many queries."""
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
        """The items and the sum of each item's values, scaled so that their mean is `value`.

        None if a query belongs to no item.
        """
        if (self.items < 0).any():
            return None
        items, positions, counts = self.items.unique(return_inverse=True, return_counts=True)
        sums = torch.zeros(len(items), dtype=torch.float64, device=positions.device)
        sums.index_add_(0, positions, self.values.double())
        values = sums if counts.max() == 1 else sums * len(items) / len(self.items)
        return items.tolist(), [int(v) if v in (0, 1) else v for v in values.tolist()]

    @cached_property
    def variance(self) -> float:
        """Variance of the mean over items; 0 if all values are equal."""
        of_queries = total = self.by_item.square().sum()
        if self.effects is not None:
            changes = self.effects.changes.double() / len(self.values)
            influence = self.by_item.index_add(0, self.effects.items, changes, alpha=-1)
            total = (influence - influence.mean()).square().sum() - changes.square().sum()
        return float(torch.maximum(of_queries, total)) * self._count / max(self._count - 1, 1)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95% Wilson score interval, for the number of independent queries that would have this variance.

        If all values are equal, the number of items is used instead, so that 0 and 1 have an interval, too. Within
        three misses of 0 or 1, the near end is that of Poisson counts, a modification by Brown, Cai & DasGupta 2001,
        because Wilson's interval covers only 84% there.
        """
        p, variance = self.value, self.variance
        q = 1 - p
        spread = p * q
        n = spread / variance if spread > 0 and variance > 0 else len(self.items.unique())
        center = p + Z**2 / (2 * n)
        half_width = Z * (spread / n + (Z / (2 * n)) ** 2) ** 0.5
        low = (center - half_width) / (1 + Z**2 / n)
        high = (center + half_width) / (1 + Z**2 / n)
        if 0 < n * p <= FEW:
            low = min(low, _lower_end_of_counts(n * p) / n)
        else:
            low = max(low, 0.0) if p > 0 else 0.0
        if 0 < n * q <= FEW:
            high = max(high, 1 - _lower_end_of_counts(n * q) / n)
        else:
            high = min(high, 1.0) if q else 1.0
        return low, high

    @property
    def standard_error(self) -> float:
        """Half the width of the interval, divided by 1.96; never 0."""
        low, high = self.interval
        return (high - low) / (2 * Z)


def _lower_end_of_counts(mean: float) -> float:
    """Return the lower end of the interval of Poisson counts with this mean."""
    from scipy.special import gammaincinv  # imported here (0.2 seconds): only shares near 0 or 1 need it

    return float(gammaincinv(mean, 0.05))

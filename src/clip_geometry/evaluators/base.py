"""What evaluators share: how their numbers are registered as measures, and scores of classifiers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry import catalog
from clip_geometry.geometry import Measure, add_measure


def add_evaluator(shared: Measure, own: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Register each number that the function of `shared` returns, of those that the catalog describes.

    Args:
        shared: The function and what its numbers have in common; its name is that of the evaluator.
        own: Number → fields of `Measure` in which it differs.
    """
    prefix = f"{shared.name}."
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

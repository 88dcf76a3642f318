"""What classifiers are scored by: the rank of each row's own class, and the accuracies that follow from it."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.registry import InputError


def class_indices(
    labels: Any, n: int, k: int, *, name: str = "labels", rows: str = "image", of: str = "rows of class_text"
) -> Int[Tensor, " n"]:
    """Labels as they are: whole numbers 0..k−1, one for each of n rows. Raises InputError for anything else.

    name: of the labels; rows: what each belongs to; of: what they count.
    """
    try:
        values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    except ValueError:  # lists of different lengths
        raise InputError(f"{name} are no single values; expected whole numbers, one label per row of {rows}") from None
    if values.ndim != 1 or len(values) != n:
        raise InputError(f"{name} have shape {values.shape} for {n} rows of {rows}; expected one label per row")
    if values.dtype.kind not in "iu":
        raise InputError(
            f"{name} are of type {values.dtype}; expected whole numbers, the indices 0 to {k - 1} of the {of}"
        )
    wrong = (values < 0) | (values >= k)
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(f"{name}[{row}] is {values[row]}; expected an index 0 to {k - 1} of the {of}")
    return torch.from_numpy(values.astype(np.int64))


def label_ranks(scores: Float[Tensor, "n k"], labels: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """How many classes come before a row's own: those with a higher score, and equal ones of a lower index.

    A class comes after it only where it is known to: what NaN compares with comes before.
    """
    own = scores.gather(1, labels[:, None])
    higher = torch.arange(scores.shape[1], device=scores.device) >= labels[:, None]
    return (~((scores < own) | ((scores == own) & higher))).sum(1)


def accuracies(ranks: Int[Tensor, " n"], labels: Int[Tensor, " n"], k: int) -> dict[str, float]:
    """top_1, top_5 (only for k > 5 classes: among five the fifth place says nothing), mean_per_class.

    mean_per_class: the mean of the top-1 accuracies of the classes that occur among the labels.
    """
    found = {"top_1": share(ranks == 0)}
    if k > 5:
        found["top_5"] = share(ranks < 5)
    counts = torch.bincount(labels, minlength=k)
    hits = torch.bincount(labels[ranks == 0], minlength=k)
    present = counts > 0
    found["mean_per_class"] = float((hits[present].double() / counts[present]).mean())
    return found


def share(which: Tensor) -> float:
    """The share of true values."""
    return int(which.sum()) / len(which)

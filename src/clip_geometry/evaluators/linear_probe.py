"""Linear probe: logistic regression on frozen rows, as in Radford et al. 2021 and Tyshchuk et al. 2023 (Table 5)."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clip_geometry.evaluators.base import accuracies, add_evaluator, label_ranks, share
from clip_geometry.evaluators.logistic import Logistic, fit_logistic, into_range, objective
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import members, one_of, positive_number, seed_number, whole_number
from clip_geometry.rows.matrix import Rows, as_codes, as_two_sets, as_values

GRID = tuple(10.0**power for power in range(-2, 5))  # rows of unit length need more than 1, of length 10 less
STRONGEST = 1e300  # C without any penalty that is still a float
HELD_OUT = 0.2  # of each class, to choose C on


@in_kind
def linear_probe(
    train_x: Rows,
    train_y: Any,
    test_x: Rows,
    test_y: Any,
    *,
    C: float | Iterable[float] | str = 1.0,
    solver: str = "sklearn",
    max_iter: int = 1000,
    seed: int = 0,
) -> dict[str, float]:
    """Measure the test accuracy of multinomial logistic regression.

    It minimizes the loss: mean cross-entropy + ‖W‖²/(2 C n) on the n training rows as given, without a penalty on the
    intercept. Deterministic. Source: Radford et al. 2021; Tyshchuk et al. 2023.

    Args:
        train_x: (n, d) rows.
        train_y: (n,) labels of anything comparable.
        test_x: (m, d) rows.
        test_y: (m,) labels, all of which occur in train_y.
        C: The inverse penalty: a number, or several, or "validation" for 0.01, 0.1, …, 10⁴. Of several, the one with
            the best accuracy on a fifth of each class held out at random (the smallest of equals) is fitted on all
            training rows.
        solver: "sklearn" is LogisticRegression(C=C, max_iter=max_iter), L-BFGS with its default tolerance, as
            published. "torch" is about 3x faster (`evaluators.logistic`) and runs on the device of the rows. It gets
            within 1e-5 of the minimum, in relative terms if that is near 0. scikit-learn's tolerance bounds the
            gradient, which leaves up to 5e-3 (50,000 unit rows of 100 classes), and a multiple of the minimum for a C
            so large that the penalty hardly counts.
        max_iter: Most iterations; if they do not suffice, a ConvergenceWarning says so.
        seed: Of the held-out rows.

    Returns:
        top_1, top_5 (for more than 5 classes) and mean_per_class accuracy on the test rows; loss, iterations and C.

    Raises:
        InputError: For unknown labels and solvers, C that is not positive, too few rows to hold any out, C too large
            for the length of the rows ("torch"), and a fit that is not finite.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import linear_probe
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(80) % 2
        >>> x = rng.normal(size=(80, 3)) + 3 * y[:, None]
        >>> found = linear_probe(x[:40], y[:40], x[40:], y[40:])
        >>> found["top_1"], found["C"]
        (0.975, 1.0)
    """
    solver = one_of(solver, "solver", _SOLVERS)
    max_iter, seed = whole_number(max_iter, "max_iter"), seed_number(seed)
    train, test = as_two_sets(train_x, test_x, ("train_x", "test_x"), least=1)
    train, test = (x.detach().to(torch.float64 if x.dtype == torch.float64 else torch.float32) for x in (train, test))
    n, m = len(train), len(test)
    labels, test_labels = as_values(train_y, n, name="labels in train_y"), as_values(test_y, m, name="labels in test_y")
    _, k = as_codes(labels, n, name="labels in train_y")
    codes, test_codes = as_codes([*labels, *test_labels], n + m)[0].to(train.device).split([n, m])
    if (test_codes >= k).any():
        row = int((test_codes >= k).nonzero()[0, 0])
        raise InputError(
            f"test_y has the label {shown(test_labels[row])} (row {row}), which train_y lacks; nothing can predict it"
        )
    candidates = GRID if isinstance(C, str) and C == "validation" else members(C)
    candidates = [C] if candidates is None else candidates
    if not candidates:
        raise InputError(f"C = {shown(C)} is empty; expected a positive number, several, or 'validation'")
    strengths = sorted(positive_number(each, "C", of=", several, or 'validation'") for each in candidates)
    chosen = strengths[0] if len(strengths) == 1 else _best(train, codes, k, strengths, solver, max_iter, seed)
    fit = _SOLVERS[solver](train, codes, k, C=chosen, max_iter=max_iter)
    ranks, loss = label_ranks(_logits(test, fit), test_codes), objective(train, codes, fit, chosen)
    if not math.isfinite(loss):
        raise InputError(f"the loss of solver {solver!r} is {loss}; the rows leave its range: rescale them")
    return accuracies(ranks, test_codes, k) | {
        "loss": loss,
        "iterations": float(fit.iterations),
        "C": chosen,
    }


def _logits(x: Float[Tensor, "n d"], fit: Logistic) -> Float[Tensor, "n k"]:
    logits = torch.cat([part.double() @ fit.weights.double() + fit.bias.double() for part in x.split(4096)])
    if not torch.isfinite(logits).all():
        raise InputError("the fit has logits that are not finite; the rows leave its range: rescale them")
    return logits


def fit_sklearn(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, C: float, max_iter: int) -> Logistic:
    from sklearn.linear_model import LogisticRegression

    scale = into_range(x)  # rows s x with the penalty C/s² are the same problem, with 1/s of the weights
    strength = min(C / scale**2, STRONGEST)
    model = LogisticRegression(C=strength, max_iter=max_iter).fit((x * scale).cpu().numpy(), codes.cpu().numpy())
    weights, bias = (torch.from_numpy(part).to(x.device) for part in (model.coef_.T.copy(), model.intercept_))
    weights = weights if scale == 1 else weights.double() * scale
    if k == 2:  # one logit, against 0
        weights, bias = (torch.nn.functional.pad(part, (1, 0)) for part in (weights, bias))
    return Logistic(weights, bias, int(model.n_iter_[0]))


_SOLVERS = {"sklearn": fit_sklearn, "torch": fit_logistic}


def _best(
    x: Float[Tensor, "n d"],
    codes: Int[Tensor, " n"],
    k: int,
    strengths: list[float],
    solver: str,
    max_iter: int,
    seed: int,
) -> float:
    held_out = held_out_rows(codes, k, seed)
    if not held_out.any():
        raise InputError(
            f"no class has {round(1 / HELD_OUT)} rows, so that none can be held out to choose C on; give one C"
        )
    scores = []
    for C in strengths:
        fit = _SOLVERS[solver](x[~held_out], codes[~held_out], k, C=C, max_iter=max_iter)
        scores.append(share(label_ranks(_logits(x[held_out], fit), codes[held_out]) == 0))
    return strengths[scores.index(max(scores))]


def held_out_rows(codes: Int[Tensor, " n"], k: int, seed: int) -> Bool[Tensor, " n"]:
    """Return which rows are held out: a fifth of each class, rounded down, at random."""
    order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(seed)).to(codes.device)
    order = order[codes[order].argsort(stable=True)]  # by class, at random within
    counts = torch.bincount(codes, minlength=k)
    place = torch.arange(len(codes), device=codes.device) - (counts.cumsum(0) - counts)[codes[order]]
    chosen = place < (HELD_OUT * counts).floor()[codes[order]]
    return torch.zeros(len(codes), dtype=torch.bool, device=codes.device).index_put((order,), chosen)


add_evaluator(Measure("linear_probe", linear_probe))

"""Linear probe: logistic regression on frozen rows, as CLIP's authors and Tyshchuk et al. 2023 (Table 5) have it."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clip_geometry.evaluators.accuracy import accuracies, label_ranks, share
from clip_geometry.evaluators.base import add_evaluator
from clip_geometry.evaluators.logistic import Logistic, fit_logistic, into_range, objective
from clip_geometry.geometry._core.arguments import members, one_of, positive_number, seed_number, whole_number
from clip_geometry.geometry._core.rows import Rows, as_codes, as_two_sets, as_values
from clip_geometry.geometry.measure import Measure
from clip_geometry.registry import InputError, shown

if TYPE_CHECKING:
    Solver: TypeAlias = Literal["sklearn", "torch"]
else:  # an unknown one is our sentence, not a type checker's
    Solver = Any

GRID = tuple(10.0**power for power in range(-2, 5))  # rows of unit length want more than 1, of length 10 less
STRONGEST = 1e300  # C that is no penalty at all, and a float
HELD_OUT = 0.2  # of each class, to choose C on


def linear_probe(
    train_x: Rows,
    train_y: Any,
    test_x: Rows,
    test_y: Any,
    *,
    C: float | Iterable[float] | str = 1.0,
    solver: Solver = "sklearn",
    max_iter: int = 1000,
    seed: int = 0,
) -> dict[str, float]:
    """Test accuracy of multinomial logistic regression: top_1, top_5 (for more than 5 classes), mean_per_class.

    Minimises loss = mean cross-entropy + ‖W‖²/(2 C n) on the n training rows as given, the intercept not penalised.
    solver="sklearn": LogisticRegression(C=C, max_iter=max_iter), L-BFGS with its default tolerance, as published.
    "torch": SciPy's L-BFGS on the same loss, computed on the device of the rows, to within about 1e-5 of its
    minimum, and of it where it is near 0; scikit-learn's tolerance is one of the gradient, which leaves up to 5e-3
    (50 000 unit rows of 100 classes), and a multiple of the minimum where C is so large that the penalty hardly
    counts: there both differ. C: a number, or several,
    or "validation" for .01, .1, … 10⁴: the one with the best accuracy on a fifth of each class held out at random
    (`seed`; the smallest of equals) is fitted on all training rows.

    train_x: (n, d), test_x: (m, d); train_y, test_y: labels of anything comparable, every one of the test among those
    of the training. Also returned: loss, iterations (max_iter means: not converged, and warns), C. Deterministic.
    Raises InputError for unknown labels and solvers, C not positive, too few rows to hold any out, and where C is too
    large for the length of the rows ("torch") or the fit is not finite.
    Source: Radford et al. 2021; Tyshchuk et al. 2023.
    """
    solver = one_of(solver, "solver", _SOLVERS)
    max_iter, seed = whole_number(max_iter, "max_iter"), seed_number(seed)
    train, test = as_two_sets(train_x, test_x, ("train_x", "test_x"), least=1)
    train, test = _in_products(train), _in_products(test)
    codes, test_codes, k = _codes(train_y, test_y, len(train), len(test))
    codes, test_codes = codes.to(train.device), test_codes.to(train.device)
    strengths = _strengths(C)
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


def _in_products(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """float32 for all but float64 rows, as scikit-learn computes in the precision it is given."""
    return x.detach().to(torch.float64 if x.dtype == torch.float64 else torch.float32)


def _logits(x: Float[Tensor, "n d"], fit: Logistic) -> Float[Tensor, "n k"]:
    logits = torch.cat([part.double() @ fit.weights.double() + fit.bias.double() for part in x.split(4096)])
    if not torch.isfinite(logits).all():
        raise InputError("the fit has logits that are not finite; the rows leave its range: rescale them")
    return logits


def _sklearn(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, C: float, max_iter: int) -> Logistic:
    from sklearn.linear_model import LogisticRegression

    scale = into_range(x)  # the same problem for rows s x and the penalty C/s², whose weights are 1/s of those of x
    strength = min(C / scale**2, STRONGEST)
    model = LogisticRegression(C=strength, max_iter=max_iter).fit((x * scale).cpu().numpy(), codes.cpu().numpy())
    weights, bias = (torch.from_numpy(part).to(x.device) for part in (model.coef_.T.copy(), model.intercept_))
    weights = weights if scale == 1 else weights.double() * scale
    if k == 2:  # one logit, against 0
        weights, bias = (torch.nn.functional.pad(part, (1, 0)) for part in (weights, bias))
    return Logistic(weights, bias, int(model.n_iter_[0]))


_SOLVERS = {"sklearn": _sklearn, "torch": fit_logistic}


def _codes(train_y: Any, test_y: Any, n: int, m: int) -> tuple[Int[Tensor, " n"], Int[Tensor, " m"], int]:
    """Both sets of labels as the codes of the training labels."""
    train, test = as_values(train_y, n, name="labels in train_y"), as_values(test_y, m, name="labels in test_y")
    _, k = as_codes(train, n, name="labels in train_y")
    codes, _ = as_codes([*train, *test], n + m)
    if (codes >= k).any():
        row = int((codes[n:] >= k).nonzero()[0, 0])
        raise InputError(
            f"test_y has the label {shown(test[row])} (row {row}), which train_y lacks; nothing can predict it"
        )
    return codes[:n], codes[n:], k


def _strengths(C: Any) -> list[float]:
    """The candidates for C, ascending."""
    if isinstance(C, str) and C == "validation":
        return list(GRID)
    given = members(C)
    given = [C] if given is None else given
    if not given:
        raise InputError(f"C = {shown(C)} is empty; expected a positive number, several, or 'validation'")
    return sorted(positive_number(each, "C", of=", several, or 'validation'") for each in given)


def _best(
    x: Float[Tensor, "n d"],
    codes: Int[Tensor, " n"],
    k: int,
    strengths: list[float],
    solver: Solver,
    max_iter: int,
    seed: int,
) -> float:
    held_out = _held_out(codes, k, seed)
    if not held_out.any():
        raise InputError(
            f"no class has {round(1 / HELD_OUT)} rows, so that none can be held out to choose C on; give one C"
        )
    scores = []
    for C in strengths:
        fit = _SOLVERS[solver](x[~held_out], codes[~held_out], k, C=C, max_iter=max_iter)
        scores.append(share(label_ranks(_logits(x[held_out], fit), codes[held_out]) == 0))
    return strengths[scores.index(max(scores))]


def _held_out(codes: Int[Tensor, " n"], k: int, seed: int) -> Bool[Tensor, " n"]:
    """A fifth of each class, rounded down, at random."""
    order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(seed)).to(codes.device)
    order = order[codes[order].argsort(stable=True)]  # by class, at random within
    counts = torch.bincount(codes, minlength=k)
    place = torch.arange(len(codes), device=codes.device) - (counts.cumsum(0) - counts)[codes[order]]
    chosen = place < (HELD_OUT * counts).floor()[codes[order]]
    return torch.zeros(len(codes), dtype=torch.bool, device=codes.device).index_put((order,), chosen)


add_evaluator(
    Measure(
        name="linear_probe",
        title="Linear probe",
        group="classification",
        function=linear_probe,
        takes="train and test",
        summary="The test accuracy of logistic regression on frozen rows.",
        reading="1 is right on every test row, 1/K chance; it tells what is linearly there, not what the texts find.",
        trap="It hangs on C and on the length of the rows: unit rows want a larger C than the default 1.",
        formula="multinomial logistic regression, L-BFGS, C = 1",
        range=(0, 1),
        direction="higher classifies better",
        at_gaussian=None,
        smooth=False,
        reference="Radford et al. 2021, arXiv:2103.00020; Tyshchuk et al. 2023, Table 5",
    ),
    {
        "top_1": {"title": "Linear probe, accuracy"},
        "top_5": {"title": "Linear probe, top 5"},
        "mean_per_class": {"title": "Linear probe, mean over classes"},
    },
)

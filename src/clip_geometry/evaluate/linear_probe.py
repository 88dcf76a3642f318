"""Linear classifiers of rows: logistic regression, the linear probe, and the separability of modalities.

Logistic regression uses either scikit-learn or the solver of this module. The latter is about 3x faster at equal
accuracy (benchmarks/linear_probe.py), gets closer to the minimum, and runs on a GPU. It computes the loss and
its gradient in torch, with preconditioning, and minimizes with SciPy's L-BFGS.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from clip_geometry.evaluate.base import accuracies, add_evaluator, label_ranks, share
from clip_geometry.geometry.distances.pairwise import single_is_exact
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure
from clip_geometry.geometry.silhouette import random_ranks
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import DRAWS, SMALLEST, one_of, positive_number, seed_number, whole_number
from clip_geometry.rows.matrix import Rows, as_codes, as_two_sets, as_values, blocks

REACH = 33  # binary exponent: 2³³ is about 1e10
BLOCK = 8192  # rows whose logits are in memory at a time
SAMPLE = 8192  # evenly spaced rows for center and preconditioner, which do not have to be exact
FLOOR = 1e-12  # least variance along a direction, relative to the largest, to limit the amplification of rounding
DECREASE = 1e-6  # stop when a step lowers log(loss) by less than this
ROUGH = 1e-4  # the same for the intermediate penalties on the way to a weak one
STRONG = 1e-2  # from here, relative to the mean curvature, a penalty is solved directly
WEAKER = 1e4  # weaker penalties are reached in steps of at most this factor
WEAKEST = 1e-30  # below this, relative to the mean curvature, float32 does not resolve the loss


def into_range(x: Float[Tensor, "n d"]) -> float:
    """Return the power of two that scales the largest entry of the rows down to 1e10; 1 if it is smaller.

    scikit-learn's solvers form products of four entries, which would overflow float64; some solvers then never return.
    """
    return 2.0 ** min(0, REACH - math.frexp(float(x.abs().amax()))[1])


class Logistic(NamedTuple):
    """A fitted model with logits x @ weights + bias; of two classes, the first has logit 0, as in scikit-learn."""

    weights: Float[Tensor, "d k"]
    bias: Float[Tensor, " k"]
    iterations: int


def objective(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], fit: Logistic, C: float) -> float:
    """Return mean cross-entropy + ‖weights‖²/(2 C n), which both solvers minimize, in float64."""
    total = 0.0
    for block, own in zip(blocks(x, BLOCK), codes.split(BLOCK), strict=True):
        losses, _ = _cross_entropy(block @ fit.weights.double() + fit.bias.double(), own)
        total += float(losses.sum())
    return (total + float(fit.weights.double().square().sum()) / (2 * C)) / len(x)


def _cross_entropy(
    logits: Float[Tensor, "n k"], own: Int[Tensor, " n"]
) -> tuple[Float[Tensor, " n"], Float[Tensor, "n k"]]:
    """Return the cross-entropy of each row, and its gradient with respect to the logits.

    log(1 + Σ_{j≠own} exp(l_j − l_own)) keeps its precision near 0.
    """
    own = own[:, None]
    leads = (logits - logits.gather(1, own)).scatter_(1, own, -torch.inf)
    largest = leads.amax(1, keepdim=True).clamp(min=0)
    negatives = leads.sub_(largest).exp_()
    others = negatives.sum(1, keepdim=True) + torch.expm1(-largest)  # the sum of all, own included, is 1 + others
    gradient = negatives.div_(1 + others)
    losses = (largest + others.log1p()).squeeze(1)
    return losses, gradient.scatter_(1, own, -gradient.sum(1, keepdim=True))


@torch.no_grad()
def fit_logistic(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, C: float, max_iter: int) -> Logistic:
    """Minimize `objective` on the device of x; products of float32 rows are float32, and all sums are float64.

    It minimizes log(loss) until it decreases by less than DECREASE. The result is about 1e-5 above the minimum, in
    relative terms if the minimum is near 0 (separable classes, a weak penalty). scikit-learn's tolerance bounds the
    gradient, whose size says little about either. The variables are weights in the metric of the Hessian, so few steps
    are needed, and rows of any scale and offset converge. A weak penalty is reached through stronger ones, each of
    which provides the starting point of the next. Like scikit-learn, it warns if max_iter is reached. Deterministic.
    Raises InputError if the penalty is too weak to determine the minimum.
    """
    from scipy.optimize import minimize

    problem = _Problem(x, codes, k)
    strength = 1 / (C * len(x))
    if strength < WEAKEST * problem.mean_curvature:
        raise InputError(
            f"C = {C:g} is next to no penalty for rows that lie about {problem.spread:.0e} from their mean, so "
            "rounding determines the weights; rescale the rows or give a smaller C"
        )
    strongest = max(STRONG * problem.mean_curvature, strength)
    steps = math.ceil(math.log(strongest / strength) / math.log(WEAKER))
    path = [(float(penalty), ROUGH) for penalty in np.geomspace(strongest, strength, steps + 1)]
    path[-1] = strength, DECREASE
    flat = np.zeros((x.shape[1] + 1) * problem.columns)
    iterations = 0
    ridge = None
    optimum: Any = None
    for penalty, decrease in path:
        flat = problem.prepared(flat, penalty, penalty if ridge is None else ridge)
        limit = max_iter - iterations
        options = {"maxiter": limit, "maxfun": 50 * limit, "maxls": 50, "ftol": decrease, "gtol": 0}
        optimum = minimize(problem.value_and_gradient, flat, jac=True, method="L-BFGS-B", options=options)
        flat = optimum.x
        iterations += int(optimum.nit)
        if iterations >= max_iter:
            break
        ridge = penalty / (problem.expected * math.exp(optimum.fun))
    if not optimum.success or iterations >= max_iter:
        from sklearn.exceptions import ConvergenceWarning

        warnings.warn(
            f"linear_probe did not converge; it stopped after {iterations} of at most {max_iter} iterations: "
            f"{optimum.message}",
            ConvergenceWarning,
            stacklevel=3,
        )
    return problem.solution(flat, iterations)


class _Problem:
    """The objective in variables in which float32 products keep the precision of the directions of least variance.

    The rows are centered, which the bias absorbs, and expressed along their principal axes, scaled to equal curvature.
    """

    def __init__(self, x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int):
        self.codes = codes
        use_float32 = x.dtype != torch.float64 and single_is_exact(x.device)
        self.dtype = torch.float32 if use_float32 else torch.float64
        sample = x[:: max(1, len(x) // SAMPLE)].double()
        self.centre = sample.mean(0)
        sample = sample - self.centre  # a copy, because the sample of float64 rows is a view
        self.binary = k == 2
        self.columns = 1 if self.binary else k
        curvature = (1 - 1 / k) / k  # second derivative of the cross-entropy at equal logits
        variances, axes = torch.linalg.eigh(sample.T @ sample / len(sample))
        least = max(FLOOR * float(variances[-1]), SMALLEST**2)  # for rows that are all equal
        self.spread = math.sqrt(max(float(variances.sum()), 0))
        self.curvatures = curvature * variances.clamp(min=least)
        self.mean_curvature = curvature * self.spread**2 / len(variances)
        self.root = axes * self.curvatures.rsqrt()
        self.bias_root = curvature**-0.5
        self.rows = torch.cat([((block - self.centre) @ self.root).to(self.dtype) for block in blocks(x, BLOCK)])
        self.expected = 1.0
        self.scales = torch.ones_like(self.curvatures)
        self.penalty = torch.zeros_like(self.curvatures)

    def prepared(self, flat: np.ndarray, strength: float, ridge: float) -> np.ndarray:
        """Set a new penalty, and return the variables that represent the same weights.

        ridge: strength/loss, since the Hessian of log(loss) is about curvature + strength/loss. The ratio for the
        previous penalty can be used, because it changes little where only the penalty keeps the weights finite.
        """
        previous = self.scales
        self.expected = strength / ridge
        self.scales = (self.curvatures / (self.curvatures + ridge)).sqrt()
        self.penalty = strength / self.curvatures
        variables = flat.reshape(-1, self.columns).copy()
        variables[:-1] *= (previous / self.scales).cpu().numpy()[:, None]
        return variables.ravel()

    def _unpacked(self, flat: np.ndarray) -> tuple[Float[Tensor, "d c"], Float[Tensor, " c"]]:
        variables = torch.from_numpy(flat).view(-1, self.columns).to(self.rows.device)
        return self.scales[:, None] * variables[:-1], self.bias_root * variables[-1]

    def value_and_gradient(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Return log(loss/expected) and its gradient.

        The value stays near 0, because SciPy's tolerance is relative for values above 1.
        """
        weights, bias = self._unpacked(flat)
        loss = bias.new_zeros(())
        weight_gradient, bias_gradient = torch.zeros_like(weights), torch.zeros_like(bias)
        w, b = weights.to(self.dtype), bias.to(self.dtype)
        for rows, own in zip(self.rows.split(BLOCK), self.codes.split(BLOCK), strict=True):
            logits = torch.addmm(b, rows, w)
            losses, gradient = _cross_entropy(pad(logits, (1, 0)) if self.binary else logits, own)
            gradient = gradient[:, 1:] if self.binary else gradient
            loss += losses.double().sum()
            weight_gradient += (rows.T @ gradient).double()
            bias_gradient += gradient.double().sum(0)
        n = len(self.rows)
        penalty_gradient = self.penalty[:, None] * weights
        loss = loss / n + (penalty_gradient * weights).sum() / 2
        weight_gradient = self.scales[:, None] * (weight_gradient / n + penalty_gradient)
        gradient = torch.cat([weight_gradient, self.bias_root * (bias_gradient / n)[None]]) / loss
        return math.log(float(loss) / self.expected), gradient.flatten().cpu().numpy()

    def solution(self, flat: np.ndarray, iterations: int) -> Logistic:
        weights, bias = self._unpacked(flat)
        weights = self.root @ weights
        if self.binary:
            weights, bias = pad(weights, (1, 0)), pad(bias, (1, 0))
        return Logistic(weights, bias - self.centre @ weights, iterations)


GRID = tuple(10.0**power for power in range(-2, 5))  # unit rows need more than 1, rows of length 10 less
STRONGEST = 1e300  # a C so large that there is no penalty, but still a float
HELD_OUT = 0.2  # share of each class that is held out to choose C


@in_kind
def linear_probe(
    train_x: Rows,
    train_y: Any,
    test_x: Rows,
    test_y: Any,
    *,
    C: float | str = 1.0,
    solver: str = "sklearn",
    max_iter: int = 1000,
    seed: int = 0,
) -> dict[str, float]:
    """Return the test accuracy of a linear classifier (multinomial logistic regression) fitted on training rows.

    The classifier minimizes the mean cross-entropy + ‖W‖²/(2 C n) over n training rows, where W are the weights; the
    intercept is not penalized. Rows are used as given. The result is deterministic. Source: Radford et al. 2021;
    Tyshchuk et al. 2023.

    Args:
        train_x: (n, d) rows.
        train_y: (n,) labels of any comparable type.
        test_x: (m, d) rows.
        test_y: (m,) labels, all of which must occur in train_y.
        C: Inverse strength of the penalty, above 0, or "validation". The latter holds out a random fifth of each class,
            chooses the C from 0.01, 0.1, …, 10⁴ with the highest accuracy on the held-out rows (the smallest of
            several), and fits the classifier with this C on all training rows.
        solver: "sklearn" is scikit-learn's LogisticRegression(C=C, max_iter=max_iter), as in the papers. "torch" is
            about 3x faster (benchmarks/linear_probe.py), runs on the device of the rows, and comes closer to the
            minimum: within 1e-5, in relative terms if the minimum is near 0. scikit-learn stops up to 5e-3 above the
            minimum (50,000 unit rows of 100 classes), and further above it if C is very large.
        max_iter: Largest number of iterations. If they do not suffice, there is a ConvergenceWarning.
        seed: Seed of the choice of held-out rows.

    Returns:
        A dictionary of floats: top_1, top_5 (for more than 5 classes) and mean_per_class, accuracies on the test rows
        in [0, 1]; and loss (the minimized function), iterations and C of the fit.

    Raises:
        InputError: A label or the solver is unknown, C is not positive, there are too few rows to hold any out, C is
            too large for the length of the rows ("torch"), or the fit is not finite.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.evaluate import linear_probe
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(80) % 2
        >>> x = rng.normal(size=(80, 3)) + 3 * y[:, None]
        >>> result = linear_probe(x[:40], y[:40], x[40:], y[40:])
        >>> result["top_1"], result["C"]
        (0.975, 1.0)
    """
    solver = one_of(solver, "solver", _SOLVERS)
    max_iter = whole_number(max_iter, "max_iter")
    seed = seed_number(seed)
    train, test = as_two_sets(train_x, test_x, ("train_x", "test_x"), least=1)
    train, test = (x.detach().to(torch.float64 if x.dtype == torch.float64 else torch.float32) for x in (train, test))
    n, m = len(train), len(test)
    labels = as_values(train_y, n, name="labels in train_y")
    test_labels = as_values(test_y, m, name="labels in test_y")
    _, k = as_codes(labels, n, name="labels in train_y")
    codes, test_codes = as_codes([*labels, *test_labels], n + m)[0].to(train.device).split([n, m])
    if (test_codes >= k).any():
        row = int((test_codes >= k).nonzero()[0, 0])
        raise InputError(
            f"test_y has the label {shown(test_labels[row])} (row {row}), which train_y lacks, so it cannot be "
            "predicted; expected only labels that occur in train_y"
        )
    if isinstance(C, str) and C == "validation":
        inverse_penalty = _best(train, codes, k, solver, max_iter, seed)
    else:
        inverse_penalty = positive_number(C, "C", of=", or 'validation'")
    fit = _SOLVERS[solver](train, codes, k, C=inverse_penalty, max_iter=max_iter)
    ranks = label_ranks(_logits(test, fit), test_codes)
    loss = objective(train, codes, fit, inverse_penalty)
    if not math.isfinite(loss):
        raise InputError(f"the loss of solver {solver!r} is {loss}, because the rows leave its range; rescale the rows")
    return accuracies(ranks, test_codes, k) | {"loss": loss, "iterations": float(fit.iterations), "C": inverse_penalty}


def _logits(x: Float[Tensor, "n d"], fit: Logistic) -> Float[Tensor, "n k"]:
    """Return the logits of a fitted logistic regression; raise InputError if they are not finite."""
    logits = torch.cat([part @ fit.weights.double() + fit.bias.double() for part in blocks(x)])
    if not torch.isfinite(logits).all():
        raise InputError("the fit has logits that are not finite, because the rows leave its range; rescale the rows")
    return logits


def fit_sklearn(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, C: float, max_iter: int) -> Logistic:
    from sklearn.linear_model import LogisticRegression

    scale = into_range(x)  # rows s x with C/s² are the same problem with weights divided by s
    strength = min(C / scale**2, STRONGEST)
    model = LogisticRegression(C=strength, max_iter=max_iter).fit((x * scale).cpu().numpy(), codes.cpu().numpy())
    weights = torch.from_numpy(model.coef_.T.copy()).to(x.device)
    bias = torch.from_numpy(model.intercept_).to(x.device)
    weights = weights if scale == 1 else weights.double() * scale
    if k == 2:  # one logit; that of the other class is 0
        weights, bias = pad(weights, (1, 0)), pad(bias, (1, 0))
    return Logistic(weights, bias, int(model.n_iter_[0]))


_SOLVERS = {"sklearn": fit_sklearn, "torch": fit_logistic}


def _best(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, solver: str, max_iter: int, seed: int) -> float:
    """Return the C of GRID with the highest accuracy on held-out rows."""
    held_out = held_out_rows(codes, k, seed)
    if not held_out.any():
        raise InputError(
            f"no class has {round(1 / HELD_OUT)} rows, so no rows can be held out to choose C; give a number for C"
        )
    scores = []
    for C in GRID:
        fit = _SOLVERS[solver](x[~held_out], codes[~held_out], k, C=C, max_iter=max_iter)
        scores.append(share(label_ranks(_logits(x[held_out], fit), codes[held_out]) == 0))
    return GRID[scores.index(max(scores))]


def held_out_rows(codes: Int[Tensor, " n"], k: int, seed: int) -> Bool[Tensor, " n"]:
    """Return the mask of held-out rows: a random fifth of each class, rounded down."""
    ranks = random_ranks(codes.cpu(), torch.Generator().manual_seed(seed)).to(codes.device)
    return ranks < (HELD_OUT * torch.bincount(codes, minlength=k)).floor()[codes]


add_evaluator(Measure("linear_probe", linear_probe))


@in_kind
def modality_separability(
    image: Rows, text: Rows, *, folds: int = 5, draws: int = 3, seed: int = 0
) -> dict[str, float]:
    """Return how accurately linear classifiers can tell images from texts by their embeddings.

    The classifiers are scikit-learn's logistic regression and linear SVM with default settings (1000 iterations), on
    the rows as given. Compare .cross_validated with .null, and .train with .null_train: with few rows per dimension, a
    classifier fits even shuffled labels far above chance on its training rows.

    Two effects distort .cross_validated. Captions of one image in different folds raise it, so pass one caption per
    image. Centering each set by its own mean lowers it far below .null (0.19 compared with 0.5), because the mean
    contains the held-out rows; the same holds for any map that was fitted on all rows.

    Rows whose largest entry exceeds 1e10 are scaled down to it, because the solvers would exceed the range of float64.
    If a classifier does not converge, there is a ConvergenceWarning. Source: Tyshchuk et al. 2023, who report .train.

    Args:
        image: (n, d) rows.
        text: (m, d) rows, which need not be aligned with the images.
        folds: Number of cross-validation folds, from 2 to the number of rows of the smaller set.
        draws: Number of times that labels are shuffled, at least 1.
        seed: Seed of the folds and draws.

    Returns:
        A dictionary of accuracies in [0, 1], where 1 means fully separable, for logistic_regression and for linear_svc:
        .train, accuracy on the rows of the fit; .cross_validated, mean accuracy on held-out rows over stratified,
        shuffled folds; .null_train and .null, the same two for shuffled modality labels, averaged over `draws`.

    Raises:
        InputError: folds is outside 2..min(n, m), draws < 1, or the dimensions differ.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.evaluate import modality_separability
        >>> rng = np.random.default_rng(0)
        >>> result = modality_separability(rng.normal(size=(20, 3)), rng.normal(size=(20, 3)) + 3)
        >>> result["logistic_regression.cross_validated"], round(result["logistic_regression.null"], 1)
        (1.0, 0.5)
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.svm import LinearSVC

    image, text = as_two_sets(image, text, ("image", "text"))
    fewest = min(len(image), len(text))
    folds = whole_number(folds, "folds", least=2, most=fewest, of=", the rows of the smaller set")
    draws = whole_number(draws, "draws", most=DRAWS)
    seed = seed_number(seed)
    dtype = torch.float64 if torch.float64 in (image.dtype, text.dtype) else torch.float32
    x = torch.cat([image.to(dtype), text.to(dtype)]).detach()
    x = (x * into_range(x)).cpu().numpy()
    modality = np.repeat([0, 1], [len(image), len(text)])
    rng = np.random.default_rng(seed)
    shuffled = [rng.permutation(modality) for _ in range(draws)]
    splits = StratifiedKFold(folds, shuffle=True, random_state=seed)
    numbers = {}
    classifiers: dict[str, Callable[[], Any]] = {
        "logistic_regression": lambda: LogisticRegression(max_iter=1000),
        "linear_svc": lambda: LinearSVC(random_state=seed),
    }
    for name, make in classifiers.items():
        train, held_out = [], []
        for labels in (modality, *shuffled):
            train.append(float(make().fit(x, labels).score(x, labels)))
            held_out.append(float(cross_val_score(make(), x, labels, cv=splits).mean()))
        numbers |= {f"{name}.train": train[0], f"{name}.null_train": float(np.mean(train[1:]))}
        numbers |= {f"{name}.cross_validated": held_out[0], f"{name}.null": float(np.mean(held_out[1:]))}
    return numbers


add_evaluator(Measure("modality_separability", modality_separability))

"""Multinomial logistic regression with an L2 penalty: scikit-learn's objective, minimized on the device of the rows.

Ours instead of scikit-learn's because it is about 3x faster at equal accuracy (benchmarks/linear_probe.py), gets closer
to the minimum, and runs on a GPU: loss and gradient in torch, preconditioned, with SciPy's L-BFGS.
"""

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from clip_geometry.geometry.distances.pairwise import single_is_exact
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import SMALLEST
from clip_geometry.rows.matrix import blocks

REACH = 33  # binary orders: 1e10
BLOCK = 8192  # rows whose logits are in memory at a time
SAMPLE = 8192  # evenly spaced rows for the center and the preconditioner, which need not be exact
FLOOR = 1e-12  # of the variance along a direction, relative to the largest: rounding is not amplified further
DECREASE = 1e-6  # stops when a step lowers log(loss) by less
ROUGH = 1e-4  # the same on the way to a weak penalty
STRONG = 1e-2  # penalties from this on, relative to the mean curvature, are solved at once
WEAKER = 1e4  # weaker ones in steps of at most this factor
WEAKEST = 1e-30  # weaker ones, relative to the mean curvature, have losses that float32 does not resolve


def into_range(x: Float[Tensor, "n d"]) -> float:
    """Return the power of two that brings the largest entry of rows down to 1e10, 1 for smaller ones.

    scikit-learn's solvers form products of four entries, which would leave float64; some solvers then never return.
    """
    return 2.0 ** min(0, REACH - math.frexp(float(x.abs().amax()))[1])


class Logistic(NamedTuple):
    """The fit: logits are x @ weights + bias; of two classes the first has logit 0, as in scikit-learn."""

    weights: Float[Tensor, "d k"]
    bias: Float[Tensor, " k"]
    iterations: int


def objective(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], fit: Logistic, C: float) -> float:
    """Return mean cross-entropy + ‖weights‖²/(2 C n), what both solvers minimize, in float64."""
    total = 0.0
    for block, own in zip(blocks(x, BLOCK), codes.split(BLOCK), strict=True):
        losses, _ = _cross_entropy(block @ fit.weights.double() + fit.bias.double(), own)
        total += float(losses.sum())
    return (total + float(fit.weights.double().square().sum()) / (2 * C)) / len(x)


def _cross_entropy(
    logits: Float[Tensor, "n k"], own: Int[Tensor, " n"]
) -> tuple[Float[Tensor, " n"], Float[Tensor, "n k"]]:
    """Return it for each row, and its gradient; log(1 + Σ_{j≠own} exp(l_j − l_own)) keeps its digits near 0."""
    own = own[:, None]
    leads = (logits - logits.gather(1, own)).scatter_(1, own, -torch.inf)
    most = leads.amax(1, keepdim=True).clamp(min=0)
    negatives = leads.sub_(most).exp_()
    others = negatives.sum(1, keepdim=True) + torch.expm1(-most)  # the sum of all, own included, is 1 + others
    gradient = negatives.div_(1 + others)
    losses = (most + others.log1p()).squeeze(1)
    return losses, gradient.scatter_(1, own, -gradient.sum(1, keepdim=True))


@torch.no_grad()
def fit_logistic(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, C: float, max_iter: int) -> Logistic:
    """Minimize `objective` on the device of x; products of float32 rows are float32, all sums float64.

    Minimizes log(loss) until it decreases by less than DECREASE: about 1e-5 above the minimum, in relative terms if
    that is near 0 (separable classes, a weak penalty). scikit-learn's tolerance bounds the gradient, whose size says
    little about either. The variables are weights in the metric of the Hessian, so that few steps are needed and rows
    of any scale and offset converge; a weak penalty is reached over stronger ones, each of which starts the next.
    Warns like scikit-learn if max_iter is reached. Deterministic. Raises InputError if the penalty is too weak for the
    minimum to be determined.
    """
    from scipy.optimize import minimize

    problem = _Problem(x, codes, k)
    strength = 1 / (C * len(x))
    if strength < WEAKEST * problem.mean_curvature:
        raise InputError(
            f"C = {C:g} penalises next to nothing on rows that lie about {problem.spread:.0e} from their mean, so that "
            "rounding decides on the weights; rescale the rows or give a smaller C"
        )
    strongest = max(STRONG * problem.mean_curvature, strength)
    steps = math.ceil(math.log(strongest / strength) / math.log(WEAKER))
    path = [(float(each), ROUGH) for each in np.geomspace(strongest, strength, steps + 1)]
    path[-1] = strength, DECREASE
    flat, iterations, ridge = problem.start(), 0, None
    found: Any = None
    for penalty, decrease in path:
        flat = problem.prepared(flat, penalty, penalty if ridge is None else ridge)
        limit = max_iter - iterations
        options = {"maxiter": limit, "maxfun": 50 * limit, "maxls": 50, "ftol": decrease, "gtol": 0}
        found = minimize(problem.value_and_gradient, flat, jac=True, method="L-BFGS-B", options=options)
        flat, iterations = found.x, iterations + int(found.nit)
        if iterations >= max_iter:
            break
        ridge = penalty / (problem.expected * math.exp(found.fun))
    if not found.success or iterations >= max_iter:
        from sklearn.exceptions import ConvergenceWarning

        warnings.warn(
            f"linear_probe stopped after {iterations} of at most {max_iter} iterations, not converged: {found.message}",
            ConvergenceWarning,
            stacklevel=3,
        )
    return problem.solution(flat, iterations)


class _Problem:
    """The objective about a point near the rows, which the bias absorbs, along their principal axes scaled to equal
    curvature: even float32 products then keep the digits of the directions in which the rows vary least."""

    def __init__(self, x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int):
        self.codes = codes
        single = x.dtype != torch.float64 and single_is_exact(x.device)
        self.kind = torch.float32 if single else torch.float64
        sample = x[:: max(1, len(x) // SAMPLE)].double()
        self.centre = sample.mean(0)
        sample = sample - self.centre  # a copy: of float64 rows the sample is a view
        self.binary = k == 2
        self.columns = 1 if self.binary else k
        curvature = (1 - 1 / k) / k  # of the cross-entropy at equal logits
        variances, axes = torch.linalg.eigh(sample.T @ sample / len(sample))
        least = max(FLOOR * float(variances[-1]), SMALLEST**2)  # where all rows are equal
        self.spread = math.sqrt(max(float(variances.sum()), 0))
        self.curvatures = curvature * variances.clamp(min=least)
        self.mean_curvature = curvature * self.spread**2 / len(variances)
        self.root = axes * self.curvatures.rsqrt()
        self.bias_root = curvature**-0.5
        self.rows = torch.cat([((block - self.centre) @ self.root).to(self.kind) for block in blocks(x, BLOCK)])
        self.expected = 1.0
        self.scales = torch.ones_like(self.curvatures)
        self.penalty = torch.zeros_like(self.curvatures)

    def start(self) -> np.ndarray:
        return np.zeros((self.rows.shape[1] + 1) * self.columns)

    def prepared(self, flat: np.ndarray, strength: float, ridge: float) -> np.ndarray:
        """Takes this penalty on; the variables of the same weights.

        ridge: strength/loss, as the Hessian of log(loss) is about curvature + strength/loss; that of the penalty
        before serves, because the ratio changes little where the penalty alone keeps the weights finite.
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
        """Return log(loss/expected) and its gradient; it is near 0: SciPy's tolerance is relative to values above 1."""
        weights, bias = self._unpacked(flat)
        loss, weight_gradient, bias_gradient = bias.new_zeros(()), torch.zeros_like(weights), torch.zeros_like(bias)
        w, b = weights.to(self.kind), bias.to(self.kind)
        for rows, own in zip(self.rows.split(BLOCK), self.codes.split(BLOCK), strict=True):
            logits = torch.addmm(b, rows, w)
            losses, surplus = _cross_entropy(pad(logits, (1, 0)) if self.binary else logits, own)
            surplus = surplus[:, 1:] if self.binary else surplus
            loss += losses.double().sum()
            weight_gradient += (rows.T @ surplus).double()
            bias_gradient += surplus.double().sum(0)
        n, shrunk = len(self.rows), self.penalty[:, None] * weights
        loss = loss / n + (shrunk * weights).sum() / 2
        weight_gradient = self.scales[:, None] * (weight_gradient / n + shrunk)
        gradient = torch.cat([weight_gradient, self.bias_root * (bias_gradient / n)[None]]) / loss
        return math.log(float(loss) / self.expected), gradient.flatten().cpu().numpy()

    def solution(self, flat: np.ndarray, iterations: int) -> Logistic:
        weights, bias = self._unpacked(flat)
        weights = self.root @ weights
        if self.binary:
            weights, bias = pad(weights, (1, 0)), pad(bias, (1, 0))
        return Logistic(weights, bias - self.centre @ weights, iterations)

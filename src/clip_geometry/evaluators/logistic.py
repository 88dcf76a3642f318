"""Multinomial logistic regression with an L2 penalty, by L-BFGS: scikit-learn's objective, preconditioned, in torch."""

import warnings
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from clip_geometry.geometry.distances import single_is_exact
from clip_geometry.geometry.rows import blocks

BLOCK = 8192  # rows whose logits are held at a time
SAMPLE = 8192  # evenly spaced rows for the centre and the preconditioner, which need not be exact
DECREASE = 1e-6  # stops where a step lowers the loss by less, relative to max(loss, 1)


class Logistic(NamedTuple):
    """Logits are x @ weights + bias; of two classes the first has logit 0, as in scikit-learn."""

    weights: Float[Tensor, "d k"]
    bias: Float[Tensor, " k"]
    iterations: int


def objective(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], fit: Logistic, C: float) -> float:
    """Mean cross-entropy + ‖weights‖²/(2 C n), in float64: what both solvers minimise. The bias is not penalised."""
    total = 0.0
    for block, own in zip(blocks(x, BLOCK), codes.split(BLOCK), strict=True):
        logits = block @ fit.weights.double() + fit.bias.double()
        total += float((logits.logsumexp(1) - logits.gather(1, own[:, None]).squeeze(1)).sum())
    return (total + float(fit.weights.double().square().sum()) / (2 * C)) / len(x)


@torch.no_grad()
def fit_logistic(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, *, C: float, max_iter: int) -> Logistic:
    """The minimum of `objective`, on the device of x; products of float32 rows are float32, all sums float64.

    The variables are the weights in the metric of the Hessian at 0, so that about half of the steps are needed and
    rows of any scale and offset converge. Stops by the loss (DECREASE), about 1e-5 above the minimum, not by the
    gradient, whose size says little about the loss: scikit-learn's default stops up to 5e-3 above. Warns as
    scikit-learn does where max_iter is reached. Deterministic.
    """
    from scipy.optimize import minimize

    problem = _Problem(x, codes, k, C)
    options = {"maxiter": max_iter, "maxfun": 50 * max_iter, "maxls": 50, "ftol": DECREASE, "gtol": 0}
    found = minimize(problem.value_and_gradient, problem.start(), jac=True, method="L-BFGS-B", options=options)
    if not found.success:
        from sklearn.exceptions import ConvergenceWarning

        warnings.warn(
            f"linear_probe stopped after {found.nit} of at most {max_iter} iterations, not converged: {found.message}",
            ConvergenceWarning,
            stacklevel=3,
        )
    return problem.solution(found.x, int(found.nit))


class _Problem:
    """The objective about a point near the rows, where float32 products keep their digits: the bias absorbs it."""

    def __init__(self, x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, C: float):
        self.codes = codes
        single = x.dtype != torch.float64 and single_is_exact(x.device)
        kind = torch.float32 if single else torch.float64
        step = max(1, len(x) // SAMPLE)
        self.centre = x[::step].double().mean(0).to(kind)
        self.rows = x.to(kind) - self.centre  # rounds relative to the result
        self.binary = k == 2
        self.columns = 1 if self.binary else k
        self.strength = 1 / (C * len(x))
        curvature = (1 - 1 / k) / k  # of the cross-entropy at equal logits
        self.root = _inverse_root(self.rows[::step], curvature, self.strength)
        self.bias_root = curvature**-0.5

    def start(self) -> np.ndarray:
        return np.zeros((self.rows.shape[1] + 1) * self.columns)

    def _unpacked(self, flat: np.ndarray) -> tuple[Float[Tensor, "d c"], Float[Tensor, " c"]]:
        variables = torch.from_numpy(flat).view(-1, self.columns).to(self.rows.device)
        return self.root @ variables[:-1], self.bias_root * variables[-1]

    def value_and_gradient(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights, bias = self._unpacked(flat)
        loss, weight_gradient, bias_gradient = self._cross_entropy(weights, bias)
        loss = loss + self.strength / 2 * weights.square().sum()
        weight_gradient += self.strength * weights
        gradient = torch.cat([self.root @ weight_gradient, self.bias_root * bias_gradient[None]])
        return float(loss), gradient.flatten().cpu().numpy()

    def _cross_entropy(
        self, weights: Float[Tensor, "d c"], bias: Float[Tensor, " c"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "d c"], Float[Tensor, " c"]]:
        """Its mean and its gradient, from one pass over the rows."""
        kind = self.rows.dtype
        loss, weight_gradient, bias_gradient = bias.new_zeros(()), torch.zeros_like(weights), torch.zeros_like(bias)
        w, b = weights.to(kind), bias.to(kind)
        for rows, own in zip(self.rows.split(BLOCK), self.codes.split(BLOCK), strict=True):
            logits = torch.addmm(b, rows, w)
            logs = (pad(logits, (1, 0)) if self.binary else logits).log_softmax(1)
            loss -= logs.gather(1, own[:, None]).double().sum()
            surplus = logs.exp_().scatter_add_(1, own[:, None], -torch.ones_like(logs[:, :1]))
            surplus = surplus[:, 1:] if self.binary else surplus
            weight_gradient += (rows.T @ surplus).double()
            bias_gradient += surplus.double().sum(0)
        n = len(self.rows)
        return loss / n, weight_gradient / n, bias_gradient / n

    def solution(self, flat: np.ndarray, iterations: int) -> Logistic:
        weights, bias = self._unpacked(flat)
        if self.binary:
            weights, bias = pad(weights, (1, 0)), pad(bias, (1, 0))
        return Logistic(weights, bias - self.centre.double() @ weights, iterations)


def _inverse_root(rows: Float[Tensor, "n d"], curvature: float, strength: float) -> Float[Tensor, "d d"]:
    """(curvature · covariance + strength)^(−1/2), the rows being centred."""
    values, vectors = torch.linalg.eigh((rows.T @ rows).double() / len(rows))
    return (vectors * (curvature * values.clamp(min=0) + strength).rsqrt()) @ vectors.T

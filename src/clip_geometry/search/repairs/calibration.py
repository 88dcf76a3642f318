"""Repairs that calibrate scores: each kind, from image-image to text-text, is mapped to a scale shared by all kinds."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from clip_geometry.registry import InputError
from clip_geometry.search.repairs import InnerProduct, Kind, Known, Term, cached
from clip_geometry.search.repairs.maps import TwoViews

Tables: TypeAlias = Mapping[Kind, np.ndarray]

EQUAL = 1e-9  # standard deviation up to which cosines differ by rounding only
QUERIES = 250  # queries per kind to which curves are fitted: 250,000 scores with 1,000 items
KNOTS = 1e-6  # least distance of two cosines of a curve, so that rounding decides on no step between copies
ORDER = 1e-6  # slope added to a curve, so that equal values keep the order of the cosine
WEAK = 0.1  # log odds per standard deviation of an uninformative cosine; float32 still keeps its order
RIDGE = 1e-6  # on the squared slope for standardized cosines, times the variance share · (1 − share) of targets


class Calibrated(TwoViews):
    """Base class of the repairs that map the cosine of each kind by an increasing curve of its own.

    The order of items within a modality stays as in the view.

    Attributes:
        relevance: Whether fitting uses relevance.
    """

    relevance: ClassVar[bool] = False

    @abstractmethod
    def curve(self, cosines: np.ndarray, relevance: np.ndarray) -> tuple[Any, Any]:
        """Fit the curve of one kind: slope and offset of a line, or the cosines and values of its knots.

        Args:
            cosines: (s,) cosines between queries and items other than the queries themselves.
            relevance: (s,) relevance of the items, in [0, 1]; empty if the attribute `relevance` is False.
        """

    def curves(self, known: Known) -> dict[Kind, tuple[Any, Any]]:
        """Fit the views and the curve of each kind."""
        for modality, rows in known.rows.items():
            if len(rows) < 2:
                raise InputError(f"there is one {modality} row; {self.name} needs at least 2 rows of each modality")
        self.learn_views(known)
        cosines = {}
        spreads = {}
        for query, item in known.kinds:
            q, x = known.rows[query], known.rows[item]
            products = [view.products(query, q, item, x) for view in self.views_]
            cosines[query, item] = products[self.number_of(query, item)]
            spreads[query, item] = products[-1].std() / products[0].std() if query != item else 1.0
        relevance = {}
        curves = {}
        if self.relevance:
            relevance = cached(known.kept, ("targets", self.centered), lambda: targets(known, cosines, spreads))
        for kind, table in cosines.items():
            mask = off_diagonal(kind, table, QUERIES if self.relevance else len(table))
            curves[kind] = self.curve(table[mask], relevance[kind][mask] if relevance else np.empty(0))
        return curves


class Line(Calibrated, InnerProduct):
    """Base class of the calibrations by a line: slope · cosine + offset."""

    def _learn(self, known: Known) -> None:
        self.terms_ = {kind: Term(self.number_of(*kind), *line) for kind, line in self.curves(known).items()}


class Curved(Calibrated):
    """Base class of the calibrations by a piecewise linear curve: rerankers, since no inner product bends.

    Attributes:
        knots_: Kind → (cosines, values) of the curve.
    """

    knots_: dict[Kind, tuple[np.ndarray, np.ndarray]]

    def _learn(self, known: Known) -> None:
        self.knots_ = self.curves(known)

    def scores(self, query: str, q: np.ndarray, item: str, x: np.ndarray) -> np.ndarray:
        cosines = self.view(query, item).products(query, q, item, x)
        return np.interp(cosines, *self.knots_[query, item]) + ORDER * cosines


class ZScore(Line):
    """(cosine − mean) / standard deviation, both over all scores of the kind."""

    name = "zscore"

    def curve(self, cosines: np.ndarray, relevance: np.ndarray) -> tuple[float, float]:
        require_spread(cosines)
        return 1 / cosines.std(), -cosines.mean() / cosines.std()


class Quantile(Curved):
    """The share of scores of the kind that are lower than the score."""

    name = "quantile"

    def curve(self, cosines: np.ndarray, relevance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(cosines)
        cosines = np.sort(cosines)
        # finer toward the top, which is what a search sees
        places = np.unique((n - np.geomspace(1, n, 2000)).round().astype(int))
        places = places[np.diff(cosines[places], prepend=-2) > KNOTS]
        return cosines[places], (places + 0.5) / n


class Posterior(Line):
    """The log odds that an item is relevant, from a logistic regression on the cosine of each kind; see `targets`."""

    name = "posterior"
    relevance = True

    def curve(self, cosines: np.ndarray, relevance: np.ndarray) -> tuple[float, float]:
        return logistic(cosines, relevance)


class IsotonicPosterior(Curved):
    """The probability that an item is relevant, by an isotonic regression on the cosine of each kind; see `targets`."""

    name = "posterior[isotonic]"
    relevance = True

    def curve(self, cosines: np.ndarray, relevance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.isotonic import IsotonicRegression

        curve = IsotonicRegression(out_of_bounds="clip").fit(cosines, relevance)
        return curve.X_thresholds_, curve.y_thresholds_


def targets(known: Known, cosines: Tables, spreads: Mapping[Kind, float]) -> dict[Kind, np.ndarray]:
    """Return the relevance of each item to each query, (n, m) in [0, 1], known or estimated.

    The target is `Known.relevance` where it is available: for every kind with labels, and across modalities with pairs.
    Grades above 1 are divided by the highest one. Pairs do not say which images resemble each other. With pairs, the
    target within a modality is therefore the agreement of posteriors over another modality b: with p_i the softmax of
    row i's scaled cosines to all rows of b, ⟨p_i, p_j⟩ is the probability that the same row of b describes both rows;
    the target is the mean over all b. If nothing is known, the target across modalities is p itself. The scale is the
    maximum-likelihood one for the pairs or, without pairs, the model's logit scale divided by the spread.

    Args:
        known: Rows and their relevance.
        cosines: Kind → (n, m) cosines after the view of the kind.
        spreads: Kind → the standard deviation of its cosines, relative to that of the raw cosines.

    Raises:
        InputError: There is only one modality and there are no labels, or no item is relevant to any query.
    """
    relevance = {}
    posteriors = {}
    for kind, table in cosines.items():
        grades = known.grades(kind)
        if kind[0] != kind[1]:
            scale = known.logit_scale / spreads[kind]
            if grades is not None and grades.any():
                scale = likely_scale(table, grades)
            posteriors[kind] = softmax(scale * table, axis=1)
        if grades is not None or kind[0] != kind[1]:
            relevance[kind] = posteriors[kind] if grades is None else grades / max(1.0, grades.max())
    for kind in cosines:
        if kind in relevance:
            continue
        agreements = [p @ p.T for (query, _), p in posteriors.items() if query == kind[0]]
        if not agreements:
            raise InputError(f"only {kind[0]} rows were given; a posterior needs labels or a second modality")
        relevance[kind] = np.mean(agreements, axis=0)
    if not any(target.any() for target in relevance.values()):
        raise InputError("no item is relevant to any query; a posterior needs labels that rows share, or pairs")
    return relevance


def likely_scale(cosines: np.ndarray, grades: np.ndarray) -> float:
    """Return the τ for which softmax(τ cosines) maximizes the likelihood of the relevant items of each query."""
    stride = _stride(cosines, QUERIES)
    cosines, grades = cosines[::stride], grades[::stride]
    has_relevant = grades.sum(1) > 0
    grades = grades[has_relevant] / grades[has_relevant].sum(1, keepdims=True)
    relevant_mean = (grades * cosines[has_relevant]).sum(1, keepdims=True)
    excess = torch.from_numpy(cosines[has_relevant] - relevant_mean)

    def loss(log_scale: float) -> float:
        return float((float(np.exp(log_scale)) * excess).logsumexp(1).sum())

    return float(np.exp(minimize_scalar(loss, bounds=(0, 7), method="bounded").x))


def logistic(cosines: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
    """Return the slope > 0 and the offset of the log odds as a function of the cosine, by maximum likelihood.

    Targets may be probabilities. A small ridge on the slope bounds it if a threshold separates the targets; the ridge
    is proportional to how rare relevant items are. The cosine is uninformative if all targets are equal or higher
    cosines are no more relevant. Then the log odds are about those of the share of relevant items (at least half an
    item), with a slope of 0.1 per standard deviation, so that items keep the order of the cosine even in float32.

    Raises:
        InputError: All cosines are equal.
    """
    require_spread(cosines)
    n = targets.size
    mean, deviation = cosines.mean(), cosines.std()
    relevant = np.clip(targets.sum(), 0.5, n - 0.5)
    rate = float(np.log(relevant / (n - relevant)))
    ridge = RIDGE * targets.mean() * (1 - targets.mean())
    uninformative = (float(WEAK / deviation), float(rate - WEAK * mean / deviation))
    if targets.min() == targets.max():
        return uninformative
    z = torch.from_numpy((cosines - mean) / deviation)
    y = torch.from_numpy(np.float64(targets))
    slope, offset = 1.0, rate
    for _ in range(50):  # Newton; the likelihood is concave
        p = torch.sigmoid(slope * z + offset)  # four times as fast as SciPy's
        residual = y - p
        weight = p * (1 - p)
        weighted = weight * z
        gradient = np.array([float(z @ residual) / n - ridge * slope, float(residual.mean())])
        cross = -float(weighted.mean())
        hessian = np.array([[-float(weighted @ z) / n - ridge, cross], [cross, -float(weight.mean()) - 1e-6 * ridge]])
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / np.abs(step).max()) if step.any() else 1.0  # Newton overshoots far from the solution
        slope, offset = slope - step[0], offset - step[1]
        if np.abs(step).max() < 1e-9:
            break
    if slope < WEAK:
        return uninformative
    return float(slope / deviation), float(offset - slope * mean / deviation)


def require_spread(cosines: np.ndarray) -> None:
    """Raise InputError if all cosines are equal."""
    if cosines.std() < EQUAL:
        raise InputError("all cosines of a kind are equal; a calibration needs rows that differ")


def off_diagonal(kind: Kind, table: np.ndarray, limit: int) -> np.ndarray:
    """Return the mask of the off-diagonal scores, for at most `limit` queries."""
    mask = np.zeros(table.shape, dtype=bool)
    mask[:: _stride(table, limit)] = True
    if kind[0] == kind[1]:
        np.fill_diagonal(mask, False)
    return mask


def _stride(table: np.ndarray, limit: int) -> int:
    """Return the stride that selects at most `limit` rows."""
    return -(-len(table) // limit)

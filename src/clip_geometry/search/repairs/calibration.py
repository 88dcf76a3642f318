"""Repairs of scores: each kind of score, image-image to text-text, on a scale of its own that the others can share."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from clip_geometry.registry import InputError
from clip_geometry.search.repairs import InnerProduct, Kind, Known, Term, kept_in
from clip_geometry.search.repairs.maps import TwoViews

Tables: TypeAlias = Mapping[Kind, np.ndarray]

EQUAL = 1e-9  # deviation of cosines that differ by rounding only
QUERIES = 250  # of each kind that curves are fitted to: with 1,000 items 250,000 scores
KNOTS = 1e-6  # at least between two cosines of a curve, so that no step between copies turns on rounding
ORDER = 1e-6  # slope added to a curve, so that equal values keep the order of the cosine
WEAK = 0.1  # log odds a standard deviation of the cosine adds where it says nothing: float32 keeps its order
RIDGE = 1e-6  # on the squared slope of standardized cosines, in proportion to the variance of targets of that share


class Calibrated(TwoViews):
    """Base of the repairs that map the cosine of each kind by an increasing curve of its own.

    The order within each modality of items stays what it is in the view.

    Attributes:
        relevance: Whether relevance matters.
    """

    relevance: ClassVar[bool] = False

    @abstractmethod
    def curve(self, cosines: np.ndarray, wanted: np.ndarray) -> tuple[Any, Any]:
        """Fit the curve of one kind: slope and offset of a line, or the cosines and values of its knots.

        Args:
            cosines: (s,) of a query and an item that it is not.
            wanted: (s,) how relevant the items are, in [0, 1]; empty where relevance does not matter.
        """

    def curves(self, known: Known) -> dict[Kind, tuple[Any, Any]]:
        """Fit the views and the curve of each kind."""
        for modality, rows in known.rows.items():
            if len(rows) < 2:
                raise InputError(f"there is one {modality} row; {self.name} needs at least 2 of each modality")
        self.learn_views(known)
        cosines, spreads = {}, {}
        for query, item in known.kinds:
            q, x = known.rows[query], known.rows[item]
            products = [view.products(query, q, item, x) for view in self.views_]
            cosines[query, item] = products[self.number_of(query, item)]
            spreads[query, item] = products[-1].std() / products[0].std() if query != item else 1.0
        wanted, found = {}, {}
        if self.relevance:
            wanted = kept_in(known.kept, ("targets", self.centered), lambda: targets(known, cosines, spreads))
        for kind, table in cosines.items():
            chosen = others(kind, table, QUERIES if self.relevance else len(table))
            found[kind] = self.curve(table[chosen], wanted[kind][chosen] if wanted else np.empty(0))
        return found


class Line(Calibrated, InnerProduct):
    """Base of the calibrations by a line: slope · cosine + offset."""

    def _learn(self, known: Known) -> None:
        self.terms_ = {kind: Term(self.number_of(*kind), *line) for kind, line in self.curves(known).items()}


class Curved(Calibrated):
    """Base of the calibrations by a piecewise linear curve: rerankers, since no inner product bends.

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
    """(cosine − mean) / standard deviation, both of all scores of the kind."""

    name = "zscore"

    def curve(self, cosines: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
        require_spread(cosines)
        return 1 / cosines.std(), -cosines.mean() / cosines.std()


class Quantile(Curved):
    """The share of scores of the kind that are lower."""

    name = "quantile"

    def curve(self, cosines: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cosines, n = np.sort(cosines), len(cosines)
        # ever finer towards the top, which is what a search sees
        places = np.unique((n - np.geomspace(1, n, 2000)).round().astype(int))
        places = places[np.diff(cosines[places], prepend=-2) > KNOTS]
        return cosines[places], (places + 0.5) / n


class Posterior(Line):
    """The log odds that an item is relevant, by a logistic regression on the cosine of each kind; see `targets`."""

    name = "posterior"
    relevance = True

    def curve(self, cosines: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
        return logistic(cosines, wanted)


class IsotonicPosterior(Curved):
    """The probability that an item is relevant, by an isotonic regression on the cosine of each kind; see `targets`."""

    name = "posterior[isotonic]"
    relevance = True

    def curve(self, cosines: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.isotonic import IsotonicRegression

        curve = IsotonicRegression(out_of_bounds="clip").fit(cosines, wanted)
        return curve.X_thresholds_, curve.y_thresholds_


def targets(known: Known, cosines: Tables, spreads: Mapping[Kind, float]) -> dict[Kind, np.ndarray]:
    """Return how relevant each item is to each query, (n, m) in [0, 1], known or estimated.

    Where `Known.relevance` says it, that is the target: labels of every kind, pairs across modalities; grades above 1
    are divided by the highest. Pairs do not say which images resemble each other. There the target is the agreement of
    posteriors over another modality b: with p_i the softmax of row i's scaled cosines to all rows of b, ⟨p_i, p_j⟩ is
    the probability that the same row of b describes both; the mean over all b. Where nothing is known, the target
    across modalities is p itself. The scale is the most likely one of the pairs, or else the model's logit scale
    divided by the spread.

    Args:
        known: What is known.
        cosines: Kind → (n, m) cosines, after the view of the kind.
        spreads: Kind → the standard deviation of its cosines in proportion to that of the raw ones.

    Raises:
        InputError: There is one modality only, and no labels; or no item is relevant to any query.
    """
    found, posteriors = {}, {}
    for kind, table in cosines.items():
        grades = known.grades(kind)
        if kind[0] != kind[1]:
            scale = known.logit_scale / spreads[kind]
            if grades is not None and grades.any():
                scale = likely_scale(table, grades)
            posteriors[kind] = softmax(scale * table, axis=1)
        if grades is not None or kind[0] != kind[1]:
            found[kind] = posteriors[kind] if grades is None else grades / max(1.0, grades.max())
    for kind in (kind for kind in cosines if kind not in found):
        mine = [p @ p.T for (query, _), p in posteriors.items() if query == kind[0]]
        if not mine:
            raise InputError(f"only {kind[0]} rows were given; a posterior needs labels or a second modality")
        found[kind] = np.mean(mine, axis=0)
    if not any(target.any() for target in found.values()):
        raise InputError("no item is relevant to any query; a posterior needs labels that rows share, or pairs")
    return found


def likely_scale(cosines: np.ndarray, grades: np.ndarray) -> float:
    """Return the τ for which softmax(τ cosines) gives the relevant items of each query the highest likelihood."""
    every = _every(cosines, QUERIES)
    cosines, grades = cosines[::every], grades[::every]
    queries = grades.sum(1) > 0
    grades = grades[queries] / grades[queries].sum(1, keepdims=True)
    of_relevant = (grades * cosines[queries]).sum(1, keepdims=True)
    beyond = torch.from_numpy(cosines[queries] - of_relevant)

    def loss(log_scale: float) -> float:
        return float((float(np.exp(log_scale)) * beyond).logsumexp(1).sum())

    return float(np.exp(minimize_scalar(loss, bounds=(0, 7), method="bounded").x))


def logistic(cosines: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
    """Return the slope > 0 and the offset of the log odds as a function of the cosine, by maximum likelihood.

    Targets may be probabilities. A small ridge on the slope bounds it where a threshold separates the targets; it is in
    proportion to how rare relevant items are. Where the cosine says nothing, because all targets are equal or higher
    cosines are no more relevant, the log odds are about those of the share of relevant items (half an item at least),
    with a slope of 0.1 for a standard deviation, so that items keep the order of the cosine in float32, too.

    Raises:
        InputError: All cosines are equal.
    """
    require_spread(cosines)
    mean, deviation, n = cosines.mean(), cosines.std(), targets.size
    relevant, share = np.clip(targets.sum(), 0.5, n - 0.5), targets.mean()
    rate, ridge = float(np.log(relevant / (n - relevant))), RIDGE * share * (1 - share)
    weak = (float(WEAK / deviation), float(rate - WEAK * mean / deviation))
    if targets.min() == targets.max():
        return weak
    z = torch.from_numpy((cosines - mean) / deviation)
    wanted = torch.from_numpy(np.float64(targets))
    slope, offset = 1.0, rate
    for _ in range(50):  # Newton; the likelihood is concave
        p = torch.sigmoid(slope * z + offset)  # four times as fast as SciPy's
        missing = wanted - p
        weight = p * (1 - p)
        weighted = weight * z
        gradient = np.array([float(z @ missing) / n - ridge * slope, float(missing.mean())])
        cross = -float(weighted.mean())
        hessian = np.array([[-float(weighted @ z) / n - ridge, cross], [cross, -float(weight.mean()) - 1e-6 * ridge]])
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / np.abs(step).max()) if step.any() else 1.0  # far from the solution, it overshoots
        slope, offset = slope - step[0], offset - step[1]
        if np.abs(step).max() < 1e-9:
            break
    if slope < WEAK:
        return weak
    return float(slope / deviation), float(offset - slope * mean / deviation)


def require_spread(cosines: np.ndarray) -> None:
    """Raise InputError for equal cosines."""
    if cosines.std() < EQUAL:
        raise InputError("all cosines of a kind are equal; a calibration needs rows that differ")


def others(kind: Kind, table: np.ndarray, most: int) -> np.ndarray:
    """Return the mask of the off-diagonal scores, for at most `most` queries."""
    mask = np.zeros(table.shape, dtype=bool)
    mask[:: _every(table, most)] = True
    if kind[0] == kind[1]:
        np.fill_diagonal(mask, False)
    return mask


def _every(table: np.ndarray, most: int) -> int:
    """Return the stride that takes at most `most` rows."""
    return -(-len(table) // most)

"""Fit of a match model for one direction, its cutoffs, and their errors, on items it was not fitted on."""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from clip_geometry.geometry.uncertainty import jackknife
from clip_geometry.search.matching.model import Interval, MatchModel
from clip_geometry.search.matching.roc import Roc
from clip_geometry.search.matching.scores import FirstResults, SearchScores, first_results

LEAST_RIGHT = 10  # fewest right first results that can be told from wrong ones
BLOCKS = 20  # folds of the cross-fitting, and blocks of the jackknife
Z = 1.645  # standard errors on either side of a number in its 90% interval
SURE = 2.33  # standard errors by which the AUC must exceed that of chance
RATES = (0.01, 0.05, 0.1)  # false accepts in the table
GRID = np.union1d(np.geomspace(0.001, 0.999, 121), RATES)  # false accepts in the file
RIDGE = 1000.0  # inverse of the penalty; bounds the weights if a cutoff separates all results


class JudgedResults(NamedTuple):
    """First results in the whole index, (r,) each.

    Args:
        values: Log odds of a model (without pairs, z-scores).
        cosines: Cosines of the first results.
        right: Whether they are right.
        expected: Half of `right` and half of the probability, which gives cutoffs with less variance.
        weights: Weights for the share of queries with an answer.
    """

    values: np.ndarray
    cosines: np.ndarray
    right: np.ndarray
    expected: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, results: FirstResults, values: np.ndarray, answerable: float | None) -> "JudgedResults":
        weights = results.weights(answerable or 0.5)
        expected = results.right if answerable is None else (results.right + expit(values)) / 2
        return cls(values, results.columns[:, 0], results.right, expected, weights)

    def take(self, chosen: np.ndarray) -> "JudgedResults":
        return JudgedResults(*(each[chosen] for each in self))

    def cutoffs(self, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the cutoffs for some rates of false accepts, and the shares of right results that they keep."""
        return Roc(self.values, self.expected).cutoffs(self.weights, rates)


def fit_model(
    scores: SearchScores, blocks: tuple[np.ndarray, np.ndarray], answerable: float | None, seed: int, facts: Any
) -> tuple[MatchModel, JudgedResults]:
    """Fit the model of one direction, and find its cutoffs on items that it was not fitted on.

    Without each block of items, as queries and in the index, the model is fitted again. It judges the queries of the
    block, and its own cutoffs give the standard errors, by the jackknife.

    Args:
        scores: The scores of all queries.
        blocks: The blocks of the queries, (q,), and of the items, (m,); −1 for items that are never left out.
        answerable: Share of queries with an answer; None if no right results are known. Then the cutoffs are for the
            z-score of `features`.
        seed: Seed of the subsets.
        facts: Further fields of the model.
    """
    results = first_results(scores, seed)
    results = results if answerable is not None else results.take(~results.answerable)
    values, replicates = np.empty(len(results.size)), []
    for block in range(BLOCKS):
        queries, items = (each == block for each in blocks)
        part = first_results(scores.without(items), seed, ~queries)
        part = part if answerable is not None else part.take(~part.answerable)
        model = _logistic(part, answerable)
        held_out = queries[results.query]
        values[held_out] = _values(model, results.columns[held_out])
        judged = JudgedResults.of(part, _values(model, part.columns), answerable)
        replicates.append(_numbers(judged.take(part.size == part.size.max()), answerable))
    judged = JudgedResults.of(results, values, answerable)
    sizes = np.unique(results.size).tolist()
    curves = [judged.take(results.size == size).cutoffs(GRID) for size in sizes]
    judged = judged.take(results.size == sizes[-1])
    numbers = _numbers(judged, answerable)
    errors = {name: jackknife(each[name] for each in replicates) for name in numbers}
    identifies = answerable is None or (
        judged.right.sum() >= LEAST_RIGHT and numbers["auc"] - SURE * errors["auc"] > 0.5
    )
    model = MatchModel(
        **facts,
        answerable=answerable,
        coefficients=_logistic(results, answerable),
        identifies=bool(identifies),
        sizes=tuple(sizes),
        false_accepts=tuple(GRID.tolist()),
        cutoffs=tuple(tuple(cutoffs.tolist()) for cutoffs, _ in curves),
        shares_kept=tuple(tuple(kept.tolist()) for _, kept in curves if answerable is not None),
        scores=(float(judged.cosines.min()), float(judged.cosines.max())),
        numbers={name: _interval(name, value, errors[name], answerable) for name, value in numbers.items()},
    )
    return model, judged


def _interval(name: str, value: float, error: float, answerable: float | None) -> Interval:
    """Return the value and the ends of its 90% interval; shares and probabilities lie between 0 and 1."""
    low, high = value - Z * error, value + Z * error
    if answerable is None or name.startswith("cutoff[cosine]"):
        return value, low, high
    return value, max(low, 0.0), min(high, 1.0)


def _values(coefficients: tuple[float, ...] | None, columns: np.ndarray) -> np.ndarray:
    """Return the log odds of first results or, without a model, their z-scores."""
    return columns[:, 1] if coefficients is None else coefficients[0] + columns @ np.array(coefficients[1:])


def _logistic(results: FirstResults, answerable: float | None) -> tuple[float, ...] | None:
    """Return the intercept and the weights of the columns; None if no right results are known.

    If too few results are right, the intercept is that of their share, and the weights are 0.
    """
    from sklearn.linear_model import LogisticRegression

    if answerable is None:
        return None
    right, columns, weights = results.right, results.columns, results.weights(answerable)
    if right.sum() < LEAST_RIGHT:
        share = (right.sum() + 0.5) / (len(right) + 1)
        return (float(logit(share)), 0.0, 0.0, 0.0, 0.0)
    mean = np.average(columns, axis=0, weights=weights)
    std = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weights)) + 1e-12
    fit = LogisticRegression(C=RIDGE, solver="newton-cholesky")
    fit.fit((columns - mean) / std, right, sample_weight=weights * len(np.unique(results.query)))
    slopes = np.ravel(fit.coef_) / std
    return (float(np.ravel(fit.intercept_)[0] - mean @ slopes), *slopes.tolist())


def _numbers(judged: JudgedResults, answerable: float | None) -> dict[str, float]:
    """Return the numbers of the table; without pairs, the cutoffs only."""
    cutoffs, kept = judged.cutoffs(np.array(RATES))
    if answerable is None:
        return {f"cutoff@{rate:g}": float(cutoff) for rate, cutoff in zip(RATES, cutoffs, strict=True)}
    by_cosine = Roc(judged.cosines, judged.right)
    numbers = {
        "right": float(np.average(judged.right, weights=judged.weights)),
        "auc": Roc(judged.values, judged.right).auc(judged.weights),
        "auc[cosine]": by_cosine.auc(judged.weights),
    }
    flat = by_cosine.cutoffs(judged.weights, np.array(RATES))
    columns = {"cutoff": expit(cutoffs), "kept": kept, "cutoff[cosine]": flat[0], "kept[cosine]": flat[1]}
    return numbers | {
        f"{name}@{r:g}": float(v) for name, each in columns.items() for r, v in zip(RATES, each, strict=True)
    }


def random_blocks(queries: np.ndarray, items: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return random blocks of the queries and of the items of the index; rows of one item are in one block."""
    numbers, position = np.unique(np.concatenate([queries, items]), return_inverse=True)
    asked = np.isin(numbers, queries)
    block = np.empty(len(numbers), dtype=int)
    for some in (asked, ~asked):  # the queries may be a small sample
        block[some] = rng.permutation(some.sum()) % BLOCKS
    return block[position[: len(queries)]], block[position[len(queries) :]]

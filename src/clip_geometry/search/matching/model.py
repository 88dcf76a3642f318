"""A fitted match model: the probability that a first result is right, its cutoffs, and its file."""

import math
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import torch
from pydantic import Field, model_validator
from scipy.special import expit

from clip_geometry.config import Config
from clip_geometry.embeddings import Embeddings, model_and_maps
from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import real_number, whole_number

TINY = 1e-9  # standard deviation of scores that differ by rounding only
STRANGE = 2.0  # best scores this many ranges outside those of the fit come from another model or metric

Interval: TypeAlias = tuple[float, float, float]  # value, lower and upper end of the 90% interval
Level = Annotated[float, Field(gt=0, lt=1)]


def features(top: np.ndarray, mean: np.ndarray, std: np.ndarray, m: np.ndarray | float) -> np.ndarray:
    """Return what the probability is computed from, (q, 4).

    The columns are the best score; its z-score among all scores of the query, divided by √(2 log m), which is where the
    largest of m normal scores lies; the square root of the margin to the second score; and log m.
    """
    log_m = np.log(m) + np.zeros(len(top))
    z = (top[:, 0] - mean) / std / np.sqrt(2 * log_m)
    return np.stack([top[:, 0], z, np.sqrt(top[:, 0] - top[:, 1]), log_m], axis=1)


class MatchModel(Config):
    """Probability that the first result of a search is right: a logistic regression for one direction of search.

    `cg.match` fits it. To apply it to the results of any search engine, describe the search of q queries by

    - top: (q, k) best cosines of each query, k ≥ 2, in descending order.
    - mean, std: (q,) mean and standard deviation of the cosines of each query to all rows of the index, or to a random
      sample of 200 of them.
    - m: number of rows of the index.

    A model that was fitted without pairs has no coefficients and no probability, only cutoffs for its z-score,
    (best cosine − mean)/(std √(2 log m)).

    Attributes:
        query, item: Modality of the queries and modality of the index.
        answerable: Assumed share of queries that have an answer in the index; None if the model was fitted without
            pairs.
        coefficients: Intercept of the logistic regression and weights of the best cosine, the z-score, the square root
            of the difference to the second cosine, and log m; None if it was fitted without pairs.
        identifies: Whether the scores distinguish right first results from wrong ones better than chance: whether the
            AUC is above 0.5 by more than its error.
        n: Number of queries on which the model was fitted.
        dim: Dimension of the rows.
        sizes: Sizes of the index for which there are cutoffs, in ascending order; the last is the whole index.
        false_accepts: Rates of false accepts for which there are cutoffs, in ascending order: shares of the queries
            without an answer whose first result passes the cutoff.
        cutoffs: Cutoff for each size and rate, as log odds; without pairs, as the z-score.
        shares_kept: Share of the right first results that pass each cutoff, in [0, 1].
        scores: Smallest and largest best cosine among the queries of the fit.
        origins: Model and fitted maps of the queries and items, if their files record them.
        numbers: Held-out quality of the model, such as the AUC: name → value and 90% interval, as in `Match.frame`.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> item = rng.normal(size=(300, 16))
        >>> image, text = (item + 0.7 * rng.normal(size=(300, 16)) for _ in range(2))
        >>> model = cg.match(image, text)["image_to_text"]
        >>> top = [[0.95, 0.50, 0.45], [0.51, 0.50, 0.48]]  # from any search engine
        >>> p = model.probability(top, mean=[0.0, 0.0], std=[0.25, 0.25], m=300)
        >>> p.round(1).tolist(), (p > model.cutoff(false_accepts=0.05)).tolist()
        ([1.0, 0.0], [True, False])
    """

    query: str
    item: str
    answerable: Level | None
    coefficients: Annotated[tuple[float, ...], Field(min_length=5, max_length=5)] | None
    identifies: bool
    n: Annotated[int, Field(ge=1)]
    dim: Annotated[int, Field(ge=1)]
    sizes: tuple[int, ...]
    false_accepts: tuple[float, ...]
    cutoffs: tuple[tuple[float, ...], ...]
    shares_kept: tuple[tuple[float, ...], ...]
    scores: tuple[float, float]
    origins: dict[Literal["query", "item"], dict[str, str]]
    numbers: dict[str, Interval]

    def probability(self, top: Any, *, mean: Any, std: Any, m: int) -> np.ndarray:
        """Return the probability that the first result of each query is right, (q,).

        Args:
            top, mean, std, m: The results of a search, as the class describes them.

        Raises:
            InputError: An argument is not as described, the scores are far outside those of the fit, or the model was
                fitted without pairs.
        """
        if self.coefficients is None:
            raise InputError(
                "without pairs there is no probability, only a rate of false accepts; call accepts, or fit with pairs"
            )
        return expit(self._score(top, mean, std, m))

    def accepts(self, top: Any, *, mean: Any, std: Any, m: int, false_accepts: float = 0.05) -> np.ndarray:
        """Return which first results pass the cutoff, (q,), for a rate of false accepts and the size m of the index.

        Args:
            top, mean, std, m: The results of a search, as the class describes them.
            false_accepts: Share of the wrong first results that may pass, between 0 and 1.

        Raises:
            InputError: As `probability` and `cutoff` raise it.
        """
        return self._score(top, mean, std, m) > self._cutoff(false_accepts, m)

    def cutoff(self, false_accepts: float = 0.05, m: int | None = None) -> float:
        """Return the probability above which a share `false_accepts` of the wrong first results lies.

        A first result is wrong if the index has no answer or if another item comes first.

        Args:
            false_accepts: The share, between 0 and 1.
            m: Number of rows of the index; default: that of the fit. Between the sizes of the fit, the cutoff is
                interpolated; beyond them, it is that of the nearest size.

        Returns:
            The cutoff for `probability`. Without pairs, it is a cutoff for the z-score of the best result divided by
            √(2 log m).

        Raises:
            InputError: The scores do not tell right results from wrong ones, or an argument is out of range.
        """
        cutoff = self._cutoff(false_accepts, m)
        return cutoff if self.coefficients is None else float(expit(cutoff))

    def kept(self, false_accepts: float = 0.05, m: int | None = None) -> float:
        """Return the share of the right first results that pass the cutoff; the arguments are those of `cutoff`.

        Raises:
            InputError: As for `cutoff`, or the model was fitted without pairs.
        """
        if not self.shares_kept:
            raise InputError("without pairs, no right results are known, so their share is unknown; give match pairs")
        self._require_cutoffs()
        return self._interpolated(self.shares_kept, false_accepts, m)

    @model_validator(mode="after")
    def _consistent(self) -> "MatchModel":
        """Require curves for every size and rate, in ascending order, and the numbers of the table."""
        for name in (self.query, self.item):
            modality_name(name)
        rates, sizes = np.array(self.false_accepts), np.array(self.sizes)
        shapes = {np.shape(self.cutoffs), np.shape(self.shares_kept) if self.shares_kept else (len(sizes), len(rates))}
        if len(sizes) < 1 or sizes[0] < 2 or (np.diff(sizes) <= 0).any() or len(rates) < 2:
            raise ValueError("sizes and false_accepts must ascend")
        if not (rates > 0).all() or not (np.diff(rates) > 0).all() or not (rates < 1).all():
            raise ValueError("false_accepts must ascend between 0 and 1")
        if shapes != {(len(sizes), len(rates))}:
            raise ValueError("there must be a curve of cutoffs for each size")
        if (self.coefficients is None) != (self.answerable is None) or self.scores[0] > self.scores[1]:
            raise ValueError("answerable, coefficients and scores must agree")
        if self.origins.keys() != {"query", "item"} or "cutoff@0.05" not in self.numbers:
            raise ValueError("origins or numbers are missing")
        return self

    def check(self, queries: Any, items: Any) -> None:
        """Raise InputError if the rows have another dimension, model or maps than those of the fit.

        Args:
            queries, items: `Embeddings`, or arrays (n, d), of which only the dimension is known.
        """
        for modality, given, fitted in (
            (self.query, queries, self.origins["query"]),
            (self.item, items, self.origins["item"]),
        ):
            rows = given if isinstance(given, Embeddings) else Embeddings(given, modality)
            if rows.dim != self.dim:
                raise InputError(f"the {modality} rows have {rows.dim} columns; fitted on {self.dim}")
            found = model_and_maps(rows)
            if not rows.provenance or not fitted:
                continue  # rows of unknown origin
            for name in sorted(fitted.keys() | found.keys()):
                if fitted.get(name) != found.get(name):
                    raise InputError(
                        f"the {modality} rows have the {name} {shown(found.get(name, 'none'))}; fitted on "
                        f"{shown(fitted.get(name, 'none'))}"
                    )

    def _score(self, top: Any, mean: Any, std: Any, m: Any) -> np.ndarray:
        """Return the log odds of each query or, without pairs, its z-score."""
        top, mean, std = _numbers(top, "top"), _numbers(mean, "mean"), _numbers(std, "std")
        m = whole_number(m, "m", least=2, of=", of rows of the index")
        if top.ndim != 2 or top.shape[1] < 2:
            raise InputError(
                f"top has shape {top.shape}; expected (q, k) with at least the 2 best scores of each query"
            )
        for name, each in (("mean", mean), ("std", std)):
            if each.shape != top.shape[:1]:
                raise InputError(f"{name} has shape {each.shape}; expected ({len(top)},), one number per query")
            if not np.isfinite(each).all():
                raise InputError(f"{name} has NaN or infinity for query {int(np.flatnonzero(~np.isfinite(each))[0])}")
        if not np.isfinite(top[:, :2]).all():
            query = int(np.flatnonzero(~np.isfinite(top[:, :2]).all(1))[0])
            raise InputError(f"top has NaN or infinity for query {query}; the two best scores are needed")
        ascending = (top[:, 1:] > top[:, :-1]).any(1)
        if ascending.any():
            query = int(np.flatnonzero(ascending)[0])
            raise InputError(f"the scores of query {query} ascend; expected descending scores, not distances")
        if not (std > TINY).all():
            query = int(np.flatnonzero(~(std > TINY))[0])
            raise InputError(f"std of query {query} is {std[query]:g}; expected a positive standard deviation")
        low, high = self.scores
        outside = np.maximum(low - top[:, 0], top[:, 0] - high) > STRANGE * (high - low)
        if outside.any():
            query = int(np.flatnonzero(outside)[0])
            raise InputError(
                f"the best score of query {query} is {top[query, 0]:.3g}, and those of the fit were from {low:.3g} to "
                f"{high:.3g}; expected scores of the same model and metric"
            )
        columns = features(top, mean, std, m)
        if self.coefficients is None:
            return columns[:, 1]
        return self.coefficients[0] + columns @ np.array(self.coefficients[1:])

    def _require_cutoffs(self) -> None:
        """Raise InputError if the scores cannot distinguish right first results from wrong ones."""
        if not self.identifies:
            raise InputError(
                f"the scores cannot identify matches of {self.query} queries among {self.item} items, so there is no "
                "cutoff"
            )

    def _cutoff(self, false_accepts: float, m: int | None) -> float:
        self._require_cutoffs()
        return self._interpolated(self.cutoffs, false_accepts, m)

    def _interpolated(self, curves: Any, false_accepts: float, m: int | None) -> float:
        """Interpolate the curves of all sizes in the logarithms of the rate and of the size of the index."""
        rate = real_number(false_accepts, "false_accepts", lambda x: 0 < x < 1, "a share between 0 and 1")
        m = self.sizes[-1] if m is None else whole_number(m, "m", least=2, of=", of rows of the index")
        at_sizes = [np.interp(math.log(rate), np.log(self.false_accepts), curve) for curve in curves]
        return float(np.interp(math.log(m), np.log(self.sizes), at_sizes))


def _numbers(values: Any, name: str) -> np.ndarray:
    """Convert an array, tensor or list to a float64 array; raise InputError, which names it, for anything else."""
    try:
        return np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values).astype(np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} = {shown(values)}; expected an array or a tensor of numbers") from None

"""`map_index`: let an index of an old model's embeddings serve a new model, with a prediction of its recall."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from clip_geometry.geometry.uncertainty import jackknife
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import seed_number, whole_number
from clip_geometry.rows.matrix import BLOCK
from clip_geometry.steps import ANY, parse_pipeline, transforms
from clip_geometry.transforms import Normalize, PairedTransform, RankWarning
from clip_geometry.transforms.base import as_matrix
from clip_geometry.transforms.pipeline import Pipeline

RowFunction: TypeAlias = Callable[[np.ndarray], np.ndarray]

CANDIDATES = ("procrustes", "ridge(0.001)", "ridge(0.01)", "ridge(0.1)", "ridge(1)", "ridge(0.01, rank=64)")
LEAST = 200  # fewest re-embedded rows
MANY = 1000  # rows from which 10 folds are enough; with fewer rows, leaving out a fold costs the map more
ENOUGH = 20  # expected number of neighbors among the re-embedded rows, from which recall is estimated
GROUPS = 20  # groups of the jackknife
Z = 1.96


class TriedMap(NamedTuple):
    """A candidate map and its recall.

    Args:
        steps: The map as a pipeline step; "none" leaves the old rows unchanged.
        recall: Recall at k within each fifth of the re-embedded rows, with the map fitted on the other rows.
        standard_error: Standard error of the recall over queries.
    """

    steps: str
    recall: float
    standard_error: float


@dataclass(frozen=True, eq=False, repr=False)
class IndexMap:
    """A map of old rows into the space of a new model, and the predicted quality of the mapped index.

    Attributes:
        fitted: The map, a pipeline for rows of any modality: `fitted.transform({"any": old})`.
        recall: Predicted recall at k, compared with an index of the new model's rows of all items.
        standard_error: Standard error of the prediction.
        interval: 95% interval of the prediction.
        k, size: Number of neighbors of the search, and number of rows of the index.
        rows: Number of re-embedded rows.
        candidates: All maps that were tried, best first.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> items = rng.normal(size=(2000, 8))  # and two models of them
        >>> old, new = items @ rng.normal(size=(8, 16)), items @ rng.normal(size=(8, 12))
        >>> rows = rng.permutation(2000)[:400]  # re-embedded
        >>> found = cg.search.map_index(old, new[rows], rows, candidates=["procrustes", "ridge(0.001)"])
        >>> found.candidates[0].steps, round(found.recall, 1)
        ('ridge(alpha=0.001)', 0.8)
    """

    fitted: Pipeline
    recall: float
    standard_error: float
    interval: tuple[float, float]
    k: int
    size: int
    rows: int
    candidates: Sequence[TriedMap]

    def transform(self, old: np.ndarray) -> np.ndarray:
        """Map old rows into the space of the new model, and scale them to unit length."""
        return self.fitted.transform({ANY: old})[ANY]

    def save(self, path: str | Path) -> None:
        """Write the map as .safetensors, for `apply`, `ship` and other programs."""
        self.fitted.save(path)

    def __repr__(self) -> str:
        low, high = self.interval
        lines = [
            f"After {self.candidates[0].steps}, the index of {self.size} old rows has a predicted recall at {self.k} "
            f"of {self.recall:.3f} ± {self.standard_error:.3f} (95% interval {low:.3f} to {high:.3f}) against that of "
            f"all rows re-embedded; {self.rows} were.",
            "",
        ]
        for steps, recall, error in self.candidates:
            lines.append(f"{steps:<28}{recall:.3f} ± {error:.3f}  recall at {self.k} of {self.rows // 5}")
        return "\n".join(lines)


def map_index(
    old: Any,
    new: Any,
    rows: Any,
    *,
    queries: Any = None,
    k: int = 10,
    candidates: Sequence[str] = CANDIDATES,
    seed: int = 0,
) -> IndexMap:
    """Fit a map that lets an index of old embeddings serve a new model, and predict its recall.

    You re-embed a random sample of about 1,000 items of the index with the new model. Several maps are fitted on these
    pairs and compared by recall on pairs that they were not fitted on (adapters as in Vejendla 2025, arXiv:2509.23471);
    the best one is fitted on all pairs. Rows are scaled to unit length before and after the map, and neighbors are
    nearest by cosine.

    Recall is the share of a query's k nearest items, in an index re-embedded as a whole, that are also among the k
    nearest in the mapped index. It is predicted without such an index: the rank of a mapped row among all items is
    known, and so is the true cosine of a re-embedded row with the query. The re-embedded rows that belong to the k
    nearest are recognized by a cosine above the k-th cosine of the whole index. This cosine is estimated for each query
    from its nearest re-embedded rows and its k-th mapped cosine, so that on average a share k/N of the rows is above
    it. For the prediction, maps are fitted on rows that belong to neither the query nor the item. The re-embedded rows
    themselves, a small share of the index, count as items that the map was fitted on. The interval is ± 1.96 standard
    errors of a jackknife over items and queries.

    Args:
        old: (N, d) all rows of the index.
        new: (s, e) rows of the new model, s ≥ 200.
        rows: (s,) the numbers of these items in `old`. They must be a random sample; the first items of an ordered
            index are not one.
        queries: (q, e) queries of the new model, such as texts for an index of images. By default, queries are assumed
            to be like the items, and the re-embedded rows serve as queries, each excluded from its own results.
        k: Number of neighbors, at most N/4.
        candidates: Pipeline steps that are fitted on pairs, without a direction, such as "ridge(0.1)".
        seed: Seed of the folds and the groups of the jackknife.

    Returns:
        An `IndexMap` with the map, its predicted recall, and all candidates.

    Raises:
        InputError: There are too few rows, `rows` are not numbers of different rows of `old`, or k is too large.

    Example:
        >>> import numpy as np
        >>> import clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> old = rng.normal(size=(2000, 8))
        >>> turned = old @ np.linalg.qr(rng.normal(size=(8, 8)))[0]
        >>> rows = rng.choice(2000, 400, replace=False)
        >>> found = cg.search.map_index(old, turned[rows], rows, candidates=["procrustes"])
        >>> found.recall > 0.9
        True
    """
    old = np.asarray(old if len(getattr(old, "shape", ())) == 2 else as_matrix(old, name="old"))
    unit = Normalize()
    asked = new = unit.apply(as_matrix(new, name="new"))
    if queries is not None:
        asked = unit.apply(as_matrix(queries, name="queries"))
        if asked.shape[1] != new.shape[1]:
            given = f"queries have dimension {asked.shape[1]} and new rows {new.shape[1]}"
            raise InputError(f"{given}; both are of the new model")
    try:
        numbers = np.asarray(rows)
    except ValueError:  # ragged
        numbers = np.empty(0)
    whole = numbers.ndim == 1 and numbers.dtype.kind in "iu"
    known = whole and bool(((numbers >= 0) & (numbers < len(old))).all())
    if not known or not LEAST <= len(np.unique(numbers)) == len(numbers) == len(new):
        raise InputError(
            f"rows are {shown(rows)} for {len(new)} new rows; expected the numbers of different rows of old, from 0 to "
            f"{len(old) - 1}, one for each of at least {LEAST} new rows, better 1,000"
        )
    k = whole_number(k, "k", most=len(old) // 4, of=f", a quarter of the {len(old)} rows of the index")
    share = len(new) / len(old)
    if (neighbors := len(asked) * len(new) * k / len(old)) < ENOUGH:
        needed = len(new) * (ENOUGH / neighbors) ** (0.5 if queries is None else 1.0)
        raise InputError(
            f"only about {neighbors:.0f} of the {k} nearest items of the queries are among the {len(new)} re-embedded "
            f"rows, too few to predict recall; re-embed {np.ceil(needed):.0f} rows or take a larger k"
        )
    rng = np.random.default_rng(seed_number(seed))
    folds = rng.permutation(len(new)) % (10 if len(new) >= MANY else 20)
    own = folds if queries is None else np.full(len(asked), -1)
    pairs = unit.apply(as_matrix(old[numbers], name="old")), new
    true = _without_itself(asked @ new.T, queries)
    tried = [_tried(steps, pairs, asked, folds, own, k) for steps in _fitting(candidates, old.shape[1], new)]
    tried.sort(key=lambda each: -each.recall)
    best = tried[0].steps

    mapped, thresholds = np.empty_like(true), np.empty(len(asked))
    for a, b in combinations_with_replacement(np.unique([*own, *folds]), 2):  # fitted without both folds
        blocks = [(own == first, folds == second) for first, second in {(a, b), (b, a)}]
        if blocks := [(q, x) for q, x in blocks if q.any() and x.any()]:
            map_of = _map(best, pairs, ~np.isin(folds, (a, b)))
            for q, x in blocks:
                mapped[np.ix_(q, x)] = asked[q] @ map_of(pairs[0][x]).T
    seen = mapped.copy()  # the same for items that the map was fitted on, like the re-embedded rows
    for fold in np.unique(own):
        q, others = own == fold, folds != fold
        map_of = _map(best, pairs, others)
        thresholds[q] = _kth(asked[q], old, map_of, k, numbers[q] if queries is None else None)
        seen[np.ix_(q, others)] = asked[q] @ map_of(pairs[0][others]).T
    both = [_without_itself(cosines, queries) for cosines in (mapped, seen)]

    def predict(q: np.ndarray, x: np.ndarray) -> float:
        of = np.ix_(q, x)
        found = [_kept(cosines[of], true[of], thresholds[q], k / len(old)) for cosines in both]
        return (1 - share) * found[0] + share * found[1]

    groups = rng.permutation(len(new)) % GROUPS
    asking = groups if queries is None else rng.permutation(len(asked)) % GROUPS
    recall = predict(np.arange(len(asked)), np.arange(len(new)))
    error = jackknife(predict(*(np.flatnonzero(each != group) for each in (asking, groups))) for group in range(GROUPS))
    likely = (recall * neighbors + 2) / (neighbors + 4)  # with few neighbors, the jackknife may see none lost
    error = max(error, float(np.sqrt(likely * (1 - likely) / (neighbors + 4))))
    interval = max(0.0, recall - Z * error), min(1.0, recall + Z * error)
    if best == "none":
        fitted = Pipeline("normalize").fit({ANY: pairs[0]})
    else:
        steps = Pipeline(f"normalize,{best}[old-to-new],normalize")
        fitted = steps.fit({"old": pairs[0], "new": new}, origin="re-embedded rows").only("old")
    return IndexMap(fitted, recall, error, interval, k, len(old), len(new), tried)


def _without_itself(cosines: np.ndarray, queries: Any) -> np.ndarray:
    """Exclude each query from its own results if the queries are the items."""
    if queries is None:
        np.fill_diagonal(cosines, -np.inf)
    return cosines


def _map(steps: str, pairs: tuple[np.ndarray, np.ndarray], some: np.ndarray) -> RowFunction:
    """Return a map of unit rows, fitted on a subset of the pairs."""
    unit = Normalize()
    if steps == "none":
        return unit.apply
    (step,) = parse_pipeline(steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)  # the final fit issues it
        fitted = step.make().fit(*(each[some] for each in pairs))
    return lambda x: unit.apply(fitted.apply(x))


def _fitting(candidates: Sequence[str], d: int, new: np.ndarray) -> list[str]:
    """Return the candidates that suit the dimensions, including "none"; raise InputError for invalid candidates."""
    n, e = new.shape
    fitting = ["none"] if d == e else []
    for step in parse_pipeline(candidates):
        if not issubclass(kind := transforms[step.name], PairedTransform) or step.scope:
            raise InputError(f"candidate {step} is no map fitted on pairs, without a direction, such as ridge(0.1)")
        rank = dict(step.parameters).get("rank") or 0
        if (d == e or not kind.one_space) and rank < min(d, e, n // 2):
            fitting.append(str(step))
    if not fitting:
        raise InputError(f"there is no candidate for {n} pairs of dimensions {d} and {e}; give one, such as ridge(0.1)")
    return fitting


def _tried(
    steps: str, pairs: tuple[np.ndarray, np.ndarray], asked: np.ndarray, folds: np.ndarray, own: np.ndarray, k: int
) -> TriedMap:
    """Measure recall within each fifth of the pairs, with a map fitted on the other pairs."""
    k, found = max(1, min(k, len(folds) // 50)), []
    itself = None if own.max() >= 0 else asked  # None if the queries are the items
    for fifth in range(5):
        x = folds % 5 == fifth
        q = x if itself is None else np.full(len(own), True)
        both = asked[q] @ _map(steps, pairs, ~x)(pairs[0][x]).T, asked[q] @ pairs[1][x].T
        near = [np.argpartition(-_without_itself(each, itself), k - 1, axis=1)[:, :k] for each in both]
        found.append((near[0][:, :, None] == near[1][:, None]).any(2).mean(1))
    each = np.concatenate(found)
    return TriedMap(steps, float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each))))


def _kth(queries: np.ndarray, old: np.ndarray, map_of: RowFunction, k: int, itself: np.ndarray | None) -> np.ndarray:
    """For each query, return a cosine that exactly the k nearest rows of the whole mapped index exceed, (q,)."""
    best, unit = np.empty((len(queries), 0)), Normalize()
    for start in range(0, len(old), BLOCK):
        cosines = queries @ map_of(unit.apply(as_matrix(old[start : start + BLOCK], name="old"))).T
        if itself is not None:
            here = np.flatnonzero((start <= itself) & (itself < start + BLOCK))
            cosines[here, itself[here] - start] = -np.inf
        best = np.concatenate([best, cosines], axis=1)
        best = -np.partition(-best, k, axis=1)[:, : k + 1] if best.shape[1] > k else best
    best.sort(axis=1)
    return (best[:, 0] + best[:, 1]) / 2


def _kept(mapped: np.ndarray, true: np.ndarray, threshold: np.ndarray, share: float) -> float:
    """Estimate recall at `share` · N from the cosines of the queries with the re-embedded rows.

    Args:
        mapped, true: (q, s) cosines with the mapped rows and with the new model's rows.
        threshold: (q,) the mapped cosine at rank share · N of the whole index.
        share: Share of the index that counts as near.
    """
    nearest = min(max(5, round(2 * share * mapped.shape[1])), mapped.shape[1] - 1)
    tops = [-np.sort(np.partition(-each, nearest - 1, axis=1)[:, :nearest], axis=1) for each in (mapped, true)]
    means = [each.mean(1) for each in tops]
    centered = [each - mean[:, None] for each, mean in zip(tops, means, strict=True)]
    slope = (centered[0] * centered[1]).sum() / (np.square(centered[0]).sum() or 1)
    expected = means[1] + slope * (threshold - means[0])  # the true cosine at that rank, up to a constant
    count = max(1, round(share * mapped.size))
    above = []
    for cosines, limit in ((mapped, threshold), (true, expected)):
        leads = cosines - limit[:, None]
        above.append(leads >= np.partition(leads, leads.size - count, axis=None)[leads.size - count])
    return float((above[0] & above[1]).sum() / count)

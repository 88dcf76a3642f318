"""`cg.search.map_index`: an index of an old model's embeddings serves a new model, with a prediction of its recall."""

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
LEAST = 200  # re-embedded rows
MANY = 1000  # from which on 10 folds are enough; of fewer, a fold is a larger part of what a map is fitted on
ENOUGH = 20  # neighbors of queries among the re-embedded rows, whose share that is kept is estimated
GROUPS = 20  # of the jackknife
Z = 1.96


class TriedMap(NamedTuple):
    """A map that was tried.

    Args:
        steps: As in a pipeline; "none" leaves the old rows as they are.
        recall: Recall at k among a fifth of the re-embedded rows, which it was not fitted on.
        standard_error: Of that, over queries.
    """

    steps: str
    recall: float
    standard_error: float


@dataclass(frozen=True, eq=False, repr=False)
class IndexMap:
    """A map of old rows to a new model, and how well the mapped index will do.

    Attributes:
        fitted: The map, a pipeline for rows of any modality: `fitted.transform({"any": old})`.
        recall: Predicted recall at k against the index of the new model's rows of all items.
        standard_error: Of the prediction.
        interval: 95%.
        k, size: Of the search and of the index.
        rows: How many were re-embedded.
        candidates: All maps that were tried, the best one first.

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
        """Return old rows as rows of the new model, of unit length."""
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

    Of the index, a random sample of about 1,000 items is re-embedded by the new model. Several maps are fitted on these
    pairs and compared by recall on pairs that they were not fitted on (adapters as of Vejendla 2025, arXiv:2509.23471),
    and the best one is fitted on all. Rows are made unit length before and after it, and neighbors are those by cosine.

    Recall is the share of the k nearest items of a query in the index re-embedded as a whole that are among the k
    nearest in the mapped index. It is predicted before that index exists: of a mapped row, its rank among all items is
    known, and of a re-embedded row its true cosine with the query. Those of the k nearest that happen to be among the
    re-embedded rows are recognized by a cosine above the k-th of the whole index, which is estimated for each query
    from its nearest re-embedded rows and its k-th mapped cosine, so that on average a share k/N of the rows is above
    it. Maps are fitted on rows that belong to neither the query nor the item; the re-embedded rows themselves, whose
    share of the index is small, count as items that were fitted on. The interval is ± 1.96 standard
    errors of a jackknife over items and queries.

    Args:
        old: (N, d) all rows of the index.
        new: (s, e) rows of the new model, s ≥ 200.
        rows: (s,) the numbers of these items in `old`, a random sample of them; the first ones of an ordered index are
            none.
        queries: (q, e) queries of the new model, such as texts for an index of images. By default, queries are like the
            items, and the re-embedded rows are used, each without itself.
        k: Neighbors.
        candidates: Pipeline steps without a direction.
        seed: Of folds and groups.

    Raises:
        InputError: Too few rows, rows that are not numbers of different rows of `old`, or a k that is not below N.

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
    for a, b in combinations_with_replacement(np.unique([*own, *folds]), 2):  # fitted without the fold of either
        blocks = [(own == first, folds == second) for first, second in {(a, b), (b, a)}]
        if blocks := [(q, x) for q, x in blocks if q.any() and x.any()]:
            map_of = _map(best, pairs, ~np.isin(folds, (a, b)))
            for q, x in blocks:
                mapped[np.ix_(q, x)] = asked[q] @ map_of(pairs[0][x]).T
    seen = mapped.copy()  # the same with items that were fitted on, as the re-embedded rows of the index are
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
    likely = (recall * neighbors + 2) / (neighbors + 4)  # of few neighbors, the jackknife may see none that is lost
    error = max(error, float(np.sqrt(likely * (1 - likely) / (neighbors + 4))))
    interval = max(0.0, recall - Z * error), min(1.0, recall + Z * error)
    if best == "none":
        fitted = Pipeline("normalize").fit({ANY: pairs[0]})
    else:
        steps = Pipeline(f"normalize,{best}[old-to-new],normalize")
        fitted = steps.fit({"old": pairs[0], "new": new}, origin="re-embedded rows").only("old")
    return IndexMap(fitted, recall, error, interval, k, len(old), len(new), tried)


def _without_itself(cosines: np.ndarray, queries: Any) -> np.ndarray:
    """Leave out the item that a query is, where the queries are the items."""
    if queries is None:
        np.fill_diagonal(cosines, -np.inf)
    return cosines


def _map(steps: str, pairs: tuple[np.ndarray, np.ndarray], some: np.ndarray) -> RowFunction:
    """Return a map of unit rows, fitted on some of the pairs."""
    unit = Normalize()
    if steps == "none":
        return unit.apply
    (step,) = parse_pipeline(steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)  # it is issued of the final fit
        fitted = step.make().fit(*(each[some] for each in pairs))
    return lambda x: unit.apply(fitted.apply(x))


def _fitting(candidates: Sequence[str], d: int, new: np.ndarray) -> list[str]:
    """Return the candidates that fit the dimensions, "none" among them, checked."""
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
    """Recall among each fifth of the pairs after a map fitted on the others."""
    k, found = max(1, min(k, len(folds) // 50)), []
    itself = None if own.max() >= 0 else asked  # as `queries`
    for fifth in range(5):
        x = folds % 5 == fifth
        q = x if itself is None else np.full(len(own), True)
        both = asked[q] @ _map(steps, pairs, ~x)(pairs[0][x]).T, asked[q] @ pairs[1][x].T
        near = [np.argpartition(-_without_itself(each, itself), k - 1, axis=1)[:, :k] for each in both]
        found.append((near[0][:, :, None] == near[1][:, None]).any(2).mean(1))
    each = np.concatenate(found)
    return TriedMap(steps, float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each))))


def _kth(queries: np.ndarray, old: np.ndarray, map_of: RowFunction, k: int, itself: np.ndarray | None) -> np.ndarray:
    """Return the cosine that the k nearest rows of the whole mapped index are above, (q,)."""
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
    """Estimate recall at `share` · N from cosines of queries and re-embedded rows.

    Args:
        mapped, true: (q, s) cosines with rows after the map and with the new model's rows.
        threshold: (q,) the mapped cosine at rank share · N of the whole index.
        share: Of the index that is near.
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

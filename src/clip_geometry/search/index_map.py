"""`map_index`: let an index of an old model's embeddings serve a new model, with a prediction of its recall.

Either the items of the index are mapped into the space of the new model, or each query into the space of the old one.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from scipy.special import ndtri

from clip_geometry.geometry.uncertainty import jackknife
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import one_of, seed_number, whole_number
from clip_geometry.rows.matrix import BLOCK
from clip_geometry.steps import ANY, parse_pipeline, transforms
from clip_geometry.transforms import Normalize, PairedTransform, RankWarning
from clip_geometry.transforms.base import as_matrix
from clip_geometry.transforms.pipeline import Pipeline

RowFunction: TypeAlias = Callable[[np.ndarray], np.ndarray]
Pairs: TypeAlias = tuple[np.ndarray, np.ndarray]  # unit rows of the old and the new model
MappedSide: TypeAlias = Literal["items", "queries"]
SIDES: tuple[MappedSide, ...] = get_args(MappedSide)

CANDIDATES = ("procrustes", "ridge(0.001)", "ridge(0.01)", "ridge(0.1)", "ridge(1)", "ridge(0.01, rank=64)")
LEAST = 200  # fewest re-embedded rows
MANY = 1000  # rows from which 10 folds are enough; with fewer rows, leaving out a fold costs the map more
ENOUGH = 20  # expected number of neighbors among the re-embedded rows, from which recall is estimated
GROUPS = 20  # groups of the jackknife
LEVEL = 0.95  # of the interval, for all tried maps together, so that it holds after the choice of the best one


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
    """Result of `map_index`: a map between the rows of an old and a new model, and the predicted quality of its search.

    Attributes:
        side: "items": the map converts rows of the old index to the new model. "queries": the map converts queries of
            the new model to the old one, and the index stays as it is.
        fitted: The map as a fitted `Pipeline` for rows of any modality: `fitted.transform({"any": rows})`.
        recall: Predicted share of the k nearest items, in an index with new rows of all items, that the search through
            the map finds.
        standard_error: Standard error of the predicted recall.
        interval: 95% interval of the predicted recall, wide enough for the choice among several candidates.
        k, size: Number of neighbors of the search (k), and number of rows of the index (size).
        rows: Number of items that were embedded again with the new model.
        candidates: All maps that were tried, with their predicted recall, best first.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> items = rng.normal(size=(2000, 8))
        >>> old, new = items @ rng.normal(size=(8, 16)), items @ rng.normal(size=(8, 12))  # two models
        >>> rows = rng.permutation(2000)[:400]  # the items that are embedded again
        >>> mapped = cg.search.map_index(old, new[rows], rows, candidates=["procrustes", "ridge(0.001)"])
        >>> mapped.candidates[0].steps, round(mapped.recall, 1)
        ('ridge(alpha=0.001)', 0.8)
    """

    side: MappedSide
    fitted: Pipeline
    recall: float
    standard_error: float
    interval: tuple[float, float]
    k: int
    size: int
    rows: int
    candidates: Sequence[TriedMap]

    def transform(self, rows: np.ndarray) -> np.ndarray:
        """Map rows of the old index, or queries if these are mapped, and scale them to unit length."""
        return self.fitted.transform({ANY: rows})[ANY]

    def save(self, path: str | Path) -> None:
        """Write the map as .safetensors, for `apply`, `ship` and other programs."""
        self.fitted.save(path)

    def __repr__(self) -> str:
        low, high = self.interval
        lines = [
            f"With {self.side} mapped by {self.candidates[0].steps}, the index of {self.size} old rows has a predicted "
            f"recall at {self.k} of {self.recall:.3f} ± {self.standard_error:.3f} (95% interval {low:.3f} to "
            f"{high:.3f}), compared with re-embedding all rows; {self.rows} rows were re-embedded.",
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
    side: MappedSide = "items",
    queries: Any = None,
    k: int = 10,
    candidates: Sequence[str] = CANDIDATES,
    seed: int = 0,
) -> IndexMap:
    """Fit a map that lets an index of old embeddings be searched with a new model, and predict its recall.

    You embed a random sample of about 1,000 items of the index again, with the new model, which gives pairs of old and
    new rows. Several maps are fitted on a part of the pairs and compared by recall on the others (adapters as in
    Vejendla 2025, arXiv:2509.23471). The best map is then fitted on all pairs. Rows are scaled to unit length before
    and after the map, and neighbors are nearest by cosine.

    Recall is the share of the k nearest items of a query, in an index with new rows of all N items, that are also among
    the k nearest in the mapped index. It is predicted without new rows of all items. For a re-embedded item, two
    numbers are known: its rank in the mapped index, and its true cosine with the query. The item counts as one of the
    true k nearest if this cosine exceeds a threshold, which is estimated for each query so that on average a share k/N
    of the items exceeds it.

    The prediction is cross-validated: the map that scores a query and an item is fitted on pairs that contain neither
    of them. Its interval comes from a jackknife over items and queries, with Bonferroni's correction for the number of
    candidates.

    Args:
        old: (N, d) all rows of the index, of the old model.
        new: (s, e) rows of the re-embedded items, of the new model, s ≥ 200.
        rows: (s,) row numbers of the re-embedded items in `old`. They must be a random sample; the first items of an
            ordered index are not.
        side: What is mapped. "items": the rows of the index, which is rewritten once. "queries": every query before its
            search, while the index stays as it is (Drift-Adapter, arXiv:2509.23471).
        queries: (q, e) queries of the new model, such as texts for an index of images. Default: the re-embedded rows
            serve as queries, each excluded from its own results, which assumes that queries are like the items.
        k: Number of neighbors, at most N/4.
        candidates: Steps that are fitted on pairs, such as "ridge(0.1)", without a direction in brackets.
        seed: Seed of the folds and the groups of the jackknife.

    Returns:
        An `IndexMap` with the map, its predicted recall, and all candidates.

    Raises:
        InputError: There are too few rows, `rows` are not numbers of different rows of `old`, or k is too large.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> old = rng.normal(size=(2000, 8))
        >>> new = old @ np.linalg.qr(rng.normal(size=(8, 8)))[0]  # the new model only rotates the rows
        >>> rows = rng.choice(2000, 400, replace=False)
        >>> index_map = cg.search.map_index(old, new[rows], rows, candidates=["procrustes"])
        >>> index_map.recall > 0.9
        True
    """
    side = one_of(side, "side", SIDES)
    old = np.asarray(old if len(getattr(old, "shape", ())) == 2 else as_matrix(old, name="old"))
    unit = Normalize()
    query_rows = new = unit.apply(as_matrix(new, name="new"))
    if queries is not None:
        query_rows = unit.apply(as_matrix(queries, name="queries"))
        if query_rows.shape[1] != new.shape[1]:
            given = f"queries have dimension {query_rows.shape[1]} and new rows {new.shape[1]}"
            raise InputError(f"{given}; expected one dimension, since both are rows of the new model")
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
    neighbors = len(query_rows) * len(new) * k / len(old)
    if neighbors < ENOUGH:
        needed = len(new) * (ENOUGH / neighbors) ** (0.5 if queries is None else 1.0)
        raise InputError(
            f"only about {neighbors:.0f} of the {k} nearest items of the queries are among the {len(new)} re-embedded "
            f"rows, too few to predict recall; re-embed {np.ceil(needed):.0f} rows or use a larger k"
        )
    rng = np.random.default_rng(seed_number(seed))
    folds = rng.permutation(len(new)) % (10 if len(new) >= MANY else 20)
    query_folds = folds if queries is None else np.full(len(query_rows), -1)
    pairs = unit.apply(as_matrix(old[numbers], name="old")), new
    true = _without_itself(query_rows @ new.T, queries)
    names = _applicable(candidates, old.shape[1], new)
    evaluated = [_evaluated(steps, side, pairs, query_rows, folds, query_folds, k) for steps in names]
    evaluated.sort(key=lambda candidate: -candidate.recall)
    best = evaluated[0].steps

    mapped = np.empty_like(true)
    thresholds = np.empty(len(query_rows))
    for a, b in combinations_with_replacement(np.unique([*query_folds, *folds]), 2):  # fitted without both folds
        blocks = [(query_folds == first, folds == second) for first, second in {(a, b), (b, a)}]
        blocks = [(q, x) for q, x in blocks if q.any() and x.any()]
        if not blocks:
            continue
        of_queries, of_items = _fitted_maps(best, side, pairs, ~np.isin(folds, (a, b)))
        for q, x in blocks:
            mapped[np.ix_(q, x)] = of_queries(query_rows[q]) @ of_items(pairs[0][x]).T
    mapped_in_fit = mapped.copy()  # with maps that were fitted on the items, as on the re-embedded rows
    for fold in np.unique(query_folds):
        q, others = query_folds == fold, folds != fold
        of_queries, of_items = _fitted_maps(best, side, pairs, others)
        mapped_queries = of_queries(query_rows[q])
        thresholds[q] = _thresholds(mapped_queries, old, of_items, k, numbers[q] if queries is None else None)
        mapped_in_fit[np.ix_(q, others)] = mapped_queries @ of_items(pairs[0][others]).T
    mapped, mapped_in_fit = _without_itself(mapped, queries), _without_itself(mapped_in_fit, queries)

    def predict(q: np.ndarray, x: np.ndarray) -> float:
        block = np.ix_(q, x)
        recall = _recall(mapped[block], true[block], thresholds[q], k / len(old))
        recall_in_fit = _recall(mapped_in_fit[block], true[block], thresholds[q], k / len(old))
        return (1 - share) * recall + share * recall_in_fit

    groups = rng.permutation(len(new)) % GROUPS
    query_groups = groups if queries is None else rng.permutation(len(query_rows)) % GROUPS
    recall = predict(np.arange(len(query_rows)), np.arange(len(new)))
    error = jackknife(
        predict(np.flatnonzero(query_groups != group), np.flatnonzero(groups != group)) for group in range(GROUPS)
    )
    shrunk = (recall * neighbors + 2) / (neighbors + 4)  # with few neighbors, the jackknife may see no miss
    error = max(error, float(np.sqrt(shrunk * (1 - shrunk) / (neighbors + 4))))
    margin = float(ndtri(1 - (1 - LEVEL) / 2 / len(names))) * error
    interval = max(0.0, recall - margin), min(1.0, recall + margin)
    source, target = ("old", "new") if side == "items" else ("new", "old")
    sets = {"old": pairs[0], "new": new}
    if best == "none":
        fitted = Pipeline("normalize").fit({ANY: sets[source]})
    else:
        steps = Pipeline(f"normalize,{best}[{source}-to-{target}],normalize")
        fitted = steps.fit(sets, origin="re-embedded rows").only(source)
    return IndexMap(side, fitted, recall, error, interval, k, len(old), len(new), evaluated)


def _without_itself(cosines: np.ndarray, queries: Any) -> np.ndarray:
    """Exclude each query from its own results if the queries are the items."""
    if queries is None:
        np.fill_diagonal(cosines, -np.inf)
    return cosines


def _fitted_maps(steps: str, side: MappedSide, pairs: Pairs, subset: np.ndarray) -> tuple[RowFunction, RowFunction]:
    """Return the functions that take unit rows of queries and of items into one space; one of them changes nothing.

    The other one is the map, fitted on a subset of the pairs, and scales to unit length.
    """
    unit = Normalize()
    if steps == "none":
        return unit.apply, unit.apply
    source, target = pairs if side == "items" else (pairs[1], pairs[0])
    (step,) = parse_pipeline(steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)  # the final fit issues it
        fitted = step.make().fit(source[subset], target[subset])

    def mapped(x: np.ndarray) -> np.ndarray:
        return unit.apply(fitted.apply(x))

    return (unit.apply, mapped) if side == "items" else (mapped, unit.apply)


def _applicable(candidates: Sequence[str], d: int, new: np.ndarray) -> list[str]:
    """Return the candidates that suit the dimensions, including "none"; raise InputError for invalid candidates."""
    n, e = new.shape
    applicable = ["none"] if d == e else []
    for step in parse_pipeline(candidates):
        kind = transforms[step.name]
        if not issubclass(kind, PairedTransform) or step.scope:
            raise InputError(f"candidate {step}; expected a map fitted on pairs, without brackets, such as ridge(0.1)")
        rank = dict(step.parameters).get("rank") or 0
        if (d == e or not kind.one_space) and rank < min(d, e, n // 2):
            applicable.append(str(step))
    if not applicable:
        raise InputError(f"no candidate suits {n} pairs of dimensions {d} and {e}; give one such as ridge(0.1)")
    return applicable


def _evaluated(
    steps: str,
    side: MappedSide,
    pairs: Pairs,
    query_rows: np.ndarray,
    folds: np.ndarray,
    query_folds: np.ndarray,
    k: int,
) -> TriedMap:
    """Measure recall within each fifth of the pairs, with a map fitted on the other pairs."""
    k = max(1, min(k, len(folds) // 50))
    recalls = []
    itself = None if query_folds.max() >= 0 else query_rows  # None if the queries are the items
    for fifth in range(5):
        x = folds % 5 == fifth
        q = x if itself is None else np.full(len(query_folds), True)
        of_queries, of_items = _fitted_maps(steps, side, pairs, ~x)
        tables = of_queries(query_rows[q]) @ of_items(pairs[0][x]).T, query_rows[q] @ pairs[1][x].T
        cosines = [_without_itself(table, itself) for table in tables]
        nearest = [np.argpartition(-table, k - 1, axis=1)[:, :k] for table in cosines]
        recalls.append((nearest[0][:, :, None] == nearest[1][:, None]).any(2).mean(1))
    recall = np.concatenate(recalls)
    return TriedMap(steps, float(recall.mean()), float(recall.std(ddof=1) / np.sqrt(len(recall))))


def _thresholds(queries: np.ndarray, old: np.ndarray, to_new: RowFunction, k: int, itself: Any) -> np.ndarray:
    """For each query, return a cosine that exactly the k nearest rows of the whole mapped index exceed, (q,)."""
    best = np.empty((len(queries), 0))
    unit = Normalize()
    for start in range(0, len(old), BLOCK):
        cosines = queries @ to_new(unit.apply(as_matrix(old[start : start + BLOCK], name="old"))).T
        if itself is not None:
            in_block = np.flatnonzero((start <= itself) & (itself < start + BLOCK))
            cosines[in_block, itself[in_block] - start] = -np.inf
        best = np.concatenate([best, cosines], axis=1)
        best = -np.partition(-best, k, axis=1)[:, : k + 1] if best.shape[1] > k else best
    best.sort(axis=1)
    return (best[:, 0] + best[:, 1]) / 2


def _recall(mapped: np.ndarray, true: np.ndarray, threshold: np.ndarray, share: float) -> float:
    """Estimate recall at `share` · N from the cosines of the queries with the re-embedded rows.

    Args:
        mapped, true: (q, s) cosines with the mapped rows and with the new model's rows.
        threshold: (q,) the mapped cosine at rank share · N of the whole index.
        share: Share of the index that counts as near.
    """
    nearest = min(max(5, round(2 * share * mapped.shape[1])), mapped.shape[1] - 1)
    tops = [-np.sort(np.partition(-cosines, nearest - 1, axis=1)[:, :nearest], axis=1) for cosines in (mapped, true)]
    means = [top.mean(1) for top in tops]
    centered = [top - mean[:, None] for top, mean in zip(tops, means, strict=True)]
    slope = (centered[0] * centered[1]).sum() / (np.square(centered[0]).sum() or 1)
    expected = means[1] + slope * (threshold - means[0])  # the true cosine at that rank, up to a constant
    count = max(1, round(share * mapped.size))
    in_top = []
    for cosines, limit in ((mapped, threshold), (true, expected)):
        leads = cosines - limit[:, None]
        in_top.append(leads >= np.partition(leads, leads.size - count, axis=None)[leads.size - count])
    return float((in_top[0] & in_top[1]).sum() / count)

"""What a repaired index returns: a value for every query, and their mean with its error."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from clip_geometry.diagnosis.index import MixedIndex, Split
from clip_geometry.evaluators.two_sided import two_sided_scores
from clip_geometry.registry import InputError
from clip_geometry.repairs import Repair, repairs

K = 10
# what each number is, for tables; all are means over queries of the share or the rank of one query
NUMBERS = {
    "mrr": "reciprocal rank of the first relevant item of another modality, in the mixed index",
    "r_at_1": "queries whose first item in the mixed index is relevant and of another modality",
    "hit_at_10": "queries with a relevant item of another modality in the top ten of the mixed index",
    "own_share": "own modality in the top ten of the mixed index",
    "cross_r_at_1": "queries whose first item among the other modalities is relevant (ordinary recall at 1)",
    "neighbors": "the ten nearest items of the own modality that stay among the ten nearest",
    "precision": "relevant share of the top ten of the mixed index",
    "ndcg": "NDCG of the top ten of the mixed index",
}


class Estimate(NamedTuple):
    """A mean over queries.

    Attributes:
        value: The mean.
        error: Its standard error over items.
        split_error: That of the mean over the J splits, what one more choice of halves would change; NaN for one split.
        splits: J.
    """

    value: float
    error: float
    split_error: float = float("nan")
    splits: int = 1

    def interval(self) -> tuple[float, float]:
        """The 90 % interval of what the repair, fitted on all items, does in a new index of this size.

        Of both errors, with Student's t for J − 1 degrees of freedom. How often it holds: docs/mixed_index.md.
        """
        from scipy.stats import t

        reach = float("nan")
        if self.splits > 1:
            reach = float(t.ppf(0.95, self.splits - 1) * np.hypot(self.error, self.split_error))
        return self.value - reach, self.value + reach


class Search:
    """The held-out index of a split, searched with the scores of any repair.

    Beside what `NUMBERS` names, `run` returns cross_r_at_5, whether a relevant item is among the first five of other
    modalities, and own_precision, the relevant share of the ten nearest of the own modality.
    """

    def __init__(self, index: MixedIndex, split: Split):
        relevance = index.relevance(split.searched)
        assert relevance is not None
        self.items, self.relevance = index.rows(split.searched), relevance
        # places of the queries within the index
        self.queries = {name: np.searchsorted(split.searched[name], rows) for name, rows in split.queries.items()}
        self.relevant: dict[tuple[str, str], np.ndarray] = {}
        self.before: dict[str, np.ndarray] = {}  # own neighbors without a repair, which is run first

    def run(self, repair: Repair) -> dict[str, dict[str, np.ndarray]]:
        """Modality of the queries → number → a value for each query."""
        return {query: self._run(repair, query, places) for query, places in self.queries.items() if len(places)}

    def chances(self) -> list[float]:
        """For each modality of queries, the recall at 1 across modalities of items in random order."""
        found = []
        for query in (name for name, places in self.queries.items() if len(places)):
            relevant = np.concatenate([self._relevant(query, item) for item in self.items if item != query], axis=1)
            found += [float(relevant[relevant.any(1)].mean())] if relevant.any() else []
        return found

    def _relevant(self, query: str, item: str) -> np.ndarray:
        if (query, item) not in self.relevant:
            places, items = torch.from_numpy(self.queries[query]), torch.arange(len(self.items[item]))
            grades = self.relevance.tables[query, item].grades(places, items.expand(len(places), -1))
            self.relevant[query, item] = grades.numpy() > 0
        return self.relevant[query, item]

    def _run(self, repair: Repair, query: str, places: np.ndarray) -> dict[str, np.ndarray]:
        scores = repair.mixed(query, self.items[query][places], self.items, places)
        best = np.full(len(places), -np.inf)  # of the relevant items of other modalities
        irrelevant = {}
        for item, each in scores.items():
            if item != query:
                relevant = self._relevant(query, item)
                best = np.maximum(best, np.where(relevant, each, -np.inf).max(1))
                irrelevant[item] = np.where(relevant, -np.inf, each)
        across = sum((each >= best[:, None]).sum(1) for each in irrelevant.values())
        rank = 1.0 + across + (scores[query] >= best[:, None]).sum(1)
        undefined = np.isneginf(best)
        k = min(K, scores[query].shape[1] - 1)
        if k < 1:
            raise InputError(f"an index with one {query} row has no neighbors within it; give more rows")
        near = np.sort(np.argpartition(-scores[query], k - 1, axis=1)[:, :k], axis=1)
        before = self.before.setdefault(query, near)
        two_sided = two_sided_scores(
            scores, self.relevance, query, queries=places, k=min(K, sum(map(len, self.items.values())) - 1)
        )
        return {
            "mrr": np.where(undefined, np.nan, 1 / rank),
            "r_at_1": np.where(undefined, np.nan, rank == 1),
            "hit_at_10": np.where(undefined, np.nan, rank <= K),
            "own_share": two_sided[f"share.{query}"],
            "cross_r_at_1": np.where(undefined, np.nan, across == 0),
            "cross_r_at_5": np.where(undefined, np.nan, across < 5),
            "neighbors": np.array([len(np.intersect1d(a, b)) / k for a, b in zip(before, near, strict=True)]),
            "precision": two_sided["precision"],
            "own_precision": two_sided["own_precision"],
            "ndcg": two_sided["ndcg"],
        }


class Sums:
    """The values of every row as a query, summed over the splits that it was a query in."""

    def __init__(self, index: MixedIndex):
        self.index = index
        self.totals = {name: {number: np.zeros(len(each)) for number in NUMBERS} for name, each in index.sets.items()}
        self.counts = {name: {number: np.zeros(len(each)) for number in NUMBERS} for name, each in index.sets.items()}
        self.by_split: dict[tuple[str, str], list[float]] = {}  # (query, number) → the mean of each split

    def add(self, query: str, rows: np.ndarray, numbers: Mapping[str, np.ndarray]) -> None:
        for number, values in numbers.items():
            if number not in NUMBERS:
                continue
            known = ~np.isnan(values)
            mean = float(values[known].mean()) if known.any() else float("nan")
            self.by_split.setdefault((query, number), []).append(mean)
            self.totals[query][number][rows[known]] += values[known]
            self.counts[query][number][rows[known]] += 1

    def means(self, query: str, number: str) -> np.ndarray:
        """The mean of each row, NaN for one that was never a query."""
        counts = self.counts[query][number]
        return np.divide(self.totals[query][number], counts, out=np.full(len(counts), np.nan), where=counts > 0)

    def estimates(self, less: "Sums | None" = None) -> dict[str, Estimate]:
        """The mean of each number, or of the paired differences from others, over all queries and by modality."""
        found = {}
        for number in NUMBERS:
            values = {query: self.means(query, number) for query in self.index.modalities}
            if less is not None:
                values = {query: each - less.means(query, number) for query, each in values.items()}
            parts = {f"{number}.{query}": {query: each} for query, each in values.items()}
            for name, part in ({number: values} | parts).items():
                if (estimate := _estimate(part, self.index)) is None:
                    continue
                some = [query for query in part if (query, number) in self.by_split]
                means = np.array([self.by_split[query, number] for query in some])
                if less is not None:
                    means = means - np.array([less.by_split[query, number] for query in some])
                means = means[~np.isnan(means).all(1)].mean(0)
                error = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else float("nan")
                found[name] = estimate._replace(split_error=error, splits=len(means))
        return found


def _estimate(values: Mapping[str, np.ndarray], index: MixedIndex) -> Estimate | None:
    """The mean over modalities of the mean over their queries; rows of one item are one observation."""
    influences: dict[int, float] = {}
    means, alone = [], 0
    for name, each in values.items():
        rows = np.flatnonzero(~np.isnan(each))
        if len(rows):
            means.append(each[rows].mean())
            group = index.groups[name]
            keys = group[rows] if group is not None else -1 - alone - np.arange(len(rows))
            alone += len(rows) * (group is None)
            for key, part in zip(keys.tolist(), (each[rows] - means[-1]) / len(rows), strict=True):
                influences[key] = influences.get(key, 0.0) + part
    if not means:
        return None
    correction = len(influences) / max(1, len(influences) - 1)
    return Estimate(
        float(np.mean(means)), float(np.sqrt(correction * sum(v * v for v in influences.values())) / len(means))
    )


def search_index(index: MixedIndex, repair: Repair | None = None) -> dict[str, Estimate]:
    """Search an index with every row of it, for what `NUMBERS` names.

    Args:
        index: With labels or pairs.
        repair: Fitted on other rows; None searches by cosine.

    Returns:
        Number → its mean over the queries of all modalities, with an error; by modality under "number.modality".

    Raises:
        InputError: Nothing says which items are relevant.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> item = rng.normal(size=(100, 16))
        >>> image, text = (item + 0.5 * rng.normal(size=(100, 16)) for _ in range(2))
        >>> sets = {"image": cg.Embeddings(image + 2, "image"), "text": cg.Embeddings(text - 2, "text")}
        >>> found = cg.search_index(cg.MixedIndex.of(sets))
        >>> found["own_share"].value, found["hit_at_10"].value  # a modality gap
        (1.0, 0.0)
    """
    if index.by is None:
        raise InputError(
            "nothing says which items are relevant; give item ids, rows in order of their pairs, or labels"
        )
    every = index.all_rows
    search, sums = Search(index, Split({}, every, every)), Sums(index)
    none = repairs["none"].make().fit(index.known())
    found = search.run(none)  # first, as neighbors are compared with those of no repair
    if repair is not None:
        found = search.run(repair)
    for query, numbers in found.items():
        sums.add(query, every[query], numbers)
    return sums.estimates()

"""Held-out search of a repaired index: a value of each number for every query, and their mean with its error."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from scipy.special import expit, logit

from clip_geometry.registry import InputError, instance
from clip_geometry.search.mixed_index import MixedIndex, Split
from clip_geometry.search.repairs import Repair, cached, make_repair

K = 10
QUOTA = 4  # results per modality that count among the ten; the scores decide on the other two
AT_ONCE = 64  # queries to rank at a time; their scores fit in the cache
EDGE = 1e-4  # clip means to [EDGE, 1 − EDGE] before their log odds are extrapolated
RATES = ("r_at_1", "hit_at_10", "cross_r_at_1")  # shares of queries, determined by the rank of the first relevant item
# descriptions for tables; each number is a mean over queries of a share or a reciprocal rank
NUMBERS = {
    "both": "mean of kept and of found: relevant items of other modalities in the top ten, up to four",
    "mrr": "reciprocal rank of the first relevant item of another modality, in the mixed index",
    "r_at_1": "queries whose first item in the mixed index is relevant and of another modality",
    "hit_at_10": "queries with a relevant item of another modality in the top ten of the mixed index",
    "found": "relevant items of other modalities in the top ten, up to four",
    "kept": "results of the own modality in the top ten, of its first four without a repair (labels: relevant ones)",
    "own_share": "own modality in the top ten of the mixed index",
    "cross_r_at_1": "queries whose first item among the other modalities is relevant (ordinary recall at 1)",
    "neighbors": "the ten nearest items of the own modality that stay among the ten nearest",
    "precision": "relevant share of the top ten of the mixed index",
    "ndcg": "NDCG of the top ten of the mixed index",
}


class SearchEstimate(NamedTuple):
    """A mean over queries with its standard errors.

    Attributes:
        value: The mean.
        error: Standard error of the mean over items.
        split_error: Standard error of the mean over the J splits, due to the choice of halves; NaN for one split.
        splits: Number of splits, J.
    """

    value: float
    error: float
    split_error: float = float("nan")
    splits: int = 1

    def interval(self) -> tuple[float, float]:
        """Return the 90% interval for the repair, fitted on all items, in a new index of this size.

        It combines both errors, with Student's t for J − 1 degrees of freedom. Its coverage is reported in
        docs/mixed_index.md.
        """
        from scipy.stats import t

        reach = float("nan")
        if self.splits > 1:
            reach = float(t.ppf(0.95, self.splits - 1) * np.hypot(self.error, self.split_error))
        return self.value - reach, self.value + reach


QueryValues: TypeAlias = dict[str, np.ndarray]  # number → values by query, or by query and left-out block


class HeldOutSearch:
    """The held-out index of a split, to be searched with the scores of any repair.

    In addition to the `NUMBERS`, `run` returns cross_r_at_5, whether a relevant item is among the first five of other
    modalities, and own_precision, the relevant share of the ten nearest items of the query's own modality.
    """

    def __init__(self, index: MixedIndex, split: Split):
        relevance = index.relevance(split.searched)
        if relevance is None:
            raise InputError(
                "nothing says which items are relevant; give item ids, rows in order of their pairs, or labels"
            )
        self.index = index
        self.rows = split.queries
        self.relevance = relevance
        self.items = index.rows(split.searched)
        # positions of the queries within the index
        self.places = {name: np.searchsorted(split.searched[name], rows) for name, rows in split.queries.items()}
        self.queries = {name: self.items[name][places] for name, places in self.places.items()}
        self.blocks = {name: index.blocks[name][rows] for name, rows in split.searched.items()}
        numbers = np.arange(index.block_count)
        self._one_hot = {name: (block[:, None] == numbers).astype(np.float32) for name, block in self.blocks.items()}
        self._cache: dict[Any, Any] = {}

    def run(self, repair: Repair) -> "SearchNumbers":
        """Search with a fitted repair, and return what the queries of each modality find.

        Run "none" first, because the neighbors of every repair are compared with those of the first one.
        """
        numbers = SearchNumbers(self.index)
        for query, places in self.places.items():
            if not len(places):
                continue
            scores = repair.mixed(query, self.queries[query], self.items, places)
            k = min(K, scores[query].shape[1] - 1)
            if k < 1:
                raise InputError(f"an index with one {query} row has no neighbors within that modality; give more rows")
            near = _highest(scores[query], k)
            before = self._cache.setdefault(("before", query), near)  # from the first repair
            parts = []
            for start in range(0, len(places), AT_ONCE):
                span = slice(start, start + AT_ONCE)
                parts.append(self._values(query, {item: table[span] for item, table in scores.items()}, span))
            values = _joined([part for part, _ in parts])
            without = _joined([part for _, part in parts])
            values["neighbors"] = (before[:, :, None] == near[:, None, :]).any(2).mean(1)
            if self.index.complete:
                relevant = self._relevant(query, query)
                hits = np.take_along_axis(relevant, near, axis=1)
                values["own_precision"] = np.where(relevant.any(1), hits.mean(1), np.nan)
            query_blocks = self._one_hot[query][places].T
            effects = {
                number: query_blocks @ np.nan_to_num(changed - values[number][:, None]).astype(np.float32)
                for number, changed in without.items()
            }
            numbers.add(query, self.rows[query], values, effects)
        return numbers

    def chances(self) -> list[float]:
        """Return, for each query modality, the recall at 1 across modalities of items in random order."""
        chances = []
        for query, places in self.places.items():
            if not len(places):
                continue
            relevant = np.concatenate([self._relevant(query, item) for item in self.items if item != query], axis=1)
            if relevant.any():
                chances.append(float(relevant[relevant.any(1)].mean()))
        return chances

    def _relevant(self, query: str, item: str) -> np.ndarray:
        """Return which items of one modality are relevant to the queries of another or the same modality."""
        return cached(self._cache, (query, item), lambda: self.relevance.dense(query, item, self.places[query]))

    def _values(self, query: str, scores: Mapping[str, np.ndarray], span: slice) -> tuple[QueryValues, QueryValues]:
        """Return the values for a span of the queries, and the values without each block of items."""
        by_rank, by_rank_without = self._by_rank(query, scores, span)
        by_list, by_list_without = self._by_list(query, scores, span)
        return by_rank | by_list, by_rank_without | by_list_without

    def _by_rank(self, query: str, scores: Mapping[str, np.ndarray], span: slice) -> tuple[QueryValues, QueryValues]:
        """Return values based on the rank of the first relevant item of another modality, also without each block."""
        relevant = {item: self._relevant(query, item)[span] for item in scores if item != query}
        best = np.max([np.where(mask, scores[item], -np.inf).max(1) for item, mask in relevant.items()], axis=0)
        # number of items of the own and of other modalities, by block, that precede the first relevant item
        before = np.zeros((2, len(best), self.index.block_count))
        for item, table in scores.items():
            better = table >= best[:, None]
            if item != query:
                better &= ~relevant[item]
            before[int(item != query)] += better.astype(np.float32) @ self._one_hot[item]
        before[:, np.isneginf(best)] = np.nan  # undefined without a relevant item of another modality
        return _of_ranks(*before.sum(2)), _of_ranks(*(before.sum(2, keepdims=True) - before))

    def _by_list(self, query: str, scores: Mapping[str, np.ndarray], span: slice) -> tuple[QueryValues, QueryValues]:
        """Return the values that depend on the top ten and the relevant items in it, also without each block.

        Up to four relevant items count per modality. Among equal scores, those of relevant items come last.
        """
        wanted, counts = cached(self._cache, ("wanted", query), lambda: self._wanted_items(query))
        by_block = {item: number[span] for item, number in counts.items()}
        table = np.concatenate(list(scores.values()), axis=1)
        is_wanted = np.concatenate([wanted[item][span] for item in scores], axis=1)
        table[is_wanted] = np.nextafter(table[is_wanted], -np.inf)
        block = np.concatenate([self.blocks[item] for item in scores])
        modality = np.repeat(list(scores), [items.shape[1] for items in scores.values()])
        top = _highest(table, min(2 * K, table.shape[1]))  # enough to fill the top ten after a block is left out
        top_wanted = np.take_along_axis(is_wanted, top, axis=1)
        top_modality = modality[top]
        stays = block[top][:, :, None] != np.arange(self.index.block_count)
        stays &= np.cumsum(stays, axis=1, dtype=np.int16) <= K
        shares, without = {}, {}
        for item in scores:
            hits = top_wanted & (top_modality == item)
            total = by_block[item].sum(1)
            shares[item] = _share(hits[:, :K].sum(1), total)
            staying = np.einsum("qt,qtb->qb", hits.astype(np.float32), stays.astype(np.float32))
            without[item] = _share(staying, total[:, None] - by_block[item])
        k = min(K, table.shape[1] - 1)
        own = top_modality[:, :k] == query
        relevant = top_wanted[:, :k]
        counted = list(scores)
        if not self.index.complete:  # own results count, but may not be relevant
            relevant = relevant & ~own
            counted.remove(query)
        total = np.sum([by_block[item].sum(1) for item in counted], axis=0).astype(int)
        known = np.where(total > 0, 1.0, np.nan)
        discounts = 1 / np.log2(np.arange(k) + 2)
        best = np.cumsum(discounts)[np.clip(total, 1, k) - 1]
        values = _both(shares, query) | {
            "precision": relevant.mean(1) * known,
            "ndcg": relevant @ discounts / best * known,
            "own_share": own.mean(1) * known,
        }
        return values, _both(without, query)

    def _wanted_items(self, query: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return the relevant items by modality: a mask, (q, m), and their number in each block, (q, b).

        Pairs do not say which items of the query's own modality are relevant. There, the first four results of a search
        without any repair are taken to be.
        """
        items = {item: self._relevant(query, item) for item in self.items}
        if not self.index.complete:
            items[query] = np.zeros_like(items[query])
            np.put_along_axis(items[query], self._cache["before", query][:, :QUOTA], True, axis=1)
        return items, {item: mask.astype(np.float32) @ self._one_hot[item] for item, mask in items.items()}


def _highest(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the positions of the k highest scores of each query, highest first."""
    return torch.from_numpy(scores).topk(k).indices.numpy()


def _joined(parts: Sequence[QueryValues]) -> QueryValues:
    """Concatenate the values of consecutive spans of the queries."""
    return {number: np.concatenate([values[number] for values in parts]) for number in parts[0]}


def _share(hits: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Divide hits by the best possible number of hits in four places; NaN if nothing is relevant."""
    return np.minimum(hits, QUOTA) / np.where(total > 0.5, np.minimum(total, QUOTA), np.nan)


def _both(shares: Mapping[str, np.ndarray], query: str) -> dict[str, np.ndarray]:
    """Return the mean over other modalities, the value of the own modality, and the mean of the two.

    The mean of the two is defined only for queries with a relevant item of another modality.
    """
    others = np.stack([share for item, share in shares.items() if item != query])
    known = ~np.isnan(others)
    found = np.nansum(others, axis=0) / np.where(known.any(0), known.sum(0), np.nan)
    kept = shares[query]
    return {"found": found, "kept": kept, "both": np.where(np.isnan(kept), found, (found + kept) / 2)}


def _of_ranks(own: np.ndarray, across: np.ndarray) -> dict[str, np.ndarray]:
    """Return the rank-based numbers, given how many own and other items precede the first relevant item."""
    rank = 1.0 + own + across
    unknown = np.where(np.isnan(rank), np.nan, 0.0)
    return {
        "mrr": 1 / rank,
        "r_at_1": (rank == 1) + unknown,
        "hit_at_10": (rank <= K) + unknown,
        "cross_r_at_1": (across == 0) + unknown,
        "cross_r_at_5": (across < 5) + unknown,
    }


class SearchNumbers:
    """Results of searches of an index: for each number, a value for every row that was a query, by split.

    Attributes:
        asked: (query modality, number) → for each split, the rows that were queries and their values. Arrays for all
            rows of a large index would be a hundred times longer.
        effects: (query modality, number) → (G, G). Entry (a, b) is the sum, over the queries of block a in all splits,
            of the change of their values if the items of block b are removed from the index.
    """

    def __init__(self, index: MixedIndex):
        self.index = index
        self.asked: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
        self.effects: dict[tuple[str, str], np.ndarray | float] = defaultdict(float)

    def add(self, query: str, rows: np.ndarray, values: QueryValues, effects: Mapping[str, np.ndarray]) -> None:
        """Add the values of some rows of a modality as queries in one split; NaN where a number is undefined."""
        for number, value in values.items():
            known = ~np.isnan(value)
            self.asked[query, number].append((rows[known], value[known]))
        for number, effect in effects.items():
            self.effects[query, number] += effect

    def __iadd__(self, other: "SearchNumbers") -> "SearchNumbers":
        for key, splits in other.asked.items():
            self.asked[key] += splits
        for key, effect in other.effects.items():
            self.effects[key] += effect
        return self

    def means(self, query: str, number: str) -> np.ndarray:
        """Return the mean value of each row; NaN for rows that were never queries."""
        n = len(self.index.sets[query])
        rows, values = (np.concatenate(arrays) for arrays in zip(*self.asked[query, number], strict=True))
        with np.errstate(invalid="ignore"):  # 0/0 of a row that was never a query
            return np.bincount(rows, values, minlength=n) / np.bincount(rows, minlength=n)

    def left_out(self, query: str, number: str) -> np.ndarray:
        """Return (G, G): the change of the mean at queries of block a without the items of block b; 0 if unknown."""
        count = sum(len(rows) for rows, _ in self.asked[query, number])
        return np.zeros((self.index.block_count, self.index.block_count)) + self.effects[query, number] / max(1, count)

    def _parts(self, query: str, number: str) -> list[np.ndarray]:
        """Return `means`, `left_out`, and the mean of each split, which is NaN if no query of the split has a value."""
        by_split = [values.mean() if len(values) else np.nan for _, values in self.asked[query, number]]
        return [self.means(query, number), self.left_out(query, number), np.array(by_split)]

    def estimates(self, less: "SearchNumbers | None" = None) -> dict[str, SearchEstimate]:
        """Return the mean of each number over all queries and by modality, or of its paired differences from `less`."""
        estimates = {}
        for number in NUMBERS:
            parts = {}
            for query in self.index.modalities:
                if (query, number) not in self.asked:
                    continue
                parts[query] = self._parts(query, number)
                if less is not None:
                    others = less._parts(query, number)
                    parts[query] = [mine - other for mine, other in zip(parts[query], others, strict=True)]
            by_name = {number: [*parts], **{f"{number}.{query}": [query] for query in parts}}
            for name, queries in by_name.items():
                rate = less is None and number in RATES
                estimate = _estimate({query: parts[query] for query in queries}, self.index, rate=rate)
                if estimate is not None:
                    estimates[name] = estimate
        return estimates

    def extrapolated(self, small: "SearchNumbers", beyond: float) -> "SearchNumbers":
        """Return the results in a larger index, on the line through these results and those of a smaller index.

        The line relates the log odds of each mean to the logarithm of the index size. It is extended by `beyond` times
        the distance between the two sizes. Errors follow by the delta method: each value in the result is the
        extrapolated mean plus the deviations of the query, multiplied by the derivatives.
        """
        result = SearchNumbers(self.index)
        for query, number in (key for key in self.asked if key[1] in NUMBERS):
            means, small_means = self.means(query, number), small.means(query, number)
            large_mean, small_mean = float(means[~np.isnan(means)].mean()), float(np.nanmean(small_means))
            high, low = (float(np.clip(mean, EDGE, 1 - EDGE)) for mean in (large_mean, small_mean))
            mean = large_mean if high == low else float(expit(logit(high) + beyond * (logit(high) - logit(low))))
            large_slope = (1 + beyond) * mean * (1 - mean) / (high * (1 - high))
            small_slope = beyond * mean * (1 - mean) / (low * (1 - low))
            values = mean + large_slope * (means - large_mean) - small_slope * (small_means - small_mean)
            known_rows = ~np.isnan(values)
            result.asked[query, number] = [(np.flatnonzero(known_rows), values[known_rows])]
            if (query, number) in self.effects:
                change = large_slope * self.left_out(query, number) - small_slope * small.left_out(query, number)
                result.effects[query, number] = change * known_rows.sum()
        return result


def _estimate(parts: Mapping[str, list[np.ndarray]], index: MixedIndex, *, rate: bool) -> SearchEstimate | None:
    """Average over modalities the means over their queries; rows of one item are one observation.

    An item counts both as a query and as an item that other queries may find before their partner: a hub makes many
    queries miss together. The first part of the variance is a sum over items. The second part, a jackknife over blocks
    of items, adds the covariance between different queries. A rate gets the variance with two additional hits and two
    additional misses, as in the interval of Agresti and Coull, so it has an error even without any miss.

    Args:
        parts: Modality → `SearchNumbers._parts`.
        index: The index that was searched.
        rate: Whether the number is a share of queries.
    """
    count = index.block_count
    blocks = np.zeros(count)
    total = np.zeros((count, count))
    keys, influences, means, by_split = [], [], [], []
    for name, (values, effects, of_splits) in parts.items():
        rows = np.flatnonzero(~np.isnan(values))
        if len(rows):
            means.append(values[rows].mean())
            group = index.groups[name]
            deviations = (values[rows] - means[-1]) / len(rows)
            next_key = -1 - sum(map(len, keys))  # negative keys for rows that belong to no item
            keys.append(group[rows] if group is not None else next_key - np.arange(len(rows)))
            influences.append(deviations)
            np.add.at(blocks, index.blocks[name][rows], deviations)
            total += effects
            by_split.append(of_splits)
    if not means:
        return None
    items, item = np.unique(np.concatenate(keys), return_inverse=True)
    n = len(items)
    of_items = np.bincount(item, np.concatenate(influences))
    variance = n / max(1, n - 1) * (of_items @ of_items)
    block_effects = total.mean(0) * count  # effect of each block of items on all queries
    interaction = total - total.mean(0) - total.mean(1, keepdims=True) + total.mean()
    # subtract the part that queries and items share: the first sum includes it already
    centered = block_effects - block_effects.mean()
    shared = (centered**2).sum() - (interaction**2).sum() - 2 * (blocks * centered).sum()
    variance += count / max(1, count - 1) * max(0.0, shared)
    value = float(np.mean(means))
    variance /= len(means) ** 2
    if rate:
        variance = (n**2 * variance + 2 * value**2 + 2 * (1 - value) ** 2) / (n + 4) ** 2
    of_splits = np.mean(by_split, axis=0)
    splits = len(of_splits)
    split_error = float(of_splits.std(ddof=1) / np.sqrt(splits)) if splits > 1 else float("nan")
    return SearchEstimate(value, float(np.sqrt(variance)), split_error, splits)


def search_index(index: MixedIndex, repair: Repair | None = None) -> dict[str, SearchEstimate]:
    """Search a mixed index with each of its rows as a query, and return the quality of the results.

    The numbers, such as hit_at_10 (share of queries with a relevant item of another modality in the top ten) and
    own_share (share of the query's own modality in the top ten), are described in
    `clip_geometry.search.held_out.NUMBERS`.

    Args:
        index: An index with labels or pairs.
        repair: A repair that was fitted on other rows; None ranks items by cosine.

    Returns:
        Name of a number → its mean over the queries of all modalities, with `value` and standard error `error`; also
        per modality, as "number.modality".

    Raises:
        InputError: Neither labels nor pairs say which items are relevant.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> item = rng.normal(size=(100, 16))
        >>> image, text = (item + 0.5 * rng.normal(size=(100, 16)) for _ in range(2))
        >>> sets = {"image": cg.Embeddings(image + 2, "image"), "text": cg.Embeddings(text - 2, "text")}
        >>> numbers = cg.search.search_index(cg.search.MixedIndex.of(sets))
        >>> numbers["own_share"].value, numbers["hit_at_10"].value  # a modality gap
        (1.0, 0.0)
    """
    instance(index, MixedIndex, "index", "a MixedIndex")
    instance(repair, Repair | None, "repair", "a fitted Repair")
    search = HeldOutSearch(index, Split({}, index.all_rows, index.all_rows))
    none = make_repair("none").fit(index.known())
    numbers = search.run(none)  # first, because neighbors are compared with its own
    if repair is not None:
        numbers = search.run(repair)
    return numbers.estimates()

"""Compression: how small vectors can get, by columns, number type and rescoring, and what a search then loses."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from clip_geometry.embeddings import Embeddings
from clip_geometry.measuring.given import given_sets
from clip_geometry.progress import Progress, quiet
from clip_geometry.registry import InputError, instance
from clip_geometry.rows.arguments import LARGEST, one_of, real_number, seed_number, whole_number
from clip_geometry.rows.matrix import as_matrix, unit_rows
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.compression.codecs import CODECS, codec
from clip_geometry.search.compression.compressor import Compressor, mapped
from clip_geometry.search.compression.cuts import Cut, CutFit, cuts
from clip_geometry.search.compression.estimates import estimates
from clip_geometry.search.compression.explanation import explanation, share, slope_on_length
from clip_geometry.search.compression.sweep import FURTHEST, Half, sweep
from clip_geometry.search.mixed_index import MixedIndex, require_one_space
from clip_geometry.tokens import TokenRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from clip_geometry.display.table import Table

LEAST = 60  # fewest rows of a set
MANY = 4000  # rows from which one half is enough; fewer are searched in four folds
FOLDS = 4
FITTED = 10_000  # most rows of a set to fit on
SEARCHED = 50_000  # most rows of a set in the index
SCORES = 2**24  # most scores in memory
POOL_FACTORS = (1, 2, 4)  # tokens per stored vector, if items have several tokens
TOKENS = 2**13  # most tokens of a set in the index, if its items have several
FEWEST = 128  # items of several tokens that are searched, however many tokens they have, by a quarter as many queries
QUERIES = 1000  # most queries of a direction
LEGEND = (
    "bytes: of an item in the index; lost: share of the ten nearest that an exact search no longer finds, in brackets "
    "its 95% interval; recall: change of the recall at 1; in a mixed index: recall at 10 if one index holds all "
    "modalities; rescored: 40 results are sorted again by the full vectors, which have to be stored, too"
)


class Compression:
    """Result of `compress`: what each combination of a cut, a number type and rescoring loses.

    Attributes:
        frame: One row per combination, smallest first, with the columns

            - cut: "all", "first" (the first columns, as Matryoshka models are trained for), "random" columns, or "pca",
              projections on principal axes, of all rows ("pca[pooled]") or of the rows of each index ("pca[each]").
            - columns: Number of stored columns.
            - dtype: "float32", "float16", "int8" (one range for all columns), "int8[column]" (a range per column),
              "binary" (signs of rows and queries), "binary[centered]" (signs after the mean is subtracted, and float
              queries), or "pq" (product quantization, if faiss is installed).
            - pool_factor: Tokens per stored vector, 1, 2 or 4; 1 for items of one vector.
            - rescored: Whether the first 40 results are sorted again by the full vectors.
            - bytes: Bytes of a row in the index, or mean bytes of an item of several vectors.
            - kept_at_10, kept_error: Share of the ten nearest by the full vectors that are found, in an index of
              held-out items, and its standard error. They are rows of the other modality, or of the same set if there
              is only one.
            - recall_at_1: Share of the queries whose first result is right; NaN without pairs or labels.
            - recall_change, recall_error: Its difference to that of the full vectors, and the paired standard error.
            - mixed_recall_at_10: Share of the queries with a right item of another modality among the first ten of an
              index of all modalities; NaN with rescoring, for "pca[each]", whose axes differ by modality, and for
              items of hundreds of tokens.
            - loss, low, high: Expected share of the ten nearest that is lost in an index of the full size, and the ends
              of its 95% interval.
        lose: The loss that was allowed.
        chosen: The row of `frame` with the fewest bytes whose loss is at most `lose`.
        certain: The row with the fewest bytes whose loss is at most `lose` even at the end of its interval.
        explanation: Two sentences on what the geometry has to do with it, and for tokens one on `length_slope`.
        length_slope: For items of several tokens, the rise of the score of an irrelevant item if it has twice the
            tokens, in standard deviations of a query's scores, and its standard error. None if all have equally many.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rows = np.random.default_rng(0).normal(size=(200, 4)) @ np.eye(4, 32)  # 28 columns are empty
        >>> result = cg.compress(rows, lose=0.02)
        >>> result.chosen["cut"], int(result.chosen["columns"])
        ('pca', 4)
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        lose: float,
        sizes: Mapping[str, int],
        sample: Mapping[str, TokenRows],
        length_slope: tuple[float, float] | None,
        seed: int,
    ):
        self.frame = instance(frame, pd.DataFrame, "frame", "a table of combinations")
        self.lose, self.sizes, self.length_slope = lose, dict(sizes), length_slope
        self.explanation = explanation({name: x.rows for name, x in sample.items()}, frame, length_slope)
        self._sample, self._seed = sample, seed

    @property
    def chosen(self) -> pd.Series:
        return self.frame[self.frame.loss <= self.lose].sort_values(["bytes", "rescored", "loss"]).iloc[0]

    @property
    def certain(self) -> pd.Series:
        """The row of `frame` with the fewest bytes whose loss is at most `lose` even at the end of its interval."""
        return self.frame[self.frame.high <= self.lose].sort_values(["bytes", "rescored", "loss"]).iloc[0]

    @property
    def frontier(self) -> pd.DataFrame:
        """The combinations that lose less than all smaller ones, with and without rescoring, smallest first."""
        best = []
        for _, group in self.frame.groupby("rescored"):
            ordered = group.sort_values(["bytes", "loss"])
            smaller = ordered.loss.cummin().shift(fill_value=np.inf)
            best.append(ordered[ordered.loss < smaller - 5e-4])
        return pd.concat(best)

    def fit(
        self, cut: str | None = None, columns: int | None = None, dtype: str | None = None, pool_factor: int = 1
    ) -> Compressor:
        """Fit a combination on all rows (at most 10,000 per modality).

        Args:
            cut, columns: As in `frame`; default: those of `chosen`, or "all" if only a `dtype` is given.
            dtype: As in `frame`; default: that of `chosen`.
            pool_factor: As in `frame`; by default that of `chosen`, too, if nothing else is given. The compressor then
                takes pooled tokens, `TokenRows.pooled(pool_factor).rows`.

        Raises:
            InputError: There is no such combination in `frame`.
        """
        wanted: Any = self.chosen if cut is columns is dtype is None else {}
        factor = int(wanted.get("pool_factor", pool_factor))
        d = next(iter(self._sample.values())).shape[1]
        dtype = dtype and one_of(dtype, "dtype", CODECS)
        cut = str(wanted.get("cut", cut or "all"))
        dtype = str(wanted.get("dtype", dtype or "float32"))
        columns = int(wanted.get("columns", columns or d))
        known = self.frame[["cut", "columns", "dtype", "pool_factor"]].eq([cut, columns, dtype, factor]).all(axis=1)
        rows = {name: x.pooled(factor).rows for name, x in self._sample.items()} if known.any() else {}
        maps = CutFit(rows, self._seed).maps(Cut(cut, columns)) if rows else None
        if maps is None:
            raise InputError(
                f"no combination has cut={cut!r}, columns={columns}, dtype={dtype!r}, pool_factor={factor}; frame "
                "lists them"
            )
        codecs = {name: codec(dtype).fit(mapped(view, rows[name])) for name, view in maps.items()}
        return Compressor(Cut(cut, columns), dtype, maps, codecs)

    @property
    def verdict(self) -> list[str]:
        """The chosen combination, and why it is small or large."""
        best, full = self.chosen, self.frame[(self.frame["cut"] == "all") & (self.frame.dtype == "float32")].iloc[-1]
        certain = f" For at most {share(self.lose)} at the end of this interval, take {_named(self.certain)}."
        return [
            f"The smallest vectors that lose at most {share(self.lose)} of the ten nearest take {best.bytes} instead "
            f"of {full.bytes} bytes: {_named(best)}. In an index of {max(self.sizes.values()):,} rows they lose "
            f"{share(best.loss)} ({share(best.low)} to {share(best.high)})."
            + (certain if best.high > self.lose else ""),
            *self.explanation,
        ]

    def table(self) -> "Table":
        """Return the frontier as a table, with the verdict."""
        from clip_geometry.display.table import Table, TableColumn

        columns = [TableColumn("bytes", "number"), TableColumn("columns"), TableColumn("type", "name")]
        columns += [TableColumn(name, "number") for name in ("lost", "recall", "in a mixed index")]
        groups: dict[str, list[list[str]]] = {"not rescored": [], "rescored": []}
        rows: Any = self.frontier.itertuples()
        for row in rows:
            change = "–" if np.isnan(row.recall_change) else f"{row.recall_change:+.3f} ± {row.recall_error:.3f}"
            mixed = "–" if np.isnan(row.mixed_recall_at_10) else f"{row.mixed_recall_at_10:.3f}"
            lost = f"{share(row.loss)} ({share(row.low)} to {share(row.high)})"
            cut = f"{row.columns}, {row.cut}" + (f", tokens/{row.pool_factor}" if row.pool_factor > 1 else "")
            line = [f"{row.bytes}", cut, row.dtype, lost, change.replace("-", "−"), mixed]
            groups["rescored" if row.rescored else "not rescored"].append(line)
        return Table(columns, groups, verdict=self.verdict, named_groups=True, legend=[LEGEND])

    def __str__(self) -> str:
        return str(self.table())

    def figure(self) -> "Figure":
        """Draw the loss of all combinations against their bytes, and the frontier."""
        from clip_geometry.search.compression.figure import draw

        return draw(self)


def compress(
    image: Any,
    text: Any = None,
    *more: Any,
    lose: float = 0.01,
    labels: Any = None,
    ids: Any = None,
    types: Sequence[str] = tuple(CODECS),
    full_size: int | None = None,
    seed: int = 0,
    progress: Progress = quiet,
) -> Compression:
    """Measure how small vectors can get: a sweep over cuts, number types and rescoring, on held-out items.

    Rows are compared by cosine. Every combination is fitted on some of the items and searched in an index of the
    others: four folds, or two halves of at least 4,000 rows, of which at most 10,000 are fitted on and 50,000
    searched, exactly; an approximate index loses more. The loss is the share of a query's ten nearest, by the full
    vectors, that a search no longer finds, averaged over the directions, such as image to text and text to image. Its
    value in an index of N items is extrapolated from the nearest 10 m/N of m items, the same fraction of the index.

    Args:
        image: The first set, or all sets; `image`, `labels` and `ids` are given as in `measure`. `TokenRows` are also
            accepted.
        text: The second set.
        more: Further sets.
        lose: Largest loss of the chosen combination, between 0 and 1.
        labels: One label per row. If every modality has labels, items with equal labels are right.
        ids: The item of each row. Without labels, rows of one item are right for each other.
        types: The number types to compare, those of your database; float32 with all columns is always compared.
        full_size: Rows of each set in the full index that these rows are a sample of; default: as many as given.
        seed: Seed of the folds, the queries, the random columns and the rotations.
        progress: Called as in `cg.embed`; the unit is one cut of one fold.

    Returns:
        A `Compression`.

    Raises:
        InputError: The sets are not as described, have fewer than 60 rows, or are too few for the full size.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> item = rng.normal(size=(200, 16))
        >>> image, text = item, item + 0.5 * rng.normal(size=(200, 16))
        >>> result = cg.compress(image, text, lose=0.05)
        >>> result.chosen["dtype"], bool(result.chosen["loss"] <= 0.05)
        ('binary[centered]', True)
    """
    lose = real_number(lose, "lose", lambda x: 0 <= x < 1, "a share from 0 to 1")
    seed = seed_number(seed)
    types = [one_of(each, "types", CODECS) for each in instance(types, list | tuple, "types", "a list of number types")]
    instance(progress, Callable, "progress", "a function")
    sets = given_sets(image, text, *more, labels=labels, ids=ids)
    require_one_space(sets, "one index")
    smallest = min(sets, key=lambda name: len(sets[name]))
    n = len(sets[smallest])
    if n < LEAST:
        raise InputError(f"{smallest} has {n} rows; expected at least {LEAST}, better 500, to search held-out ones")
    halves, codes, paired = _halves(sets, seed)
    factors = POOL_FACTORS if max(map(_tokens, sets.values())) > 1 else (1,)
    largest = FURTHEST * min(len(numbers) for _, searched, _ in halves for numbers in searched.values())
    if full_size is not None:
        what = f", because {n:,} rows tell nothing about more than {largest:,}; give more rows"
        full_size = whole_number(full_size, "full_size", least=n, most=min(largest, LARGEST), of=what)
    sizes = {name: min(full_size or len(each), largest) for name, each in sets.items()}
    d = sets[smallest].dim
    if d < 2:
        raise InputError("the rows have 1 column; expected at least 2")

    slopes: list[Any] = []

    def searches() -> Iterator[Any]:
        for number, (fitted, searched, queries) in enumerate(halves):
            fit, items = (unit_sample(sets, numbers) for numbers in (fitted, searched))
            right = {name: codes[name][numbers] for name, numbers in searched.items()}
            half = Half(fit, items, right, queries, paired)
            slopes.extend(slope_on_length(half))
            for found in sweep(half, sizes, factors, types, seed, advance):
                yield number, half, found

    with progress("cuts", len(halves) * len([*cuts(d, len(sets))]) * len(factors)) as advance:
        frame = estimates(searches(), sizes, np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    fitted = {name: np.sort(rng.permutation(len(each))[: _most_fitted(each)]) for name, each in sets.items()}
    slope = None
    if slopes:
        values, errors = np.transpose(slopes)
        slope = float(values.mean()), float(np.linalg.norm(errors) / len(errors))
    return Compression(frame, lose, sizes, unit_sample(sets, fitted), slope, seed)


def unit_sample(sets: Mapping[str, Embeddings], numbers: Mapping[str, np.ndarray]) -> dict[str, TokenRows]:
    """Return some items of each set as float32 unit rows."""
    sample = {}
    for name, items in numbers.items():
        x: Any = sets[name].vectors
        tokens = x[items] if isinstance(x, TokenRows) else TokenRows(StreamedRows.of(x)[torch.from_numpy(items)])
        unit = unit_rows(as_matrix(tokens.rows, name=name), name=name).float().numpy()
        sample[name] = TokenRows(unit, tokens.lengths)
    return sample


def _tokens(embeddings: Embeddings) -> float:
    """Return the mean number of vectors of an item."""
    x: Any = embeddings.vectors
    return float(x.lengths.mean()) if isinstance(x, TokenRows) else 1.0


def _most_fitted(embeddings: Embeddings) -> int:
    return max(LEAST, int(FITTED / _tokens(embeddings)))


Numbers = dict[str, np.ndarray]


def _halves(
    sets: Mapping[str, Embeddings], seed: int
) -> tuple[list[tuple[Numbers, Numbers, Numbers]], Mapping[str, np.ndarray], bool]:
    """Return the rows to fit on, the rows to search and the places of the queries in these, for each fold.

    Also return a number for each row, equal for rows that are right for each other, and whether these are pairs.
    """
    ends = np.cumsum([0, *map(len, sets.values())])
    items: dict[str, np.ndarray] = {name: np.arange(a, b) for name, a, b in zip(sets, ends, ends[1:], strict=False)}
    codes, paired = items, False
    if len(sets) > 1:
        index = MixedIndex.of(sets)
        if index.by is not None:
            paired = index.by == "pairs"
            codes = index.groups if paired else index.codes
        if all(group is not None for group in index.groups.values()):
            items = {name: np.asarray(group) for name, group in index.groups.items()}
    rng = np.random.default_rng(seed)
    numbers = np.unique(np.concatenate(list(items.values())))
    tokens = max(map(_tokens, sets.values()))
    large = min(map(len, sets.values())) >= MANY and tokens == 1
    parts = 2 if large else FOLDS
    if tokens > 1:  # smaller folds, which are not all searched
        parts = max(FOLDS, int(len(numbers) / max(FEWEST, TOKENS / tokens)))
    order_of = np.empty(numbers[-1] + 1, dtype=int)
    order_of[numbers] = rng.permutation(len(numbers))
    orders = {name: order_of[rows] for name, rows in items.items()}
    halves = []
    for fold in range(1 if large else FOLDS):
        fit = {name: _first(order, order % parts != fold, _most_fitted(sets[name])) for name, order in orders.items()}
        searched = {name: _first(order, order % parts == fold, SEARCHED) for name, order in orders.items()}
        if min(map(len, searched.values())) < 12:
            raise InputError("fewer than 12 rows of a set are in one fold; give more items")
        vectors = max(len(rows) * _tokens(sets[name]) for name, rows in searched.items())
        queries = {}
        for name, rows in searched.items():
            most = min(QUERIES, max(FEWEST // 4, int(SCORES / vectors / _tokens(sets[name]))))
            queries[name] = np.sort(rng.permutation(len(rows))[:most])
        halves.append((fit, searched, queries))
    return halves, {name: np.asarray(each) for name, each in codes.items()}, paired


def _first(order: np.ndarray, mask: np.ndarray, most: int) -> np.ndarray:
    """Return the first rows of a mask by the random order of their items, so that pairs stay together."""
    rows = np.flatnonzero(mask)
    return rows[np.argsort(order[rows], kind="stable")][:most]


def _named(row: Any) -> str:
    """Return a combination in words."""
    what = "all" if row["cut"] == "all" else f"{row['columns']}"
    cut = "" if row["cut"] == "all" else f" ({row['cut']})"
    return f"{what} columns{cut} in {row['dtype']}" + (", rescored by the full vectors" if row["rescored"] else "")

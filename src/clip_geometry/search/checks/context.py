"""What several checks read: valid unit rows, pairs, neighbors; computed when first asked for, and once."""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from hashlib import blake2b
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from clip_geometry.embeddings import Embeddings, in_order, pair
from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.memory import give_back
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import StreamedRows, release
from clip_geometry.search.checks.matching import LEAST, Matching, chosen, match
from clip_geometry.search.checks.spaces import Foreign, Gaussian, Overlap, foreign_rows, overlap

Method = TypeVar("Method", bound=Callable[..., Any])

ROWS = 100_000  # of a modality that are looked at, at most
WORK = 2 * 10**8  # cosines computed for the neighbors of a modality: 14,000 rows are all queries
NEIGHBORS = 10
MOMENT_ROWS = 20_000  # of a modality in its covariance, at most
BLOCK = 4096
SAME = ("text", "path", "image_path", "token", "word")  # columns that explain equal rows, as an equal item_id does


class NotRun(NamedTuple):
    """A check that did not run, and why; modalities: the sets that it left out, or none for all."""

    check: str
    reason: str
    modalities: tuple[str, ...] = ()


class Partners(NamedTuple):
    """cosine: of n sampled rows with their nearest row of the other modality, both centered, on average. noise,
    deviation: mean and standard deviation for independent Gaussian rows with the same means and covariances."""

    cosine: float
    noise: float
    deviation: float
    n: int

    @property
    def exist(self) -> bool:
        """Whether rows have partners in the other modality, in whatever order: trained models have 2.8 to 5.7
        deviations, untrained ones and weak ones (recall below 2%) at most 0.3."""
        return self.cosine > self.noise + self.deviation


class NearestRows(NamedTuple):
    """The nearest rows of some distinct rows of a modality, by Euclidean distance of unit rows.

    numbers: (n,) of the rows searched in, which are distinct. queries: (q,) positions in `numbers`. distances, indices:
    (q, k), ascending; indices are positions in `numbers`.
    """

    numbers: np.ndarray
    queries: np.ndarray
    distances: np.ndarray
    indices: np.ndarray


class PairRows(NamedTuple):
    """Pairs as one row each: the unit rows of both modalities side by side, each divided by its scale.

    i, j: (n,) numbers of the rows, no two pairs equal in both. rows: (n, 2 d).
    """

    i: np.ndarray
    j: np.ndarray
    rows: np.ndarray


def _once(method: Method) -> Method:
    """Compute what a method returns for some modalities when it is first asked for, and keep it."""

    @wraps(method)
    def known(self: "Context", *modalities: str) -> Any:
        key = method.__name__, *modalities
        if key not in self._known:
            self._known[key] = method(self, *modalities)
            give_back()
        return self._known[key]

    return known  # pyright: ignore[reportReturnType] # it is called as the method is


class Context:
    """The sets that are diagnosed, and what their checks share.

    Args:
        sets: Modality → `Embeddings`.
        other: Another split of the same data, in which copies of the rows would be leakage.
        seed: Seed of the samples and of the null values.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> from clip_geometry.search.checks.context import Context
        >>> x = np.random.default_rng(0).normal(size=(50, 8))
        >>> context = Context({"image": cg.Embeddings(x, "image")})
        >>> context.unit("image").shape, context.couples
        ((50, 8), [])
    """

    def __init__(self, sets: Mapping[str, Embeddings], *, other: Mapping[str, Embeddings] | None = None, seed: int = 0):
        self.sets = dict(sets)
        self.other = None if other is None else Context(other, seed=seed)
        self.seed = seed
        self.not_run: list[NotRun] = []
        self._known: dict[tuple[str, ...], Any] = {}

    def skip(self, check: str, reason: str, *modalities: str) -> None:
        """Note that a check, or its part for some sets, cannot run."""
        self.not_run.append(NotRun(check, reason, modalities))

    @_once
    def lengths(self, modality: str) -> np.ndarray:
        """The length of every row in float64; NaN for rows that hold NaN or infinity."""
        vectors, parts = self.sets[modality].vectors, []
        for start in range(0, len(vectors), BLOCK):
            block = np.asarray(vectors[start : start + BLOCK], dtype=np.float64)
            parts.append(np.where(np.isfinite(block).all(1), np.sqrt(np.einsum("nd,nd->n", block, block)), np.nan))
            release(vectors)
        return np.concatenate(parts)

    def valid(self, modality: str) -> np.ndarray:
        """Mask of the rows that have a direction."""
        return self.lengths(modality) > 0

    @_once
    def sample(self, modality: str) -> np.ndarray:
        """Numbers of valid rows, ascending: all, or ROWS of them at random."""
        numbers = np.flatnonzero(self.valid(modality))
        if len(numbers) <= ROWS:
            return numbers
        return np.sort(np.random.default_rng(self.seed).choice(numbers, ROWS, replace=False))

    @_once
    def unit(self, modality: str) -> np.ndarray:
        """The sampled rows in float32, of length 1."""
        return self._unit_rows(modality, self.sample(modality))

    def _unit_rows(self, modality: str, numbers: np.ndarray) -> np.ndarray:
        unit = np.empty((len(numbers), self.sets[modality].dim), np.float32)
        self._fill(unit, modality, numbers)
        return unit

    def _fill(self, out: np.ndarray, modality: str, numbers: np.ndarray) -> None:
        """Write the unit rows of these numbers to `out`."""
        vectors, lengths = self.sets[modality].vectors, self.lengths(modality)
        for start in range(0, len(numbers), BLOCK):
            rows = numbers[start : start + BLOCK]
            with np.errstate(all="ignore"):  # rows without a direction, which callers leave out
                out[start : start + BLOCK] = np.asarray(vectors[rows], dtype=np.float64) / lengths[rows, None]
            release(vectors)

    @_once
    def first_equal(self, modality: str) -> np.ndarray:
        """For every row, the number of the first row that equals it."""
        return first_equal(self.sets[modality].vectors)

    @_once
    def neighbors(self, modality: str) -> NearestRows:
        """The ten nearest of the sampled rows without exact copies; of many rows, those of a sample of queries."""
        sample, first = self.sample(modality), self.first_equal(modality)
        kept = first[sample] == sample
        rows, queries = chosen(self.unit(modality), kept), self.queries(int(kept.sum()))
        return NearestRows(sample[kept], queries, *nearest_others(rows, queries, min(NEIGHBORS, len(rows) - 1)))

    def queries(self, n: int, among: int | None = None) -> np.ndarray:
        """Numbers of the rows, of n, whose neighbors among n or another number of rows are looked for, ascending."""
        most = max(1, WORK // max(1, n if among is None else among))
        if n <= most:
            return np.arange(n)
        return np.sort(np.random.default_rng(self.seed).choice(n, most, replace=False))

    def own(self, modality: str) -> np.ndarray:
        """Mask of the sampled rows that are of the usual space."""
        return ~np.isin(self.sample(modality), self.foreign_numbers(modality))

    def own_rows(self, modality: str) -> np.ndarray:
        """The sampled rows of the usual space at unit length."""
        return chosen(self.unit(modality), self.own(modality))

    def scale(self, modality: str) -> float:
        """Median distance to the nearest row that is not equal, of rows of the usual space."""
        near = self.neighbors(modality)
        own = ~np.isin(near.numbers[near.queries], self.foreign_numbers(modality))
        return float(np.median(near.distances[own, 0])) if near.distances[own].size else 0.0

    def items(self, one: str, other: str, scales: tuple[float, float]) -> PairRows:
        """The pairs of sampled rows of the usual space, equal ones once."""
        i, j = self.pairs(one, other) or (np.empty(0, dtype=np.int64),) * 2
        own = np.ones(len(i), dtype=bool)
        for modality, rows in ((one, i), (other, j)):
            own &= np.isin(rows, self.sample(modality)[self.own(modality)])
        i, j = i[own], j[own]
        keys = np.stack([self.first_equal(one)[i], self.first_equal(other)[j]], axis=1)
        kept = np.sort(np.unique(keys, axis=0, return_index=True)[1])[:ROWS]
        i, j = i[kept], j[kept]
        rows = np.empty((len(i), self.sets[one].dim + self.sets[other].dim), np.float32)
        for modality, numbers, scale, part in (
            (one, i, scales[0], rows[:, : self.sets[one].dim]),
            (other, j, scales[1], rows[:, self.sets[one].dim :]),
        ):
            self._fill(part, modality, numbers)
            part /= np.float32(scale)
        return PairRows(i, j, rows)

    @property
    @_once
    def couples(self) -> list[tuple[str, str]]:
        """The modalities of one dimension that pair with each other."""
        order = in_order(self.sets)
        return [couple for couple in combinations(order, 2) if self.pairs(*couple) is not None]

    @_once
    def pairs(self, one: str, other: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Numbers of matching rows; None where nothing pairs, or in two spaces."""
        first, second = self.sets[one], self.sets[other]
        if first.dim != second.dim:
            return None
        try:
            return pair(first, second)
        except InputError:
            return None

    @_once
    def foreign(self, modality: str) -> Foreign | None:
        """Rows of another space than the rest; None where there are none."""
        return foreign_rows(self.unit(modality), self.seed)

    def foreign_numbers(self, modality: str) -> np.ndarray:
        """Numbers of the rows of another space."""
        found = self.foreign(modality)
        return self.sample(modality)[found.rows] if found is not None else np.empty(0, dtype=np.int64)

    @_once
    def shared_space(self, one: str, other: str) -> Overlap:
        """Overlap of the covariances of the rows of two modalities, whatever their order."""
        rows = []
        for modality in (one, other):
            own = self.own_rows(modality)
            own = own[:: -(-len(own) // MOMENT_ROWS) or 1]
            rows.append(own - own.mean(0))
        return overlap(*rows)

    @_once
    def matching(self, one: str, other: str) -> Matching | None:
        """How well the pairs of two modalities match, without rows of another space; None for too few pairs."""
        i, j = (each[:ROWS] for each in self.pairs(one, other) or (np.empty(0, dtype=np.int64),) * 2)
        usable = self.valid(one)[i] & self.valid(other)[j]
        usable &= ~(np.isin(i, self.foreign_numbers(one)) | np.isin(j, self.foreign_numbers(other)))
        distinct = np.ones(len(i), dtype=bool)
        for modality, rows in ((one, i), (other, j)):
            distinct &= self.first_equal(modality)[rows] == rows
        return match(self._unit_rows(one, i), self._unit_rows(other, j), usable, distinct, self.seed)

    def matchings(self, check: str) -> Iterator[tuple[str, str, Matching]]:
        """Yield the couples with their matching, and note for a check those that have too few pairs."""
        if not self.couples:
            self.skip(check, "no rows of two modalities pair")
        for one, other in self.couples:
            if (found := self.matching(one, other)) is None:
                self.skip(check, f"fewer than {LEAST} distinct pairs", one, other)
            else:
                yield one, other, found

    @_once
    def gaussian(self, modality: str) -> Gaussian:
        """Noise with the mean and covariance of the rows of the usual space."""
        return Gaussian.of(self.own_rows(modality))

    @_once
    def partners(self, one: str, other: str) -> Partners:
        """How near the nearest rows of the other modality are, whatever the order of the rows."""
        a, b = self.own_rows(one), self.own_rows(other)
        queries = self.queries(len(a), len(b))
        near = _nearest_cosines(a, b, queries)
        generator = torch.Generator().manual_seed(self.seed)
        noise = self.gaussian(one).draw(len(a), generator), self.gaussian(other).draw(len(b), generator)
        of_noise = _nearest_cosines(noise[0], noise[1], queries)
        return Partners(float(near.mean()), float(of_noise.mean()), float(of_noise.std()), len(queries))


def _nearest_cosines(a: np.ndarray, b: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Cosines of some rows of a with their nearest row of b, both centered."""
    means = [torch.from_numpy(x.mean(0)) for x in (a, b)]

    def unit(rows: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        rows = rows - mean
        return rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)

    y = StreamedRows.of(b).map(lambda block, _: unit(block, means[1]), b.shape[1], dtype=torch.float32)
    return 1 - nearest(unit(torch.from_numpy(a[queries]), means[0]), 1, y=y)[0][:, 0].numpy() ** 2 / 2


def nearest_others(rows: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances and indices of the k nearest other rows of some of the rows, which are distinct, (q, k)."""
    x = torch.from_numpy(rows)
    if k < 1:
        return np.empty((len(queries), 0)), np.empty((len(queries), 0), dtype=np.int64)
    if len(queries) == len(rows):
        distances, indices = nearest(x, k)
        return distances.numpy(), indices.numpy()
    # of a few queries; streamed rows are not copied as a whole
    distances, indices = (each.numpy() for each in nearest(x[queries], k + 1, y=StreamedRows.of(x)))
    others = indices != queries[:, None]  # each is its own nearest row
    return distances[others].reshape(-1, k), indices[others].reshape(-1, k)


def unexplained_copies(embeddings: Embeddings, first: np.ndarray) -> np.ndarray:
    """Rows equal to an earlier one to the last bit, unless both have one item_id, text or path.

    first: what `first_equal` returns of the rows.
    """
    rows = np.flatnonzero(first != np.arange(len(first)))
    for column in explaining(embeddings):
        rows = rows[column[rows] != column[first[rows]]]
    return rows


def explaining(embeddings: Embeddings) -> list[np.ndarray]:
    columns = [embeddings.item_id, *(embeddings.metadata.get(name) for name in SAME)]
    return [column for column in columns if column is not None]


def first_equal(vectors: Any) -> np.ndarray:
    """For each row, the number of the first row that equals it to the last bit: its own where it is no copy."""
    seen: dict[bytes, int] = {}
    first = np.arange(len(vectors))
    for start in range(0, len(vectors), BLOCK):
        block = np.ascontiguousarray(vectors[start : start + BLOCK])
        for k, row in enumerate(block, start):
            first[k] = seen.setdefault(blake2b(row, digest_size=16).digest(), k)
        release(vectors)
    return first

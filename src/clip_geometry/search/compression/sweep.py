"""The sweep: what searches of a held-out half of the items find after each combination of a cut and a number type."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import expit, logit

from clip_geometry.progress import Advance
from clip_geometry.search.compression.codecs import CODECS, Codec, codec
from clip_geometry.search.compression.compressor import mapped
from clip_geometry.search.compression.cuts import Cut, CutFit, cuts
from clip_geometry.tokens import TokenRows
from clip_geometry.transforms import Affine

K = 10  # nearest rows that should be kept
CANDIDATES = 4  # times as many are rescored
BLOCKS = 20  # of queries, in the jackknife
EDGE = 1e-3  # clips shares before their log odds are extrapolated
SLICES = 4  # parts of the index that are searched by themselves
FULL = "all", "float32", 1  # the full vectors
FURTHEST = 32  # largest factor of extrapolation
MIXED = 2**26  # most scores of the queries' tokens with items of their own modality

Rows = Mapping[str, TokenRows]


def log_odds(share: np.ndarray) -> np.ndarray:
    """Return the log odds of shares, which stay finite at 0 and 1."""
    return logit(np.clip(share, EDGE, 1 - EDGE))


class Combination(NamedTuple):
    """A cut with a number type and a pooling of tokens, with or without rescoring."""

    cut: Cut
    dtype: str
    rescored: bool
    pool_factor: int = 1


@dataclass(frozen=True)
class Extrapolation:
    """How the share of kept neighbors in an index of m items tells that in an index of `size` items.

    The share depends mostly on the fraction of the index that is kept, k/m. So the ten nearest of `size` items are
    compared with the k = 10 m/size nearest of m. A share of fewer neighbors is a little different; this difference is
    measured between the ten nearest of m items and the k nearest of a slice of them with k m/10 items.
    """

    m: int
    size: int

    @property
    def k(self) -> float:
        """The number of nearest of m items, from 1 to 10, that is compared."""
        return min(max(K * self.m / self.size, 1.0), float(K))

    @property
    def slice(self) -> int:
        return max(2, round(self.m * self.k / K))

    @property
    def beyond(self) -> float:
        """The factor of the size that remains after k = 1."""
        return max(1.0, self.size * self.k / (K * self.m))

    def predict(self, found: "Found") -> np.ndarray:
        """Return the share in the index of `size` items, from mean shares in the smaller ones."""
        if self.size == self.m:
            return found.kept
        kept, at_k, of_slice, of_half = map(log_odds, found)
        trend = (at_k - of_half) / np.log(2) * np.log(self.beyond)
        return expit(at_k + kept - of_slice + trend)


class Found(NamedTuple):
    """Shares of kept neighbors, one per query or their mean; the pair of a query does not count, except in `kept`.

    Args:
        kept: Of the ten nearest.
        at_k: Of the k nearest other items.
        of_slice: Of the k nearest other items in slices of the index.
        of_half: Of the k nearest other items in halves of the index.
    """

    kept: np.ndarray
    at_k: np.ndarray
    of_slice: np.ndarray
    of_half: np.ndarray


class Searched(NamedTuple):
    """What the queries of one direction find in one held-out half, for one combination.

    Args:
        found: Shares of kept neighbors, (q,) each.
        first: (q,) whether the first result is right; NaN without a right item.
        mixed: (q,) whether a right item is among the ten first of both modalities; NaN if unknown.
        vectors: (q,) stored vectors per item, the same number for all queries.
    """

    found: Found
    first: np.ndarray
    mixed: np.ndarray
    vectors: np.ndarray


@dataclass(frozen=True)
class Half:
    """Rows to fit on, and an index of other items with its queries.

    Args:
        fit: Modality → n items to fit on, unit rows.
        items: Modality → m items of the index, unit rows.
        codes: Modality → (m,) numbers, equal for rows that are right for each other.
        queries: Modality → (q,) numbers of the rows of `items` that are queries.
        paired: Whether the right items of a query are rows of the same item.
    """

    fit: Rows
    items: Rows
    codes: Mapping[str, np.ndarray]
    queries: Mapping[str, np.ndarray]
    paired: bool

    @property
    def directions(self) -> list[tuple[str, str]]:
        names = list(self.items)
        return [*permutations(names, 2)] if len(names) > 1 else [(names[0], names[0])]


def sweep(
    half: Half,
    sizes: Mapping[str, int],
    pool_factors: Sequence[int],
    types: Sequence[str],
    seed: int,
    advance: Advance,
) -> Iterator[tuple[Combination, tuple[str, str], Searched]]:
    """Yield what each combination finds in each direction of search.

    Args:
        half: The rows.
        sizes: Modality of the items → size of the index to predict.
        pool_factors: Tokens per stored vector.
        types: Number types, to which float32 is added for the full vectors.
        seed: Seed of random columns, and of the order of rows whose Hamming distances are equal.
        advance: Called with 1 after each cut.
    """
    rng = np.random.default_rng(seed)
    d = next(iter(half.items.values())).shape[1]
    full = {(q, x): _Direction(half, q, x, Extrapolation(len(half.items[x]), sizes[x])) for q, x in half.directions}
    for factor in pool_factors:
        fit, items = ({name: x.pooled(factor) for name, x in sets.items()} for sets in (half.fit, half.items))
        fits = CutFit({name: x.rows for name, x in fit.items()}, seed)
        fewest = min(map(len, fits.rows.values()))
        for cut in cuts(d, len(items)):
            maps = fits.maps(cut)
            for name, kind in CODECS.items():
                if maps is None or not kind.suits(cut.columns) or fewest < kind.least:
                    continue
                if name not in types and (cut.name, name, factor) != FULL:
                    continue
                stored = {}
                for item, view in maps.items():
                    fitted = codec(name).fit(mapped(view, fits.rows[item]))
                    rows = fitted.decode(fitted.encode(mapped(view, items[item].rows)), cut.columns)
                    # equal distances are ordered at random
                    ties = rng.random(len(items[item]), dtype=np.float32) / 2 if name == "binary" else np.float32(0)
                    stored[item] = _Stored(view, fitted, TokenRows(rows, items[item].lengths), ties)
                for direction, searched in full.items():
                    plain, rescored = searched.run(stored, mixed=cut.name != "pca[each]")
                    yield Combination(cut, name, False, factor), direction, plain
                    if (cut.name, name, factor) != FULL:
                        yield Combination(cut, name, True, factor), direction, rescored
            advance(1)


class _Stored(NamedTuple):
    """What an index stores of one modality: the map and the type, the items as decoded, and the order of equal ones."""

    view: Affine
    codec: Codec
    items: TokenRows
    ties: np.ndarray | np.float32

    def scores(self, queries: TokenRows) -> np.ndarray:
        asked = TokenRows(self.codec.queries(mapped(self.view, queries.rows)), queries.lengths)
        scores = asked.max_sim(self.items)
        scores += self.ties
        return scores


class _Direction:
    """The queries of one modality, the items of another (or the same), and the nearest by the full rows."""

    def __init__(self, half: Half, query: str, item: str, size: Extrapolation):
        self.half, self.query, self.item, self.size = half, query, item, size
        self.numbers = half.queries[query]
        self.rows = half.items[query][self.numbers]
        self.right = half.codes[query][self.numbers]
        self.mixed = query != item and len(self.rows.rows) * len(half.items[query].rows) <= MIXED
        m = size.m
        self.slices = [slice(start, start + size.slice) for start in range(0, m - size.slice + 1, size.slice)][:SLICES]
        self.halves = [slice(0, m // 2), slice(m // 2, m)] if size.beyond > 1 else []
        self.parts = (slice(None), *self.slices, *self.halves)
        right = torch.from_numpy(half.codes[item]) == torch.from_numpy(self.right)[:, None]
        self.pairs = right.nonzero(as_tuple=True) if query != item and half.paired else None
        self.scores = self._others(self.rows.max_sim(half.items[item]), query == item)
        self.nearest = self._tops(self.scores, K)

    def _others(self, scores: np.ndarray, same: bool) -> torch.Tensor:
        """Return scores in which a query does not find itself."""
        if same:
            scores[np.arange(len(scores)), self.numbers] = -np.inf
        return torch.from_numpy(scores)

    def _tops(self, scores: torch.Tensor, k: int) -> list[torch.Tensor]:
        """Return the k first items in the index, and without the pairs of the queries in it and in its parts."""
        tops = [_top(scores, k)]
        if self.pairs is not None:
            scores = scores.index_put(self.pairs, torch.tensor(-torch.inf))
        k = min(k, int(np.ceil(self.size.k)) * max(1, k // K))
        return tops + [_top(scores[:, part], k) for part in self.parts]

    def run(self, stored: Mapping[str, _Stored], *, mixed: bool) -> tuple[Searched, Searched]:
        """Return what is found without and with rescoring."""
        scores = self._others(stored[self.item].scores(self.rows), self.query == self.item)
        tops = self._tops(scores, CANDIDATES * K)
        own = None
        if mixed and self.mixed:
            own = self._others(stored[self.query].scores(self.rows), True).topk(K).values
        vectors = np.full(len(self.rows), stored[self.item].items.lengths.mean())
        places = [_places(near, top) for near, top in zip(self.nearest, tops, strict=True)]
        results = []
        for factor in (1, CANDIDATES):
            whole, at_k, *parts = (_kept(each, self.size.k if k else K, factor) for k, each in enumerate(places))
            slices, halves = parts[: len(self.slices)], parts[len(self.slices) :]
            found = Found(whole, at_k, np.mean(slices, axis=0), np.mean(halves or [at_k], axis=0))
            results.append(Searched(found, *self._right(scores, tops[0], own, rescored=factor > 1), vectors))
        return results[0], results[1]

    def _right(
        self, scores: torch.Tensor, top: torch.Tensor, own: torch.Tensor | None, *, rescored: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return whether the first result is right, and whether a right one is in the top ten of both modalities."""
        codes = torch.from_numpy(self.half.codes[self.item])
        wanted = torch.from_numpy(self.right)[:, None]
        is_right = codes[top] == wanted
        order = (
            self.scores.gather(1, top).argmax(1, keepdim=True)
            if rescored
            else torch.zeros(len(top), 1, dtype=torch.long)
        )
        first = is_right.gather(1, order)[:, 0].double().numpy()
        known = torch.isin(torch.from_numpy(self.right), codes).numpy() & (self.query != self.item)
        mixed = np.full(len(first), np.nan)
        if own is not None and not rescored:
            others = scores.gather(1, top[:, :K])
            best = torch.where(is_right[:, :K], others, -torch.inf).amax(1, keepdim=True)
            before = (own >= best).sum(1) + (others > best).sum(1)
            mixed = ((before < K) & best.isfinite()[:, 0]).double().numpy()
        return np.where(known, first, np.nan), np.where(known, mixed, np.nan)


def _top(scores: torch.Tensor, k: int) -> torch.Tensor:
    return scores.topk(min(k, scores.shape[1]), dim=1).indices


def _places(nearest: torch.Tensor, top: torch.Tensor) -> np.ndarray:
    """Return the place of each of the nearest rows among the first results, from 0, or a large number."""
    equal = nearest[:, :, None] == top[:, None, :]
    return torch.where(equal.any(2), equal.int().argmax(2), CANDIDATES * K).numpy()


def _kept(places: np.ndarray, k: float, factor: int) -> np.ndarray:
    """Return the share of the k nearest rows among the first `factor` k results, (q,).

    Between whole numbers k, the share is interpolated.
    """
    low, high = (min(int(whole), places.shape[1]) for whole in (np.floor(k), np.ceil(k)))
    at_low, at_high = ((places[:, :whole] < factor * whole).mean(1) for whole in (low, high))
    return at_low + (k - np.floor(k)) * (at_high - at_low)

"""What a baseline stores of one set, and one pass over rows that compares them with it."""

import base64
import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from clip_geometry.config import Config
from clip_geometry.embeddings import Embeddings, model_and_maps
from clip_geometry.geometry.distances.best_scores import BestScores
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import release
from clip_geometry.search.checks import BLOCK, Context, once
from clip_geometry.search.checks.rows import grid_of

CANARIES = 64
NEAR = 10
COPY = 1e-4  # largest distance from 1 of the cosine of copies
AXES = 64
WIDE = 1024  # columns from which half of the axes and canaries are stored
SKETCH = 8  # random directions of a row's sketch
STEP = 4000.0  # steps of a sketch per unit of √d ⟨u, r⟩
BYTES = 620_000  # of the arrays of all sets; base64 takes a third more
CODED = 10_000  # most rows with a sketch
QUERIES = 1000  # most queries that look for hubs
PRODUCTS = 250_000_000  # most cosines of such queries; at least LEAST queries are used
LEAST = 100
FORMAT_ROWS = 1000
SAMPLE = 10_000  # most rows for the principal axes
READ = 64  # rows to read at once from anywhere in a file


class Array(Config):
    """An array as base64 of its little-endian bytes."""

    dtype: Literal["<f2", "<f4", "<i2", "<u8"]
    shape: list[Annotated[int, Field(ge=0)]]
    data: str

    @classmethod
    def of(cls, values: np.ndarray, dtype: Any) -> "Array":
        stored = np.ascontiguousarray(values, dtype=dtype)
        return cls(dtype=dtype, shape=[*stored.shape], data=base64.b64encode(stored.tobytes()).decode())

    @property
    def values(self) -> np.ndarray:
        """The stored array; float16 is returned as float32."""
        stored = np.frombuffer(base64.b64decode(self.data), dtype=self.dtype).reshape(self.shape)
        return stored.astype(np.float32) if self.dtype == "<f2" else stored

    @model_validator(mode="after")
    def _has_size_of_shape(self) -> "Array":
        """Check that the base64 text has as many bytes as the shape and the type need."""
        try:
            size = len(base64.b64decode(self.data, validate=True))
        except ValueError:
            raise ValueError("an array is not base64") from None
        if size != math.prod(self.shape) * np.dtype(self.dtype).itemsize:
            raise ValueError("an array has another size than its shape says")
        return self


class Hub(Config):
    """The row that is found by the most queries of one modality.

    share: share of the queries that find it first. top: share of the queries that have it among the ten nearest.
    flooded: share of the queries whose ten nearest rows are mostly copies of one row.
    """

    share: float
    top: float
    flooded: float


class Profile(Config):
    """Statistics of one set in a baseline.

    Attributes:
        n, d: Shape of the rows.
        keyed: Whether rows are identified by their ids rather than by their positions.
        number_format: Grid on which the values lie, such as "float16"; "" for full precision.
        lengths: 1%, 50% and 99% quantile of the lengths of the rows.
        mean: Mean of the unit rows, (d,).
        axes: Principal directions of the second moment of the unit rows, (k, d).
        energies: Mean of ⟨u, axis⟩² for each axis, (k,).
        concentration: tr(C²)/tr(C)² of the covariance C of the unit rows.
        cut: Share of a unit row's square in the axes below which the row counts as foreign.
        below: Share of clean rows below the cut.
        keys: Numbers that identify the rows with a sketch, (m,).
        sketches: Projections of these rows on random directions, then on the means of the other sets, (m, s).
        towards: Modality → column of the sketch that belongs to its mean.
        means: Directions of those columns, (c, d).
        canaries: Unit rows, (64, d); canary_keys identify them.
        neighbors: Keys of the eleven nearest rows of each canary, (64, 11), of which it is one.
        hubs: Modality of the queries → its most frequent row.
        origin: Model and maps, where the files name them.
        seed: Seed of the random directions.
    """

    n: int
    d: int
    keyed: bool
    number_format: str
    lengths: tuple[float, float, float]
    mean: Array
    axes: Array
    energies: Array
    concentration: float
    cut: float
    below: float
    keys: Array
    sketches: Array
    towards: dict[str, int]
    means: Array
    canaries: Array
    canary_keys: Array
    neighbors: Array
    hubs: dict[str, Hub]
    origin: dict[str, str]
    seed: int

    def directions(self) -> np.ndarray:
        """Return the directions of the sketches, (s, d)."""
        return np.concatenate([random_directions(self.d, self.seed), self.means.values])


@dataclass(frozen=True, eq=False)
class Observed:
    """What one pass over the rows of a set gives, in the terms of a profile.

    Attributes:
        n: Number of rows.
        keys: (n,) keys of all rows.
        valid: (n,) mask of the rows with a direction.
        lengths: 1%, 50% and 99% quantile.
        number_format: As in `Profile`.
        mean: (d,) mean of the unit rows.
        energies: (n,) share of each row's square in the axes.
        sketches: (n, s).
        near: (64, 11) nearest rows of each canary.
        lists: Modality of the queries → (q, 10) nearest rows.
        copied: Modality of the queries → (q,) whether most of these are copies of one row.
        labels, texts: Columns of the set, if it has them.
    """

    n: int
    keys: np.ndarray
    valid: np.ndarray
    lengths: tuple[float, float, float]
    number_format: str
    mean: np.ndarray
    energies: np.ndarray
    sketches: np.ndarray
    near: np.ndarray
    lists: dict[str, np.ndarray]
    copied: dict[str, np.ndarray]
    texts: np.ndarray | None


def random_directions(d: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng([seed, d]).normal(size=(SKETCH, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def keys_of(embeddings: Embeddings) -> np.ndarray:
    """Return a 64-bit number for each row: of its id and how often the id came before, or its position, (n,)."""
    if embeddings.item_id is None:
        return np.arange(len(embeddings), dtype=np.uint64)
    seen: dict[str, int] = {}
    keys = np.empty(len(embeddings), dtype=np.uint64)
    for row, item in enumerate(embeddings.item_id.tolist()):
        before = seen.get(item, 0)
        seen[item] = before + 1
        keys[row] = int.from_bytes(blake2b(f"{before} {item}".encode(), digest_size=8).digest(), "little")
    return keys


def unit_blocks(context: Context, modality: str) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield spans of rows with their unit rows in float32; rows without a direction are zero."""
    vectors = context.sets[modality].vectors
    lengths = context.lengths(modality)
    valid = context.valid(modality)
    scale = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=valid).astype(np.float32)
    for start in range(0, len(lengths), BLOCK):
        span = slice(start, start + BLOCK)
        rows = np.asarray(vectors[span], dtype=np.float32)
        if not valid[span].all():
            rows = np.where(valid[span, None], rows, 0)
        yield span, rows * scale[span, None]
        release(vectors)


def observe(
    context: Context, modality: str, axes: np.ndarray, canaries: np.ndarray, directions: np.ndarray
) -> Observed:
    """Read all rows of a set once.

    Args:
        context: The sets.
        modality: The set to read.
        axes: (k, d) principal directions.
        canaries: (c, d) unit rows to look for.
        directions: (s, d) directions of the sketches.
    """
    embeddings = context.sets[modality]
    n, d = embeddings.vectors.shape
    valid = context.valid(modality)
    energies = np.empty(n, np.float32)
    sketches = np.empty((n, len(directions)), np.int16)
    total = np.zeros(d)
    queries = {**_queries(context, modality), "": canaries}
    searches = {asking: BestScores(len(rows), NEAR + 1) for asking, rows in queries.items()}
    parts = [axes, directions, *queries.values()]
    ends = np.cumsum([len(part) for part in parts])[:-1]
    matrix = torch.from_numpy(np.concatenate(parts).T.astype(np.float32))
    for span, rows in unit_blocks(context, modality):
        products = torch.from_numpy(rows) @ matrix
        along, coded, *_ = np.split(products.numpy(), ends, axis=1)
        energies[span] = np.square(along).sum(1)
        sketches[span] = np.clip(np.round(coded * (STEP * math.sqrt(d))), -32767, 32767)
        total += rows.sum(0, dtype=np.float64)
        numbers = torch.arange(span.start, span.start + len(rows))
        for search, cosines in zip(searches.values(), products.tensor_split(ends.tolist(), dim=1)[2:], strict=True):
            search.add(cosines.T, numbers)
    found = {asking: search.in_order()[1].numpy() for asking, search in searches.items()}
    near = found.pop("")
    lists = {asking: _without_itself(context, asking, modality, items) for asking, items in found.items()}
    lengths = context.lengths(modality)[valid]
    low, median, high = np.quantile(lengths, [0.01, 0.5, 0.99]).tolist() if len(lengths) else (0.0, 0.0, 0.0)
    return Observed(
        n=n,
        keys=keys_of(embeddings),
        valid=valid,
        lengths=(low, median, high),
        number_format=_number_format(context, modality),
        mean=total / max(1, valid.sum()),
        energies=energies,
        sketches=sketches,
        near=near,
        lists=lists,
        copied={asking: _copied(context, modality, items) for asking, items in lists.items()},
        texts=embeddings.metadata.get("text"),
    )


def _number_format(context: Context, modality: str) -> str:
    """Return the number format on whose grid the values of a sample lie, such as "float16"; "" for float32."""
    sample = context.sample(modality)
    numbers = sample[:: max(1, len(sample) // FORMAT_ROWS)][:FORMAT_ROWS]
    if len(numbers) < 2:
        return ""
    vectors = context.sets[modality].vectors
    parts = []
    for part in _parts(numbers):
        parts.append(np.asarray(vectors[part], dtype=np.float32))
        release(vectors)
    grid = grid_of(np.concatenate(parts), context.seed)
    return "" if grid is None else grid.format


def _chosen(context: Context, asking: str, modality: str) -> np.ndarray:
    """Return the row numbers of the queries of one modality among the rows of another one; empty for too few rows."""
    sample, n = context.sample(asking), len(context.sets[modality])
    count = min(len(sample), max(LEAST, min(QUERIES, PRODUCTS // n)))
    if count < LEAST or n < LEAST or context.sets[asking].dim != context.sets[modality].dim:
        return np.empty(0, dtype=np.int64)
    return np.sort(np.random.default_rng(context.seed).choice(sample, count, replace=False))


def _queries(context: Context, modality: str) -> dict[str, np.ndarray]:
    chosen = {asking: _chosen(context, asking, modality) for asking in context.sets}
    return {asking: unit_rows(context, asking, numbers) for asking, numbers in chosen.items() if len(numbers)}


def _without_itself(context: Context, asking: str, modality: str, rows: np.ndarray) -> np.ndarray:
    """Remove each query from its own list, (q, 11), or else the last row, because a copy took its place, (q, 10)."""
    if asking != modality:
        return rows[:, :NEAR]
    itself = rows == _chosen(context, asking, modality)[:, None]
    itself[~itself.any(1), -1] = True
    return rows[~itself].reshape(len(rows), NEAR)


def _copied(context: Context, modality: str, lists: np.ndarray) -> np.ndarray:
    """Return which lists consist of copies of their first row by half, (q,)."""
    rows = unit_rows(context, modality, lists.ravel()).reshape(*lists.shape, -1)
    return (np.einsum("qd,qkd->qk", rows[:, 0], rows) > 1 - COPY).sum(1) >= NEAR // 2


@once
def _sampled_rows(context: Context, modality: str) -> np.ndarray:
    """Return unit rows of a sample in random order."""
    generator = np.random.default_rng(context.seed)
    numbers = np.sort(generator.permutation(context.sample(modality))[:SAMPLE])
    return generator.permutation(unit_rows(context, modality, numbers))


def unit_rows(context: Context, modality: str, numbers: np.ndarray) -> np.ndarray:
    """Like `Context.unit_rows`, with little of the file in memory."""
    if not len(numbers):
        return np.empty((0, context.sets[modality].dim), dtype=np.float32)
    return np.concatenate([context.unit_rows(modality, part) for part in _parts(numbers)])


def _parts(numbers: np.ndarray) -> list[np.ndarray]:
    """Split row numbers into parts that are read at once; the system may map a megabyte of a file for each row."""
    return np.array_split(numbers, -(-len(numbers) // READ))


def hub_of(lists: np.ndarray, copied: np.ndarray) -> Hub:
    """Summarize the lists of nearest rows of one modality's queries."""
    counts = [np.bincount(lists[:, :k].ravel()).max() / len(lists) for k in (1, NEAR)]
    return Hub(share=float(counts[0]), top=float(counts[1]), flooded=float(copied.mean()))


def profile_of(context: Context, modality: str) -> Profile:
    """Compute the statistics that a baseline stores of one set.

    Raises:
        InputError: Fewer than 100 rows have a direction.
    """
    embeddings = context.sets[modality]
    d = embeddings.dim
    sample = context.sample(modality)
    if len(sample) < LEAST:
        raise InputError(
            f"the {modality} rows have {len(sample)} valid rows; expected at least {LEAST} to compare later rows with"
        )
    generator = np.random.default_rng(context.seed)
    stored = AXES if d <= WIDE else AXES // 2
    unit = _sampled_rows(context, modality)
    k = min(stored, d // 4, len(unit) // 4) or 1
    axes = _axes(unit[::2], k)
    held_out = np.square(unit[1::2] @ axes.T).sum(1)
    random = k / d + 3 * math.sqrt(2 * k) / d  # highest of a cone in a random direction
    cut = (min(float(np.quantile(held_out, 0.01)), 1.0) + min(random, 1.0)) / 2
    axes = _axes(unit, k)
    others = [name for name in context.sets if name != modality and context.sets[name].dim == d]
    means = np.array([_direction(_sampled_rows(context, name).mean(0)) for name in others]).reshape(len(others), d)
    positions = np.sort(generator.choice(len(sample), min(CANARIES, stored, len(sample)), replace=False))
    canaries = unit_rows(context, modality, sample[positions])
    directions = np.concatenate([random_directions(d, context.seed), means])
    seen = observe(context, modality, axes, canaries, directions)
    size = BYTES // len(context.sets) - 2 * d * (k + len(canaries))
    room = int(np.clip(size // (8 + 2 * len(directions)), 0, CODED))
    coded = np.sort(np.union1d(generator.permutation(sample)[:room], sample[positions]))
    covariance = _covariance(unit)
    return Profile(
        n=seen.n,
        d=d,
        keyed=embeddings.item_id is not None,
        number_format=seen.number_format,
        lengths=seen.lengths,
        mean=Array.of(seen.mean, "<f4"),
        axes=Array.of(axes, "<f2"),
        energies=Array.of(np.square(unit @ axes.T).mean(0), "<f4"),
        concentration=float(np.square(covariance).sum() / max(np.trace(covariance) ** 2, 1e-30)),
        cut=cut,
        below=float((held_out < cut).mean()),
        keys=Array.of(seen.keys[coded], "<u8"),
        sketches=Array.of(seen.sketches[coded], "<i2"),
        towards={name: SKETCH + column for column, name in enumerate(others)},
        means=Array.of(means, "<f4"),
        canaries=Array.of(canaries, "<f2"),
        canary_keys=Array.of(seen.keys[sample[positions]], "<u8"),
        neighbors=Array.of(seen.keys[seen.near], "<u8"),
        hubs={asking: hub_of(lists, seen.copied[asking]) for asking, lists in seen.lists.items()},
        origin=model_and_maps(embeddings),
        seed=context.seed,
    )


def foreign_share(profile: Profile, queries: Embeddings) -> float:
    """Return the share of queries that lie outside the principal axes of a set; 1 if their dimension differs."""
    if queries.dim != profile.d:
        return 1.0
    unit = _sampled_rows(Context({"queries": queries}), "queries")
    return float((np.square(unit @ profile.axes.values.T).sum(1) < profile.cut).mean())


def _axes(unit: np.ndarray, k: int) -> np.ndarray:
    moment = unit.T.astype(np.float64) @ unit / len(unit)
    return np.linalg.eigh(moment)[1][:, ::-1][:, :k].T


def _covariance(unit: np.ndarray) -> np.ndarray:
    centered = unit - unit.mean(0)
    return centered.T.astype(np.float64) @ centered / len(unit)


def _direction(mean: np.ndarray) -> np.ndarray:
    return mean / max(float(np.linalg.norm(mean)), 1e-12)

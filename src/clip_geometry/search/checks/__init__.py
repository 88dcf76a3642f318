"""Checks of an index, one module per subject; each check is a function of a `Context` that yields findings."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, wraps
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch

from clip_geometry import catalog
from clip_geometry.display.words import Words
from clip_geometry.embeddings import Embeddings, in_order, pair
from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.memory import give_back
from clip_geometry.registry import InputError, Registry, import_all
from clip_geometry.rows.streamed import StreamedRows, release

Severity: TypeAlias = Literal["error", "warning", "note"]
Method = TypeVar("Method", bound=Callable[..., Any])

HERE = Path(__file__).parent
SEVERITIES = ("error", "warning", "note")
ROWS = 100_000  # largest number of rows of a modality that the checks sample
WORK = 10**8  # cosines to compute for the neighbors of a modality; up to 10,000 rows can all be queries
NEIGHBORS = 10
BLOCK = 4096


@dataclass(frozen=True)
class Finding:
    """A fault that a check found, with its evidence and what to do about it.

    Attributes:
        check: Name of the check, such as "shifted_pairs".
        severity: "error": results of the index are wrong. "warning": results are worse than they could be. "note": no
            fault, but the reader should know about it.
        evidence: What the check observed, in a sentence with a standard error or p-value.
        consequence: How the fault affects searches and measurements.
        remedy: What to do about it.
        modalities: The modalities that the finding concerns.
        values: The evidence as name → value. Row numbers count the rows of the given set from 0.

    Example:
        >>> from clip_geometry.search.checks import Finding
        >>> finding = Finding("hubs", "warning", "Row 3 is everywhere.", "It hides others.", "Drop it.", ("image",))
        >>> print(finding)
        hubs (image, warning): Row 3 is everywhere. It hides others. Drop it.
    """

    check: str
    severity: Severity
    evidence: str
    consequence: str
    remedy: str
    modalities: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        where = ", ".join((*self.modalities, self.severity))
        return f"{self.check} ({where}): {self.evidence} {self.consequence} {self.remedy}"


Findings: TypeAlias = Iterator[Finding]


def finding(check: str, severity: Severity, *modalities: str, **values: Any) -> Finding:
    """Return a finding whose three texts are rendered by the macros in CHECK.j2 from `modalities` and `values`."""
    macros = _macros_of(check)
    texts = (macros(macro, v={"modalities": modalities, **values}) for macro in ("evidence", "consequence", "remedy"))
    return Finding(check, severity, *texts, modalities=modalities, values=values)


@cache
def _macros_of(check: str) -> Words:
    return Words(HERE / f"{check}.j2")


class NotRun(NamedTuple):
    """A check that did not run, the reason, and the modalities that it skipped (empty: all of them)."""

    check: str
    reason: str
    modalities: tuple[str, ...] = ()


class NearestRows(NamedTuple):
    """Nearest neighbors among distinct rows, by the Euclidean distance of unit rows.

    numbers: (n,) row numbers of the distinct rows that were searched. queries: (q,) positions of the queries in
    `numbers`. distances, indices: (q, k), in ascending order of distance; indices are positions in `numbers`.
    """

    numbers: np.ndarray
    queries: np.ndarray
    distances: np.ndarray
    indices: np.ndarray


def once(function: Method) -> Method:
    """Cache the result of a `Context` function for each combination of modalities."""

    @wraps(function)
    def cached(context: "Context", *modalities: str) -> Any:
        key = function.__name__, *modalities
        if key not in context.results:
            context.results[key] = function(context, *modalities)
            give_back()
        return context.results[key]

    return cached  # pyright: ignore[reportReturnType] # has the signature of the function


class Context:
    """The sets to diagnose, together with the results that several checks share.

    Args:
        sets: Modality → `Embeddings`.
        other: Another split of the same data, as modality → `Embeddings`. Copies of its rows in `sets` are leakage.
        seed: Seed of the samples and of the null values.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> from clip_geometry.search.checks import Context
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
        self.results: dict[tuple[str, ...], Any] = {}  # filled by `once`

    def skip(self, check: str, reason: str, *modalities: str) -> None:
        """Record that a check cannot run, either at all or for the given modalities."""
        self.not_run.append(NotRun(check, reason, modalities))

    @once
    def lengths(self, modality: str) -> np.ndarray:
        """The length of every row in float64; NaN for rows that contain NaN or infinity."""
        vectors = self.sets[modality].vectors
        lengths = []
        for start in range(0, len(vectors), BLOCK):
            block = np.asarray(vectors[start : start + BLOCK], dtype=np.float64)
            finite = np.isfinite(block).all(1)
            lengths.append(np.where(finite, np.sqrt(np.einsum("nd,nd->n", block, block)), np.nan))
            release(vectors)
        return np.concatenate(lengths)

    def valid(self, modality: str) -> np.ndarray:
        """Mask of the rows that have a direction: finite and not zero."""
        return self.lengths(modality) > 0

    @once
    def sample(self, modality: str) -> np.ndarray:
        """Numbers of the valid rows, ascending: all of them, or a random sample of `ROWS`."""
        numbers = np.flatnonzero(self.valid(modality))
        if len(numbers) <= ROWS:
            return numbers
        return np.sort(np.random.default_rng(self.seed).choice(numbers, ROWS, replace=False))

    @once
    def unit(self, modality: str) -> np.ndarray:
        """The sampled rows at unit length, in float32."""
        return self.unit_rows(modality, self.sample(modality))

    def unit_rows(self, modality: str, numbers: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return the rows with the given numbers at unit length, in float32."""
        vectors, lengths = self.sets[modality].vectors, self.lengths(modality)
        out = np.empty((len(numbers), vectors.shape[1]), np.float32) if out is None else out
        for start in range(0, len(numbers), BLOCK):
            rows = numbers[start : start + BLOCK]
            unit = out[start : start + BLOCK]
            with np.errstate(all="ignore"):  # rows without a direction; callers exclude them
                np.divide(vectors[rows], lengths[rows, None], out=unit, dtype=np.float64, casting="same_kind")
            release(vectors)
        return out

    @once
    def first_equal(self, modality: str) -> np.ndarray:
        """For every row, the number of the first row that is equal to it."""
        return first_equal(self.sets[modality].vectors)

    @once
    def neighbors(self, modality: str) -> NearestRows:
        """The ten nearest neighbors among the sampled rows without exact copies; for large sets, of some rows only."""
        sample = self.sample(modality)
        distinct = self.first_equal(modality)[sample] == sample
        rows = selected(self.unit(modality), distinct)
        queries = self.queries(len(rows))
        return NearestRows(sample[distinct], queries, *nearest_others(rows, queries, min(NEIGHBORS, len(rows) - 1)))

    def queries(self, n: int, among: int | None = None) -> np.ndarray:
        """Choose which of n rows to use as queries, ascending.

        `among` is the number of rows that each query is compared with (default: n). All n rows are queries if this
        needs at most `WORK` cosines; otherwise a random sample is.
        """
        limit = max(1, WORK // max(1, n if among is None else among))
        if n <= limit:
            return np.arange(n)
        return np.sort(np.random.default_rng(self.seed).choice(n, limit, replace=False))

    @property
    @once
    def couples(self) -> list[tuple[str, str]]:
        """The pairs of modalities that have the same dimension and whose rows can be paired."""
        return [couple for couple in combinations(in_order(self.sets), 2) if self.pairs(*couple) is not None]

    @once
    def pairs(self, one: str, other: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Row numbers of the matching rows; None if no rows pair or the dimensions differ."""
        first, second = self.sets[one], self.sets[other]
        try:
            return pair(first, second) if first.dim == second.dim else None
        except InputError:
            return None

    def same_dimension(self, check: str, couples: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yield the couples whose dimensions are equal, and record the others as skipped by the check."""
        for one, other in couples:
            if self.sets[one].dim == self.sets[other].dim:
                yield one, other
            else:
                self.skip(check, "different dimensions", one, other)


def selected(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the rows selected by the mask, without a copy if it selects all of them."""
    return rows if mask.all() else rows[mask]


def nearest_others(rows: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and indices, (q, k), of the k nearest other rows of each query; all rows must be distinct."""
    x = torch.from_numpy(rows)
    if k < 1:
        return np.empty((len(queries), 0)), np.empty((len(queries), 0), dtype=np.int64)
    if len(queries) == len(rows):
        distances, indices = nearest(x, k)
        return distances.numpy(), indices.numpy()
    # with few queries, stream the rows: this avoids copying all of them
    distances, indices = (result.numpy() for result in nearest(x[queries], k + 1, y=StreamedRows.of(x)))
    is_other = indices != queries[:, None]  # each query is its own nearest row
    return distances[is_other].reshape(-1, k), indices[is_other].reshape(-1, k)


def first_equal(vectors: Any) -> np.ndarray:
    """For each row, return the number of the first row that is bitwise equal to it: its own if no earlier one is."""
    seen: dict[bytes, int] = {}
    first = np.arange(len(vectors))
    for start in range(0, len(vectors), BLOCK):
        block = np.ascontiguousarray(vectors[start : start + BLOCK])
        for k, row in enumerate(block, start):
            first[k] = seen.setdefault(blake2b(row, digest_size=16).digest(), k)
        release(vectors)
    return first


@dataclass(frozen=True)
class Check:
    """A registered check.

    Attributes:
        name: Name of the check, as in its findings.
        title: What the check looks for.
        function: Yields findings about the sets of a context.
        threshold: Where the check starts to report, and why there.

    Example:
        >>> from clip_geometry.search.checks import checks
        >>> checks["not_unit"].title
        'rows that are not of length 1'
    """

    name: str
    title: str
    function: Callable[[Context], Findings]
    threshold: str


CATALOG = catalog.read(HERE)
checks: Registry[Check] = Registry("check", "clip-geometry diagnose --help", dict.fromkeys(CATALOG, __name__))


def add_check(function: Callable[[Context], Findings]) -> Check:
    """Register a function as a check under its own name; catalog.yaml provides the description."""
    name = function.__name__
    return checks.add(name, Check(name, function=function, **CATALOG[name]))


def run_checks(context: Context, names: Iterable[str] | None = None) -> list[Finding]:
    """Run checks on a context.

    Args:
        context: The sets to check.
        names: Names of the checks to run; default: all.

    Returns:
        Their findings: errors first, then warnings and notes. `context.not_run` lists the checks that did not run, with
        reasons.

    Raises:
        InputError: If a name is unknown.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> from clip_geometry.search.checks import Context, run_checks
        >>> x = np.random.default_rng(0).normal(size=(50, 8))
        >>> x[7] = 0
        >>> findings = run_checks(Context({"image": cg.Embeddings(x, "image")}), ["invalid_rows"])
        >>> [finding.evidence for finding in findings]
        ['1 of 50 (2.0 ± 2.0%) image rows is zero or holds NaN or infinity; the first is row 7.']
    """
    findings: list[Finding] = []
    for name in checks if names is None else names:
        findings += checks[name].function(context)
        give_back()
    return sorted(findings, key=lambda result: SEVERITIES.index(result.severity))


import_all(__name__)

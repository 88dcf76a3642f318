"""What a cheap look at the sets tells a reader before the numbers do: pairs out of order, copies of rows, columns for
rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.measuring.views import Pairs
from clip_geometry.modalities import plural
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import release

PAIRS = 2000  # looked at, at most
QUERIES = 300
LEAST = 20  # fewer pairs prove nothing
ROUNDING = 1e-6  # of unit rows in float32: those that differ by less are all the same
# A transposed set, measured on 10 sets of real embeddings: lengths of their items vary by 0 to 0.07 (standard deviation
# over mean), those of their dimensions by 0.4 to 1.4, and 18 times as much as those of the items
VARIED, EQUAL = 0.3, 0.2  # variation of lengths: of dimensions at least, and of items at most, relative to that
CONE = 0.1  # least average cosine of items; of whitened or standardized columns, whose lengths are equal, it is 0
LEAST_SCORE = 2.0  # standard deviations; pairs of a trained model reach tens
SAME = ("text", "path", "image_path", "token", "word")  # columns that explain equal rows, as an equal item_id does


def remarks_on(
    sets: Mapping[str, Embeddings],
    couples: Iterable[tuple[str, str]],
    pairs: Callable[[str, str], Pairs],
    *,
    all_rows: bool,
) -> Iterator[str]:
    """One sentence for each thing that is worth knowing of the sets, as they were read.

    pairs: the matching rows of a couple; InputError where there are none. all_rows: whether copies are looked for, too,
    which reads every row.
    """
    layers = {layer for each in sets.values() for layer in np.unique(each.metadata.get("layer", ()))}
    if len(layers) > 1:
        yield f"{len(layers)} layers of rows together; by layer (--by layer) each is measured on its own"
    for modality, each in sets.items():
        if dropped := each.provenance.get("dropped"):
            yield f"{dropped} more captions of these items are no {modality} rows: captions_per_image left them out"
        if looks_transposed(each):
            yield (
                f"the {modality} rows look transposed: the {each.dim} columns are about equally long and the "
                f"{len(each)} rows are not, as if columns were items; give one row for each item"
            )
    if all_rows:
        for modality, each in sets.items():
            if count := len(unexplained_copies(each, first_equal(each.vectors))):
                others = " with other ids" * bool(_explaining(each))
                yield f"{count} of {len(each)} {modality} rows are exact copies of rows{others}"
    several = len(sets) > 2
    for one, other in couples:
        first, second = sets[one], sets[other]
        with_ids = [each.modality for each in (first, second) if each.item_id is not None]
        if len(with_ids) == 1 and len(first) == len(second) and "label" not in (first.pair_on, second.pair_on):
            without = other if with_ids == [one] else one
            yield f"{with_ids[0]} rows have ids and {without} rows have none: they pair by row number"
        if first.dim != second.dim:
            if several:
                yield f"{one} has dimension {first.dim} and {other} {second.dim}: measures of one space leave them out"
            continue
        untrained = all("/fresh" in str(each.provenance.get("model")) for each in (first, second))
        try:
            found = out_of_order(first, second, pairs(one, other), f" of {one} and {other}" if several else "")
        except InputError:  # nothing pairs, which the measures of pairs say
            continue
        if found and not untrained:
            yield found


def looks_transposed(embeddings: Embeddings) -> bool:
    """Whether columns look like items: about equally long and in a cone, while the lengths of rows vary."""
    n, d = embeddings.vectors.shape
    if min(n, d) < LEAST:
        return False
    x = np.asarray(embeddings.vectors[np.linspace(0, n - 1, min(n, PAIRS)).astype(int)], dtype=np.float64)
    with np.errstate(all="ignore"):  # zero columns and NaN: whoever measures them says so
        rows, columns = (np.linalg.norm(x, axis=axis) for axis in (1, 0))
        varied, equal = (lengths.std() / lengths.mean() for lengths in (rows, columns))
        cosine = (np.square((x / columns).sum(1)).sum() - d) / (d * (d - 1))
    return bool(varied > VARIED and equal < EQUAL * varied and cosine > CONE)


def out_of_order(first: Embeddings, second: Embeddings, pairs: Pairs, which: str = "") -> str | None:
    """Whether the pairs match no better than random ones, or worse than row i with row i + k.

    first, second: sets of one space, whose rows may lie in files. which: of several couples, in words. The score is
    that of Σ⟨a_i, b_i⟩, a and b the centered unit rows, among all ways to pair them, whose variance is
    Σ_ij ⟨a_i, b_j⟩²/(n − 1).
    """
    i, j = pairs
    if len(i) < LEAST:
        return None
    shift = _shift(_centered(first.vectors, i[:PAIRS]), _centered(second.vectors, j[:PAIRS]))
    if shift:
        where = f"{abs(shift)} row{'s' * (abs(shift) > 1)} {'further on' if shift > 0 else 'before'}"
        nearest = f"more {plural(first.modality)} are nearest to the {second.modality} {where} than to their own"
        return f"the pairs{which} look shifted: {nearest}"
    spread = np.linspace(0, len(i) - 1, min(len(i), PAIRS)).astype(int)
    a, b = _centered(first.vectors, i[spread]), _centered(second.vectors, j[spread])
    variance = ((a.T @ a) * (b.T @ b)).sum() / (len(a) - 1)
    if (a * b).sum() < LEAST_SCORE * np.sqrt(variance) and min(np.abs(a).max(), np.abs(b).max()) > ROUNDING:
        score = (a * b).sum() / np.sqrt(variance)
        return (
            f"the pairs{which} match no better than random ones ({score:.1f} standard deviations), as those of an "
            "untrained model or of two spaces; of a trained model, check the order of the rows"
        )
    return None


def _centered(vectors: Any, rows: np.ndarray) -> np.ndarray:
    """Unit rows less their mean, in float64."""
    x = np.asarray(vectors[rows], dtype=np.float64)
    with np.errstate(all="ignore"):  # zero rows and NaN: whoever measures them says so
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return x - x.mean(0)


def _shift(a: np.ndarray, b: np.ndarray) -> int:
    """How many rows after its image the nearest text stands most often; 0 where its own is nearest as often or half so.

    Copies of its own text are its own.
    """
    queries = np.linspace(0, len(a) - 1, min(len(a), QUERIES)).astype(int)
    cosines = a[queries] @ b.T
    nearest = cosines.argmax(1)
    own = (cosines[np.arange(len(queries)), queries] >= cosines.max(1) - 1e-12).sum()
    offsets, counts = np.unique(nearest - queries, return_counts=True)
    most = counts.argmax()
    return int(offsets[most]) if counts[most] > max(10, 0.05 * len(queries), 2 * own) else 0


def unexplained_copies(embeddings: Embeddings, first: np.ndarray) -> np.ndarray:
    """Rows equal to an earlier one to the last bit, unless both have one item_id, text or path.

    first: what `first_equal` returns of the rows.
    """
    rows = np.flatnonzero(first != np.arange(len(first)))
    for column in _explaining(embeddings):
        rows = rows[column[rows] != column[first[rows]]]
    return rows


def _explaining(embeddings: Embeddings) -> list[np.ndarray]:
    columns = [embeddings.item_id, *(embeddings.metadata.get(name) for name in SAME)]
    return [column for column in columns if column is not None]


def first_equal(vectors: Any) -> np.ndarray:
    """For each row, the number of the first row that equals it to the last bit: its own where it is no copy."""
    seen: dict[bytes, int] = {}
    first = np.arange(len(vectors))
    for start in range(0, len(vectors), 4096):
        block = np.ascontiguousarray(vectors[start : start + 4096])
        for k, row in enumerate(block, start):
            first[k] = seen.setdefault(blake2b(row, digest_size=16).digest(), k)
        release(vectors)
    return first

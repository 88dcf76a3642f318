"""Conversion of a file's arrays or columns to sides: which are rows, of which modality, and what belongs to them."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict
from typing_extensions import TypedDict  # pydantic accepts the standard one only from Python 3.12 on

from clip_geometry.embeddings import Embeddings, FileRows, LazyRows, chosen_rows, joined
from clip_geometry.io.quantized import with_values
from clip_geometry.io.reading import require_memory
from clip_geometry.modalities import modality_name
from clip_geometry.progress import note
from clip_geometry.registry import InputError, listed, shown
from clip_geometry.tokens import TokenRows

Sides = dict[str, Embeddings]  # by modality; UNNAMED if the file does not name it
UNNAMED = ""

KINDS = ("emb", "embedding", "embeddings", "embeds", "features", "vectors")
STEMS = {
    "image": ("image", "images", "img"),
    "text": ("text", "texts", "txt"),
    "audio": ("audio",),
    "video": ("video", "videos"),
}
ID_NAMES = ("item_id", "id", "")  # in order of precedence; pandas writes its index as a column without a name
LABEL_NAMES = ("label", "labels")
LENGTHS = "_lengths"  # ending of the name of an array with the number of tokens of each item


# --- which arrays are rows, and of which modality


def check_vectors(array: Any, source: str) -> Any:
    """Return `array` in native byte order; raise InputError unless it is (n, d) floating point."""
    if len(array.shape) != 2:
        raise InputError(f"{source} has the shape {array.shape}; embeddings are rows and columns, (n, d)")
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise InputError(f"{source} holds {array.dtype} values; embeddings are float16, float32 or float64")
    if array.shape[1] == 0:
        raise InputError(f"{source} has the shape {array.shape}, rows without columns; embeddings have d ≥ 1")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def is_rows(array: Any) -> bool:
    return len(array.shape) == 2 and array.dtype.kind == "f"


def modality_of(name: str) -> str | None:
    """Return the modality that a file, array or column is named after, such as image for `img_emb`; None if none."""
    bare = _bare(name).casefold()
    return next((modality for modality, stems in STEMS.items() if bare in stems), None)


def _bare(name: str) -> str:
    """Strip a suffix such as _embeddings: `audio_embeddings` becomes `audio`."""
    stem, _, kind = name.rpartition("_")
    return stem if stem and kind.casefold() in KINDS else name


def sides_by_name(names: Collection[str], source: Path, what: str) -> dict[str, str]:
    """Return modality → name, or {UNNAMED: name} for a single name of no known modality.

    Args:
        names: Names of arrays or columns of rows. In a file with groups, a name is a path, and its last part names the
            modality, or the part before it if the last is "embeddings".
        source: The file, for errors.
        what: What the names are ("arrays", "vector columns"), for errors.
    """
    by_modality: dict[str, str] = {}
    for name in names:
        group, _, base = name.rpartition("/")
        if group and base.casefold() in KINDS:
            base = group.rpartition("/")[2]
        modality = modality_of(base)
        if modality is None:
            is_only = len(names) == 1
            modality = UNNAMED if is_only else modality_name(_bare(base), f"{shown(source)}: {what.removesuffix('s')}")
        if modality in by_modality:
            raise InputError(
                f"{shown(source)} has several {what} for {modality}, {by_modality[modality]} and {name}; keep one"
            )
        by_modality[modality] = name
    return by_modality


# --- the origin of rows, as stated in their file


class _Map(TypedDict):
    """A map that was applied to the rows before they were written."""

    __pydantic_config__ = ConfigDict(extra="allow")  # pyright: ignore[reportGeneralTypeIssues]
    pipeline: list[str]
    fitted_on: str | None


class Provenance(TypedDict, total=False):
    """The keys about the origin of rows that this package reads from a file; other keys are kept."""

    __pydantic_config__ = ConfigDict(extra="allow")  # pyright: ignore[reportGeneralTypeIssues]
    maps: list[_Map]
    model_options: dict[str, Any] | None
    data_options: dict[str, Any] | None
    encoder: dict[str, Any] | None
    recipe: dict[str, Any] | None
    class_names: list[str] | None
    truncated: int | None
    dropped: int | None
    n: int | None


class Facts(BaseModel):
    """Facts that an export writes into the metadata of a table, since no column can hold them."""

    modality: Annotated[str, AfterValidator(modality_name)] | None = None
    language: str | None = None
    pair_on: Literal["item_id", "label"] = "item_id"
    provenance: Provenance = {}


# --- sides of tables


def sides_of_columns(vectors: Mapping[str, Any], columns: dict[str, Any], path: Path, **facts: Any) -> Sides:
    """Return the sides of a table: one per vector column, or one per value of its column `modality`.

    Args:
        vectors: Modality → rows.
        columns: The other columns: item ids, labels and metadata.
        path: The file.
        **facts: Fields of Embeddings that hold for all sides, such as language.
    """
    columns = dict(columns)
    row_modalities = columns.pop("modality", None) if set(vectors) == {UNNAMED} else None
    id_column = next((name for name in ID_NAMES if name in columns), None)
    label_column = next((name for name in columns if name.casefold() in LABEL_NAMES), None)
    item_id = None if id_column is None else columns.pop(id_column)
    labels = None if label_column is None else columns.pop(label_column)
    stored_provenance = facts.pop("provenance", {})
    sides = {}
    for modality, rows in vectors.items():
        provenance = {**stored_provenance, "source": str(path), "dtype": str(rows.dtype)}
        sides[modality] = Embeddings(rows, modality, item_id, labels, metadata=columns, provenance=provenance, **facts)
    return sides if row_modalities is None else _split_by_modality(sides[UNNAMED], row_modalities, path)


def _split_by_modality(rows: Embeddings, row_modalities: np.ndarray, path: Path) -> Sides:
    """Split rows by the value of the column `modality`, in order of first appearance."""
    what = f"{shown(path)}, column 'modality':"
    sides = {}
    for name in [modality_name(name, what) for name in dict.fromkeys(row_modalities.tolist())]:
        numbers = np.flatnonzero(row_modalities == name)
        vectors = chosen_rows(rows.vectors, numbers) if isinstance(rows.vectors, LazyRows) else None
        sides[name] = replace(rows.take(numbers, vectors=vectors), modality=name)
    if len(sides) > 1 and (rows.item_id is None or len(set(rows.item_id)) == len(rows)):
        note(
            f"{shown(path)} has no column 'item_id' with the same value in paired rows, so rows are paired by position "
            f"or not at all; other columns are {listed(rows.metadata)}"
        )
    return sides


# --- sides of arrays


def stored_rows(stored: FileRows, source: str) -> Any:
    """Return the rows of a file in memory, or as rows that are read on demand if they are large."""
    rows = replace(stored, dtype=stored.dtype.newbyteorder("="))
    n, d = check_vectors(rows, source).shape
    require_memory(d * min(n, FileRows.SPAN) * rows.dtype.itemsize, source)
    return joined([rows])


def sides_of_arrays(arrays: Mapping[str, np.ndarray | FileRows], path: Path) -> Sides:
    """Return the sides in a collection of arrays whose names are paths ("image", "coco/image", "image/embeddings").

    The float matrices are the rows, and so are quantized ones (`quantized.with_values`), and arrays (n, tokens, d) with
    an array of lengths. Another array belongs to a matrix if it is in the same group and has one value per row: item_id
    (or id), label, and metadata.
    """
    arrays = _with_tokens(with_values(arrays, path), path)
    base_names = {name: name.rpartition("/")[2].casefold() for name in arrays}
    rows = [name for name, array in arrays.items() if is_rows(array) and base_names[name] not in LABEL_NAMES]
    if not rows:
        kinds = listed(f"{name} {array.dtype}{list(array.shape)}" for name, array in arrays.items())
        raise InputError(
            f"{shown(path)} has no rows: none of its arrays ({kinds}) is a matrix of floats, or of tokens with lengths"
        )
    sides: Sides = {}
    others = sorted(set(arrays) - set(rows))
    unused = set(others)
    for modality, name in sides_by_name(rows, path, "arrays of rows").items():
        matrix = arrays[name]
        source = f"{shown(path)}, array {shown(name)},"
        vectors = stored_rows(matrix, source) if isinstance(matrix, FileRows) else check_vectors(matrix, source)
        columns = {}
        for other in others:
            group, _, column = other.rpartition("/")
            is_plain = arrays[other].dtype.kind in "fiubSTUO"
            if is_plain and group == name.rpartition("/")[0] and arrays[other].shape[:1] == (len(vectors),):
                columns[column] = _column(arrays[other], f"{shown(path)}, array {shown(other)},")
                unused.discard(other)
        sides |= sides_of_columns({modality: vectors}, columns, path)
    if labels := [name for name in unused if base_names[name] in LABEL_NAMES]:
        counts = " and ".join(str(len(side)) for side in sides.values())
        raise InputError(
            f"{shown(path)} has labels of shape {arrays[labels[0]].shape} for {counts} rows; expected one label per row"
        )
    if unused:
        note(f"left out of {shown(path)}, because they do not have one value per row: {listed(sorted(unused))}")
    return sides


def _with_tokens(arrays: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Replace arrays NAME of the shape (n, tokens, d) and NAME_lengths by TokenRows."""
    values = dict(arrays)
    for name, array in arrays.items():
        lengths = arrays.get(f"{name}{LENGTHS}")
        if (
            isinstance(lengths, np.ndarray)
            and isinstance(array, np.ndarray)
            and array.ndim == 3
            and array.dtype.kind == "f"
        ):
            try:
                values[name] = TokenRows(array, values.pop(f"{name}{LENGTHS}"))
            except InputError as error:
                raise InputError(f"{shown(path)}, array {shown(name)}: {error}") from None
    return values


def _column(array: np.ndarray | FileRows, source: str) -> np.ndarray:
    """Return a column as an array; bytes become strings."""
    if isinstance(array, FileRows):
        require_memory(math.prod(array.shape) * array.dtype.itemsize, source)
        with array.opened() as read:
            array = np.asarray(read(0, array.shape[0]))
    if array.dtype.kind not in "SOTU":
        return array
    texts = [value.decode() if isinstance(value, bytes) else value for value in array.ravel().tolist()]
    return np.fromiter(texts, object, len(texts)).reshape(array.shape)

"""Tables with vector columns: Parquet, CSV, Arrow IPC and Hugging Face datasets stored in it."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types
from pydantic import StrictFloat, TypeAdapter, ValidationError

from clip_geometry.embeddings import Embeddings, LazyRows, joined
from clip_geometry.files import writing
from clip_geometry.io import reading
from clip_geometry.io.export import blocks, columns_beside, dtype_of
from clip_geometry.io.sides import Facts, Sides, check_vectors, sides_by_name, sides_of_columns
from clip_geometry.io.sources import FACTS, Sets
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.registry import InputError, listed, shown

VECTORS = "embedding"
NUMBERS = TypeAdapter(list[StrictFloat])  # parses a vector of length 512 8x faster than parse_json or NumPy
LISTS = types.is_list, types.is_large_list, types.is_fixed_size_list
NOT_PLAIN = types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_struct


def read(path: Path) -> Sides:
    """Read a .parquet, .csv or .tsv file. Vectors in .csv and .tsv become float64, which can hold any float exactly.

    Vector columns are columns of lists of floats. If there are none, they are columns of texts such as "[0.1,0.2]", as
    databases print them, or else numbered columns, NAME_0, NAME_1, …. A single vector column may come with a column
    `modality` that names the modality of each row; with several vector columns, each is a modality. item_id (or id)
    and label are recognized; other columns are metadata.
    """
    table = reading.read_table(path) if path.suffix.lower() == ".parquet" else reading.read_csv(path)
    return sides_of_table(table, path)


def read_arrow(path: Path) -> Sides:
    """Read an Arrow file or stream, or a folder of them as written by `save_to_disk` of Hugging Face datasets.

    Uncompressed rows stay on disk and are memory-mapped. Nothing in a dataset_info.json is executed.
    """
    files = _dataset_files(path) if path.is_dir() else [path]
    contents = [_mapped_batches(file) for file in files]
    with reading.reading_with(path, "Arrow"):
        table = pa.Table.from_batches([batch for _, batches in contents for batch in batches])
        maps = [mapped for mapped, _ in contents]
        sides = sides_of_table(table, path)
    return {name: replace(side, vectors=_as_map_view(side.vectors, maps)) for name, side in sides.items()}


def _as_map_view(rows: Any, maps: Sequence[np.memmap]) -> Any:
    """Return rows that are in one of the memory maps as a view of the map, whose pages can be released."""
    if isinstance(rows, LazyRows):
        return LazyRows([_as_map_view(part, maps) for part in rows.parts], rows.numbers)
    for mapped in maps:
        start = rows.ctypes.data - mapped.ctypes.data
        if rows.size and 0 <= start <= len(mapped) - rows.nbytes:
            return mapped[start : start + rows.nbytes].view(rows.dtype).reshape(rows.shape)
    return rows


def is_dataset(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("dataset_dict.json", "dataset_info.json"))


def _dataset_files(folder: Path) -> list[Path]:
    """Return the Arrow files of a saved data set of Hugging Face; raise InputError if rows were selected in it."""
    if (folder / "dataset_dict.json").is_file():
        raise InputError(f"{shown(folder)} is a DatasetDict; give the folder of one of its splits")
    state = reading.read_json(folder / "state.json", "the state of a data set", dict[str, Any])
    entries = state.get("_data_files") or ()
    names = [entry.get("filename") if isinstance(entry, dict) else None for entry in entries]
    if not names or any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise reading.damaged(folder / "state.json", "datasets", f"its files are {listed(names)}")
    if state.get("_indices_files"):
        raise InputError(f"{shown(folder)} has rows chosen by indices: save it again after flatten_indices()")
    return [folder / str(name) for name in names]


def _mapped_batches(path: Path) -> tuple[np.memmap, list[pa.RecordBatch]]:
    """Return the memory-mapped bytes of a file and its batches, which are views of these bytes unless compressed."""
    mapped = np.memmap(existing_file(path, "a file of embeddings"), np.uint8, "r")
    with reading.reading_with(path, path.suffix):
        is_file = mapped[:6].tobytes() == b"ARROW1"
        initial = pa.total_allocated_bytes()
        with (pa.ipc.open_file if is_file else pa.ipc.open_stream)(pa.py_buffer(mapped)) as reader:
            batches = []
            for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
                batch.validate(full=True)
                batches.append(batch)
                reading.require_memory(pa.total_allocated_bytes() - initial, shown(path))
            return mapped, batches or [pa.RecordBatch.from_pylist([], reader.schema)]


# --- columns of vectors


def sides_of_table(table: pa.Table, path: Path) -> Sides:
    """Return the sides of a table, with the facts that an export wrote into its metadata."""
    if len(set(table.column_names)) < table.num_columns:
        raise InputError(f"{shown(path)} has two columns with the same name; keep one")
    vectors, vector_columns = _vectors_of(table, path)
    not_plain = [field.name for field in table.schema if _is_any(field, NOT_PLAIN)]
    if not_plain:
        note(f"left out of {shown(path)}, because they are not plain columns: {listed(not_plain)}")
    excluded = {*vector_columns, *not_plain}
    # columns are selected, since drop_columns takes quadratic time
    others = table.select([name for name in table.column_names if name not in excluded])
    reading.require_memory(reading.decoded_size(others), f"{shown(path)}, columns {listed(others.column_names)},")
    metadata = (table.schema.metadata or {}).get(FACTS, b"{}")
    facts = reading.parse_json(metadata, f"the metadata of {shown(path)}", Facts)
    if facts.modality is not None and len(vectors) == 1:
        sides = {facts.modality: next(iter(vectors.values()))}
    else:
        sides = {modality: vectors[name] for modality, name in sides_by_name(vectors, path, "vector columns").items()}
    return sides_of_columns(sides, columns_of(others), path, **facts.model_dump(exclude={"modality"}))


def _is_any(field: pa.Field, kinds: Iterable[Callable[[pa.DataType], bool]]) -> bool:
    return any(is_kind(field.type) for is_kind in kinds)


def _vectors_of(table: pa.Table, path: Path) -> tuple[dict[str, Any], Collection[str]]:
    """Return name → rows, and the columns that hold the rows."""
    columns = dict(zip(table.column_names, table.columns, strict=True))
    sources = {name: f"{shown(path)}, column {shown(name)}," for name in columns}
    list_fields = [field for field in table.schema if _is_any(field, LISTS)]
    lists = [field.name for field in list_fields if types.is_floating(field.type.value_type)]
    if lists:
        return {name: rows_of_lists(columns[name], sources[name]) for name in lists}, lists
    texts = [name for name, column in columns.items() if _holds_vectors_as_text(column)]
    if texts:
        return {name: rows_of_lists(_parsed(columns[name], sources[name]), sources[name]) for name in texts}, texts
    numbered = _numbered_columns(columns)
    if numbered:
        numbers = {name: _numbers(columns[name], sources[name]) for names in numbered.values() for name in names}
        vectors = {stem: np.column_stack([numbers[name] for name in names]) for stem, names in numbered.items()}
        return vectors, numbers
    raise InputError(
        f"{shown(path)} has no vector column: none of {listed(columns)} holds lists of floating point numbers or texts "
        "such as [0.1,0.2], or is one of several numbered columns such as image_0 and image_1"
    )


def rows_of_lists(column: Any, source: str) -> Any:
    """Return a column of lists as (n, d) rows, without copying its chunks."""
    if column.null_count:
        raise InputError(f"{source} has no vector in {column.null_count} of {len(column)} rows; drop those rows")
    lengths = pc.call_function("list_value_length", [column]).to_numpy()
    d = int(lengths[0]) if len(lengths) else max(getattr(column.type, "list_size", 1), 1)
    if (lengths != d).any():
        row = int(np.argmax(lengths != d))
        raise InputError(f"{source} is ragged: row 0 has {d} values and row {row} has {lengths[row]}")
    parts = []
    for chunk in column.chunks or [column.combine_chunks()]:
        values = pc.call_function("list_flatten", [chunk])
        if values.null_count:
            raise InputError(f"{source} has {values.null_count} missing values inside its vectors")
        parts.append(check_vectors(values.to_numpy().reshape(len(chunk), d), source))
    return joined(parts)


def _numbered_columns(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, list[str]]:
    """Return stem → names of the columns STEM_0, STEM_1, … of numbers, in the order of their numbers."""
    numbered: dict[str, dict[int, str]] = {}
    for name in columns:
        bare = name.removesuffix("]")
        stem = bare.rstrip("0123456789")
        number = bare[len(stem) :]
        if 0 < len(number) < 10:
            numbered.setdefault(stem.rstrip("_[-. "), {})[int(number)] = name
    series = {stem: [names[k] for k in sorted(names)] for stem, names in numbered.items() if len(names) > 1}
    kinds = {name: column.type for name, column in columns.items()}
    is_number = {name: types.is_floating(kind) or types.is_integer(kind) for name, kind in kinds.items()}
    return {stem: names for stem, names in series.items() if any(is_number[name] for name in names)}


def _numbers(column: pa.ChunkedArray, source: str) -> np.ndarray:
    """Return a column as floating-point numbers; raise InputError for text and missing values."""
    try:
        numbers = column if types.is_floating(column.type) else column.cast("float64")
    except ValueError as error:  # 'abc'
        raise InputError(f"{source} is not all numbers: {reading.first_line(error)}") from None
    if numbers.null_count:
        raise InputError(f"{source} has no number in {numbers.null_count} of {len(column)} rows")
    return numbers.to_numpy()


def _holds_vectors_as_text(column: pa.ChunkedArray) -> bool:
    """Return whether the first value of a column is a vector written as text."""
    first = next((text for text in (value.as_py() for value in column) if text not in (None, "")), None)
    with suppress(ValidationError):
        return isinstance(first, str) and len(NUMBERS.validate_json(first)) > 1
    return False


def _parsed(column: pa.ChunkedArray, source: str) -> pa.ChunkedArray:
    """Parse a column of vectors written as text into a column of lists."""

    def numbers(row: int, text: str | None) -> list[float]:
        try:
            return NUMBERS.validate_json(text or "")
        except ValidationError:
            raise InputError(
                f"{source} has {shown(text or '', 40)} in row {row}; expected numbers as in [0.1,0.2], or leave the "
                "row out"
            ) from None

    chunks = []
    size = 0
    for start in range(0, len(column), 1000):
        lists = [numbers(row, value.as_py()) for row, value in enumerate(column.slice(start, 1000), start)]
        chunks.append(pa.array(lists, pa.list_(pa.float64())))
        size += 2 * chunks[-1].nbytes  # once as lists and once as rows
        reading.require_memory(size, source)
    return pa.chunked_array(chunks)


# --- other columns


def columns_of(table: pa.Table) -> dict[str, np.ndarray]:
    """Return the columns as NumPy arrays: numbers keep their type, everything else becomes objects."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        is_nested = types.is_nested(column.type)
        columns[name] = np.fromiter(column.to_pylist(), object, len(column)) if is_nested else column.to_numpy()
    return columns


# --- Parquet for other programs


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write MODALITY.parquet into a folder for each modality, or a single file if there is only one modality."""
    is_file = not place.is_dir()
    if is_file and len(sets) != 1:
        raise InputError(f"{shown(out)} is one file, but there are {len(sets)} modalities; give a folder")
    descriptions = {}
    for name, side in sets.items():
        path = place if is_file else place / f"{name}.parquet"
        write_parquet(side, path)
        descriptions[path.name] = f"{len(side)} rows, {dtype_of(side)}"
    return descriptions


def write_parquet(embeddings: Embeddings, path: Path) -> None:
    """Write a table with the vectors in the column "embedding", next to item_id, label and metadata."""
    columns = columns_beside(embeddings)
    facts = {name: getattr(embeddings, name) for name in ("modality", "language", "pair_on")}
    facts["provenance"] = dict(embeddings.provenance)
    types_by_name = {name: column.type for name, column in columns.items()}
    types_by_name[VECTORS] = pa.list_(pa.from_numpy_dtype(dtype_of(embeddings)), embeddings.dim)
    schema = pa.schema(types_by_name, {FACTS: json.dumps(facts, default=str)})
    start = 0
    # vectors rarely repeat, so a dictionary does not help
    with writing(path) as file, pq.ParquetWriter(file, schema, use_dictionary=list(columns)) as writer:  # pyright: ignore
        for block in blocks(embeddings, finite=False):
            group: dict[str, Any] = {name: column.slice(start, len(block)) for name, column in columns.items()}
            group[VECTORS] = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), embeddings.dim)
            writer.write_table(pa.table(group, schema))
            start += len(block)

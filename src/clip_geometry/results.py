"""Results files, which are append-only and have one JSON record per number."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, get_type_hints

from pydantic import ConfigDict, Field, create_model

from clip_geometry.files import naming, sync_folder
from clip_geometry.io.reading import checked, parse_json
from clip_geometry.paths import existing_file, expanded
from clip_geometry.registry import InputError, instance, shown

if TYPE_CHECKING:
    import pandas

Number = Annotated[float, Field(allow_inf_nan=False)] | int | None
Options = dict[str, Any] | None


class Record(dict[str, Any]):
    """One measured number with its uncertainty and origin; one line of results.jsonl.

    A record is a dict. Its common keys can also be read as attributes, which are None if the key is absent. Experiments
    add keys of their own.

    Args:
        measure: Name of the measure, e.g. "isoscore" or "silhouette[cosine]".
        value: The number, or None if it could not be computed (`note` says why).
        standard_error: Its standard error, or None if there is none.
        fields: Any other keys. The common ones are: `n`, number of rows; `d`, dimension; `at`, where the number was
            measured (modality, layer, …); `null_value`; `low` and `high`, the 95% interval of a proportion such as
            recall; `by_item`, the value for each item; `without`, the values without each block of items, from which
            the standard error is computed; `item_blocks`, which is equal for two records if they have the same items in
            the same blocks; `items_from`, "ids" or a digest of rows without ids; `scaling`, the values in smaller
            samples; `expected`, the predicted value at full size.

    Example:
        >>> from clip_geometry import Record
        >>> record = Record("isoscore", 0.21, 0.01, n=500, d=512, at={"modality": "image"})
        >>> record.value, record["n"], record.null_value, "null_value" in record
        (0.21, 500, None, False)
        >>> Record.from_json(record.to_json()) == record
        True
    """

    measure: str
    value: Number
    standard_error: Number
    null_value: Number
    without: list[float] | None
    item_blocks: str | None
    items_from: str | None
    by_item: list[float] | None
    low: Number
    high: Number
    scaling: list[dict[str, Any]] | None
    expected: dict[str, Any] | None
    n: int | None
    d: int | None
    at: dict[str, str | int | float | bool | None]
    pipeline: list[str] | None
    fitted_on: str | None
    model: str | None
    model_options: Options
    dataset: str | None
    data_options: Options
    split: str | None
    maps: str | None
    dtype: str | None
    seed: int | None
    note: str | None
    trajectory: list[Number]
    steps: list[int]
    cell: str
    cell_row: Annotated[int, Field(ge=0)]
    cell_rows: Annotated[int, Field(ge=1)]

    def __init__(self, measure: str, value: Number, standard_error: Number = None, **fields: Any):
        super().__init__(measure=measure, value=value, standard_error=standard_error, **fields)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Make a record with exactly these keys, in this order."""
        record = cls.__new__(cls)
        record.update(fields)
        return record

    @classmethod
    def from_json(cls, text: str | bytes, source: str = "the record") -> Self:
        """Parse a record from JSON.

        Args:
            text: A JSON object.
            source: Name of the text in error messages, e.g. "line 3 of results.jsonl".

        Raises:
            InputError: The text is not JSON, or a key that this package defines has a value of the wrong type.
        """
        values = parse_json(text, source)
        checked(values, source, _RECORD)
        return cls.of(values)

    def to_json(self) -> str:
        """Return the record as one line of JSON. Raises ValueError for NaN and infinity."""
        return json.dumps(self, ensure_ascii=False, allow_nan=False)

    def __getattr__(self, key: str) -> Any:
        if key in _FIELDS:
            return self.get(key)
        raise AttributeError(key)

    def __or__(self, fields: Mapping[str, Any]) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.of({**self, **fields})

    def __ror__(self, fields: Mapping[str, Any]) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.of({**fields, **self})

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{key}={value!r}' for key, value in self.items())})"


Row = dict[str, Any]  # a Record, or a dict that becomes one
_FIELDS = get_type_hints(Record, include_extras=True)
_OPTIONAL: Any = {key: (kind, None) for key, kind in _FIELDS.items()}
_PLACE: Any = {key: (_FIELDS[key], ...) for key in ("cell", "cell_row", "cell_rows")}
_KINDS = ConfigDict(extra="allow", strict=True, protected_namespaces=())
_RECORD = create_model("_RECORD", __config__=_KINDS, **_OPTIONAL)
_LINE = create_model("_LINE", __config__=_KINDS, **_OPTIONAL | _PLACE)  # a line of a results file has its place, too
CELLS = "cells.json"  # file in a run folder with the cells of its config, written when all of them are finished
# Keys that identify a run: records that agree in all of them come from the same embeddings, prepared in the same way
ORIGIN = (
    "model", "model_options", "dataset", "data_options", "split", "maps", "pipeline", "fitted_on", "seed", "dtype",
)  # fmt: skip


class Results:
    """The file results.jsonl of a run, to which finished results are appended.

    A cell is one combination of settings of a run, identified by a hash. All records of a cell are written together
    when the cell is finished, with the fields `cell` (the hash), `cell_row` (position in the cell) and `cell_rows`
    (number of records of the cell). If a process is killed while writing, the incomplete cell is skipped when reading,
    so the next run computes it again.

    Args:
        path: The file, which does not have to exist yet.

    Example:
        >>> from clip_geometry import Record, Results
        >>> results = Results("results.jsonl")
        >>> results.append("a1", [Record("isoscore", 0.21, at={"modality": "image"})])
        >>> results.finished(), [record.value for record in results.read()]
        ({'a1'}, [0.21])
    """

    def __init__(self, path: Path):
        self.path = expanded(path)

    def append(self, cell: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Append the records of one finished cell in a single write and flush them to disk.

        Args:
            cell: Hash of the settings of the cell.
            records: The records of the cell, in order.

        Raises:
            InputError: A value is NaN or infinite.
        """
        text = lines_of(cell, list(records))
        with naming(self.path), self.path.open("a+b") as file:
            is_new = not file.tell()
            if not is_new:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    text = "\n" + text  # keep an incomplete last line separate
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
            if is_new:
                sync_folder(self.path.parent)

    def read(self, *, strict: bool = False) -> list[Record]:
        """Return the records of all finished cells, in the order in which the cells were finished.

        Args:
            strict: Raise InputError for a line that is JSON but not a record. By default such a line is skipped, like
                an incomplete one.
        """
        finished: dict[str, list[Record]] = {}
        begun: dict[str, list[Record]] = {}
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else ()
        for number, line in enumerate(lines, start=1):
            source = f"line {number} of {shown(self.path)}"
            try:
                values = parse_json(line, source)
            except InputError:  # an incomplete line: the process was killed
                continue
            try:
                checked(values, source, _LINE)
            except InputError:
                if strict:
                    raise
                continue
            record = Record.of(values)
            if record.cell_row == 0:
                begun[record.cell] = []
            cell = begun.setdefault(record.cell, [])
            if record.cell_row == len(cell):
                cell.append(record)
            if len(cell) == record.cell_rows:
                finished[record.cell] = cell
        return [record for cell in finished.values() for record in cell]

    def finished(self) -> set[str]:
        """Return the hashes of the finished cells, which need not be computed again."""
        return {record.cell for record in self.read()}


def lines_of(cell: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Return the records of one finished cell as the lines of a results file."""
    places = ({"cell": cell, "cell_row": k, "cell_rows": len(records)} for k in range(len(records)))
    try:
        lines = [Record.of({**record, **place}).to_json() for record, place in zip(records, places, strict=True)]
    except ValueError:  # a record contains NaN or infinity
        raise InputError(f"the rows of {shown(cell)} are not finite; they were not written") from None
    return "".join(f"{line}\n" for line in lines)


def to_frame(records: Iterable[Mapping[str, Any]]) -> "pandas.DataFrame":
    """Convert records to a pandas DataFrame.

    Args:
        records: Records from `read_rows` or `measure_sets`, or any mappings with the same keys.

    Returns:
        A DataFrame with one row per record. `at` is expanded into the columns `at.modality`, `at.layer`, …. Values that
        are lists, such as those without each block of items, are left out.

    Example:
        >>> from clip_geometry import Record, to_frame
        >>> to_frame([Record("isoscore", 0.21, at={"layer": 3})])[["measure", "value", "at.layer"]]
            measure  value  at.layer
        0  isoscore   0.21         3
    """
    import pandas as pd

    left_out = {"at", "without", "by_item", "item_blocks", "items_from", "scaling", "expected"}
    rows = []
    for record in instance(records, Iterable, "records", "a list of records"):
        instance(record, Mapping, "a record", "a mapping")
        at = {f"at.{key}": value for key, value in record.get("at", {}).items()}
        rows.append({key: value for key, value in record.items() if key not in left_out} | at)
    return pd.DataFrame(rows)


def read_rows(path: str | Path) -> list[Record]:
    """Read the records of a run or a measurement.

    Args:
        path: A run folder, its results.jsonl, or a file written by `clip-geometry measure --json`.

    Returns:
        A list of `Record`, in the order in which they were computed. Records of unfinished settings of a run are left
        out.

    Raises:
        InputError: The file does not exist, has no finished records, or has lines that are not records.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from clip_geometry import Record, Results, read_rows
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     record = Record("isoscore", 0.21, at={"modality": "image"})
        ...     Results(Path(folder) / "results.jsonl").append("a1", [record])
        ...     [(row.measure, row.value) for row in read_rows(folder)]
        [('isoscore', 0.21)]
    """
    path = expanded(path)
    file = path / "results.jsonl" if path.is_dir() else path
    if not file.exists():
        hint = "a run folder holds results.jsonl" if path.is_dir() else "give a run folder or a file of measure --json"
        raise InputError(f"{shown(file)} does not exist; {hint}")
    records = Results(existing_file(file, "result rows")).read(strict=True)
    if not records or not all({"measure", "value", "at"} <= record.keys() for record in records):
        raise InputError(f"{shown(file)} has no finished result rows of a run or of measure --json")
    return records

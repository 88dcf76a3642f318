"""Safe readers for untrusted files, one per file type.

Each reader returns plain values or raises InputError with a one-sentence message, whatever the file contains. Declared
sizes are checked against the file and the available memory before anything is allocated, and nothing from a file is
executed. A `schema` is any type that pydantic's TypeAdapter accepts; values are validated against it once, when they
are read.
"""

import functools
import gzip
import io
import json
import math
import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json

from clip_geometry import memory
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.registry import InputError, printable, shown

if TYPE_CHECKING:
    import pyarrow as pa


class Schema(BaseModel):
    """Base class of schemas: types must match exactly; unknown keys are ignored."""

    model_config = ConfigDict(strict=True)


MAX_TEXT = 2**30  # bytes of a text file, which is parsed as a whole
MAX_YAML = 2**20  # bytes of a YAML file, whose parser is slow
MAX_VALUES = 100_000  # values in a YAML file after its aliases are expanded
LONGEST = 2**22  # bytes within which the first line of a CSV file must end
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?(nan|inf)", re.IGNORECASE)  # in a CSV file
BLOCK = 2**31 - 1  # most bytes that pyarrow reads at once; it infers the column types from the first block


def first_line(error: object) -> str:
    """Return the first line of a library's error message, at most 160 characters and without memory addresses."""
    lines = str(error).strip().splitlines() or [""]
    text = printable(re.sub(r" at 0x[0-9a-fA-F]+", "", lines[0]))
    return text if len(text) <= 160 else f"{text[:160]}…"


HTTP_CLIENTS = ("http", "httpx", "httpx2", "aiohttp", "urllib3", "requests", "huggingface_hub", "datasets")


def is_not_fetched(error: Exception) -> bool:
    """Return whether an error means that a library could not download something.

    This is an OSError or an error of an HTTP client, such as an interrupted connection, which is not an OSError.
    """
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in HTTP_CLIENTS


def damaged(source: str | Path, kind: str, error: BaseException | str) -> InputError:
    """Return the error for a file that its library cannot read."""
    name = shown(source) if isinstance(source, Path) else source
    if isinstance(error, Exception) and memory.is_out_of_memory(error):
        return InputError(f"{name} is damaged or too large: {memory.out_of_memory(error)}")
    if isinstance(error, OSError) and error.strerror:  # an error of the disk, not of the file's content
        return InputError(f"{name} cannot be read: {error.strerror}")
    # remove locations in the library's source code, which FAISS and Lance include
    message = re.sub(r"^Error in .* at \S+:\d+: |, /\S+:\d+.*", "", str(error), flags=re.DOTALL)
    why = printable(message) if isinstance(error, str) else first_line(message) or type(error).__name__
    return InputError(
        f"{name} is not a readable {kind} file: it is damaged or cut short ({why[:160]}); copy or write it again"
    )


@contextmanager
def reading_with(source: str | Path, kind: str) -> Iterator[None]:
    """Convert any error that a library raises in the block to an InputError about a damaged file.

    Libraries raise nearly any exception for damaged files, including Rust panics, which are not an Exception.
    """
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise damaged(source, kind, error) from None


def require_memory(size: int, source: str) -> None:
    """Raise InputError if `size` bytes exceed the memory that this process may use."""
    if size > memory.memory():
        raise InputError(
            f"{source} takes {size / 1e9:.3g} GB of memory, but only {memory.memory() / 1e9:.3g} GB are available; "
            "give fewer rows, or a .npy file, which is read in blocks"
        )


# -- text, JSON, YAML


def read_text(path: str | Path, what: str, *, limit: int = MAX_TEXT) -> str:
    """Read UTF-8 text of at most `limit` bytes, without a byte order mark. A .gz file is decompressed.

    Line endings are kept. `what` names the expected content in errors.
    """
    path = existing_file(path, what)
    with reading_with(path, "gzip"), (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InputError(f"{shown(path)} has more than {limit} bytes, or unpacks to more; {what} was expected")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{shown(path)} is not a text file in UTF-8; {what} was expected") from None


def read_json(path: str | Path, what: str, schema: Any = None) -> Any:
    """Read a JSON file and validate the value against `schema`."""
    return parse_json(read_text(path, what), shown(path), schema, f"; {what} was expected")


def _finite(digits: str) -> float:
    """Parse a number; raise ValueError if it overflows to infinity."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"a number of {len(digits)} digits")
    return number


def parse_json(text: str | bytes, source: str, schema: Any = None, hint: str = ": copy or write it again") -> Any:
    """Parse JSON and validate the value against `schema`.

    Args:
        text: The JSON text.
        source: Name of the text in errors.
        schema: Expected type. Default: any.
        hint: End of the error message.

    Returns:
        The parsed value.

    Raises:
        InputError: The text has invalid syntax, NaN, infinity, deep nesting, numbers of thousands of digits or text
            that is not Unicode, or the value does not match the schema.
    """
    try:
        text = text if isinstance(text, str) else text.decode()
        values = from_json(text, allow_inf_nan=False)
        if re.search(r"[0-9]{301}", text):  # checking every integer would make reading 5x slower
            json.loads(text, parse_int=_finite)
    except ValueError as error:
        raise InputError(f"{source} is not readable JSON ({first_line(error)}){hint}") from None
    return values if schema is None else checked(values, source, schema, hint)


_adapter = functools.cache(TypeAdapter)


def checked(values: Any, source: str, schema: Any, hint: str = "") -> Any:
    """Validate values against a schema and return them; the InputError names the first invalid key."""
    try:
        return _adapter(schema).validate_python(values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = printable(".".join(str(part) for part in problem["loc"]))[:80]
        where = f"{key} of {source}" if problem["loc"] else source
        if problem["type"] == "missing":
            raise InputError(f"{source} lacks {key}{hint or ': it is damaged or another kind of file'}") from None
        message = re.sub(r"dictionary( or (an )?(instance of|object to extract).*)?", "object", problem["msg"])
        message = message.removeprefix("Value error, ")
        message = f"{message[0].lower()}{message[1:120]}"
        raise InputError(f"{where} is {shown(problem['input'], 60)}: {message}{hint}") from None


class _PlainLoader(yaml.SafeLoader):
    """A SafeLoader that rejects duplicate keys (the last one would win) and aliases that expand to huge values."""

    def get_single_data(self) -> Any:
        node = self.get_single_node()
        if node is not None and _expanded_size(node, {}) > MAX_VALUES:
            raise yaml.YAMLError(f"its aliases (*name) expand to more than {MAX_VALUES} values")
        return None if node is None else self.construct_document(node)

    def unique_mapping(self, node: yaml.MappingNode) -> dict:
        seen = set()
        for key, _ in node.value:
            value = self.construct_object(key, deep=True)
            if not isinstance(value, str | int | float | bool | None):
                raise yaml.YAMLError(f"line {node.start_mark.line + 1}: a key is {shown(value)}; a name was expected")
            if value in seen:
                raise yaml.YAMLError(f"line {node.start_mark.line + 1}: key {shown(value)} appears twice")
            seen.add(value)
        return self.construct_mapping(node, deep=True)


def _expanded_size(node: yaml.Node, sizes: dict[int, float]) -> float:
    """Count the values after all aliases are expanded; infinity for an alias inside its own anchor.

    `sizes` holds the counts of the nodes that were counted before, by the id of the node.
    """
    if id(node) not in sizes:
        sizes[id(node)] = math.inf  # until the node is counted, so that an alias inside it counts as infinite
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            children = [child for key_and_value in node.value for child in key_and_value]
        sizes[id(node)] = 1 + sum(_expanded_size(child, sizes) for child in children)
    return sizes[id(node)]


# Numbers of YAML 1.2 with at most 300 digits. YAML 1.1 also has numbers in base 60, such as 1:30, which take minutes to
# parse if they are long, and reads 1e-3 as text
_PlainLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in ("int", "float")]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^([-+]?(0|[1-9][0-9_]{0,299})|0x[0-9a-fA-F]{1,200})$"), [*"-+0123456789"]
)
_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^([-+]?(\.[0-9]{1,300}|[0-9]{1,300}\.[0-9]{0,300}|[0-9]{1,300}(?=[eE]))([eE][-+]?[0-9]{1,5})?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
    ),
    [*"-+.0123456789"],
)
_PlainLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _PlainLoader.unique_mapping)


def parse_yaml(text: str, source: str) -> Any:
    """Parse plain YAML; tags, huge aliases and duplicate keys raise InputError."""
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # ValueError: a date in month 13
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or first_line(error)
        raise InputError(f"{source}{where}: {printable(str(problem))[:200]}") from None


# -- numbers


def parsed_number(value: Any) -> float:
    """Parse a number in a cell of a file. Raises ValueError for text such as 1_0, which float() would read as 10."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if isinstance(text, str) and "_" in text:
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def read_npy(path: str | Path, *, mmap: bool = True, what: str = "a file of embeddings") -> np.ndarray:
    """Read or memory-map the array in a .npy file; pickled objects raise InputError."""
    path = existing_file(path, what)
    with reading_with(path, ".npy"):
        with path.open("rb") as file:
            shape, dtype = npy_header(file, path, path.stat().st_size)
        if mmap and math.prod(shape):
            return np.load(path, mmap_mode="r", allow_pickle=False)
        require_memory(math.prod(shape) * dtype.itemsize, shown(path))
        return np.load(path, allow_pickle=False)


def npy_header(file: Any, source: str | Path, size: int) -> tuple[tuple[int, ...], np.dtype]:
    """Read a .npy header and return (shape, dtype), with the file positioned after it.

    Raises InputError for pickled objects and if the array would not fit into `size` bytes, the size of the file.
    """
    name = shown(source) if isinstance(source, Path) else source
    magic = b"\x93NUMPY"
    if file.read(len(magic)) != magic:
        raise InputError(f"{name} is not a .npy file: it does not begin with {magic!r}; write it with numpy.save")
    file.seek(0)
    with reading_with(source, ".npy"):
        version = np.lib.format.read_magic(file)
        is_first = version == (1, 0)
        read_header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
    if not all(type(length) is int for length in shape):
        raise damaged(source, ".npy", f"its header declares the shape {shown(shape)}")
    if dtype.hasobject:
        raise InputError(f"{name} holds pickled Python objects, which can run code; save a plain array of numbers")
    declared = math.prod(shape) * dtype.itemsize
    if any(length < 0 for length in shape) or declared > size - file.tell():
        raise damaged(source, ".npy", f"its header declares {declared} bytes, but it has {size - file.tell()}")
    return shape, dtype


def parse_npy(content: bytes, source: str) -> np.ndarray:
    """Return the array in the bytes of a .npy file; `source` names it in errors."""
    file = io.BytesIO(content)
    npy_header(file, source, len(content))
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def read_npz(path: str | Path, what: str = "a file of embeddings") -> dict[str, np.ndarray]:
    """Return the arrays of a .npz archive by name."""
    path = existing_file(path, what)
    arrays = {}
    with reading_with(path, ".npz"), zipfile.ZipFile(path) as archive:
        require_memory(sum(entry.file_size for entry in archive.infolist()), shown(path))
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            if name in arrays:
                raise InputError(f"{shown(path)} has the array {shown(name)} twice; keep one")
            with archive.open(entry) as file:
                arrays[name] = parse_npy(file.read(entry.file_size + 1), f"{shown(path)}, array {shown(name)},")
    return arrays


def read_table(path: str | Path, what: str = "a table", columns: list[str] | None = None) -> "pa.Table":
    """Read a .parquet file, or the given columns of it, as a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = existing_file(path, what)
    with reading_with(path, ".parquet"), pa.OSFile(os.fsencode(path)) as source:  # a str would have to be UTF-8
        with pq.ParquetFile(source) as file:
            metadata = file.metadata
            schema = file.schema_arrow
        names = set(schema.names)
        if len(names) < len(schema):
            raise InputError(f"{shown(path)} has two columns with the same name; keep one")
        texts: list[str] = []
        size = 0  # bytes of all values
        longest = 1  # bytes of the longest column of texts inside a list or a struct
        for k in range(metadata.num_columns):
            leaf = metadata.schema.column(k)
            if columns and not any(f"{leaf.path}.".startswith(f"{name}.") for name in columns):
                continue
            chunks = [metadata.row_group(group).column(k) for group in range(metadata.num_row_groups)]
            size += sum(chunk.num_values for chunk in chunks) * (_WIDTHS.get(leaf.physical_type) or leaf.length or 0)
            # No file states the total length of its texts. Equal texts are stored once, and Arrow can keep them so
            # when reading, but not inside a list or a struct; such columns are read a few rows at a time
            if leaf.physical_type == "BYTE_ARRAY" and leaf.path not in names:
                longest += max((chunk.total_uncompressed_size for chunk in chunks), default=0)
            elif leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type != "DECIMAL":
                texts.append(leaf.path)
        require_memory(size, f"{shown(path)}, decoded,")
        tables = [schema.empty_table().select(columns or schema.names)]
        decoded = 0  # bytes
        with pq.ParquetFile(source, metadata=metadata, read_dictionary=texts) as file:
            batch_rows = min(2**16, max(64, memory.memory() // 4 // longest))
            for batch in file.iter_batches(batch_rows, columns=columns):
                table = pa.Table.from_batches([batch])
                decoded += decoded_size(table)
                require_memory(decoded, f"{shown(path)}, decoded,")
                table.validate(full=True)
                tables.append(table.cast(tables[0].schema))
        return pa.concat_tables(tables)


# bytes of a decoded value, without the text itself
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}


def decoded_size(table: "pa.Table") -> int:
    """Return the size of a table in bytes if all dictionary-encoded text were written out in every row."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    def text_bytes(array: Any) -> int:
        """Return the bytes of the dictionary-encoded values in an array, including arrays inside it."""
        if types.is_dictionary(array.type):
            values = array.dictionary
            codes = array.indices.drop_null().to_numpy()
            is_text = any(is_kind(values.type) for is_kind in (types.is_string, types.is_large_string, types.is_binary))
            if not is_text or not len(codes):
                return len(codes) * values.nbytes // max(len(values), 1)
            lengths = pc.call_function("binary_length", [values]).fill_null(0).to_numpy().astype(float)
            return int(np.bincount(codes, minlength=len(values)) @ lengths)
        if types.is_struct(array.type):
            return sum(text_bytes(field) for field in array.flatten())
        if types.is_nested(array.type) and not types.is_union(array.type):
            return text_bytes(array.flatten())
        return 0

    return table.nbytes + sum(text_bytes(chunk) for column in table.columns for chunk in column.chunks)


def read_csv(path: Path, *, as_texts: bool = False) -> "pa.Table":
    """Read a .csv or .tsv file; if it has no header, its columns are named f0, f1, ….

    Args:
        path: The file.
        as_texts: Assume a header, and read every value as text, including the quotation marks in a .tsv file.
    """
    import pyarrow as pa
    from pyarrow import csv

    size = existing_file(path, "a table").stat().st_size
    is_tsv = path.suffix.lower() == ".tsv"
    require_memory(4 * size, shown(path))  # the text, its columns and the matrix made of them
    with path.open("rb") as file:
        first = file.readline(LONGEST)
        file.seek(-1, os.SEEK_END)
        if not as_texts and file.read() not in (b"\n", b"\r"):
            note(f"{shown(path)} does not end with a line break; if it was cut short, its last number is wrong")
    line = first.decode("utf-8-sig", errors="replace").strip("\r\n")
    if len(first) == LONGEST or "\ufffd" in line or not line.replace("\t", "").isprintable():
        raise damaged(path, path.suffix, "it does not begin with a line of text in UTF-8")
    delimiter = "\t" if is_tsv else "," if as_texts else max(",;\t", key=line.count)
    numbers = [field for field in line.replace('"', "").split(delimiter) if NUMBER.fullmatch(field.strip())]
    read_options = csv.ReadOptions(use_threads=False, block_size=min(BLOCK, size + 1))
    # the numbers 0, 1, … are a header, which pandas writes
    read_options.autogenerate_column_names = not as_texts and numbers != [str(k) for k in range(len(numbers))]
    parse_options = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    if as_texts and is_tsv:
        parse_options.quote_char = False
    convert_options = csv.ConvertOptions(null_values=[""], strings_can_be_null=False, check_utf8=True)
    with reading_with(path, path.suffix):
        if as_texts:
            reader = csv.open_csv(pa.OSFile(os.fsencode(path)), read_options, parse_options, convert_options)
            convert_options.column_types = dict.fromkeys(reader.schema.names, pa.string())
        table = csv.read_csv(pa.OSFile(os.fsencode(path)), read_options, parse_options, convert_options)
    if not table.num_rows:
        raise InputError(f"{shown(path)} has no rows below its header")
    return table


def read_safetensors(
    path: str | Path, what: str = "a file of embeddings", *, framework: str = "np"
) -> tuple[dict[str, str], dict[str, Any]]:
    """Read (metadata, tensors by name), as NumPy arrays (framework "np") or torch tensors ("pt")."""
    from safetensors import safe_open

    path = existing_file(path, what)
    require_memory(path.stat().st_size, shown(path))
    with reading_with(path, ".safetensors"), safe_open(str(path), framework=framework) as file:
        return dict(file.metadata() or {}), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read_checkpoint(path: str | Path, what: str = "a checkpoint file", *, mmap: bool = False) -> Any:
    """Read a file written by torch.save. Only tensors and plain values are loaded; other pickled objects are refused.

    Args:
        path: The file.
        what: Name of the expected content in errors.
        mmap: Memory-map the tensors of a large file.
    """
    import torch

    path = existing_file(path, what)
    try:
        # files of torch before 1.6 are not zip archives and cannot be memory-mapped
        mapped = mmap and path.stat().st_size > memory.memory() // 24 and zipfile.is_zipfile(path)
        require_memory(0 if mapped else path.stat().st_size, shown(path))
        with warnings.catch_warnings():
            for message in ("Detected pickle protocol", ".*TorchScript archive"):  # if it matters, an error follows
                warnings.filterwarnings("ignore", message=message)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except InputError:
        raise
    except Exception:  # a damaged pickle raises nearly anything
        raise InputError(
            f"{shown(path)} cannot be read as a checkpoint of tensors: it is damaged, not a PyTorch file, a "
            "TorchScript archive, or holds other pickled objects, which are refused; save tensors, or a model's "
            "state_dict()"
        ) from None


# -- pickles of other programs, whose code is never run


def _latin1(text: str, encoding: str) -> bytes:
    """Replace _codecs.encode, which pickle protocol 2 uses for bytes and which would accept any codec."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text encoded as {encoding!r}")
    return text.encode("latin1")


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        match module.replace("numpy._core", "numpy.core"), name:
            case "numpy", "ndarray":
                return "ndarray"  # only the first argument of _reconstruct, so it need not be callable
            case "numpy", "dtype":
                return np.dtype
            case "_codecs", "encode":
                return _latin1
            case "numpy.core.multiarray", "_reconstruct":  # replaces NumPy's function; the pickle sets the state later
                return lambda kind, shape, typecode: np.empty(0, np.int8)
            case "numpy.core.numeric", "_frombuffer":  # used by protocol 5
                return lambda buffer, dtype, shape, order: np.frombuffer(buffer, dtype).reshape(shape, order=order)
        raise pickle.UnpicklingError(f"{module}.{name} is refused")


def read_pickle(path: Path, what: str) -> Any:
    """Read a pickle of plain objects and NumPy arrays; anything else is refused without running it."""
    with existing_file(path, what).open("rb") as file:
        try:
            return _ArraysOnly(file).load()
        except Exception as error:  # a damaged pickle raises nearly anything
            why = first_line(error) or "it is truncated"
            raise InputError(f"{shown(path)} is not {what}: {why}") from None

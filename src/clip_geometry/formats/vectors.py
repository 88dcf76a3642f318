"""Arrays from .npy; for all formats, which array is which modality, and what is valid."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict  # pydantic takes the standard one from Python 3.12 on

from clip_geometry import reading
from clip_geometry.embeddings import Embeddings
from clip_geometry.files import write_atomically, writing
from clip_geometry.formats.format import register
from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, listed, shown

KINDS = ("emb", "embedding", "embeddings", "embeds", "features", "vectors")
STEMS = {
    "image": ("image", "images", "img"),
    "text": ("text", "texts", "txt"),
    "audio": ("audio",),
    "video": ("video", "videos"),
}
GROUP = 2**14  # rows that are written at a time
LABEL_NAMES = ("label", "labels")
UNNAMED = ""  # the modality of a file that does not name one


def check_vectors(array: np.ndarray, source: str) -> np.ndarray:
    """Return `array` as (n, d) floating point in native byte order; raise InputError for anything else."""
    if array.ndim != 2:
        raise InputError(
            f"{source} has {array.ndim} dimensions, shape {array.shape}; embeddings are rows and columns, (n, d)"
        )
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise InputError(
            f"{source} holds {array.dtype} values; embeddings are float16, float32 or float64, so convert them first"
        )
    if array.shape[1] == 0:
        raise InputError(f"{source} has shape {array.shape}, rows without columns; embeddings have d ≥ 1")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def modality_of(name: str) -> str | None:
    """Return the modality that the name of a file, array or column says: `img_emb` is image. None for other names."""
    bare = _bare(name).casefold()
    return next((modality for modality, stems in STEMS.items() if bare in stems), None)


def _bare(name: str) -> str:
    """Return `audio` of `audio_embeddings`."""
    stem, _, kind = name.rpartition("_")
    return stem if stem and kind.casefold() in KINDS else name


def sides_by_name(names: Iterable[str], source: Path, what: str) -> dict[str, str]:
    """Return modality → name, {UNNAMED: name} if the only name is that of no known modality.

    `what` the names are ("arrays", "vector columns") is for the errors.
    """
    names = list(names)
    if len(names) == 1 and modality_of(names[0]) is None:
        return {UNNAMED: names[0]}
    found: dict[str, str] = {}
    for name in names:
        modality = modality_of(name) or modality_name(_bare(name), f"{shown(source)}: {what.removesuffix('s')}")
        if modality in found:
            raise InputError(
                f"{shown(source)} has several {what} for {modality}: {listed((found[modality], name))}; keep one"
            )
        found[modality] = name
    return found


def is_rows(array: Any) -> bool:
    return array.ndim == 2 and array.dtype.kind == "f"


def read_npy(path: Path) -> dict[str, Embeddings]:
    """Read one array, which has no modality, and the origin that `write_npy` left beside it."""
    vectors, beside = check_vectors(reading.read_npy(path), shown(path)), _origin_beside(path)
    known = reading.read_json(beside, "the origin of rows", _Origin).clip_geometry if beside.is_file() else {}
    provenance = {**known, "source": str(path), "dtype": str(vectors.dtype)}
    return {UNNAMED: Embeddings(vectors, UNNAMED, provenance=provenance)}


def write_npy(embeddings: Embeddings, path: Path) -> None:
    """Write the rows, and beside them the file PATH.json with their origin, which .npy cannot hold."""
    write_rows(embeddings, path)
    origin = {"clip_geometry": dict(embeddings.provenance)}
    write_atomically(_origin_beside(path), f"{json.dumps(origin, indent=1, default=str)}\n".encode())


def dtype_of(embeddings: Embeddings) -> np.dtype:
    return np.dtype(str(embeddings.vectors.dtype).removeprefix("torch."))  # StreamedRows have torch's


def write_rows(embeddings: Embeddings, path: Path) -> None:
    """Write the rows alone, in blocks."""
    header = {"descr": dtype_of(embeddings).str, "fortran_order": False, "shape": (len(embeddings), embeddings.dim)}
    with writing(path) as file:
        np.lib.format.write_array_header_1_0(file, header)  # pyright: ignore[reportArgumentType]
        for start in range(0, len(embeddings), GROUP):
            file.write(np.ascontiguousarray(embeddings.vectors[start : start + GROUP]).tobytes())


class _Map(TypedDict):
    """A map that the rows went through before they were written."""

    __pydantic_config__ = ConfigDict(extra="allow")  # pyright: ignore[reportGeneralTypeIssues]
    pipeline: list[str]
    fitted_on: str | None


class Provenance(TypedDict, total=False):
    """What a file may say of the origin of its rows, as far as this package reads it; other keys are kept."""

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


class _Origin(BaseModel):
    clip_geometry: Provenance = {}  # another program's file of that name says nothing


def _origin_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


register("npy", read_npy)

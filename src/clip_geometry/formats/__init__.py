"""Embeddings from files of other tools, and back."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from clip_geometry.embedding.reading import is_store, read_store
from clip_geometry.embedding.store import MODALITIES
from clip_geometry.embeddings import Embeddings
from clip_geometry.formats.clip_retrieval import is_clip_retrieval, read_clip_retrieval, write_clip_retrieval
from clip_geometry.formats.labels import read_labels, with_labels
from clip_geometry.formats.numpy_files import read_npy, read_npz
from clip_geometry.formats.parquet_files import read_parquet, write_parquet
from clip_geometry.formats.safetensors_files import read_safetensors
from clip_geometry.formats.vectors import NAMES, UNNAMED
from clip_geometry.paths import existing_file, expanded
from clip_geometry.registry import InputError, did_you_mean, shown

__all__ = [
    "export_clip_retrieval",
    "export_parquet",
    "read_any",
    "read_embeddings",
    "read_labels",
    "read_sides",
    "with_labels",
]

# each gives the sides of one file by modality, UNNAMED for a side that does not say which it is
READERS: dict[str, Callable[[Path], dict[str, Embeddings]]] = {
    ".npy": read_npy,
    ".npz": read_npz,
    ".safetensors": read_safetensors,
    ".parquet": read_parquet,
}


def read_any(path: str | Path) -> dict[str, Embeddings]:
    """All sides at `path`, by modality: a file, a store, a clip-retrieval folder, a folder with image.npy and text.npy.

    A file that says nothing of its modality, not by its name either, counts as images. Raises InputError, one sentence,
    for everything else.
    """
    sides = read_sides(path)
    return {modality or "image": _as(side, modality or "image") for modality, side in sides.items()}


def read_embeddings(path: str | Path, *, modality: str) -> Embeddings:
    """The side of that modality at `path`; a file that names none is taken for it."""
    sides = read_sides(path)
    if modality not in sides and UNNAMED not in sides:
        found = " and ".join(sides)
        raise InputError(f"{shown(Path(path))} holds {found} embeddings; {modality} embeddings were expected")
    return _as(sides[modality] if modality in sides else sides[UNNAMED], modality)


def export_clip_retrieval(source: str | Path | Embeddings | Mapping[str, Embeddings], out: str | Path) -> Path:
    """Writes the folder layout of clip-retrieval; both sides as aligned pairs (`write_clip_retrieval`)."""
    write_clip_retrieval(_sides(source), Path(out))
    return Path(out)


def export_parquet(source: str | Path | Embeddings | Mapping[str, Embeddings], out: str | Path) -> list[Path]:
    """Writes one table: to `out` itself if it ends in .parquet, else image.parquet and text.parquet in that folder."""
    sides, out = _sides(source), Path(out)
    if out.suffix == ".parquet":
        if len(sides) != 1:
            raise InputError(f"{out} is one file and there are {len(sides)} sides; give a folder")
        paths = dict.fromkeys(sides, out)
    else:
        paths = {modality: out / f"{modality}.parquet" for modality in sides}
    for modality, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_parquet(sides[modality], path)
    return list(paths.values())


def read_sides(path: str | Path) -> dict[str, Embeddings]:
    """All sides at `path` by modality; a file that names none goes by its own name (image.npy, text_emb.npy) and is
    UNNAMED where that says nothing, too."""
    path = expanded(path)
    if path.is_dir():
        return _read_folder(path)
    path = existing_file(path, "a file of embeddings")
    if path.suffix.lower() not in READERS:
        hint = did_you_mean(path.suffix, READERS) or f"; known are {', '.join(READERS)}"
        raise InputError(f"{shown(path)} has the unknown extension {shown(path.suffix)}{hint}")
    sides = READERS[path.suffix.lower()](path)
    if set(sides) != {UNNAMED}:
        return sides
    modality = next((name for name, stems in NAMES.items() if path.stem.casefold() in stems), UNNAMED)
    return {modality: _as(sides[UNNAMED], modality)}


def _read_folder(folder: Path) -> dict[str, Embeddings]:
    if is_store(folder):
        return read_store(folder)
    if is_clip_retrieval(folder):
        return read_clip_retrieval(folder)
    files = {m: [p for p in sorted(folder.glob(f"{m}.*")) if p.suffix.lower() in READERS] for m in MODALITIES}
    if not any(files.values()):
        raise InputError(
            f"{shown(folder)} is a directory, but neither a store nor a clip-retrieval folder nor one with "
            f"image.npy and text.npy: give a file of embeddings ({', '.join(READERS)})"
        )
    sides = {}
    for modality, paths in files.items():
        if len(paths) > 1:
            raise InputError(f"{shown(folder)} has {' and '.join(p.name for p in paths)}: give one of these files")
        if paths:
            sides[modality] = read_embeddings(paths[0], modality=modality)
    return sides


def _as(side: Embeddings, modality: str) -> Embeddings:
    return side if side.modality == modality else replace(side, modality=modality)


def _sides(source: str | Path | Embeddings | Mapping[str, Embeddings]) -> Mapping[str, Embeddings]:
    if isinstance(source, Embeddings):
        return {source.modality: source}
    return read_any(source) if isinstance(source, str | Path) else source

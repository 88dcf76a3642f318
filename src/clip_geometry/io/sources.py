"""Reading embeddings from a path of any format, and naming the sets in it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from clip_geometry import catalog
from clip_geometry.embedding.store import is_store, read_store
from clip_geometry.embeddings import Embeddings
from clip_geometry.io import reading
from clip_geometry.io.sides import LABEL_NAMES, UNNAMED, Sides, is_rows, modality_of
from clip_geometry.modalities import modality_name
from clip_geometry.paths import existing_file, expanded
from clip_geometry.progress import note
from clip_geometry.registry import InputError, did_you_mean, listed, shown

FACTS = b"clip_geometry"  # key of an export's facts in the metadata of a Parquet file
Sets = Mapping[str, Embeddings]


def formats() -> Mapping[str, Mapping[str, Any]]:
    """Return name → format, as described in catalog.yaml.

    Some fields of a format name functions. `read` maps a path to embeddings by modality. `recognizes` tells by the
    names in a folder whether it has this format. `write(sets, place, out)` writes into the new folder `place`, which is
    renamed to `out` when everything is written, and returns file → description.
    """
    return catalog.read(Path(__file__).parent)


def by_suffix() -> Mapping[str, Mapping[str, Any]]:
    """Return suffix → format."""
    return {suffix: entry for entry in formats().values() for suffix in entry.get("suffixes", ())}


def call(dotted: str, *arguments: Any) -> Any:
    """Import the module of a function that the catalog names, and call the function."""
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(f"clip_geometry.{module}"), name)(*arguments)


def _recognizes(entry: Mapping[str, Any], folder: Path) -> bool:
    return "recognizes" in entry and call(entry["recognizes"], folder)


def read(path: str | Path, *, unnamed: str | None = None) -> dict[str, Embeddings]:
    """Read all embeddings at a path.

    Args:
        path: A file or folder of any format (.npy, .parquet, .h5, .faiss, .lance, stores, …; `clip-geometry list
            formats` lists all), or a folder with one file or store per modality, such as image.npy, text.npy and
            audio.npy.
        unnamed: Modality of rows for which neither the file's content nor its name (as text_emb.npy does) says which
            modality they are. Default: the name of the file, such as captions for captions.npy.

    Returns:
        A mapping of modality → `Embeddings`.

    Raises:
        InputError: The path does not exist, its format is unknown, or its content is damaged or not embeddings.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import read
        >>> np.savez("pairs.npz", image=np.eye(3), text=np.ones((3, 3)))
        >>> {modality: embeddings.vectors.shape for modality, embeddings in read("pairs.npz").items()}
        {'image': (3, 3), 'text': (3, 3)}
    """
    default = own_name(path) if unnamed is None else modality_name(unnamed, "unnamed")
    return {name or default: _with_modality(side, name or default) for name, side in read_sides(path).items()}


def own_name(path: str | Path) -> str:
    """Return the modality of a file that does not name one: its own name, or "rows" if that is not a valid name."""
    try:
        return modality_name(expanded(path).stem)
    except InputError:
        return "rows"


def read_embeddings(path: str | Path, *, modality: str) -> Embeddings:
    """Read the embeddings of one modality at a path.

    Args:
        path: A path, as for `read`.
        modality: The modality to read, such as "image". Rows whose file names no modality are taken to be of this one.

    Returns:
        The rows as `Embeddings`.

    Raises:
        InputError: The path has no embeddings of that modality.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import read_embeddings
        >>> np.save("captions.npy", np.eye(3))
        >>> captions = read_embeddings("captions.npy", modality="text")
        >>> captions.modality, len(captions)
        ('text', 3)
    """
    sides = read_sides(path)
    if modality not in sides and UNNAMED not in sides:
        names = " and ".join(sides)
        raise InputError(f"{shown(Path(path))} holds {names} embeddings; {modality} embeddings were expected")
    return _with_modality(sides[modality] if modality in sides else sides[UNNAMED], modality)


def read_sides(path: str | Path) -> Sides:
    """Like `read`, but a side is UNNAMED if neither the content nor the name of its file (text_emb.npy) names one.

    In a folder of files and stores, each file is named after its modality. The only side of a store, or its text side,
    is named after the store: the texts of a store en are the modality en.
    """
    path = expanded(path)
    if path.is_dir():
        entry = next((entry for entry in formats().values() if _recognizes(entry, path)), None)
        if entry is None:
            return _sides_by_file(path)
    else:
        path = existing_file(path, "a file of embeddings")
        known = by_suffix()
        entry = known.get(path.suffix.lower())
        if entry is None:
            hint = did_you_mean(path.suffix, known) or f"; known are {', '.join(known)}"
            raise InputError(f"{shown(path)} has the unknown extension {shown(path.suffix)}{hint}")
    sides = call(entry["read"], path)
    if set(sides) != {UNNAMED}:
        return sides
    modality = modality_of(path.stem) or UNNAMED
    return {modality: _with_modality(sides[UNNAMED], modality)}


def _sides_by_file(folder: Path) -> dict[str, Embeddings]:
    """Return the sides of a folder with one file or store per modality, images and texts first."""
    sides: dict[str, Embeddings] = {}
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        for modality, side in _named_sides(path).items():
            if modality in sides:
                both = f"{files[modality].name} and {path.name}"
                raise InputError(f"{shown(folder)} has {modality} rows in {both}: give one of these")
            sides[modality] = side
            files[modality] = path
    if not sides:
        raise InputError(
            f"{shown(folder)} is a directory without embeddings; expected a store, a clip-retrieval folder, image.npy "
            "and text.npy, or another format that clip-geometry list formats names"
        )
    order = sorted(sides, key=lambda name: (name not in ("image", "text"), name))
    return {modality: _with_modality(sides[modality], modality) for modality in order}


def _named_sides(path: Path) -> dict[str, Embeddings]:
    """Return the sides of a store or of a file that is named after a modality; {} for most other files.

    Under another name, only a .npy file with a float matrix and a .parquet file that this package wrote are read,
    because labels, pixels and class names may be in the same folder.
    """
    if path.is_dir() and is_store(path):
        sides = read_store(path)
        is_named = {name: (name != "text" and len(sides) > 1) or path.name in sides for name in sides}
        return {name if is_named[name] else modality_name(path.name, shown(path)): sides[name] for name in sides}
    entry = by_suffix().get(path.suffix.lower())
    if entry is None or not entry.get("by_name", True) or path.stem.casefold() in LABEL_NAMES:
        return {}
    if not (path.is_file() or _recognizes(entry, path)):
        return {}
    modality = modality_of(path.stem)
    if modality is None:
        if not _holds_rows(path):
            return {}
        modality = modality_name(path.stem, shown(path))
    return {modality: read_embeddings(path, modality=modality)}


def _holds_rows(path: Path) -> bool:
    """Return whether a file is a .npy file with a float matrix or a .parquet file that an export wrote."""
    if path.suffix.lower() == ".npy":
        try:
            array = reading.read_npy(path)
        except InputError as error:
            note(f"left out: {error}")
            return False
        return is_rows(array) and len(array) > 1
    if path.suffix.lower() != ".parquet":
        return False
    import pyarrow.parquet as pq

    with suppress(OSError, ValueError):  # any other table, even a damaged one, is ignored
        return FACTS in (pq.read_schema(path).metadata or {})
    return False


def read_sets(*paths: str | Path) -> dict[str, Embeddings]:
    """Read the sets in files or folders, each of which may hold several sets; `together` names them."""
    if len(paths) == 1:
        sets = read(paths[0])
        name = own_name(paths[0])
        if [*sets] == [name] and not modality_of(name):
            candidates = [key for key, column in sets[name].metadata.items() if _may_name_modalities(column)]
            if candidates:
                note(
                    f"{shown(paths[0])} has no column 'modality', so all rows are one modality, {name}; if one of "
                    f"these columns names the modality, rename it to 'modality': {listed(candidates)}"
                )
        return sets
    return together([(shown(path), own_name(path), read_sides(path)) for path in paths])


def _may_name_modalities(column: Any) -> bool:
    """Return whether a sample of about 1,000 values of a column has two to five different texts and nothing else."""
    values = column[:: len(column) // 1000 + 1].tolist()
    return {type(value) for value in values} == {str} and 1 < len(set(values)) < 6


def together(sources: Sequence[tuple[str, str, Mapping[str, Embeddings]]]) -> dict[str, Embeddings]:
    """Combine the sets of several sources and name them by modality.

    Of two sources that name no modality other than image and text, the first is taken as the images and the second as
    the texts. Modalities that the sources name take precedence over this order: text followed by image is swapped, and
    two sources of the same modality are called image and text in the order given. With other sources, a set keeps the
    modality that its source names, or takes the default name of its source.

    Args:
        sources: (name of the source in messages, default name of an unnamed set, sides as `read_sides` returns them)
            for each source.

    Returns:
        Modality → embeddings.

    Raises:
        InputError: Two sources have the same modality, or one of two contradicts its position.
    """
    if len(sources) == 2 and {name for *_, sides in sources for name in sides} <= {"image", "text", UNNAMED}:
        (one, _, first), (other, _, second) = sources
        if set(first) == {"text"} and set(second) == {"image"}:
            note(f"{one} holds texts and {other} holds images, so they are used as such despite their order")
            return {**second, **first}
        if set(first) == set(second) and len(first) == 1 and UNNAMED not in first:
            (common,) = first
            note(
                f"both sets hold {common} rows: the rows of {one} are called image, and the rows of {other} are called "
                "text"
            )
            return {"image": _with_modality(first[common], "image"), "text": _with_modality(second[common], "text")}
        sources = [(one, "image", first), (other, "text", second)]
    sets = {}
    for source, default, sides in sources:
        for name, side in sides.items():
            modality = name or default
            if modality in sets:
                raise InputError(
                    f"{source} holds {modality} rows, and so does an earlier set; give one set of each modality"
                )
            sets[modality] = _with_modality(side, modality)
    return sets


def _with_modality(side: Embeddings, modality: str) -> Embeddings:
    return side if side.modality == modality else replace(side, modality=modality)

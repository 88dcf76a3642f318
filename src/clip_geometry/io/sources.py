"""What lies at a path: files and folders of any format, and the names of the sets in them."""

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

FACTS = b"clip_geometry"  # key in the metadata of a Parquet file of what an export writes beside the columns
Sets = Mapping[str, Embeddings]


def formats() -> Mapping[str, Mapping[str, Any]]:
    """Name → format, as catalog.yaml describes it.

    `read` names a function path → modality → embeddings; `recognizes`, whether a folder is one of this format, by the
    names in it; `write`, (sets, place, out) → file → what it is, a function that writes into the new folder `place`,
    which is called `out` when all is written.
    """
    return catalog.read(Path(__file__).parent)


def by_suffix() -> Mapping[str, Mapping[str, Any]]:
    """Suffix → format."""
    return {suffix: each for each in formats().values() for suffix in each.get("suffixes", ())}


def call(dotted: str, *arguments: Any) -> Any:
    """Call the function that the catalog names, in a module that is imported for it."""
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(f"clip_geometry.{module}"), name)(*arguments)


def _recognizes(kind: Mapping[str, Any], folder: Path) -> bool:
    return "recognizes" in kind and call(kind["recognizes"], folder)


def read(path: str | Path, *, unnamed: str | None = None) -> dict[str, Embeddings]:
    """Read all embeddings at a path.

    Args:
        path: A file or folder of any format (`clip-geometry list formats`: .npy, .parquet, .h5, .faiss, .lance, …,
            stores, …), or a folder with a file or a store for each modality, such as image.npy,
            text.npy and audio.npy.
        unnamed: Modality of rows whose file does not name one, neither inside nor by its name (text_emb.npy); default:
            the name of the file, captions of captions.npy.

    Returns:
        Modality → embeddings.

    Raises:
        InputError: For everything else.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import read
        >>> np.savez("pairs.npz", image=np.eye(3), text=np.ones((3, 3)))
        >>> {modality: each.vectors.shape for modality, each in read("pairs.npz").items()}
        {'image': (3, 3), 'text': (3, 3)}
    """
    called = own_name(path) if unnamed is None else modality_name(unnamed, "unnamed")
    return {modality or called: _as(side, modality or called) for modality, side in read_sides(path).items()}


def own_name(path: str | Path) -> str:
    """Return the modality of a file that does not name one: its own name, or "rows" where that can be no modality's."""
    try:
        return modality_name(expanded(path).stem)
    except InputError:
        return "rows"


def read_embeddings(path: str | Path, *, modality: str) -> Embeddings:
    """Read the embeddings of one modality at a path.

    Args:
        path: As for `read`.
        modality: Such as "image"; a file that names no modality is taken for it.

    Returns:
        The embeddings.

    Raises:
        InputError: If there are none of that modality.

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
        found = " and ".join(sides)
        raise InputError(f"{shown(Path(path))} holds {found} embeddings; {modality} embeddings were expected")
    return _as(sides[modality] if modality in sides else sides[UNNAMED], modality)


def read_sides(path: str | Path) -> Sides:
    """Like `read`, but a side that neither the file nor its name (image.npy, text_emb.npy) names is UNNAMED.

    In a folder, the name of every file is that of its modality, and so is the name of a store for its only side, or for
    its texts: of a store en they are the modality en.
    """
    path = expanded(path)
    if path.is_dir():
        found = next((each for each in formats().values() if _recognizes(each, path)), None)
        if found is None:
            return _sides_by_file(path)
    else:
        path, known = existing_file(path, "a file of embeddings"), by_suffix()
        found = known.get(path.suffix.lower())
        if found is None:
            hint = did_you_mean(path.suffix, known) or f"; known are {', '.join(known)}"
            raise InputError(f"{shown(path)} has the unknown extension {shown(path.suffix)}{hint}")
    sides = call(found["read"], path)
    if set(sides) != {UNNAMED}:
        return sides
    modality = modality_of(path.stem) or UNNAMED
    return {modality: _as(sides[UNNAMED], modality)}


def _sides_by_file(folder: Path) -> dict[str, Embeddings]:
    """Return the sides of a folder with a file, or a store, for each modality, images and texts first."""
    found: dict[str, tuple[Path, Embeddings]] = {}
    for path in sorted(folder.iterdir()):
        for modality, side in _named_sides(path).items():
            if modality in found:
                both = f"{found[modality][0].name} and {path.name}"
                raise InputError(f"{shown(folder)} has {modality} rows in {both}: give one of these")
            found[modality] = path, side
    if not found:
        raise InputError(
            f"{shown(folder)} is a directory, but neither a store nor a clip-retrieval folder nor one with "
            "image.npy and text.npy, nor of another format that clip-geometry list formats names"
        )
    order = sorted(found, key=lambda name: (name not in ("image", "text"), name))
    return {modality: _as(found[modality][1], modality) for modality in order}


def _named_sides(path: Path) -> dict[str, Embeddings]:
    """Return the sides of a store, or of a file that is named after a modality; none of another file.

    A .npy file under another name counts where it is a matrix of floats, and a .parquet file where we wrote it: labels,
    pixels and class names may lie beside them.
    """
    if path.is_dir() and is_store(path):
        sides = read_store(path)
        is_named = {name: (name != "text" and len(sides) > 1) or path.name in sides for name in sides}
        return {name if is_named[name] else modality_name(path.name, shown(path)): sides[name] for name in sides}
    kind, modality = by_suffix().get(path.suffix.lower()), modality_of(path.stem)
    if kind is None or not kind.get("by_name", True) or path.stem.casefold() in LABEL_NAMES:
        return {}
    if not (path.is_file() or _recognizes(kind, path)):
        return {}
    if modality is None:
        if not _holds_rows(path):
            return {}
        modality = modality_name(path.stem, shown(path))
    return {modality: read_embeddings(path, modality=modality)}


def _holds_rows(path: Path) -> bool:
    """Whether a file that no modality names is a .npy matrix of floats, or a .parquet file that an export wrote."""
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

    with suppress(OSError, ValueError):  # another table beside the rows, whatever it is
        return FACTS in (pq.read_schema(path).metadata or {})
    return False


def read_sets(*paths: str | Path) -> dict[str, Embeddings]:
    """Read the sets in files or folders, each of which may hold several, as `together` names them."""
    if len(paths) == 1:
        sets, name = read(paths[0]), own_name(paths[0])
        if [*sets] == [name] and not modality_of(name):
            columns = {key: column[:: len(column) // 1000 + 1].tolist() for key, column in sets[name].metadata.items()}
            few = [key for key, values in columns.items() if {*map(type, values)} == {str} and 1 < len({*values}) < 6]
            if few:
                given = f"{shown(paths[0])} has no column 'modality', so all rows are one modality, {name}"
                note(f"{given}; if a column says it under another name, rename that one: {listed(few)}")
        return sets
    return together([(shown(path), own_name(path), read_sides(path)) for path in paths])


def together(sources: Sequence[tuple[str, str, Mapping[str, Embeddings]]]) -> dict[str, Embeddings]:
    """Name the sets of several sources.

    Of two sources that name no modality but image and text, the first is the images and the second the texts. What they
    say of their modality takes precedence over their order: swapped sources are put right, two of one modality are
    compared as given. Otherwise every set is called what its source says, or as its source is called.

    Args:
        sources: What a message calls each source, the name of a set in it that has none, and its sides as of
            `read_sides`.

    Raises:
        InputError: Two sources hold one modality, or one of two contradicts its place.
    """
    if len(sources) == 2 and {name for *_, sides in sources for name in sides} <= {"image", "text", UNNAMED}:
        (one, _, first), (other, _, second) = sources
        if set(first) == {"text"} and set(second) == {"image"}:
            note(f"{one} holds texts and {other} images: they are taken as such, whatever their order")
            return {**second, **first}
        if set(first) == set(second) and len(first) == 1 and UNNAMED not in first:
            (own,) = first
            note(f"both sets hold {own} rows: those of {one} are called image, and those of {other} text")
            return {"image": _as(first[own], "image"), "text": _as(second[own], "text")}
        sources = [(one, "image", first), (other, "text", second)]
    found = {}
    for source, called, sides in sources:
        for name, side in sides.items():
            modality = name or called
            if modality in found:
                raise InputError(
                    f"{source} holds {modality} rows, and so does a set before it; give one set of each modality"
                )
            found[modality] = _as(side, modality)
    return found


def _as(side: Embeddings, modality: str) -> Embeddings:
    return side if side.modality == modality else replace(side, modality=modality)

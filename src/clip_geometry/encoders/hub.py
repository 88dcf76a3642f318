"""Where the files of a model are: in this package, in a folder, or on the Hugging Face hub.

Those of the hub are downloaded once, then a folder like any other; offline they fail at once.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from clip_geometry.config import digest
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.files import sha256_of
from clip_geometry.io.reading import first_line, is_not_fetched
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, shown

TOKENIZER_FILES = ("*.json", "*.txt", "*.model")
PREFIX = "shipped/"  # in place of a path or ORG/NAME: the trained models that the package ships
MODELS: Mapping[str, str] = {
    "local-dir:shipped/scenes-trained": "images and English texts, trained on the data set scenes",
    "mclip:shipped/scenes-multilingual": "its texts in English, German, French and Russian",
}
NAMES = tuple(model.partition(PREFIX)[2] for model in MODELS)


def model_path(name: str) -> Path:
    """The path of a model: for `shipped/NAME` its folder in this package (`shipped/NAME/FILE`: a file in it), else the
    name itself as a path.

    Raises InputError for a model that the package does not ship.
    """
    if not name.startswith(PREFIX):
        return expanded(name)
    wanted, _, inside = name.removeprefix(PREFIX).partition("/")
    if wanted not in NAMES:
        hint = did_you_mean(wanted, NAMES) or f"; known are {', '.join(MODELS)}"
        raise InputError(f"the package brings no model {shown(wanted)}{hint}")
    return folder_of(wanted) / inside


def folder_of(name: str) -> Path:
    """The folder of a model's files in this package."""
    return Path(str(files("clip_geometry").joinpath("assets", name)))


def check_name(name: str) -> None:
    """Raises InputError where `name` can be neither an existing folder nor a name on the hub."""
    there = name and model_path(name).is_dir()  # an empty name would be the current folder
    if not there and not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise InputError(f"{shown(name)} is neither an existing folder nor a name ORG/NAME on the Hugging Face hub")


def local_check(find: Callable, name_of: Callable = lambda config: config.name) -> Callable[[EncoderConfig], None]:
    """A family's `check`: the name is possible, and `find` accepts the folder if it is a local one."""

    def check(config: EncoderConfig) -> None:
        name = name_of(config)
        check_name(name)
        if model_path(name).is_dir():
            find(config)

    return check


def folder(name: str, patterns: Sequence[str]) -> Path:
    """The folder with those files of `name`: `name` itself if it is a folder, else its snapshot in the hub's cache.

    Raises InputError where the hub has no such model, or cannot be reached and the cache does not have it either.
    """
    check_name(name)
    path = model_path(name)
    if path.is_dir():
        return plain(path)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        return plain(Path(snapshot_download(name, allow_patterns=list(patterns))))
    except RepositoryNotFoundError:
        raise InputError(
            f"there is no model {shown(name)} on the Hugging Face hub that this machine may read; check the name or "
            "log in"
        ) from None
    except Exception as error:
        if not is_not_fetched(error):
            raise
        why = "no network?" if isinstance(error, OSError) else first_line(error)[:60]
        raise InputError(
            f"{' or '.join(patterns)} of {shown(name)} could not be fetched from huggingface.co and is not in the "
            f"local cache ({type(error).__name__}: {why}); give a local file or folder instead ("
            "open_clip:NAME@PATH, local-dir:PATH, hf-clip:PATH, mclip:PATH, sentence:PATH, "
            "hf-text:PATH, hidden-states:PATH, timm:NAME@PATH)"
        ) from None


def plain(folder: Path) -> Path:
    """The folder, checked to hold no device and no pipe, whose reader would wait forever."""
    for path in folder.iterdir():
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{shown(path)} is a device or a pipe; a folder with the files of a model was expected")
    return folder


def folder_digest(folder: Path) -> str:
    """One checksum of the names and contents of its config and tokenizer files, independent of its location."""
    kept = [path for path in folder.iterdir() if path.is_file() and any(map(path.match, TOKENIZER_FILES))]
    return digest({path.name: sha256_of(path) for path in kept})


def first_file(name: str, candidates: Sequence[str]) -> Path:
    """The first of the files that `name` (a folder or a hub name) has."""
    for candidate in candidates:
        path = folder(name, [candidate]) / candidate
        if path.is_file():
            return path
    where = "" if model_path(name).is_dir() else " on the hub (or, without network, in the local cache)"
    raise InputError(f"{shown(name)} has no weights: none of the files {', '.join(candidates)}{where}")

"""The files of a model, in this package, in a folder or on the Hugging Face hub; weights are read as tensors only.

Files on the hub are downloaded once into a local folder; without network, the download fails immediately.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from torch import Tensor, nn

from clip_geometry.config import digest
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.files import sha256_of
from clip_geometry.io.reading import first_line, is_not_fetched, read_checkpoint, read_safetensors
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, shortened, shown

TOKENIZER_FILES = ("*.json", "*.txt", "*.model")
PREFIX = "shipped/"  # replaces a path or ORG/NAME to name a trained model that the package ships
MODELS: Mapping[str, str] = {
    "local-dir:shipped/scenes-trained": "images and English texts, trained on the data set scenes",
    "mclip:shipped/scenes-multilingual": "its texts in English, German, French and Russian",
}
NAMES = tuple(model.partition(PREFIX)[2] for model in MODELS)


def model_path(name: str) -> Path:
    """Return the path of a model.

    For `shipped/NAME`, this is its folder in the package, and for `shipped/NAME/FILE` a file in that folder. Any other
    name is itself the path. Raises InputError for a model that the package does not ship.
    """
    if not name.startswith(PREFIX):
        return expanded(name)
    shipped, _, file = name.removeprefix(PREFIX).partition("/")
    if shipped not in NAMES:
        hint = did_you_mean(shipped, NAMES) or f"; known are {', '.join(MODELS)}"
        raise InputError(f"the package does not ship a model {shown(shipped)}{hint}")
    return folder_of(shipped) / file


def folder_of(name: str) -> Path:
    """Return the folder of a model's files in this package."""
    return Path(str(files("clip_geometry").joinpath("assets", name)))


def check_name(name: str) -> None:
    """Raise InputError if `name` is neither an existing folder nor a possible name on the hub."""
    is_folder = name and model_path(name).is_dir()  # an empty name would mean the current folder
    if not is_folder and not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise InputError(f"{shown(name)} is neither an existing folder nor a name ORG/NAME on the Hugging Face hub")


def local_check(find: Callable, name_of: Callable = lambda config: config.name) -> Callable[[EncoderConfig], None]:
    """Return a family's `check`: the name must be possible, and `find` must accept the folder if it is local."""

    def check(config: EncoderConfig) -> None:
        name = name_of(config)
        check_name(name)
        if model_path(name).is_dir():
            find(config)

    return check


def folder(name: str, patterns: Sequence[str]) -> Path:
    """Return the folder that has the files of a model that match the patterns.

    It is `name` itself if that is a folder, else the model's snapshot in the hub's cache. Raises InputError if the hub
    has no such model, or if the hub cannot be reached and the model is not in the cache.
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
            f"{' or '.join(patterns)} of {shown(name)} could not be fetched from huggingface.co and is not cached "
            f"({type(error).__name__}: {why}); give a local file or folder instead"
        ) from None


def plain(folder: Path) -> Path:
    """Return the folder; raise InputError if it has a device or a pipe, from which reading would block forever."""
    for path in folder.iterdir():
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{shown(path)} is a device or a pipe; a folder with the files of a model was expected")
    return folder


def folder_digest(folder: Path) -> str:
    """Return a checksum of the names and contents of a folder's config and tokenizer files, wherever the folder is."""
    paths = [path for path in folder.iterdir() if path.is_file() and any(map(path.match, TOKENIZER_FILES))]
    return digest({path.name: sha256_of(path) for path in paths})


def tokenizer_in(folder: Path) -> Path | None:
    """Return the folder with a model's tokenizer: its own, or scenes-clip, whose tokenizer all shipped models share."""
    if (folder / "tokenizer_config.json").is_file():
        return folder
    shared = folder_of("scenes-clip")
    return shared if folder.parent == shared.parent else None


def first_file(name: str, candidates: Sequence[str]) -> Path:
    """Return the first of the candidate files that `name`, a folder or hub name, has."""
    for candidate in candidates:
        path = folder(name, [candidate]) / candidate
        if path.is_file():
            return path
    where = "" if model_path(name).is_dir() else " on the hub (or, without network, in the local cache)"
    raise InputError(f"{shown(name)} has no weights: none of the files {', '.join(candidates)}{where}")


# --- weights


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Read tensors by name from a .safetensors file, or from a pickle of tensors only (weights_only).

    Training checkpoints ({"state_dict": …, …}) are unwrapped, and the prefix that DistributedDataParallel adds to names
    is removed.
    """
    if path.suffix == ".safetensors":
        values = read_safetensors(path, "a checkpoint file", framework="pt")[1]
    else:
        values = read_checkpoint(path)
    if isinstance(values, Mapping) and isinstance(values.get("state_dict"), Mapping):
        values = values["state_dict"]
    is_state = isinstance(values, Mapping) and all(isinstance(name, str) for name in values)
    if not is_state or not all(isinstance(value, Tensor) for value in values.values()):
        raise InputError(
            f"{shown(path)} does not hold a state dict; a mapping from parameter names to tensors was expected"
        )
    if values and all(name.startswith("module.") for name in values):
        return {name.removeprefix("module."): value for name, value in values.items()}
    return dict(values)


def load_state_dict(model: nn.Module, state: Mapping[str, Tensor], origin: str) -> None:
    """Copy `state` into `model`; raise InputError for names, shapes or types of numbers that do not fit."""
    expected = model.state_dict()
    # ignore a buffer that older versions of transformers saved, which is always 0, 1, 2, …
    ignored = {name for name in state if name not in expected and name.endswith("embeddings.position_ids")}
    tensors = {name: value for name, value in state.items() if name not in ignored}
    try:
        for name, value in tensors.items():  # torch would convert other types silently
            own = expected.get(name, value)
            if value.is_floating_point() != own.is_floating_point() or value.is_meta:
                raise RuntimeError(f"\n{name} is {value.dtype} on {value.device}, but {own.dtype} in the model")
        model.load_state_dict(tensors)
    except (RuntimeError, NotImplementedError) as error:  # NotImplementedError: sparse or quantized tensors
        problem = " ".join(str(error).partition("\n")[2].split()) or first_line(error)
        raise InputError(f"{origin} does not fit the architecture: {shortened(problem, 200)}") from None

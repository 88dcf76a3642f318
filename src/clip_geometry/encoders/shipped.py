"""The trained models that the package ships: `shipped/NAME`, in place of a path or ORG/NAME."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, shown

PREFIX = "shipped/"
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

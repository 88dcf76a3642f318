"""Completion of names in a shell, from the catalogs: nothing is imported that is slow.

Each function takes what is typed so far, whose parameter typer knows by its name, and gives what it may become.
"""

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from clip_geometry.cli.lists import index_of
from clip_geometry.registry import of_packages

Complete = Callable[[str], list[str]]
# trained models of the package, and what the names of others begin with
MODEL_NAMES = (
    *("local-dir:shipped/scenes-trained", "mclip:shipped/scenes-multilingual", "scenes-clip/fresh"),
    *("hf-text:", "mclip:", "open_clip:", "hf-hub:", "local-dir:", "hf-clip:", "sentence:", "timm:"),
)


def names_of(what: str) -> list[str]:
    """The names in one of the lists, without what a pipeline step takes in parentheses."""
    return [entry.name.partition("(")[0] for entry in index_of(what)]


def several(names: Callable[[], list[str]]) -> Complete:
    """Completes the last of several comma-separated names."""

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        return [before + comma + name for name in names()]

    return complete


def model(incomplete: str) -> list[str]:
    """The models of the package, the beginnings of other names, and open_clip's architectures."""
    spec = importlib.util.find_spec("open_clip")
    places = [] if spec is None else spec.submodule_search_locations or []
    found = sorted(path.stem for place in places for path in Path(place, "model_configs").glob("*.json"))
    more = [f"{entry.name}:" for entry in of_packages("clip_geometry.encoders")]
    return [*MODEL_NAMES, *more, *(f"open_clip:{name}/fresh" for name in found)]


def dataset(incomplete: str) -> list[str]:
    """Names of data sets, and files and folders."""
    return [*names_of("datasets"), *paths(incomplete, None)]


def listed_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """A name in the list that was given before it."""
    return names_of(str(ctx.params.get("what")))


def paths(incomplete: str, suffixes: Iterable[str] | None) -> list[str]:
    """Folders, and the files with one of the suffixes (None: all), that begin with what is typed."""
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    wanted = (each for each in found if each.is_dir() or suffixes is None or each.suffix in suffixes)
    return [f"{each}/" if each.is_dir() else str(each) for each in wanted if not each.name.startswith(".")]

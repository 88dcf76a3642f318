"""Arguments and options that several commands share: help, completion, and checks before torch is imported."""

import importlib.util
import re
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from clip_geometry import catalog
from clip_geometry.catalog import PACKAGE
from clip_geometry.paths import existing
from clip_geometry.registry import InputError, of_packages, parts, printable, shown, unknown

# trained models of the package, and the prefixes of other names
MODEL_NAMES = (
    *("local-dir:shipped/scenes-trained", "mclip:shipped/scenes-multilingual", "scenes-clip/fresh"),
    *("hf-text:", "mclip:", "open_clip:", "hf-hub:", "local-dir:", "hf-clip:", "sentence:", "timm:"),
)


def names_in(folder: str) -> list[str]:
    """Return the names in the catalog of a folder."""
    return list(catalog.read(PACKAGE / folder))


def measure_names() -> list[str]:
    """Return the names of all measures and evaluators."""
    names = catalog.names()
    return list(dict.fromkeys((*names, *(name.partition(".")[0] for name in names if "." in name))))


def model_names() -> list[str]:
    """Return the models of the package, the prefixes of other names, and open_clip's architectures."""
    spec = importlib.util.find_spec("open_clip")
    folders = [] if spec is None else spec.submodule_search_locations or []
    architectures = sorted(path.stem for folder in folders for path in Path(folder, "model_configs").glob("*.json"))
    families = [f"{entry.name}:" for entry in of_packages("clip_geometry.encoders")]
    return [*MODEL_NAMES, *families, *(f"open_clip:{name}/fresh" for name in architectures)]


def check_paths(*paths: Path | None) -> None:
    """Raise InputError for a path that cannot have embeddings: one that does not exist, an empty file or a pipe."""
    for path in paths:
        if path is not None:
            existing(path, "a file of embeddings")


def check_ending(option: str, path: Path | None, *endings: str) -> None:
    if path is not None and path.suffix.lower() not in endings:
        raise InputError(f"{option} {shown(path)} is not a {' or '.join(endings)} file; choose a name with this ending")


def require(kind: str, name: str, known: Collection[str], listed_by: str) -> None:
    """Raise InputError for an unknown name, unless torch is imported.

    In that case a program may have registered the name, and the later lookup is cheap.
    """
    if name not in known and "torch" not in sys.modules:
        raise unknown(kind, name, known, listed_by)


class NameList:
    """Completion and checks of comma-separated names, for options and arguments.

    Only the names are checked. The code that parses the brackets of a name reports mistakes in them.
    """

    def __init__(self, kind: str, known: Callable[[], list[str]], listed_by: str):
        self.kind = kind
        self.known = known
        self.listed_by = f"clip-geometry list {listed_by}"

    def complete(self, incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        return [before + comma + name for name in self.known()]

    def check(self, value: Any) -> Any:
        """Check the names in the value of an option or argument and return the value."""
        texts = [value] if isinstance(value, str) else value or ()
        for name in parts(",".join(texts)):
            base = re.split(r"[.(\[]", name)[0].strip()
            if re.fullmatch(r"\w+", base):
                require(self.kind, base, self.known(), self.listed_by)
        return value

    def option(self, text: str) -> Any:
        return Option(help=text, autocompletion=self.complete, callback=self.check)

    def argument(self, metavar: str, text: str) -> Any:
        return Argument(metavar=metavar, help=text, autocompletion=self.complete, callback=self.check)


STEPS = NameList("pipeline step", lambda: names_in("transforms"), "transforms")
MEASURES = NameList("measure", measure_names, "measures")
REPAIRS = NameList("repair", lambda: names_in("search/repairs"), "repairs")

Sources = Annotated[list[Path], Argument(metavar="IMAGE [TEXT]...", help="embeddings: files, or a folder with several")]
Source = Annotated[Path, Argument(metavar="SOURCE", help="embeddings: a file or a folder")]
NewFolder = Annotated[Path, Option("-o", "--out", help="the new folder to write")]
Overrides = Annotated[list[str] | None, Argument(metavar="KEY=VALUE", show_default=False)]
EngineName = Annotated[Literal["local", "ray"], Option("--engine", help="ray: in processes, here or on a cluster")]
Address = Annotated[str | None, Option(help="address of a Ray cluster; auto on one of its machines")]
Steps = Annotated[str | None, STEPS.option("steps before measuring, e.g. normalize,center[pooled]")]
MeasureNames = Annotated[str | None, MEASURES.option("names, e.g. isoscore,silhouette[cosine]")]
Everything = Annotated[bool, Option("--all", help="compute all default measures, not only the core")]
Modality = Annotated[str | None, Option("--as", help="modality of the rows, such as image or text")]
NoNormalize = Annotated[bool, Option("--no-normalize", help="keep the lengths that rows have after the map")]
Device = Annotated[str, Option(help="cpu, cuda, cuda:1, …; auto uses a GPU if there is one")]
JsonFile = Annotated[Path | None, Option("--json", help="also write everything to this file")]
Labels = Annotated[Path | None, Option(help="one label per row: .npy, .txt, .csv, .parquet, .json")]
SetLabels = Annotated[list[str] | None, Option(metavar="FILE", help="one label per row; or MODALITY=FILE for each set")]
Blocks = Annotated[int | None, Option(help="jackknife blocks behind ±; 0 for no ±", min=0, show_default="20")]


def labels_of(values: Sequence[str] | None) -> Any:
    """Return one path for all sets of matching length, or modality → path."""
    if not values:
        return None
    if len(values) == 1 and ("=" not in values[0] or Path(values[0]).exists()):
        return Path(values[0])
    return by_modality(values, "--labels")


def by_modality(values: Sequence[str], option: str) -> dict[str, Path]:
    """Return modality → path of the values of an option, each MODALITY=FILE."""
    paths = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not equals:
            raise InputError(f"{option} {printable(value)} names no modality; write MODALITY=FILE, as in image={value}")
        paths[name] = Path(path)
    return paths

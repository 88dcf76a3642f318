"""What this package adds to `clip-geometry list`: tasks, experiments, configs, and more data sets."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

from clip_geometry import catalog
from clip_geometry.cli.lists import Entries, ListEntry, configured
from clip_geometry_experiments.run.config import shipped_configs

PACKAGE = Path(__file__).parents[1]
KEYS = "keys of its config"


def shipped() -> Mapping[str, Entries]:
    """Return list → function that yields its entries: the entry point of the group `clip_geometry.lists`."""
    return {
        "tasks": partial(configured, PACKAGE / "tasks", "options"),
        "experiments": _experiments,
        "configs": _configs,
        "datasets": partial(configured, PACKAGE / "kit"),
    }


def experiment_names() -> list[str]:
    """Return the names of the experiments of all packages."""
    return [entry.name for entry in entry_points(group="clip_geometry.experiments")]


def _experiments() -> Iterator[ListEntry]:
    """Yield the experiments of catalog.yaml, and those of other packages, which have to be imported."""
    yield from configured(PACKAGE, KEYS)
    for name in experiment_names():
        if name not in catalog.read(PACKAGE):
            from clip_geometry_experiments.kit.base import experiments

            kind = experiments[name]
            yield ListEntry(name, kind.summary, (f"{KEYS}: {', '.join(kind.Config.model_fields)}",))


def _configs() -> Iterator[ListEntry]:
    """Yield the configs, described by the comments at their heads; configs that belong to no paper come first."""
    papers = catalog.read_yaml(PACKAGE / "published" / "published.yaml")
    for name, path in sorted(shipped_configs().items(), key=lambda item: ("/" in item[0], item[0])):
        comment = re.match(r"(#.*\n)*", path.read_text(encoding="utf-8"))
        assert comment is not None
        paragraphs = re.split(r"\n# (?=\S)", comment[0].removeprefix("# "))
        head = [re.sub(r"\s*\n#\s*", " ", paragraph).strip() for paragraph in paragraphs]
        values = catalog.read_yaml(path)
        # how long it takes, and what the user has to know beforehand: a download, the data folder
        time = next((line.removeprefix("Time: ") for line in head if line.startswith("Time: ")), "")
        first_clause = re.match(r"(\([^)]*\)|[^.,;:(]|[.,](?! |$))*", time)
        about = []
        if first_clause is not None and time:
            about.append(first_clause[0])
        if "no download" in time:
            about.append("no download")
        if "$CLIP_GEOMETRY_DATA" in json.dumps(values):
            about.append("needs $CLIP_GEOMETRY_DATA")
        paper = name.partition("/")[0]
        group = f"{papers[paper]['title']} ({paper})" if paper in papers else ""
        yield ListEntry(name, values.get("title", name), tuple(filter(None, head)), group, "; ".join(about))

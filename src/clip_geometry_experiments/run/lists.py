"""What `clip-geometry list` has of this package: experiments, configs, tasks, and more data sets."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from clip_geometry_experiments.run.config import shipped_configs

FILE = Path(__file__).with_name("lists.json")
LISTS = ("tasks", "experiments", "configs", "datasets")
OPTIONS = "options (key=value)"


@functools.cache
def shipped() -> dict[str, Any]:
    """The lists of lists.json, and the experiments of other packages, which are imported. As `cli.early.shipped`."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    for entry in entry_points(group="clip_geometry.experiments"):
        if entry.name not in found["names"]["experiment"]:
            head, *parts = _experiment(entry.name)
            found["names"]["experiment"].append(entry.name)
            found["index"]["experiments"].append(["", *head.split(": ", 1), ""])
            found["blocks"]["experiments"].append([head, *parts])
    return found


def _configs() -> Iterator[tuple[str, list[str], str, dict[str, Any]]]:
    """Name, paragraphs of the comment at its head, title and values of each config; those of no paper first."""
    from clip_geometry.config import read_yaml

    for name, path in sorted(shipped_configs().items(), key=lambda each: ("/" in each[0], each[0])):
        comment = re.match(r"(#.*\n)*", path.read_text(encoding="utf-8"))
        assert comment is not None
        paragraphs = re.split(r"\n# (?=\S)", comment[0].removeprefix("# "))
        values = read_yaml(path)
        head = [re.sub(r"\s*\n#\s*", " ", each).strip() for each in paragraphs]
        yield name, list(filter(None, head)), values.get("title", name), values


def _experiment(name: str) -> tuple[str, ...]:
    from clip_geometry_experiments.kit.base import experiments

    kind = experiments[name]
    return f"{name}: {kind.summary}", f"keys of its config: {', '.join(kind.Config.model_fields)}"


def of_package(members: Mapping[str, Any], package: str) -> dict[str, Any]:
    """The members whose config is of that package: others may have registered some, too."""
    return {name: entry for name, entry in members.items() if entry.config.__module__.startswith(f"{package}.")}


def configured(members: Mapping[str, Any], heading: str) -> Iterator[tuple[str, ...]]:
    """The blocks of members that have configs."""
    for name, entry in members.items():
        options = ", ".join(key for key in entry.config.model_fields if key != "name")
        yield f"{name}: {entry.summary}", f"{heading}: {options}"


def blocks_of(what: str) -> Iterator[tuple[str, ...]]:
    """The blocks of one of the LISTS: "name: what it is", and what is said below it."""
    match what:
        case "tasks":
            from clip_geometry_experiments.tasks import tasks

            classes_first = sorted(tasks, key=lambda name: tasks[name].kind != "class")
            yield from configured({name: tasks[name] for name in classes_first}, "options")
        case "datasets":
            from clip_geometry.data import datasets

            found = of_package(datasets, "clip_geometry_experiments")
            found.pop("task")  # which is one of the list of tasks
            yield from configured(found, OPTIONS)
        case "configs":
            for name, head, title, _ in _configs():
                yield f"{name}: {title}", *head
        case "experiments":
            from clip_geometry_experiments.kit.base import experiments

            yield from map(_experiment, experiments)


def index_of(what: str) -> list[tuple[str, str, str, str]]:
    """The lines of one of the LISTS: group, name, what it is, and what else is known about it."""
    if what != "configs":
        return [("", name, says, "") for name, _, says in (head.partition(": ") for head, *_ in blocks_of(what))]
    from clip_geometry_experiments.published.ledger import papers

    titles = {name: f"{paper.title} ({name})" for name, paper in papers().items()}
    lines = []
    for name, head, title, values in _configs():
        # how long it takes, and what else has to be known before: a download, the data folder
        time = next((each.removeprefix("Time: ") for each in head if each.startswith("Time: ")), "")
        first = re.match(r"(\([^)]*\)|[^.,;:(]|[.,](?! |$))*", time)
        about = [*([first[0]] if first and time else []), *(["no download"] if "no download" in time else [])]
        if "$CLIP_GEOMETRY_DATA" in json.dumps(values):
            about.append("needs $CLIP_GEOMETRY_DATA")
        lines.append((titles.get(name.partition("/")[0], ""), name, title, "; ".join(about)))
    return lines


def shipped_lists() -> str:
    """The text of lists.json."""
    experiments = [line[1] for line in index_of("experiments")]
    names = {"experiment": experiments, "config": list(shipped_configs()), "model": ["words:"]}
    lists = {"names": names, "index": {what: index_of(what) for what in LISTS}}
    blocks = {what: list(blocks_of(what)) for what in LISTS}
    return json.dumps({**lists, "blocks": blocks}, ensure_ascii=False, indent=1) + "\n"

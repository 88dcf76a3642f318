"""The API reference: a page per topic with every public name, whose docstrings mkdocstrings renders."""

from collections import defaultdict

from clip_geometry import _MODULE
from clip_geometry.training import _HOME as TRAINING

# topic → the modules whose public names it has; a module that is on no page is an error
TOPICS = {
    "Measure and compare": (
        "measuring.measurement",
        "measuring.comparison",
        "measuring.records",
        "measuring.sets",
        "results",
        "registry",
    ),
    "Measures as functions": ("geometry",),
    "Evaluators": ("evaluators", "search.relevance"),
    "Diagnose, repair and explore": (
        "explorer",
        *("search.diagnosis", "search.comparison", "search.mixed_index", "search.held_out", "search.checks"),
        *("search.repairs", "search.index_map"),
    ),
    "Transforms": ("steps", "transforms"),
    "Embed, read and export": (
        *("data", "encoders"),
        *("embedding.loop", "embedding.engines", "embedding.store", "embeddings"),
        *("io.sources", "io.export"),
    ),
    "Losses": ("training.losses",),
}


def pages() -> dict[str, str]:
    """Name of a page → its Markdown."""
    homes: dict[str, list[str]] = defaultdict(list)
    for name, module in _MODULE.items():
        homes[module.removeprefix("clip_geometry.")].append(name)
    if missing := homes.keys() - {module for modules in TOPICS.values() for module in modules}:
        raise ValueError(f"scripts/site/api.py names no topic for {', '.join(sorted(missing))}")
    made = {}
    for topic, modules in TOPICS.items():
        names = sorted((name for module in modules for name in homes[module]), key=str.lower)
        made[_file_name(topic)] = _page(
            topic, "import clip_geometry as cg", {f"clip_geometry.{name}" for name in names}
        )
    inside = {f"clip_geometry.training.{module}.{name}" for module, names in TRAINING.items() for name in names}
    inside -= {f"clip_geometry.training.losses.{name}" for name in homes["training.losses"]}  # which are on a page
    made[_file_name("Training")] = _page("Training", "from clip_geometry.training import …", inside)
    return made


def _file_name(topic: str) -> str:
    return f"{topic.lower().replace(',', '').replace(' ', '_')}.md"


def _page(topic: str, how: str, names: set[str]) -> str:
    ordered = sorted(names, key=lambda name: name.rpartition(".")[2].lower())
    return "\n".join([f"# {topic}", "", f"`{how}`", "", *(f"::: {name}\n" for name in ordered)])

"""Result rows of the experiment `initialization`, put together by tower: curves over layers, spreads over seeds."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clip_geometry.experiments.tyshchuk2023.initialization.figures import Curve, Panel, Spread
from clip_geometry.report.origin import with_options

Row = Mapping[str, Any]
BIASES = {False: "as initialised", True: "zero biases"}
# which operations make up a line, and how far before the end of their block they stand
STREAM = {
    "embedding": 0.0, "attention residual": 0.5, "mlp residual": 0.0, "projection": 0.0, "pooling": 0.0,
    "stem activation 1": 0.8, "stem activation 2": 0.4, "stem activation 3": 0.0,
    "activation": 0.0, "attention pooling": 0.0,
}  # fmt: skip
PLACES = {
    "stream": STREAM,
    "before the ReLU": {
        "stem normalisation 1": 0.8, "stem normalisation 2": 0.4, "stem normalisation 3": 0.0, "residual": 0.0,
    },
    "MLP branch": {"mlp": 0.0},
    "attention branch": {"attention": 0.5},
}  # fmt: skip


def tower_of(row: Row) -> tuple[str, str | None]:
    """(modality, batch-norm mode)."""
    return row["at"]["modality"], row["model_options"].get("batch_norm")


def tower_title(modality: str, mode: str | None) -> str:
    return modality if mode is None else f"{modality}, {'batch statistics' if mode == 'batch' else 'eval mode'}"


def by_tower(rows: Iterable[Row]) -> dict[tuple[str, str | None], list[Row]]:
    found: dict[tuple[str, str | None], list[Row]] = {}
    for row in rows:
        found.setdefault(tower_of(row), []).append(row)
    return found


def embedding_cosines(rows: Iterable[Row]) -> list[Row]:
    """Average cosines of embeddings."""
    return [row for row in rows if row["measure"] == "average_cosine" and "layer" not in row["at"]]


def short_name(model: str) -> str:
    """`open_clip:RN50/fresh` as RN50, a folder by its last part."""
    name = model.removesuffix("/fresh").partition(":")
    return Path(name[2] or name[0]).name


def by_bias(rows: Iterable[Row]) -> dict[str, Spread]:
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(BIASES[row["model_options"]["zero_bias"]], []).append(row["value"])
    return {heading: Spread(found) for heading, found in values.items()}


def origin_of(rows: Sequence[Row]) -> str:
    """Models, data, n and seeds, for the end of a caption."""
    models = ", ".join(dict.fromkeys(row["model"] for row in rows))
    data = dict.fromkeys(
        f"{row['n']} {row['at']['modality']}s of {with_options(row['dataset'], row['data_options'])}" for row in rows
    )
    seeds = sorted({row["model_options"]["seed"] for row in rows})
    named = f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {seeds[0]}"
    return f"{models}, fresh; n = {' and '.join(data)}; {named}"


def panels_of(rows: Sequence[Row]) -> list[Panel]:
    layered = [row for row in rows if "layer" in row["at"]]
    panels = []
    for (modality, mode), found in by_tower(layered).items():
        plain, zero = ([row for row in found if row["model_options"]["zero_bias"] is bias] for bias in (False, True))
        curves = {name: curve for name in PLACES if (curve := curve_of(plain or zero, name))}
        panels.append(Panel(tower_title(modality, mode), modality, curves, curve_of(zero, "stream") if plain else None))
    return panels


def curve_of(rows: Iterable[Row], name: str) -> Curve | None:
    """None where the tower has no such operations."""
    rows = list(rows)
    # without one, a block of a fresh ResNet is the identity, whose ReLU has nothing to do
    changing = {row["at"]["layer"] for row in rows if row["at"]["operation"] == "shortcut"}
    places: dict[float, list[Row]] = {}
    for row in rows:
        if row["at"]["operation"] == "residual" and row["at"]["layer"] not in changing:
            continue
        before = PLACES[name].get(row["at"]["operation"])
        if before is not None and row["value"] is not None:
            places.setdefault(row["at"]["layer"] - before, []).append(row)
    if not places:
        return None
    ordered = dict(sorted(places.items()))

    def means(key: str) -> NDArray[np.float64]:
        values = [[row.get(key) for row in found] for found in ordered.values()]
        filled = [[np.nan if value is None else value for value in each] for each in values]
        return np.array([float(np.mean(each)) for each in filled], np.float64)

    spread = [Spread([row["value"] for row in found]).deviation for found in ordered.values()]
    return Curve(
        np.array(list(ordered)), means("value"), np.array(spread), means("predicted"), means("predicted_from_start")
    )

"""The figures of fresh models from their result rows, with captions."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clip_geometry.experiments.tyshchuk2023.initialization.figures import (
    Model,
    Spread,
    bias_planes,
    cosine_dots,
    layer_curves,
    model_dots,
    size_scatter,
)
from clip_geometry.experiments.tyshchuk2023.initialization.rows import (
    BIASES,
    Row,
    by_bias,
    by_tower,
    embedding_cosines,
    origin_of,
    panels_of,
    short_name,
    tower_of,
    tower_title,
)
from clip_geometry.geometry._core.rows import as_rows, unit_rows
from clip_geometry.report.figures import singular_plane
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import fixed, percent
from clip_geometry.report.style import save_figure

SWEEP = 6  # so many models are drawn against their size, and no longer one by one


def draw_initialization(
    rows: Sequence[Row],
    embeddings: Callable[[Row], NDArray | None],
    *,
    folder: str | Path,
    prefix: str = "",
    group: str = "",
) -> list[FigureEntry]:
    """Draws what the rows of the experiment `initialization` allow, and saves it as PNG and SVG.

    embeddings: gives those behind a row, None where they are gone. Of many models only their sizes and cosines are
    drawn. prefix: of the file names.
    """
    entries = []

    def save(name: str, title: str, figure: Any, caption: str) -> None:
        png, svg = save_figure(figure, folder, prefix + name)
        entries.append(FigureEntry(prefix + name, title, caption, svg, png, group))

    models = list(dict.fromkeys(row["model"] for row in rows))
    if len(models) >= SWEEP:
        sizes, told = _sizes(rows), _sizes_told(rows)
        save("cosine_by_size", "Average cosine and size", size_scatter(sizes), told)
        save(
            "cosine_by_model",
            "Average cosine of every architecture",
            model_dots(sizes),
            f"By name, in the order of the run. {told}",
        )
        return entries
    save("cosine_of_fresh_models", "The cone at initialisation", cosine_dots(_lines(rows)), _lines_told(rows))
    for k, model in enumerate(models, start=1):
        own = [row for row in rows if row["model"] == model]
        panels = panels_of(own)
        if panels:
            save(f"layers_{k}", f"Where the cone arises: {short_name(model)}", layer_curves(panels), _panels_told(own))
        planes = _planes(own, embeddings)
        if planes:
            figure = bias_planes([(title, modality, sets) for title, modality, sets in planes])
            save(f"biases_{k}", f"With and without biases: {short_name(model)}", figure, _planes_told(own, planes))
    return entries


# --- the figures


def _lines(rows: Sequence[Row]) -> list[tuple[str, str, Mapping[str, Spread]]]:
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        for (modality, mode), found in by_tower(
            row for row in embedding_cosines(rows) if row["model"] == model
        ).items():
            lines.append((f"{short_name(model)}\n{tower_title(modality, mode)}", modality, by_bias(found)))
    return lines


def _lines_told(rows: Sequence[Row]) -> str:
    batches = {row["batch_size"] for row in rows if row["model_options"].get("batch_norm") == "batch"}
    batch = f" Batch statistics are those of one batch of {max(batches)} images." if batches else ""
    if any("batch_norm" in row["model_options"] for row in rows):
        batch += " In eval mode a fresh batch norm is the identity."
    return (
        "Average cosine of the embeddings of untrained models: mean and standard deviation over seeds, as initialised "
        f"and with all biases set to zero.{batch} {origin_of(rows)}; "
        "pipeline normalize."
    )


def _panels_told(rows: Sequence[Row]) -> str:
    layered = [row for row in rows if "layer" in row["at"]]
    plain = [row for row in layered if not row["model_options"]["zero_bias"]] or layered
    predicted = [row for row in plain if row["at"]["operation"] == "mlp" and row.get("predicted") is not None]
    theory = ""
    if predicted:
        error = max(abs(row["value"] - row["predicted"]) for row in predicted)
        ends = [row for row in plain if row["at"]["operation"] == "projection"]
        far = max((abs(row["value"] - row["predicted_from_start"]) for row in ends), default=None)
        end = "" if far is None else f" and of the embeddings, predicted from the start, by at most {fixed(far, 3)}"
        theory = (
            " Circles and crosses: the kernel recursion of wide random networks, given the mean squares of the "
            "weights and biases; circles from the rows that enter each MLP, crosses from the embedding on, with the "
            f"attention branch as measured. It misses the MLPs by at most {fixed(error, 3)}{end}."
        )
    convolutional = any("stem" in row["at"]["operation"] for row in layered)
    places = (
        " Of a ResNet the rows are means over the places of the feature map; the residual branches of a fresh one are "
        "zero, for their last batch norm starts with gain 0."
        if convolutional
        else ""
    )
    return (
        "Average cosine of the token that becomes the embedding, after every operation, before the first block at 0: "
        f"lines measured, mean and standard deviation over seeds.{theory}{places} {origin_of(layered)}; rows raw."
    )


Planes = list[tuple[str, str, dict[str, NDArray]]]


def _planes(rows: Sequence[Row], embeddings: Callable[[Row], NDArray | None]) -> Planes:
    """Unit rows of the first seed for each tower, those whose embeddings are at hand."""
    finals = embedding_cosines(rows)
    first = finals[0]["model_options"]["seed"]
    planes: Planes = []
    for (modality, mode), found in by_tower(row for row in finals if row["model_options"]["seed"] == first).items():
        sets = {BIASES[row["model_options"]["zero_bias"]]: embeddings(row) for row in found}
        kept = {heading: _unit(vectors) for heading, vectors in sets.items() if vectors is not None}
        if kept:
            planes.append((tower_title(modality, mode), modality, kept))
    return planes


def _unit(vectors: NDArray) -> NDArray[np.float64]:
    return unit_rows(as_rows(vectors)).numpy()


def _planes_told(rows: Sequence[Row], planes: Planes) -> str:
    shares, aside = [], True
    for title, _, sets in planes:
        found = {heading: singular_plane(unit) for heading, unit in sets.items()}
        aside &= all(bool((sets[heading] @ plane[:, 0] > 0).all()) for heading, (plane, _) in found.items())
        told = ", ".join(f"{percent(share[0])} {heading}" for heading, (_, share) in found.items())
        shares.append(f"{title} {told}")
    seed = embedding_cosines(rows)[0]["model_options"]["seed"]
    own = [row for row in rows if row["model_options"]["seed"] == seed]
    side = "All lie on one side of the origin (plus; cross: mean)." if aside else "Plus: origin, cross: mean."
    return (
        "Embeddings on their own first two singular directions (not centred), with the biases as initialised and all "
        f"set to zero. {side} The first direction holds of their squared length: {'; '.join(shares)}. "
        f"{origin_of(own)}; pipeline normalize."
    )


def _sizes(rows: Sequence[Row]) -> list[Model]:
    """With the biases as initialised, in eval mode, the mean over seeds."""
    points: dict[str, dict[str, list[Row]]] = {}
    for row in embedding_cosines(rows):
        if not row["model_options"]["zero_bias"] and tower_of(row)[1] != "batch":
            points.setdefault(row["model"], {}).setdefault(row["at"]["modality"], []).append(row)
    return [
        Model(short_name(name), {modality: (found[0]["parameters"], Spread([row["value"] for row in found]).mean)
                     for modality, found in towers.items()})
        for name, towers in points.items()
    ]  # fmt: skip


def _sizes_told(rows: Sequence[Row]) -> str:
    finals = [row for row in embedding_cosines(rows) if not row["model_options"]["zero_bias"]]
    lows = []
    for modality in dict.fromkeys(row["at"]["modality"] for row in finals):
        values = [row["value"] for row in finals if row["at"]["modality"] == modality]
        lows.append(f"{modality}s from {fixed(min(values), 2)} to {fixed(max(values), 2)}")
    count = len({row["model"] for row in finals})
    data = origin_of(finals).partition("; ")[2]
    return (
        f"Average cosine of the embeddings of {count} untrained architectures of open_clip against the number of "
        f"parameters of the tower: {', '.join(lows)}. Biases as initialised, batch norm in eval mode; {data}; pipeline "
        "normalize."
    )

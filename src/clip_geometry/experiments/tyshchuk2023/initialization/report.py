"""The result rows of fresh models as tables by tower, and the figures and captions drawn from these."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clip_geometry.experiments.tyshchuk2023.initialization.figures import (
    Curve,
    Model,
    Panel,
    Spread,
    bias_planes,
    cosine_dots,
    layer_curves,
    model_dots,
    size_scatter,
)
from clip_geometry.geometry._core.rows import as_rows, unit_rows
from clip_geometry.report.figures import singular_plane
from clip_geometry.report.gallery import FigureEntry, save_entry
from clip_geometry.report.origin import with_options
from clip_geometry.report.words import Words

Row = Mapping[str, Any]
Frame = Any  # a pandas.DataFrame, whose selections a type checker takes for arrays
SWEEP = 6  # models from which on they are drawn against their size rather than one by one
BIASES = {False: "as initialized", True: "zero biases"}
# which operations make up a line, and how far before the end of their block they are drawn
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
TOWER = ["modality", "mode"]
NUMBERS = ["value", "predicted", "predicted_from_start"]
WORDS = Words(Path(__file__).with_name("words.j2"))


def draw_initialization(
    rows: Sequence[Row],
    embeddings: Callable[[Row], NDArray | None],
    *,
    folder: str | Path,
    prefix: str = "",
    group: str = "",
) -> list[FigureEntry]:
    """Draw and save what the rows of the experiment `initialization` allow.

    Args:
        rows: Its result rows. Of many models only their sizes and cosines are drawn.
        embeddings: The embeddings behind a row, None where they are gone.
        folder: Where the files go.
        prefix: Of the file names.
        group: Heading in the report.
    """
    save = partial(save_entry, prefix=prefix, group=group)
    table = table_of(rows)
    finals = table[table.cosine & table.layer.isna()]
    if table.model.nunique() >= SWEEP:
        sizes = _sizes(finals)
        known = finals[~finals.zero]
        ranges = [(name, found.min(), found.max()) for name, found in known.groupby("modality", sort=False).value]
        caption = partial(
            WORDS, "sizes", count=known.model.nunique(), ranges=ranges, origin=_origin(known, models=False)
        )
        title = "Average cosine of every architecture"
        return [
            save(size_scatter(sizes), folder, "cosine_by_size", "Average cosine and size", caption(by_name=False)),
            save(model_dots(sizes), folder, "cosine_by_model", title, caption(by_name=True)),
        ]
    lines = [
        (f"{short_name(model)}\n{_title(modality, mode)}", modality,
         {BIASES[zero]: Spread(list(values)) for zero, values in found.groupby("zero", sort=False).value})
        for (model, modality, mode), found in finals.groupby(["model", *TOWER], sort=False)
    ]  # fmt: skip
    batch = table.batch_size[table["mode"] == "batch"].max()
    caption = WORDS("cosines", None if np.isnan(batch) else batch, (table["mode"] != "").any(), _origin(table))
    entries = [save(cosine_dots(lines), folder, "cosine_of_fresh_models", "The cone at initialization", caption)]
    for k, (model, own) in enumerate(table.groupby("model", sort=False), start=1):
        name = short_name(model)
        if panels := panels_of(own):
            title = f"Where the cone arises: {name}"
            entries.append(save(layer_curves(panels), folder, f"layers_{k}", title, _layers_caption(own)))
        first = own[own.seed == finals[finals.model == model].seed.iloc[0]]
        if planes := _planes(first[first.cosine & first.layer.isna()], embeddings):
            title, caption = f"With and without biases: {name}", _biases_caption(planes, _origin(first))
            entries.append(save(bias_planes(planes), folder, f"biases_{k}", title, caption))
    return entries


def table_of(rows: Iterable[Row]) -> Frame:
    """One line per result row: its tower, seed, biases, layer and numbers."""
    return pd.DataFrame(
        {
            "model": row["model"],
            "modality": row["at"]["modality"],
            "mode": row["model_options"].get("batch_norm", ""),
            "zero": row["model_options"]["zero_bias"],
            "seed": row["model_options"]["seed"],
            "layer": row["at"].get("layer", np.nan),
            "operation": row["at"].get("operation", ""),
            "cosine": row["measure"] == "average_cosine",
            "data": f"{row['n']} {row['at']['modality']}s of {with_options(row['dataset'], row['data_options'])}",
            **{key: np.nan if row.get(key) is None else row[key] for key in (*NUMBERS, "parameters", "batch_size")},
            "row": row,
        }
        for row in rows
    )


def short_name(model: str) -> str:
    """`open_clip:RN50/fresh` as RN50, a folder by its last part."""
    name = model.removesuffix("/fresh").partition(":")
    return Path(name[2] or name[0]).name


def _title(modality: str, mode: str) -> str:
    return modality + {"": "", "batch": ", batch statistics"}.get(mode, ", eval mode")


def _origin(table: Frame, *, models: bool = True) -> str:
    """Models, data, n and seeds, for the end of a caption."""
    return WORDS(
        "origin", list(table.model.unique()) if models else [], table.data.unique(), sorted(table.seed.unique())
    )


def panels_of(table: Frame) -> list[Panel]:
    """A panel of curves for each tower whose layers were followed."""
    panels = []
    for (modality, mode), found in table[table.layer.notna()].groupby(TOWER, sort=False):
        plain, zero = found[~found.zero], found[found.zero]
        shown = zero if plain.empty else plain
        curves = {name: curve for name in PLACES if (curve := _curve(shown, name)) is not None}
        without = None if plain.empty else _curve(zero, "stream")
        panels.append(Panel(_title(modality, mode), modality, curves, without))
    return panels


def _curve(found: Frame, name: str) -> Curve | None:
    """None where the tower has no such operations."""
    # without a shortcut, a block of a fresh ResNet is the identity, whose ReLU has nothing to do
    idle = (found.operation == "residual") & ~found.layer.isin(found.layer[found.operation == "shortcut"])
    places = found.layer - found.operation.map(PLACES[name]).astype(
        float
    )  # NaN where the operation is not part of the line
    kept = places.notna() & found.value.notna() & ~idle
    if not kept.any():
        return None
    grouped = found[kept].groupby(places[kept])
    means = [grouped[key].apply(lambda values: values.mean(skipna=False)).to_numpy() for key in NUMBERS]
    spread = grouped.value.std().fillna(0)
    return Curve(spread.index.to_numpy(), means[0], spread.to_numpy(), *means[1:])


def _layers_caption(table: Frame) -> str:
    layered = table[table.layer.notna()]
    plain = layered[~layered.zero]
    plain = layered if plain.empty else plain
    error = (plain.value - plain.predicted)[plain.operation == "mlp"].abs().max()
    far = (plain.value - plain.predicted_from_start)[plain.operation == "projection"].abs().max()
    deviations = [None if np.isnan(each) else each for each in (error, far)]
    return WORDS("layers", *deviations, layered.operation.str.contains("stem").any(), _origin(layered))


Planes = list[tuple[str, str, dict[str, NDArray]]]


def _planes(finals: Frame, embeddings: Callable[[Row], NDArray | None]) -> Planes:
    """(title, modality, heading → unit rows) of each tower whose embeddings are available."""
    planes: Planes = []
    for (modality, mode), found in finals.groupby(TOWER, sort=False):
        sets = {BIASES[zero]: embeddings(row) for zero, row in zip(found.zero, found.row, strict=True)}
        kept = {heading: unit_rows(as_rows(rows)).numpy() for heading, rows in sets.items() if rows is not None}
        if kept:
            planes.append((_title(modality, mode), modality, kept))
    return planes


def _biases_caption(planes: Planes, origin: str) -> str:
    towers, aside = [], True
    for title, _, sets in planes:
        found = [(heading, rows, *singular_plane(rows)) for heading, rows in sets.items()]
        aside &= all(bool((rows @ plane[:, 0] > 0).all()) for _, rows, plane, _ in found)
        towers.append((title, [(heading, share[0]) for heading, _, _, share in found]))
    return WORDS("biases", aside, towers, origin)


def _sizes(finals: Frame) -> list[Model]:
    """With the biases as initialized, in eval mode, the mean over seeds."""
    kept = finals[~finals.zero & (finals["mode"] != "batch")]
    return [
        Model(
            short_name(name),
            {
                modality: (found.parameters.iloc[0], Spread(list(found.value)).mean)
                for modality, found in towers.groupby("modality", sort=False)
            },
        )
        for name, towers in kept.groupby("model", sort=False)
    ]

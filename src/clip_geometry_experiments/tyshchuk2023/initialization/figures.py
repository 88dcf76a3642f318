"""Figures and captions of freshly initialized models, drawn from tables of their result rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from clip_geometry.display.numbers import fixed
from clip_geometry.display.origin import Row, with_options
from clip_geometry.display.style import COLOR, INK, MARKER, WIDTH, styled
from clip_geometry.display.words import Words
from clip_geometry.rows.matrix import as_rows, unit_rows
from clip_geometry_experiments.kit.figures import Panel, PanelCurve, panels_figure
from clip_geometry_experiments.report.figures import Drawing, singular_plane

Frame = Any  # a pandas.DataFrame, whose selections a type checker takes for arrays
# one entry per tower: (title, modality, heading → points (n, 2) and the share of squared length along the first axis)
Planes = Sequence[tuple[str, str, Mapping[str, tuple[NDArray, float]]]]

# figures of Tyshchuk et al. 2023 by model; RN101 and ViT-B-32 have the same text tower architecture
PAPER = {"RN101": "images: figure 5 of the paper", "ViT-B-32": "images and texts: figures 6 and 7 of the paper"}
BIASES = {False: "as initialized", True: "zero biases"}
# operations that make up each curve → how far before the end of their block they are drawn
STREAM = {
    "embedding": 0.0, "attention residual": 0.5, "mlp residual": 0.0, "projection": 0.0,
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
WORDS = Words(Path(__file__).with_name("words.j2"))
# curve in a panel → its line style; its color shows the modality
LINES = {
    "stream": "-",
    "before the ReLU": (0, (4, 1.2, 1, 1.2)),
    "MLP branch": (0, (5, 1.5)),
    "attention branch": (0, (1, 1.2)),
}
WITHOUT = {"linewidth": 4, "zorder": 1}  # wide and pale because it lies under the stream


def layer_curves(table: Frame) -> Figure:
    """Draw the average cosine after each operation, one panel per tower; bands are standard deviations over seeds."""
    panels = []
    for (modality, mode), tower in table[table.layer.notna()].groupby(TOWER, sort=False):
        drawn = []
        for name, line in LINES.items():
            places, values = _curve(tower[~tower.zero], name)
            if len(places):
                drawn.append(PanelCurve(places, values, COLOR[modality], name, line, f"{name}:{modality}"))
        places, values = _curve(tower[tower.zero], "stream")
        gid = f"without:{modality}"
        drawn.append(PanelCurve(places, values.mean(axis=0), "#C9CFD6", "stream, zero biases", "-", gid, WITHOUT))
        panels.append(Panel("average cosine", drawn, (-0.05, 1.05), title=_title(modality, mode)))
    size = (WIDTH, 0.75 + 1.5 * len(panels))
    figure = panels_figure(panels, size=size, xlabel="block", legend={"ncols": 2})
    for key in figure.legends[0].legend_handles:
        if key is not None and key.get_label() in LINES:
            key.set(color=INK)  # neutral, since the key stands for both modalities
    return figure


def _curve(tower: Frame, name: str) -> tuple[NDArray, NDArray]:
    """Return x places and values (seeds, places) of a curve; both are empty if the tower lacks the curve."""
    # a block of a fresh ResNet without a shortcut is the identity, so that its ReLU changes nothing
    idle = (tower.operation == "residual") & ~tower.layer.isin(tower.layer[tower.operation == "shortcut"])
    # NaN where the operation is not part of the line
    places = tower.layer - tower.operation.map(PLACES[name]).astype(float)
    drawn = places.notna() & tower.value.notna() & ~idle
    pivot = tower[drawn].pivot_table(index="seed", columns=places[drawn], values="value")
    return pivot.columns.to_numpy(float), pivot.to_numpy(float)


@styled
def bias_planes(towers: Planes) -> Figure:
    """Draw unit rows on their own first two singular directions (not centered), with one row of panels per tower.

    The headings of the first tower are used for all. A cross marks the mean and a plus the origin. All panels show the
    same range, which contains every point.
    """
    headings = list(towers[0][2])
    everything = np.concatenate([np.zeros((1, 2)), *(points for *_, sets in towers for points, _ in sets.values())])
    low, high = everything.min(0), everything.max(0)
    margin = 0.06 * (high - low)
    low, high = low - margin, high + margin
    width, height = high - low
    figure = Figure(figsize=(WIDTH, 0.45 + 1.45 * height / width * len(towers)), layout="constrained")
    axes = figure.subplots(len(towers), len(headings), sharex=True, sharey=True, squeeze=False)
    for (title, modality, sets), line in zip(towers, axes, strict=True):
        for heading, panel in zip(headings, line, strict=True):
            points, _ = sets[heading]
            style = {"s": 5, "marker": MARKER[modality], "linewidths": 0, "alpha": 0.6}
            panel.scatter(*points.T, c=COLOR[modality], gid=f"points:{modality}", **style)
            panel.plot(0, 0, "+", color=INK, markersize=7, gid="origin")
            cross = {"markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.8}
            panel.plot(*points.mean(0)[:, None], "X", color=INK, gid="mean", **cross)
            panel.text(0.03, 0.96, title, transform=panel.transAxes, va="top", fontsize=7, color=INK)
            panel.set_aspect("equal")
    for heading, panel in zip(headings, axes[0], strict=True):
        panel.set_title(heading, loc="left")
    axes[0, 0].set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    figure.supxlabel("first singular direction", fontsize=8)
    figure.supylabel("second singular direction", fontsize=8)
    return figure


def draw_initialization(rows: Sequence[Row], embeddings: Callable[[Row], NDArray]) -> dict[str, Drawing]:
    """Draw the figures of the experiment `initialization`.

    Args:
        rows: Result rows of the experiment.
        embeddings: Function that returns the embeddings (n, d) behind a result row.
    """
    drawn: dict[str, Drawing] = {}
    table = table_of(rows)
    for k, (model, own) in enumerate(table.groupby("model", sort=False), start=1):
        name = short_name(model)
        layered = own[own.layer.notna()]
        caption = WORDS("layers", layered.operation.str.contains("stem").any(), _origin(layered))
        drawn[f"layers_{k}"] = Drawing(f"Where the cone arises: {name}", layer_curves(own), caption)
        first = own[(own.seed == own.seed.iloc[0]) & own.layer.isna()]
        planes = _planes(first, embeddings)
        title = f"With and without biases: {name}" + (f" ({PAPER[name]})" if name in PAPER else "")
        aside = all((points[:, 0] > 0).all() for *_, sets in planes for points, _ in sets.values())
        shares = [(tower, [(heading, share) for heading, (_, share) in sets.items()]) for tower, _, sets in planes]
        drawn[f"biases_{k}"] = Drawing(title, bias_planes(planes), WORDS("biases", aside, shares, _origin(first)))
    return drawn


def tell(rows: Sequence[Row]) -> list[str]:
    """Say how narrow the cones of untrained models are, and how biases affect them."""
    table = table_of(rows)
    cosines = over_seeds(table)
    sentences = []
    for zero, half in cosines.groupby("zero"):
        ranges = []
        for modality, towers in half.groupby("modality", sort=False):
            ascending = []
            for tower in towers.sort_values("mean").itertuples():
                mode = f", {_title('', tower.mode).strip(', ')}" if tower.mode else ""
                ascending.append((short_name(tower.model) + mode, tower.text))
            ranges.append((modality, ascending))
        sentences.append(WORDS("cones", zero, ranges, half.null.max(), half.seeds.max()))
    return sentences


def table_of(rows: Iterable[Row]) -> Frame:
    """Return a table with one line per average cosine: its tower, seed, biases, layer and numbers."""
    return pd.DataFrame(
        {
            "model": row["model"],
            "modality": row["at"]["modality"],
            "mode": row["model_options"].get("batch_norm", ""),
            "zero": row["model_options"]["zero_bias"],
            "seed": row["model_options"]["seed"],
            "layer": row["at"].get("layer", np.nan),
            "operation": row["at"].get("operation", ""),
            "data": f"{row['n']} {row['at']['modality']}s of {with_options(row['dataset'], row['data_options'])}",
            **{key: np.nan if row.get(key) is None else row[key] for key in ("value", "null_value")},
            "row": row,
        }
        for row in rows
        if row["measure"] == "average_cosine"
    )


def over_seeds(table: Frame) -> Frame:
    """Summarize the average cosine of the embeddings over the seeds, for each tower with and without biases.

    The columns are the mean and standard deviation over `seeds` seeds (0 for one seed), the largest null value, and
    `text`, such as `0.7056 ± 0.0021`.
    """
    groups = table[table.layer.isna()].groupby(["model", *TOWER, "zero"], sort=False)
    summary = groups.value.agg(["mean", "std"]).fillna({"std": 0.0})
    summary["seeds"] = groups.seed.nunique()
    summary["null"] = groups.null_value.apply(lambda values: values.abs().max())
    summary["text"] = [
        fixed(tower.mean, 4) + (f" ± {fixed(tower.std, 4)}" if tower.seeds > 1 else "")
        for tower in summary.itertuples()
    ]
    return summary.reset_index()


def short_name(model: str) -> str:
    """Shorten a model name: `open_clip:RN50/fresh` becomes RN50, and a folder its last part."""
    name = model.removesuffix("/fresh").partition(":")
    return Path(name[2] or name[0]).name


def _title(modality: str, mode: str) -> str:
    return modality + {"": "", "batch": ", batch statistics"}.get(mode, ", eval mode")


def _origin(table: Frame) -> str:
    """Return models, data, n and seeds for the end of a caption."""
    return WORDS("origin", list(table.model.unique()), table.data.unique(), sorted(table.seed.unique()))


def _planes(finals: Frame, embeddings: Callable[[Row], NDArray]) -> Planes:
    """Project the embeddings of each tower on their two singular directions, with and without zero biases."""
    planes = []
    for (modality, mode), tower in finals.groupby(TOWER, sort=False):
        points = {}
        for zero, row in zip(tower.zero, tower.row, strict=True):
            unit = unit_rows(as_rows(embeddings(row))).numpy()
            plane, shares = singular_plane(unit)
            points[BIASES[zero]] = unit @ plane, float(shares[0])
        planes.append((_title(modality, mode), modality, points))
    return planes

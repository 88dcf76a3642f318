"""Figures and captions of fresh models, from their result rows as tables by tower."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from clip_geometry.display.numbers import fixed
from clip_geometry.display.origin import with_options
from clip_geometry.display.style import COLOR, INK, MARKER, NEUTRAL, WIDTH, name_lines, styled
from clip_geometry.display.words import Words
from clip_geometry.rows.matrix import as_rows, unit_rows
from clip_geometry_experiments.report.figures import new_axes, singular_plane
from clip_geometry_experiments.report.gallery import Drawing

Row = Mapping[str, Any]
Frame = Any  # a pandas.DataFrame, whose selections a type checker takes for arrays

# the figures of Tyshchuk et al. 2023; the text towers of RN101 and ViT-B-32 have one architecture
PAPER = {"RN101": "images: figure 5 of the paper", "ViT-B-32": "images and texts: figures 6 and 7 of the paper"}
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
# what a line of a panel shows → how it is drawn; the color is that of the modality
LINES = {
    "stream": "-",
    "before the ReLU": (0, (4, 1.2, 1, 1.2)),
    "MLP branch": (0, (5, 1.5)),
    "attention branch": (0, (1, 1.2)),
}
WITHOUT: Any = {"color": "#C9CFD6", "linewidth": 4, "zorder": 1}  # wide and pale, for it lies under the stream
STEP, FROM_START = "predicted from the step before", "predicted from the start"


@dataclass(frozen=True)
class LayerCurve:
    """Average cosines over the layers: at x, the mean over seeds and their standard deviation, 0 for a single seed;
    predictions are NaN where there are none."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    predicted: NDArray[np.float64]
    from_start: NDArray[np.float64]


@dataclass(frozen=True)
class TowerPanel:
    """One tower. curves: key of LINES → curve. without: the stream where all biases are zero."""

    title: str
    modality: str
    curves: Mapping[str, LayerCurve]
    without: LayerCurve | None = None


class Spread(NamedTuple):
    """Values of several seeds."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def __str__(self) -> str:
        """`0.7056 ± 0.0021`, of one seed `0.7056`."""
        error = f" ± {fixed(self.deviation, 4)}" if len(self.values) > 1 else ""
        return fixed(self.mean, 4) + error


@styled
def layer_curves(panels: Sequence[TowerPanel]) -> Figure:
    """A panel for each tower: lines measured, bands one standard deviation over seeds, markers predicted."""
    figure = Figure(figsize=(WIDTH, 0.75 + 1.5 * len(panels)), layout="constrained")
    marks: Any = {"markersize": 3.5, "markeredgewidth": 0.8, "markerfacecolor": "none", "ls": "none", "color": INK}
    for place, panel in enumerate(panels, start=1):
        axes, color = figure.add_subplot(len(panels), 1, place), COLOR[panel.modality]
        for name, curve in panel.curves.items():
            axes.plot(curve.x, curve.mean, color=color, linestyle=LINES[name], gid=f"{name}:{panel.modality}")
            band = curve.mean - curve.spread, curve.mean + curve.spread
            axes.fill_between(curve.x, *band, color=color, alpha=0.2, lw=0)
            shown = {"MLP branch": ("o", curve.predicted, STEP), "stream": ("x", curve.from_start, FROM_START)}
            if name in shown:
                marker, values, what = shown[name]
                gid = f"{what}:{panel.modality}"
                axes.plot(curve.x, values, marker=marker, gid=gid, zorder=4, **marks)
        if panel.without is not None:
            axes.plot(panel.without.x, panel.without.mean, gid=f"without:{panel.modality}", **WITHOUT)
        axes.set_title(panel.title, loc="left")
        axes.set(ylabel="average cosine", ylim=(-0.05, 1.05))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.axes[-1].set_xlabel("block")
    names = [name for name in LINES if any(name in panel.curves for panel in panels)]
    keys = [Line2D([], [], color=INK, linestyle=LINES[name], label=name) for name in names]
    if any(panel.without is not None for panel in panels):
        keys.append(Line2D([], [], label="stream, zero biases", **WITHOUT))
    if any(np.isfinite(curve.predicted).any() for panel in panels for curve in panel.curves.values()):
        keys.append(Line2D([], [], marker="o", label="MLP branch, predicted", **marks))
        keys.append(Line2D([], [], marker="x", label="stream, predicted", **marks))
    figure.legend(handles=keys, loc="outside upper left", ncols=2)
    return figure


@styled
def bias_planes(towers: Sequence[tuple[str, str, Mapping[str, NDArray]]]) -> Figure:
    """Unit rows on their own first two singular directions (not centered): one row of panels for each tower.

    towers: (title, modality, heading → rows (n, d)), with the headings of the first for all. A cross marks the mean, a
    plus the origin; all panels show the same range, which contains every point.
    """
    headings = list(towers[0][2])
    planes = [{heading: rows @ singular_plane(rows)[0] for heading, rows in sets.items()} for *_, sets in towers]
    everything = np.concatenate([np.zeros((1, 2)), *(points for sets in planes for points in sets.values())])
    low, high = everything.min(0), everything.max(0)
    low, high = low - 0.06 * (high - low), high + 0.06 * (high - low)
    across, up = high - low
    figure = Figure(figsize=(WIDTH, 0.45 + 1.45 * up / across * len(towers)), layout="constrained")
    axes = figure.subplots(len(towers), len(headings), sharex=True, sharey=True, squeeze=False)
    for (title, modality, _), sets, line in zip(towers, planes, axes, strict=True):
        for heading, panel in zip(headings, line, strict=True):
            if heading not in sets:
                panel.set_visible(False)
                continue
            points = sets[heading]
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


@styled
def cosine_dots(lines: Sequence[tuple[str, str, Mapping[str, Spread]]]) -> Figure:
    """A line for each tower of each model: mean and standard deviation over seeds, with biases and without.

    lines: (name, modality, {"as initialized": …, "zero biases": …}), either may be missing.
    """
    figure, axes = new_axes(0.85 + 0.3 * len(lines))
    for place, (_, modality, values) in enumerate(lines):
        for heading, spread in values.items():
            zero = heading == "zero biases"
            style = {"fmt": MARKER[modality], "markersize": 4.5, "elinewidth": 1, "color": COLOR[modality]}
            hollow = {"markerfacecolor": "white", "zorder": 3} if zero else {}
            at = place + (0.17 if zero else -0.17)
            axes.errorbar(spread.mean, at, xerr=spread.deviation, gid=f"{heading}:{place}", **style, **hollow)
            axes.annotate(
                str(spread), (1.02, at), xycoords=axes.get_yaxis_transform(), va="center", fontsize=7, color=INK
            )
    name_lines(axes, [name for name, *_ in lines], below=0.5, above=0.5)
    axes.set_xlim(min(0.0, *(s.mean - s.deviation for *_, v in lines for s in v.values())), 1.03)
    axes.set_xlabel("average cosine of the embeddings")
    full = {"marker": "o", "color": NEUTRAL, "ls": "none", "markersize": 4.5}
    keys = [Line2D([], [], label="as initialized", **full)]
    if any("zero biases" in values for *_, values in lines):
        keys.append(Line2D([], [], label="zero biases", markerfacecolor="white", **full))
    figure.legend(handles=keys, loc="outside upper left", ncols=2)
    return figure


def draw_initialization(rows: Sequence[Row], embeddings: Callable[[Row], NDArray | None]) -> dict[str, Drawing]:
    """Draw what the rows of the experiment `initialization` allow.

    Args:
        rows: Its result rows.
        embeddings: The embeddings behind a row, None where they are gone.
    """
    drawn: dict[str, Drawing] = {}
    table = table_of(rows)
    finals = table[table.cosine & table.layer.isna()]
    lines = [
        (f"{short_name(model)}\n{_title(modality, mode)}", modality,
         {BIASES[zero]: Spread(list(values)) for zero, values in found.groupby("zero", sort=False).value})
        for (model, modality, mode), found in finals.groupby(["model", *TOWER], sort=False)
    ]  # fmt: skip
    batch = table.batch_size[table["mode"] == "batch"].max()
    caption = WORDS("cosines", None if np.isnan(batch) else batch, (table["mode"] != "").any(), _origin(table))
    drawn["cosine_of_fresh_models"] = Drawing("The cone at initialization", cosine_dots(lines), caption)
    for k, (model, own) in enumerate(table.groupby("model", sort=False), start=1):
        name = short_name(model)
        if panels := panels_of(own):
            title = f"Where the cone arises: {name}"
            drawn[f"layers_{k}"] = Drawing(title, layer_curves(panels), _layers_caption(own))
        first = own[own.seed == finals[finals.model == model].seed.iloc[0]]
        if planes := _planes(first[first.cosine & first.layer.isna()], embeddings):
            title = f"With and without biases: {name}" + (f" ({PAPER[name]})" if name in PAPER else "")
            drawn[f"biases_{k}"] = Drawing(title, bias_planes(planes), _biases_caption(planes, _origin(first)))
    return drawn


def tell(rows: Sequence[Row]) -> list[str]:
    """How narrow the cones of untrained models are, what the biases have to do with them, and how near theory comes."""
    if not rows:
        return []
    table, found = table_of(rows), []
    finals = table[table.cosine & table.layer.isna()]
    plain = finals[~finals.zero]
    for zero, shown in ((False, plain), (True, finals[finals.zero])):
        ranges = []
        for modality, of_modality in shown.groupby("modality", sort=False):
            towers = [
                (short_name(model) + (f", {_title('', mode).strip(', ')}" if mode else ""), Spread(list(values)))
                for (model, mode), values in of_modality.groupby(["model", "mode"], sort=False).value
            ]
            towers.sort(key=lambda tower: tower[1].mean)
            ranges.append((modality, [(name, f"{spread}", spread.mean) for name, spread in towers]))
        if ranges:
            nulls = [row["null_value"] for row in shown.row if row.get("null_value") is not None]
            seeds = shown.seed.nunique()
            found.append(
                WORDS("cones", zero and not plain.empty, zero, ranges, max(map(abs, nulls), default=None), seeds)
            )
    layered = table[table.layer.notna() & ~table.zero]
    error = (layered.value - layered.predicted)[layered.operation == "mlp"].abs().max()
    if not np.isnan(error):
        found.append(WORDS("theory", error))
    return found


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
            **{key: np.nan if row.get(key) is None else row[key] for key in (*NUMBERS, "batch_size")},
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


def _origin(table: Frame) -> str:
    """Models, data, n and seeds, for the end of a caption."""
    return WORDS("origin", list(table.model.unique()), table.data.unique(), sorted(table.seed.unique()))


def panels_of(table: Frame) -> list[TowerPanel]:
    """A panel of curves for each tower whose layers were followed."""
    panels = []
    for (modality, mode), found in table[table.layer.notna()].groupby(TOWER, sort=False):
        plain, zero = found[~found.zero], found[found.zero]
        shown = zero if plain.empty else plain
        curves = {name: curve for name in PLACES if (curve := _curve(shown, name)) is not None}
        without = None if plain.empty else _curve(zero, "stream")
        panels.append(TowerPanel(_title(modality, mode), modality, curves, without))
    return panels


def _curve(found: Frame, name: str) -> LayerCurve | None:
    """None where the tower has no such operations."""
    # without a shortcut, a block of a fresh ResNet is the identity, whose ReLU has nothing to do
    idle = (found.operation == "residual") & ~found.layer.isin(found.layer[found.operation == "shortcut"])
    # NaN where the operation is not part of the line
    places = found.layer - found.operation.map(PLACES[name]).astype(float)
    kept = places.notna() & found.value.notna() & ~idle
    if not kept.any():
        return None
    grouped = found[kept].groupby(places[kept])
    means = [grouped[key].apply(lambda values: values.mean(skipna=False)).to_numpy() for key in NUMBERS]
    spread = grouped.value.std().fillna(0)
    return LayerCurve(spread.index.to_numpy(), means[0], spread.to_numpy(), *means[1:])


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

"""Pictures of embeddings under a classifier: silhouette and IsoScore over the updates, and against each other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import number
from clip_geometry.report.style import HEIGHT, NEUTRAL, WIDTH, save_figure, styled

# Tol 2021, muted: told apart with every common colour vision deficiency
SILHOUETTE, ISOSCORE = "#882255", "#332288"
HIDDEN = {SILHOUETTE: "#CC6677", ISOSCORE: "#88CCEE"}  # the same of the hidden layer
SERIES = (SILHOUETTE, "#117733", "#CC6677", "#88CCEE", "#DDCC77", "#AA4499", "#44AA99", ISOSCORE, "#999933")
LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)))  # of variants
INK = "#24292F"
INPUT = ("trained", "input")  # where the paper measures

Place = tuple[str, str, str]  # measure, examples ("trained" or "held out"), layer ("input", "hidden" or "output")
Curves = Mapping[Any, NDArray[np.float64]]  # of each Place, (seeds, states)


class Relation(NamedTuple):
    """silhouette, isoscore: (seeds, states) each."""

    silhouette: NDArray[np.float64]
    isoscore: NDArray[np.float64]


def draw_classify(
    curves: Curves, updates: NDArray[np.integer], *, folder: str | Path, origin: str, prefix: str = "", group: str = ""
) -> list[FigureEntry]:
    """Draws the figures that the recorded numbers allow, and saves them as PNG and SVG.

    updates: of the states. origin: task, model, training and seeds in words. prefix: of the file names.
    """
    drawn: dict[str, tuple[str, Figure, str]] = {}
    trained = {place: values for place, values in curves.items() if place[1] == "trained"}
    if any(_kind(place) in ("silhouette", "isoscore") for place in trained):
        drawn["classify_curves"] = ("Clusters and isotropy", curves_figure(trained, updates), _told_curves(trained))
    if (relation := first_relation(trained)) is not None:
        figure = relation_figure({"": relation})
        drawn["classify_relation"] = ("Silhouette against IsoScore", figure, _told_relation(relation))
    if unseen := hidden_curves(curves):
        drawn["classify_unseen"] = (
            "Examples that are not trained",
            unseen_figure(unseen, updates),
            _told_unseen(unseen, curves),
        )
    if any(place[2] == "output" for place in curves):
        drawn["classify_learning"] = ("What is learnt", learning_figure(curves, updates), _told_learning(curves))
    entries = []
    for name, (title, figure, words) in drawn.items():
        png, svg = save_figure(figure, folder, prefix + name)
        entries.append(FigureEntry(prefix + name, title, f"{words} {origin}", svg, png, group))
    return entries


def first_relation(curves: Curves) -> Relation | None:
    """The first silhouette and the first IsoScore of the inputs, where both were recorded."""
    found = [
        next((values for place, values in curves.items() if _kind(place) == kind and place[1:] == INPUT), None)
        for kind in ("silhouette", "isoscore")
    ]
    return None if found[0] is None or found[1] is None else Relation(found[0], found[1])


def _kind(place: Place) -> str:
    return place[0].partition("[")[0]


def _name(place: Place) -> str:
    """`cosine`, `hidden layer`, `cosine, hidden layer`; of the plain one, "plain"."""
    variant = place[0].partition("[")[2].rstrip("]")
    layer = "hidden layer" if place[2] == "hidden" else ""
    plain = "Euclidean" if _kind(place) == "silhouette" else "plain"
    return ", ".join(filter(None, (variant or plain, layer)))


@styled
def curves_figure(curves: Curves, updates: NDArray[np.integer]) -> Figure:
    """Figure 2 and 4 of the paper: silhouettes above, IsoScore on a log axis below; mean and deviation over seeds."""
    kinds = {"silhouette": ("silhouette", SILHOUETTE), "isoscore": ("IsoScore", ISOSCORE)}
    shown = {kind: told for kind, told in kinds.items() if any(_kind(place) == kind for place in curves)}
    figure = Figure(figsize=(WIDTH, 0.6 + 1.5 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (kind, (label, colour)) in zip(panels, shown.items(), strict=True):
        lines = [(place, values) for place, values in curves.items() if _kind(place) == kind]
        variants = list(dict.fromkeys(place[0] for place, _ in lines))
        for place, values in lines:
            line = _cycled(LINES, len(variants))[variants.index(place[0])]
            drawn = colour if place[1:] == INPUT else HIDDEN[colour]
            curve(axes, updates, values, color=drawn, linestyle=line, label=_name(place), gid=":".join(place))
        if kind == "isoscore":
            log_axis(axes.yaxis, np.concatenate([values.ravel() for _, values in lines]))
        if len(lines) > 1:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=6.5, handlelength=2.2)
        axes.set_ylabel(label)
    panels[-1].set_xlabel("update")
    panels[-1].xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return figure


@styled
def relation_figure(relations: Mapping[str, Relation]) -> Figure:
    """Figure 3 of the paper: silhouette against IsoScore (log axis) over the states, a line for each task.

    Means over seeds; bars: deviations at ten states; the circle is the state before the first update.
    """
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    for (name, relation), colour in zip(relations.items(), series_colours(len(relations)), strict=False):
        x, y = (_mean(values) for values in (relation.isoscore, relation.silhouette))
        marked = np.unique(np.linspace(0, len(x) - 1, 11).astype(int))
        bars: Any = {"xerr": _deviation(relation.isoscore)[marked], "yerr": _deviation(relation.silhouette)[marked]}
        axes.plot(x, y, color=colour, gid=f"relation:{name}")
        axes.errorbar(x[marked], y[marked], **bars, fmt=".", color=colour, markersize=3, elinewidth=0.8)
        axes.plot(x[:1], y[:1], "o", color=colour, markerfacecolor="white", markersize=5, zorder=4, gid=f"first:{name}")
    axes.set(xlabel="IsoScore", ylabel="silhouette")
    log_axis(axes.xaxis, np.concatenate([_mean(relation.isoscore) for relation in relations.values()]))
    keys = [
        Line2D([], [], color=c, label=name) for c, name in zip(series_colours(len(relations)), relations, strict=True)
    ]
    start = Line2D(
        [], [], marker="o", ls="none", color=NEUTRAL, markerfacecolor="white", label="before the first update"
    )
    figure.legend(handles=[*(keys if len(keys) > 1 else []), start], loc="outside upper left", ncols=3)
    return figure


def hidden_curves(curves: Curves) -> dict[Place, NDArray[np.float64]]:
    """Silhouette and IsoScore of the hidden layer, if there are any of held-out examples."""
    found = {p: values for p, values in curves.items() if p[2] == "hidden" and p[0] in ("silhouette", "isoscore")}
    return found if any(place[1] == "held out" for place in found) else {}


@styled
def unseen_figure(curves: Curves, updates: NDArray[np.integer]) -> Figure:
    """Of the hidden layer: silhouette above, IsoScore on a log axis below; dashed: of held-out examples."""
    kinds = {"silhouette": ("silhouette", HIDDEN[SILHOUETTE]), "isoscore": ("IsoScore", HIDDEN[ISOSCORE])}
    shown = {kind: told for kind, told in kinds.items() if any(place[0] == kind for place in curves)}
    figure = Figure(figsize=(WIDTH, 0.6 + 1.5 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (kind, (label, colour)) in zip(panels, shown.items(), strict=True):
        lines = [(place, values) for place, values in curves.items() if place[0] == kind]
        for place, values in lines:
            line = LINES[0] if place[1] == "trained" else LINES[1]
            name = place[1].replace(" ", "-")
            curve(axes, updates, values, color=colour, linestyle=line, label=name, gid=":".join(place))
        if kind == "isoscore":
            log_axis(axes.yaxis, np.concatenate([values.ravel() for _, values in lines]))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=6.5, handlelength=2.2)
        axes.set_ylabel(label)
    panels[-1].set_xlabel("update")
    panels[-1].xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return figure


@styled
def learning_figure(curves: Curves, updates: NDArray[np.integer]) -> Figure:
    """Loss and accuracy over the updates; dashed: of held-out examples."""
    names = {"classify.loss": "loss", "classify.accuracy": "accuracy"}
    shown = [measure for measure in names if any(place[0] == measure for place in curves)]
    figure = Figure(figsize=(WIDTH, 0.5 + 1.2 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, measure in zip(panels, shown, strict=True):
        for place, values in curves.items():
            if place[0] == measure:
                line = "-" if place[1] == "trained" else (0, (5, 1.5))
                curve(
                    axes,
                    updates,
                    values,
                    color=INK,
                    linestyle=line,
                    gid=":".join(place),
                    label=place[1].replace(" ", "-"),
                )
        axes.set_ylabel(names[measure])
        axes.set_ylim(bottom=0, top=1.03 if measure == "classify.accuracy" else None)
    if any(place[1] == "held out" for place in curves):
        figure.legend(*panels[-1].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    panels[-1].set_xlabel("update")
    panels[-1].xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return figure


def curve(axes: Axes, updates: NDArray[np.integer], values: NDArray[np.float64], **style: Any) -> None:
    """The mean of (seeds, states) values as a line, one standard deviation as a band."""
    mean, deviation = _mean(values), _deviation(values)
    axes.plot(updates[: len(mean)], mean, **style)
    band = {"color": style["color"], "alpha": 0.25, "linewidth": 0}
    axes.fill_between(updates[: len(mean)], mean - deviation, mean + deviation, **band)


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values.mean(axis=0)


def _deviation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])


def log_axis(axis: Any, values: NDArray[np.float64]) -> None:
    """A logarithmic axis with plain numbers, where all values are positive."""
    known = values[np.isfinite(values)]
    if not len(known) or known.min() <= 0:
        return
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if known.max() < 100 * known.min() else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def series_colours(count: int) -> list[str]:
    """A colour for each of several tasks."""
    return _cycled(SERIES, count)


def _cycled(values: Sequence[Any], count: int) -> list[Any]:
    return [values[k % len(values)] for k in range(count)]


# --- captions


def _told_curves(curves: Curves) -> str:
    moved = []
    for kind, title in (("silhouette", "silhouette"), ("isoscore", "IsoScore")):
        of = next((values for place, values in curves.items() if _kind(place) == kind and place[1:] == INPUT), None)
        if of is not None:
            moved.append(f"{title} goes from {number(_mean(of)[0])} to {number(_mean(of)[-1])}")
    return (
        f"{_sentence(moved)} Silhouette of the classifier's inputs with the labels as classes, and IsoScore of the "
        "distinct items, before the first and after every recorded update. Lines: mean over seeds; bands: one standard "
        "deviation."
    )


def _sentence(parts: Sequence[str]) -> str:
    text = ", ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _told_relation(relation: Relation) -> str:
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.corrcoef(relation.silhouette.ravel(), relation.isoscore.ravel())[0, 1]
        r_log = np.corrcoef(relation.silhouette.ravel(), np.log(relation.isoscore.ravel()))[0, 1]
    return (
        f"Every state of the training, the circle the one before the first update. Pearson correlation "
        f"{number(r)} with IsoScore, {number(r_log)} with its logarithm, over {relation.silhouette.shape[1]} states of "
        f"each seed. Line: mean over seeds; bars: one standard deviation, at eleven states."
    )


def _told_unseen(hidden: Curves, curves: Curves) -> str:
    names = {"silhouette": "silhouette", "isoscore": "IsoScore"}
    moved = [
        f"{names[place[0]]} of {place[1].replace(' ', '-')} examples goes from {number(_mean(values)[0])} to "
        f"{number(_mean(values)[-1])}"
        for place, values in hidden.items()
    ]
    accuracy = next((each for place, each in curves.items() if place[:2] == ("classify.accuracy", "held out")), None)
    learned = (
        ""
        if accuracy is None
        else f" Accuracy of held-out examples at the end: {number(_mean(accuracy)[-1])}; if that is chance, nothing "
        "follows for tasks that are learned."
    )
    return (
        f"{_sentence(moved)} The hidden layer; items of held-out examples are moved by the classifier's weights "
        f"alone.{learned}"
    )


def _told_learning(curves: Curves) -> str:
    told = []
    for place, values in curves.items():
        if place[0] == "classify.accuracy":
            told.append(f"accuracy of {place[1].replace(' ', '-')} examples at the end {number(_mean(values)[-1])}")
    held = " Held-out examples have items that no update moves." if any(p[1] == "held out" for p in curves) else ""
    return f"{_sentence(told)} Loss and accuracy in every recorded state; mean and standard deviation over seeds.{held}"

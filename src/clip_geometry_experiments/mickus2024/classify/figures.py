"""Figures and sentences of embeddings under a classifier: silhouette and IsoScore over the updates and compared."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from clip_geometry.display.numbers import fixed, number
from clip_geometry.display.style import HEIGHT, INK, NEUTRAL, WIDTH, styled
from clip_geometry.display.words import Words
from clip_geometry_experiments.kit import figures
from clip_geometry_experiments.mickus2024.classify.rows import of_seeds
from clip_geometry_experiments.report.gallery import Drawing

INPUT = ("trained", "input")  # where the paper measures
KINDS = {"silhouette": "silhouette", "isoscore": "IsoScore"}
COLORS = {"silhouette": figures.WINE, "isoscore": figures.INDIGO}
HIDDEN = {"silhouette": figures.ROSE, "isoscore": figures.CYAN}  # of the hidden layer
LEGEND = 60  # characters of a line of a legend, with 5 for each key
LEARNING = {"classify.loss": ("loss", (0, None)), "classify.accuracy": ("accuracy", (0, 1.03))}

Values = NDArray[np.float64]  # (seeds, states)
Updates = NDArray[np.integer]
Place = tuple[
    str, str, str
]  # measure, examples ("trained", "held out", "shuffled labels"), layer ("input", "hidden" or "output")
Curves = Mapping[Any, Values]  # by Place

words = Words(Path(__file__).with_name("words.j2"))


class Relation(NamedTuple):
    """Two curves of the same states."""

    silhouette: Values
    isoscore: Values


Tasks = Mapping[str, tuple[Updates, Relation]]  # name → updates of the recorded states, and the states


def draw_classify(curves: Curves, updates: Updates) -> dict[str, Drawing]:
    """Draw the figures that the recorded numbers allow.

    Args:
        curves: `states.Place` → (seeds, states) values.
        updates: Of the recorded states.
    """
    drawn: dict[str, Drawing] = {}
    trained = {place: values for place, values in curves.items() if place[1] == "trained"}
    if any(_kind(place) in KINDS for place in trained):
        first = {name: _first(trained, kind, "trained") for kind, name in KINDS.items()}
        caption = words("curves", {name: _ends(values) for name, values in first.items() if values is not None})
        drawn["classify_curves"] = Drawing("Clusters and isotropy", curves_figure(trained, updates), caption)
    if (relation := first_relation(trained)) is not None:
        x, y = (values.ravel() for values in relation)
        with np.errstate(invalid="ignore", divide="ignore"):
            r, r_log = np.corrcoef(x, y)[0, 1], np.corrcoef(x, np.log(y))[0, 1]
        null = first_relation(curves, "shuffled labels")
        shuffled = [] if null is None else of_seeds(*null)
        r_null = float(np.mean(shuffled)) if shuffled else None
        caption = words("relation", r, r_log, relation.silhouette.shape[1], r_null)
        shown = {"": relation} if null is None else {"labels": relation, "shuffled labels": null}
        drawn["classify_relation"] = Drawing("Silhouette against IsoScore", relation_figure(shown), caption)
    accuracies = {
        place[1]: values.mean(axis=0)[-1] for place, values in curves.items() if place[0] == "classify.accuracy"
    }
    if unseen := hidden_curves(curves):
        ends = {f"{KINDS[kind]} of {_hyphen(of)} examples": _ends(values) for (kind, of, _), values in unseen.items()}
        caption = words("unseen", ends, accuracies.get("held out"))
        drawn["classify_unseen"] = Drawing("Held-out examples", unseen_figure(unseen, updates), caption)
    if any(place[2] == "output" for place in curves):
        caption = words(
            "learning",
            {_hyphen(examples): value for examples, value in accuracies.items()},
            any(place[1] == "held out" for place in curves),
        )
        drawn["classify_learning"] = Drawing("Loss and accuracy", learning_figure(curves, updates), caption)
    return drawn


def draw_tasks(tasks: Tasks) -> dict[str, Drawing]:
    """Draw figures 2 to 4 of the paper for several tasks at once."""
    seeds = max(len(relation.silhouette) for _, relation in tasks.values())
    relations = relation_figure({name: relation for name, (_, relation) in tasks.items()})
    return {
        "tasks_curves": Drawing("Clusters and isotropy of all runs", tasks_curves(tasks), words("tasks_curves", seeds)),
        "tasks_relation": Drawing("Silhouette against IsoScore of all runs", relations, words("tasks_relation", seeds)),
    }


def first_relation(curves: Curves, examples: str = "trained") -> Relation | None:
    """The first silhouette and the first IsoScore of the classifier's inputs; None where one was not recorded."""
    silhouette, isoscore = (_first(curves, kind, examples) for kind in KINDS)
    return None if silhouette is None or isoscore is None else Relation(silhouette, isoscore)


def hidden_curves(curves: Curves) -> dict[Place, Values]:
    """Silhouette and IsoScore of the hidden layer, if held-out examples were measured there."""
    found = {
        place: values
        for place, values in curves.items()
        if place[2] == "hidden" and place[0] in KINDS and place[1] != "shuffled labels"
    }
    return found if any(place[1] == "held out" for place in found) else {}


def curves_figure(curves: Curves, updates: Updates) -> Figure:
    """Figures 2 and 4 of the paper: silhouettes above, IsoScore on a log axis below; mean and deviation over seeds."""
    panels = []
    for kind, label in KINDS.items():
        of_kind = {place: values for place, values in curves.items() if _kind(place) == kind}
        variants = list(dict.fromkeys(place[0] for place in of_kind))
        lines = []
        for place, values in of_kind.items():
            measure, hidden = place[0], place[2] == "hidden"
            variant = measure.partition("[")[2].rstrip("]") or ("Euclidean" if kind == "silhouette" else "plain")
            lines.append(
                figures.PanelCurve(
                    updates,
                    values,
                    color=(COLORS if place[1:] == INPUT else HIDDEN)[kind],
                    label=f"{variant}, hidden layer" if hidden else variant,
                    line=figures.LINES[variants.index(measure) % len(figures.LINES)],
                    gid=":".join(place),
                )
            )
        if lines:
            panels.append(figures.Panel(label, lines, log=kind == "isoscore", legend=len(lines) > 1))
    return _stacked(panels)


def unseen_figure(curves: Curves, updates: Updates) -> Figure:
    """The hidden layer: silhouette above, IsoScore on a log axis below; dashed lines are held-out examples."""
    panels = []
    for kind, label in KINDS.items():
        lines = [
            _by_examples(place, values, updates, HIDDEN[kind]) for place, values in curves.items() if place[0] == kind
        ]
        if lines:
            panels.append(figures.Panel(label, lines, log=kind == "isoscore", legend=True))
    return _stacked(panels)


def learning_figure(curves: Curves, updates: Updates) -> Figure:
    """Loss and accuracy over the updates; dashed lines are held-out examples."""
    panels = []
    for measure, (label, limits) in LEARNING.items():
        lines = [_by_examples(place, values, updates, INK) for place, values in curves.items() if place[0] == measure]
        if lines:
            panels.append(figures.Panel(label, lines, limits))
    held_out = any(place[1] == "held out" for place in curves)
    return _stacked(panels, 0.5, 1.2, legend={"ncols": 2} if held_out else None)


def tasks_curves(tasks: Tasks) -> Figure:
    """Silhouettes above, IsoScores on a log axis below, a line for each task; mean and deviation over seeds."""
    panels = []
    for kind, label in KINDS.items():
        lines = [
            figures.PanelCurve(updates, getattr(relation, kind), color, name, gid=f"{kind}:{name}")
            for (name, (updates, relation)), color in zip(tasks.items(), cycle(figures.SERIES), strict=False)
        ]
        panels.append(figures.Panel(label, lines, log=kind == "isoscore"))
    columns = legend_columns(list(tasks))
    return _stacked(panels, 0.6 + 0.15 * -(-len(tasks) // columns), legend={"ncols": columns})


@styled
def relation_figure(relations: Mapping[str, Relation]) -> Figure:
    """Figure 3 of the paper: silhouette against IsoScore (log axis) over the states, a line for each task.

    Lines are means over seeds, bars deviations at eleven states; the circle is the state before the first update.
    """
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    keys = []
    for (name, (silhouette, isoscore)), color in zip(relations.items(), cycle(figures.SERIES), strict=False):
        x, y = isoscore.mean(axis=0), silhouette.mean(axis=0)
        marked = np.unique(np.linspace(0, len(x) - 1, 11).astype(int))
        bars: Any = {"xerr": figures.deviation(isoscore)[marked], "yerr": figures.deviation(silhouette)[marked]}
        keys += axes.plot(x, y, color=color, label=name, gid=f"relation:{name}")
        axes.errorbar(x[marked], y[marked], **bars, fmt=".", color=color, markersize=3, elinewidth=0.8)
        axes.plot(x[:1], y[:1], "o", color=color, markerfacecolor="white", markersize=5, zorder=4, gid=f"first:{name}")
    axes.set(xlabel="IsoScore", ylabel="silhouette")
    figures.log_axis(axes.xaxis, np.concatenate([isoscore.mean(axis=0) for _, isoscore in relations.values()]))
    circle: Any = {"marker": "o", "ls": "none", "color": NEUTRAL, "markerfacecolor": "white"}
    start = Line2D([], [], **circle, label="before the first update")
    handles = [*(keys if len(keys) > 1 else []), start]
    columns = legend_columns([str(each.get_label()) for each in handles])
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)
    return figure


def legend_columns(labels: Sequence[str]) -> int:
    """At most three, as many as fit into the width of the figure; matplotlib fills the columns one after the other."""
    for columns in (3, 2):
        rows = max(1, -(-len(labels) // columns))
        widest = [max(map(len, labels[start : start + rows])) for start in range(0, len(labels), rows)]
        if sum(widest) + 5 * len(widest) <= LEGEND:
            return columns
    return 1


def _stacked(panels: list[figures.Panel], base: float = 0.6, each: float = 1.5, **legend: Any) -> Figure:
    return figures.panels_figure(panels, size=(WIDTH, base + each * len(panels)), xlabel="update", **legend)


def _by_examples(place: Place, values: Values, updates: Updates, color: str) -> figures.PanelCurve:
    line = "-" if place[1] == "trained" else figures.LINES[1]
    return figures.PanelCurve(updates, values, color, _hyphen(place[1]), line, ":".join(place))


def _kind(place: Place) -> str:
    return place[0].partition("[")[0]


def _first(curves: Curves, kind: str, examples: str) -> Values | None:
    places = (place for place in curves if _kind(place) == kind and place[1:] == (examples, "input"))
    return next((curves[place] for place in places), None)


def _ends(values: Values) -> tuple[float, float]:
    mean = values.mean(axis=0)
    return mean[0], mean[-1]


def _hyphen(examples: str) -> str:
    return examples.replace(" ", "-")


# --- sentences


ACCURACY = "classify.accuracy"


def sentences(runs: Mapping[str, Curves]) -> list[str]:
    """Whether clusters grow, what isotropy does meanwhile, how both correlate, and whether the task is learned.

    Args:
        runs: Name of a run → its curves; errors are standard deviations over seeds.
    """
    relations = {name: each for name, curves in runs.items() if (each := first_relation(curves)) is not None}
    if not relations:
        return []
    if len(runs) > 1:
        changes = {name: _changes(each) for name, each in relations.items()}
        rises = {kind: [name for name, each in changes.items() if each[kind] > 0] for kind in Relation._fields}
        falls = {kind: [name for name, each in changes.items() if each[kind] < 0] for kind in Relation._fields}
        ranked = sorted((r[0], name, _text(*r)) for name, each in relations.items() if (r := _pearson(each)))
        return [
            words("runs_changes", rises, falls, len(relations)),
            *([words("runs_pearson", ranked)] if ranked else []),
        ]
    ((name, relation),) = relations.items()
    curves, seeds = runs[name], len(relation.silhouette)
    ends = {kind: [number(float(values[:, k].mean())) for k in (0, -1)] for kind, values in relation._asdict().items()}
    r, null = _pearson(relation), first_relation(curves, "shuffled labels")
    r_null = _pearson(null) if null is not None else None
    found = [words("change", ends, _changes(relation), seeds)]
    if r:
        found.append(words("pearson", _text(*r), _text(*r_null) if r_null else None, seeds))
    accuracies = {place[1]: _text(*_spread(values[:, -1])) for place, values in curves.items() if place[0] == ACCURACY}
    return found + ([words("accuracies", accuracies)] if accuracies else [])


def _changes(relation: Relation) -> dict[str, int]:
    """1 where a curve rises, −1 where it falls, 0 where the change is within two standard errors over the seeds."""
    signs = {}
    for kind, values in relation._asdict().items():
        change = values[:, -1] - values[:, 0]
        error = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else 0.0
        signs[kind] = int(np.sign(change.mean())) if abs(change.mean()) > 2 * error else 0
    return signs


def _pearson(relation: Relation) -> tuple[float, float] | None:
    """Mean over seeds and standard deviation of the correlation over the states; None where it is undefined."""
    pairs = zip(relation.silhouette, relation.isoscore, strict=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.array([np.corrcoef(x, y)[0, 1] if len(x) > 1 else np.nan for x, y in pairs])
    return _spread(found) if np.isfinite(found).all() else None


def _spread(values: Any) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _text(mean: float, deviation: float) -> str:
    return f"{fixed(mean, 2)} ± {fixed(deviation, 2)}" if deviation else fixed(mean, 2)

"""Figures and sentences about embeddings under a classifier: silhouette and IsoScore, over updates and compared."""

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
from clip_geometry_experiments.kit.training import Values
from clip_geometry_experiments.mickus2024.classify.training import SHUFFLED, kind_of, of_seeds
from clip_geometry_experiments.report.figures import Drawing

KINDS = {"silhouette": "silhouette", "isoscore": "IsoScore"}
COLORS = {"silhouette": figures.WINE, "isoscore": figures.INDIGO}
HIDDEN = {"silhouette": figures.ROSE, "isoscore": figures.CYAN}  # colors of the hidden layer
LEGEND = 60  # characters per line of a legend, with 5 for each key
ACCURACY = "classify.accuracy"
LEARNING = {"classify.loss": ("loss", (0, None)), ACCURACY: ("accuracy", (0, 1.03))}

Updates = NDArray[np.integer]
Curves = Mapping[Any, Values]  # LayerPlace → values

words = Words(Path(__file__).with_name("words.j2"))


class Relation(NamedTuple):
    """Silhouette and IsoScore of the same states."""

    silhouette: Values
    isoscore: Values


Tasks = Mapping[str, tuple[Updates, Relation]]  # name → (updates of the recorded states, values in these states)


def draw_classify(curves: Curves, updates: Updates) -> dict[str, Drawing]:
    """Draw all figures for which the numbers were recorded.

    Args:
        curves: Mapping from `LayerPlace` to values (seeds, states).
        updates: Updates of the recorded states.
    """
    relation, null = first_relation(curves), null_relation(curves)
    shown = {"": relation} if null is None else {"labels": relation, SHUFFLED: null}
    drawn = {
        "classify_curves": Drawing("Clusters and isotropy", curves_figure(curves, updates), words("curves")),
        "classify_relation": Drawing("Silhouette against IsoScore", relation_figure(shown), words("relation")),
    }
    held_out = any(place[1] == "held out" for place in curves)
    hidden = {
        (measure, examples, layer): values
        for (measure, examples, layer), values in curves.items()
        if measure in KINDS and examples != SHUFFLED and layer == "hidden"
    }
    if hidden and held_out:
        panels = [_by_examples(hidden, kind, updates, label, HIDDEN[kind]) for kind, label in KINDS.items()]
        panels = [panel._replace(log=panel.label == "IsoScore", legend=True) for panel in panels]
        drawn["classify_unseen"] = Drawing("Held-out examples", _stacked(panels), words("unseen"))
    panels = [_by_examples(curves, name, updates, label, INK, limits) for name, (label, limits) in LEARNING.items()]
    panels = [panel for panel in panels if panel.curves]  # the triplet loss has no accuracy
    figure = _stacked(panels, 0.5, 1.2, legend={"ncols": 2} if held_out else None)
    drawn["classify_learning"] = Drawing("Loss and accuracy", figure, words("learning", held_out))
    return drawn


def draw_tasks(tasks: Tasks) -> dict[str, Drawing]:
    """Draw Figures 2 to 4 of the paper for several tasks at once."""
    seeds = max(len(relation.silhouette) for _, relation in tasks.values())
    relations = relation_figure({name: relation for name, (_, relation) in tasks.items()})
    return {
        "tasks_curves": Drawing("Clusters and isotropy of all runs", tasks_curves(tasks), words("tasks_curves", seeds)),
        "tasks_relation": Drawing("Silhouette against IsoScore of all runs", relations, words("tasks_relation", seeds)),
    }


def first_relation(curves: Curves, examples: str = "trained") -> Relation:
    """Return the first silhouette and the first IsoScore of the inputs of the classifier."""
    of_inputs = {place: values for place, values in curves.items() if place[1:] == (examples, "input")}
    return Relation(
        *(next(values for place, values in of_inputs.items() if kind_of(place[0]) == kind) for kind in KINDS)
    )


def null_relation(curves: Curves) -> Relation | None:
    """Return the first silhouette and IsoScore with shuffled labels, or None if these were not trained."""
    return first_relation(curves, SHUFFLED) if any(place[1] == SHUFFLED for place in curves) else None


def curves_figure(curves: Curves, updates: Updates) -> Figure:
    """Draw Figures 2 and 4 of the paper: silhouettes above, IsoScores on a log axis below.

    Lines and bands are means and standard deviations over seeds.
    """
    panels = []
    for kind, label in KINDS.items():
        of_kind = {
            place: values for place, values in curves.items() if kind_of(place[0]) == kind and place[1] == "trained"
        }
        variants = list(dict.fromkeys(measure for measure, *_ in of_kind))
        lines = []
        for place, values in of_kind.items():
            measure, _, layer = place
            color = (HIDDEN if layer == "hidden" else COLORS)[kind]
            name = measure.partition("[")[2].rstrip("]") or ("Euclidean" if kind == "silhouette" else "plain")
            name = f"{name}, hidden layer" if layer == "hidden" else name
            line = figures.LINES[variants.index(measure) % len(figures.LINES)]
            lines.append(figures.PanelCurve(updates, values, color, name, line, ":".join(place)))
        panels.append(figures.Panel(label, lines, log=kind == "isoscore", legend=len(lines) > 1))
    return _stacked(panels)


def tasks_curves(tasks: Tasks) -> Figure:
    """Draw one line per task: silhouettes above, IsoScores on a log axis below.

    Lines and bands are means and standard deviations over seeds.
    """
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
    """Draw Figure 3 of the paper: silhouette against IsoScore (log axis) over the states, one line per task.

    Lines are means over seeds, and bars are standard deviations at eleven states. The circle marks the state before the
    first update.
    """
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    lines = []
    for (name, (silhouette, isoscore)), color in zip(relations.items(), cycle(figures.SERIES), strict=False):
        x, y = isoscore.mean(axis=0), silhouette.mean(axis=0)
        marked = np.unique(np.linspace(0, len(x) - 1, 11).astype(int))
        bars: Any = {"xerr": figures.deviation(isoscore)[marked], "yerr": figures.deviation(silhouette)[marked]}
        lines += axes.plot(x, y, color=color, label=name, gid=f"relation:{name}")
        axes.errorbar(x[marked], y[marked], **bars, fmt=".", color=color, markersize=3, elinewidth=0.8)
        axes.plot(x[:1], y[:1], "o", color=color, markerfacecolor="white", markersize=5, zorder=4, gid=f"first:{name}")
    axes.set(xlabel="IsoScore", ylabel="silhouette")
    figures.log_axis(axes.xaxis, np.concatenate([isoscore.mean(axis=0) for _, isoscore in relations.values()]))
    circle: Any = {"marker": "o", "ls": "none", "color": NEUTRAL, "markerfacecolor": "white"}
    start = Line2D([], [], **circle, label="before the first update")
    handles = [*(lines if len(lines) > 1 else []), start]
    columns = legend_columns([str(handle.get_label()) for handle in handles])
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)
    return figure


def legend_columns(labels: Sequence[str]) -> int:
    """Return the number of legend columns, at most three, that fit into the width of the figure."""
    widest = max(map(len, labels))
    return max(1, min(3, LEGEND // (widest + 5)))


def _stacked(panels: list[figures.Panel], base_height: float = 0.6, panel_height: float = 1.5, **legend: Any) -> Figure:
    return figures.panels_figure(
        panels, size=(WIDTH, base_height + panel_height * len(panels)), xlabel="update", **legend
    )


def _by_examples(
    curves: Curves, measure: str, updates: Updates, label: str, color: str, limits: tuple[Any, Any] = (None, None)
) -> figures.Panel:
    """Draw one measure: solid for trained examples, dashed for held-out examples."""
    lines = []
    for place, values in curves.items():
        if place[0] == measure:
            line = "-" if place[1] == "trained" else figures.LINES[1]
            lines.append(figures.PanelCurve(updates, values, color, place[1].replace(" ", "-"), line, ":".join(place)))
    return figures.Panel(label, lines, limits)


# --- sentences


def sentences(runs: Mapping[str, Curves]) -> list[str]:
    """Say whether clusters grow, how isotropy changes, how the two correlate, and whether the task is learned.

    Args:
        runs: Mapping from the name of a run to its curves; ± is the standard deviation over seeds.
    """
    relations = {name: first_relation(curves) for name, curves in runs.items()}
    if len(runs) > 1:
        changes = [_changes(relation) for relation in relations.values()]
        rises = {kind: [signs for signs in changes if signs[kind] > 0] for kind in Relation._fields}
        falls = {kind: [signs for signs in changes if signs[kind] < 0] for kind in Relation._fields}
        correlations = {name: of_seeds(*relation) for name, relation in relations.items()}
        ranked = sorted((np.mean(values), name, _text(values)) for name, values in correlations.items() if values)
        return [
            words("runs_changes", rises, falls, len(relations)),
            *([words("runs_pearson", ranked)] if ranked else []),
        ]
    ((name, relation),) = relations.items()
    curves = runs[name]
    seeds = len(relation.silhouette)
    ends = {kind: [number(end) for end in values.mean(axis=0)[[0, -1]]] for kind, values in relation._asdict().items()}
    texts = [words("change", ends, _changes(relation), seeds)]
    null = null_relation(curves)
    r = of_seeds(*relation)
    r_null = [] if null is None else of_seeds(*null)
    if r:
        texts.append(words("pearson", _text(r), _text(r_null) if r_null else None, seeds))
    accuracies = {place[1]: _text(values[:, -1]) for place, values in curves.items() if place[0] == ACCURACY}
    return texts + ([words("accuracies", accuracies)] if accuracies else [])


def _changes(relation: Relation) -> dict[str, int]:
    """Return 1 for a rising curve, −1 for a falling one, 0 if the change is within two standard errors over seeds."""
    signs = {}
    for kind, values in relation._asdict().items():
        change = values[:, -1] - values[:, 0]
        error = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else 0.0
        signs[kind] = int(np.sign(change.mean())) if abs(change.mean()) > 2 * error else 0
    return signs


def _text(values: Any) -> str:
    """Format the mean over seeds, with the standard deviation unless it is 0."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return f"{fixed(np.mean(values), 2)} ± {fixed(deviation, 2)}" if deviation else fixed(np.mean(values), 2)

"""Figures 1 to 3 and 5 to 7 of Rudman & Eickhoff 2024, and sentences, about fine-tuning with an isotropy penalty."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from clip_geometry.display.numbers import fixed, plus_minus
from clip_geometry.display.origin import Row
from clip_geometry.display.style import INK, NEUTRAL, WIDTH, styled
from clip_geometry.display.words import Words
from clip_geometry_experiments.kit.base import distinct_labels
from clip_geometry_experiments.kit.figures import LINES, deviation
from clip_geometry_experiments.kit.significance import differ
from clip_geometry_experiments.report.figures import Drawing, new_axes
from clip_geometry_experiments.rudman2024.finetune.measuring import ALL, PERFORMANCE, SEED
from clip_geometry_experiments.rudman2024.finetune.model import COSREG, I_STAR, NONE, TOP, Method

TOKENS, SENTENCES = {"rows": "tokens"}, {"rows": "sentences"}
EMPTY = 0.05  # share of the height of the tallest bar; smaller bars are invisible on that scale
LEAST = 4  # minimum number of trainings for a correlation
# colors of the other methods; Okabe & Ito 2008
OTHERS = {COSREG: "#009E73", TOP: "#AA4499"}
MARKERS = {COSREG: "s", TOP: "D"}
WIDEST = 5.0  # λ of the most saturated color

Values = Mapping[Method, NDArray[np.float64]]  # method → values of its seeds

words = Words(Path(__file__).with_name("words.j2"))


def draw_finetune(rows: Sequence[Row]) -> dict[str, Drawing]:
    """Draw all figures of one task for which the rows have the numbers."""
    isoscore = over_seeds(rows, "isoscore", TOKENS)
    performance = over_seeds(rows, PERFORMANCE)
    dimension = over_seeds(rows, "two_nn", SENTENCES)
    shown = chosen({_method(row) for row in _trainings(rows)})
    drawn: dict[str, Drawing] = {}
    if isoscore and performance:
        figure = relation_figure({"": (isoscore, performance, metric(rows))})
        caption = words("relation", any(each.name == TOP for each in isoscore))
        drawn["finetune_relation"] = Drawing("Isotropy and performance", figure, caption)
    if dimension:
        figure = lambda_figure(dimension, "TwoNN dimension of sentences")
        caption = words("dimension", any(values.mean() < 1 for values in dimension.values()))
        drawn["finetune_dimension"] = Drawing("Intrinsic dimension", figure, caption)
    figure = activation_figure(lists(rows, "coordinates"), shown)
    drawn["finetune_activation"] = Drawing("Average activation", figure, words("activation"))
    tokens = [method for method in shown if method.name != TOP]  # it shares the tokens of plain training
    figure = cosine_figure(lists(rows, "histogram"), tokens or shown, over_seeds(rows, "average_cosine", TOKENS))
    drawn["finetune_cosines"] = Drawing("Random cosines", figure, words("cosines"))
    return drawn


def draw_tasks(runs: Mapping[str, Sequence[Row]]) -> dict[str, Drawing]:
    """Draw Figures 5 and 6 for several tasks; `runs` maps `task, model` to the result rows."""
    tasks = {}
    for name, rows in zip(distinct_labels(list(runs)), runs.values(), strict=True):
        isoscore = over_seeds(rows, "isoscore", TOKENS)
        performance = over_seeds(rows, PERFORMANCE)
        if isoscore and performance:
            tasks[name] = (isoscore, performance, metric(rows))
    if not tasks:
        return {}
    methods = methods_figure({name: performance for name, (_, performance, _) in tasks.items()})
    top = any(each.name == TOP for isoscore, _, _ in tasks.values() for each in isoscore)
    title = "Isotropy and performance of all tasks"
    return {
        "tasks_methods": Drawing("Methods over all tasks", methods, words("tasks_methods")),
        "tasks_relation": Drawing(title, relation_figure(tasks), words("relation", top)),
    }


# --- from rows


def over_seeds(rows: Iterable[Row], measure: str, at: Mapping[str, Any] | None = None) -> dict[Method, NDArray]:
    """Map each method to the defined values of one measure, ordered by seed; rows must match the keys in `at`."""
    by_method: dict[Method, dict[int, float]] = {}
    for row in _trainings(rows):
        if row["measure"] == measure and (at or {}).items() <= row["at"].items() and row["value"] is not None:
            by_method.setdefault(_method(row), {})[row["at"][SEED]] = row["value"]
    return {
        method: np.array([by_method[method][seed] for seed in sorted(by_method[method])])
        for method in ordered(by_method)
    }


def correlation(rows: Iterable[Row]) -> tuple[float | None, int]:
    """Return Pearson's correlation of IsoScore and performance over the trainings with any λ, and their number.

    The correlation is None if there are too few trainings or one of the two numbers is constant.
    """
    row = next(row for row in rows if row["measure"] == "finetune.pearson")
    return row["value"] if row["n"] >= LEAST else None, row["n"]


def lists(rows: Iterable[Row], field: str) -> dict[Method, NDArray[np.float64]]:
    """Map each method to the list in this field (`coordinates` or `histogram`) for its first seed."""
    by_method: dict[Method, NDArray[np.float64]] = {}
    for row in _trainings(rows):
        if field in row:
            by_method.setdefault(_method(row), np.array(row[field], dtype=float))
    return by_method


def metric(rows: Iterable[Row]) -> str:
    """Return the display name of the task's own metric."""
    names = (row["at"].get("metric") for row in rows if row["measure"] == PERFORMANCE)
    name = next(filter(None, names), "performance")
    return {"matthews": "Matthews' correlation", "score_pearson": "Pearson correlation", "f1": "F1"}.get(name, name)


def _trainings(rows: Iterable[Row]) -> Iterable[Row]:
    return (row for row in rows if row["at"].get(SEED) not in (None, ALL))


def _method(row: Row) -> Method:
    at = row["at"]
    return Method(at["method"], float(at.get("lambda", at.get("components", 0))))


# --- methods


def on_axis(method: Method) -> bool:
    """Whether the method is a point on the λ axis of I-STAR, where plain training is λ = 0."""
    return method.name in (NONE, I_STAR)


def ordered(methods: Iterable[Method]) -> list[Method]:
    """Sort the methods: first the λ axis of I-STAR with plain training, then the others."""
    return sorted(
        methods, key=lambda method: (not on_axis(method), "" if on_axis(method) else method.name, method.value)
    )


def chosen(methods: Iterable[Method]) -> list[Method]:
    """Choose at most five methods to show: both ends of λ, 0, CosReg and all-but-the-top."""
    candidates = ordered(methods)
    axis = [method for method in candidates if on_axis(method)]
    picked = [*axis[:1], *(method for method in axis if method.value == 0), *axis[-1:]]
    for name in (COSREG, TOP):
        picked += [method for method in candidates if method.name == name][-1:]
    return list(dict.fromkeys(picked))


def label(method: Method) -> str:
    """Return the label of a method, such as `I-STAR, λ = −1`, `none (λ = 0)` or `all-but-the-top, 3`."""
    value = _minus(method.value)
    named = {NONE: "none (λ = 0)", I_STAR: f"I-STAR, λ = {value}", COSREG: f"CosReg, λ = {value}"}
    return named.get(method.name, f"all-but-the-top, {value}")


def color(method: Method) -> str:
    """Return blue for negative λ and red for positive λ, paler near 0, and black for plain training."""
    if not on_axis(method):
        return OTHERS[method.name]
    if method.value == 0:
        return INK
    share = 0.4 + 0.6 * min(abs(method.value) / WIDEST, 1)
    return to_hex(colormaps["RdBu_r"](0.5 + 0.45 * np.sign(method.value) * share))


def marker(method: Method) -> str:
    return MARKERS.get(method.name, {-1.0: "v", 0.0: "o", 1.0: "^"}[float(np.sign(method.value))])


def _minus(value: float) -> str:
    return f"{value:g}".replace("-", "−")


# --- figures


@styled
def relation_figure(tasks: Mapping[str, tuple[Values, Values, str]]) -> Figure:
    """Draw Figure 5: IsoScore against performance, with one panel per task.

    `tasks` maps a task to its IsoScores, its performance and the name of its metric. Dots are trainings; markers and
    bars are means and standard deviations over seeds.
    """
    columns = min(len(tasks), 2)
    lines = -(-len(tasks) // columns)
    figure = Figure(figsize=(WIDTH if columns == 1 else 1.6 * WIDTH, 0.5 + 2.4 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    legend: dict[str, Any] = {}
    for axes, (name, (isoscore, performance, metric)) in zip(panels, tasks.items(), strict=False):
        for method, x in isoscore.items():
            y = performance.get(method, np.zeros(0))
            if len(x) != len(y):
                continue
            axes.plot(x, y, ".", color=color(method), alpha=0.45, markersize=4)
            style: Any = {"fmt": marker(method), "color": color(method), "markersize": 5.5, "elinewidth": 0.9}
            bars = {"xerr": deviation(x), "yerr": deviation(y)} if len(x) > 1 else {}
            legend[label(method)] = axes.errorbar([x.mean()], [y.mean()], **bars, **style)
            legend[label(method)].lines[0].set_gid(f"relation:{label(method)}")
        axes.set(xlabel="IsoScore of the tokens of all layers", ylabel=metric, title=name)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    for axes in panels[len(tasks) :]:
        axes.set_axis_off()
    figure.legend(list(legend.values()), list(legend), loc="outside upper left", ncols=2 * columns)
    return figure


@styled
def lambda_figure(values: Values, name: str) -> Figure:
    """Draw Figure 7: a number against λ, mean and standard deviation over seeds; other methods as horizontal lines."""
    figure, axes = new_axes()
    axis = [method for method in ordered(values) if on_axis(method)]
    x = [method.value for method in axis]
    mean = [float(values[method].mean()) for method in axis]
    axes.plot(x, mean, color=NEUTRAL, linewidth=1, zorder=1, gid="lambda")
    for place, method in enumerate(axis):
        style: Any = {"fmt": marker(method), "color": color(method), "markersize": 5.5}
        axes.errorbar([x[place]], [mean[place]], yerr=[deviation(values[method])], **style)
    others = [method for method in values if not on_axis(method)]
    for method in others:
        axes.axhline(float(values[method].mean()), color=color(method), linestyle=LINES[1], label=label(method))
    axes.set(xlabel="λ of I-STAR (0: none)", ylabel=name)
    axes.set_xticks(x, [_minus(value).replace("0.", ".") for value in x], fontsize=7)  # short: −.5, 0 and .5 are close
    if others:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


@styled
def activation_figure(means: Values, shown: Sequence[Method]) -> Figure:
    """Draw Figure 1: the mean of every coordinate of the sentence embeddings, one panel per method on one scale.

    The largest coordinate is labeled where it is visible.
    """
    shown = [method for method in shown if method in means]
    tallest = max((np.abs(means[method]).max() for method in shown), default=0.0)
    figure = Figure(figsize=(WIDTH, 0.45 + 0.85 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, method in zip(panels, shown, strict=True):
        mean = means[method]
        axes.vlines(np.arange(len(mean)), 0, mean, color=color(method), linewidth=0.6)
        top = int(np.abs(mean).argmax())
        if abs(mean[top]) > EMPTY * tallest:  # below, it is due to chance
            place: Any = {"xytext": (3, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(f"{top}", (top, mean[top]), **place, fontsize=7)
        axes.margins(y=0.2)
        axes.set_title(label(method), loc="left", fontsize=7.5, pad=2)
    panels[-1].set_xlabel("coordinate")
    figure.supylabel("mean over sentences", fontsize=8)
    return figure


@styled
def cosine_figure(histograms: Values, shown: Sequence[Method], means: Values) -> Figure:
    """Draw Figures 2 and 3: the distribution of cosines of random pairs of last-layer tokens, one line per method.

    `histograms` holds counts in equal bins from −1 to 1. `means` holds mean cosines by seed, for the legend.
    """
    figure, axes = new_axes()
    drawn = {method: histograms[method] for method in shown if method in histograms}
    for method, counts in drawn.items():
        edges = np.linspace(-1, 1, len(counts) + 1)
        density = counts / counts.sum() / np.diff(edges)
        key = f"{label(method)}: {fixed(means[method].mean(), 3)}" if method in means else label(method)
        axes.stairs(density, edges, color=color(method), label=key, linewidth=1.3, baseline=None)
    filled = np.flatnonzero(sum(drawn.values()))
    width = 2 / len(next(iter(histograms.values())))
    axes.set_xlim(max(-1, -1 + width * (filled[0] - 2)), min(1, -1 + width * (filled[-1] + 3)))
    axes.set(xlabel="cosine of two different tokens, last layer", ylabel="density")
    axes.set_ylim(bottom=0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=1, title="average cosine")
    return figure


@styled
def methods_figure(tasks: Mapping[str, Values]) -> Figure:
    """Draw Figure 6: the performance of each method, with a small marker per task.

    Methods that all tasks have also get a large marker for the mean over tasks.
    """
    methods = list(dict.fromkeys(method for values in tasks.values() for method in values))[::-1]
    figure, axes = new_axes()
    figure.set_size_inches(WIDTH, 0.9 + 0.26 * len(methods))
    markers = dict(zip(tasks, "o^svDP*X<>hdp", strict=False))
    for height, method in enumerate(methods):
        scores = {name: float(values[method].mean()) for name, values in tasks.items() if method in values}
        for name, score in scores.items():
            axes.plot(score, height, markers.get(name, "."), color=color(method), alpha=0.5, markersize=4)
        if len(scores) == len(tasks) > 1:
            bar: Any = {"color": color(method), "markersize": 13, "markeredgewidth": 2.2}
            axes.plot(float(np.mean(list(scores.values()))), height, "|", **bar, gid=f"mean:{label(method)}")
    for name in tasks:
        axes.plot([], [], markers.get(name, "."), color=NEUTRAL, linestyle="none", label=name)
    if len(tasks) > 1:
        axes.plot([], [], "|", color=NEUTRAL, markersize=10, markeredgewidth=2.2, linestyle="none", label="mean")
    axes.set_yticks(range(len(methods)), [label(method) for method in methods])
    axes.set(xlabel="performance on validation examples", ylim=(-0.6, len(methods) - 0.4))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return figure


# --- sentences


def sentences(runs: Mapping[str, Sequence[Row]]) -> list[str]:
    """Name the best methods with ties and, for a single task, compare IsoScore with performance.

    `runs` maps a task to its result rows.
    """
    result = []
    for task, rows in runs.items():
        scores = {}  # rows over all seeds come last and win; a single seed has the error over the examples
        for row in rows:
            if row["measure"] == PERFORMANCE and row.get("standard_error") is not None:
                scores[_method(row)] = row
        ranked = sorted(scores.items(), key=lambda item: -item[1]["value"])
        texts = [(label(method), plus_minus(row["value"], row["standard_error"])) for method, row in ranked]
        ties = [text for text, (_, row) in zip(texts, ranked, strict=True) if not differ(row, ranked[0][1])]
        if texts:
            seeds = ranked[0][1]["at"].get("seeds", 1)
            result.append(words("best", metric(rows), ties, texts, seeds, task if len(runs) > 1 else ""))
        isoscore = over_seeds(rows, "isoscore", TOKENS)
        ends = sorted((values.mean(), label(method)) for method, values in isoscore.items() if on_axis(method))
        if len(runs) == 1 and len(ends) > 1:
            result.append(words("isotropy", ends[0], ends[-1], *correlation(rows)))
    return result

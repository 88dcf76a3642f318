"""The figures of fine-tuning: drawn, captioned with what they show, saved."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from clip_geometry.experiments.rudman2024.finetune.figures import (
    activation_figure,
    cosine_figure,
    lambda_figure,
    methods_figure,
    relation_figure,
)
from clip_geometry.experiments.rudman2024.finetune.report_rows import (
    PERFORMANCE,
    Way,
    chosen,
    lists,
    metric,
    over_seeds,
    visible,
    ways,
)
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import number
from clip_geometry.report.style import save_figure

Row = Mapping[str, Any]
TOKENS, SENTENCES = {"rows": "tokens"}, {"rows": "sentences"}
TOP = "all_but_the_top"
LEAST = 4  # trainings with which a correlation is told


def draw_finetune(
    rows: Sequence[Row], *, folder: str | Path, origin: str, prefix: str = "", group: str = ""
) -> list[FigureEntry]:
    """Those of one task that the rows allow, saved as PNG and SVG. origin: task, model, training and seeds in words."""
    isoscore, performance = over_seeds(rows, "isoscore", TOKENS), over_seeds(rows, PERFORMANCE)
    dimension, cosine = over_seeds(rows, "two_nn", SENTENCES), over_seeds(rows, "average_cosine", TOKENS)
    coordinates, histograms, shown = lists(rows, "coordinates"), lists(rows, "histogram"), chosen(ways(rows))
    drawn: dict[str, tuple[str, Figure, str]] = {}
    if isoscore and performance:
        figure = relation_figure({"": (isoscore, performance, metric(rows))})
        drawn["finetune_relation"] = ("Isotropy and performance", figure, _told_relation(isoscore, performance, rows))
    if dimension:
        figure = lambda_figure(dimension, "TwoNN dimension of sentences")
        drawn["finetune_dimension"] = ("Intrinsic dimension", figure, _told_dimension(dimension))
    if coordinates:
        figure = activation_figure(coordinates, shown)
        drawn["finetune_activation"] = ("Average activation", figure, _told_activation(coordinates, shown))
    if histograms:
        tokens = [way for way in shown if way.method != TOP]  # whose tokens are those of plain training
        figure = cosine_figure(histograms, tokens or shown, cosine)
        drawn["finetune_cosines"] = ("Random cosines", figure, _told_cosines(cosine))
    return _saved(drawn, folder, prefix, group, origin)


def draw_tasks(runs: Mapping[str, Sequence[Row]], *, folder: str | Path, origin: str) -> list[FigureEntry]:
    """Figures 5 and 6 of all tasks. runs: `task, model` → its rows; what all have in common is not repeated."""
    names = _short(list(runs))
    found = {
        name: (over_seeds(rows, "isoscore", TOKENS), over_seeds(rows, PERFORMANCE), metric(rows))
        for name, rows in zip(names, runs.values(), strict=True)
    }
    found = {name: each for name, each in found.items() if each[0] and each[1]}
    if not found:
        return []
    performance = {name: each[1] for name, each in found.items()}
    told = "Signs: means over seeds. The bar is the mean over all tasks, each by its own number."
    drawn = {
        "tasks_methods": (
            "Methods over all tasks",
            methods_figure(performance),
            f"{_told_methods(performance)}{told}",
        ),
        "tasks_relation": (
            "Isotropy and performance of all tasks",
            relation_figure(found),
            "Dots: trainings; signs and bars: mean and standard deviation over seeds."
            + _told_top([way for each in found.values() for way in each[0]]),
        ),
    }
    return _saved(drawn, folder, "", "all runs together", origin)


def _saved(
    drawn: Mapping[str, tuple[str, Figure, str]], folder: str | Path, prefix: str, group: str, origin: str
) -> list[FigureEntry]:
    entries = []
    for name, (title, figure, words) in drawn.items():
        png, svg = save_figure(figure, folder, prefix + name)
        entries.append(FigureEntry(prefix + name, title, f"{words} {origin}", svg, png, group))
    return entries


def _short(labels: Sequence[str]) -> list[str]:
    """Without the parts between commas that all labels have."""
    parts = [label.split(", ") for label in labels]
    common = set(parts[0]).intersection(*parts[1:]) if len(parts) > 1 else set()
    short = [", ".join(part for part in each if part not in common) for each in parts]
    return short if len(set(short)) == len(short) else list(labels)


# --- captions


def _told_relation(isoscore: Mapping[Way, Any], performance: Mapping[Way, Any], rows: Sequence[Row]) -> str:
    ends = [f"{way.words}: {number(isoscore[way].mean())}" for way in isoscore if way.regularised]
    pairs = [way for way in isoscore if way.regularised and len(performance.get(way, ())) == len(isoscore[way])]
    x, y = (np.concatenate([each[way] for way in pairs] or [np.zeros(0)]) for each in (isoscore, performance))
    told = ""
    if len(x) >= LEAST and np.ptp(x) > 0 and np.ptp(y) > 0:
        told = f" Pearson correlation {number(np.corrcoef(x, y)[0, 1])} over {len(x)} trainings with any λ of I-STAR."
    return (
        f"IsoScore of the tokens of all layers: {', '.join(ends)}.{told} Against it the {metric(rows)} on validation "
        f"examples; dots: trainings, signs and bars: mean and standard deviation over seeds.{_told_top(isoscore)}"
    )


def _told_top(found: Iterable[Way]) -> str:
    if all(way.method != TOP for way in found):
        return ""
    return " All-but-the-top stands at the IsoScore of plain training: its map comes after these tokens."


def _told_dimension(dimension: Mapping[Way, Any]) -> str:
    axis = [
        f"{number(dimension[way].mean())} at λ = {way.value:g}".replace("-", "−")
        for way in dimension
        if way.regularised
    ]
    near = " Below 1: many sentences have a near-copy." if any(v.mean() < 1 for v in dimension.values()) else ""
    return (
        f"TwoNN dimension of the validation sentences' embeddings: {', '.join(axis)}. Mean and standard deviation over "
        f"seeds; dashed: other methods.{near}"
    )


def _told_activation(means: Mapping[Way, Any], shown: Sequence[Way]) -> str:
    told, named = [], visible(means, shown)
    for way in named:
        share = float(np.abs(means[way]).max() / np.linalg.norm(means[way]))
        told.append(f"{way.words}: {share:.2f}")
    gone = [way.words for way in shown if way in means and way not in named]
    rest = f" Less than a twentieth of the largest, and not named: {', '.join(gone)}." if gone else ""
    return (
        "Mean of each coordinate (with its sign) over the validation sentences' embeddings, as the head is given them, "
        f"first seed; the largest is named. Its share of the mean's length: {', '.join(told)}.{rest}"
    )


def _told_cosines(cosine: Mapping[Way, Any]) -> str:
    told = [f"{way.words}: {number(values.mean())}" for way, values in cosine.items()]
    return (
        f"Average cosine of the tokens of the last layer, mean over seeds: {', '.join(told)}. Lines: cosines of random "
        "pairs, first seed. All-but-the-top changes what the head is given, not these tokens."
    )


def _told_methods(performance: Mapping[str, Mapping[Way, Any]]) -> str:
    every = [way for way in next(iter(performance.values())) if all(way in values for values in performance.values())]
    told = [f"{way.words}: {number(np.mean([values[way].mean() for values in performance.values()]))}" for way in every]
    return (
        f"Mean performance over {len(performance)} tasks: {', '.join(told)}. " if told and len(performance) > 1 else ""
    )

"""Figures of the stability study: IsoScore* against ζ, and bias and RMSE of each estimate against n."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from clip_geometry.display.numbers import fixed, plus_minus
from clip_geometry.display.origin import Row
from clip_geometry.display.style import INK, WIDTH
from clip_geometry.display.words import Words
from clip_geometry_experiments.kit.figures import GREEN, INDIGO, LINES, ROSE, Panel, PanelCurve, panels_figure
from clip_geometry_experiments.kit.significance import differ
from clip_geometry_experiments.report.figures import Drawing

STYLES = [  # line styles of the estimates
    {"color": color, "line": line, "style": {"marker": marker, "markersize": 3}}
    for color, marker, line in zip(
        (INDIGO, GREEN, ROSE, "#AA4499", "#999933"), "os^vD", (*LINES, (0, (1, 3))), strict=True
    )
]
LIGHTER, DARKER = np.array([0.78, 0.86, 0.94]), np.array([0.20, 0.13, 0.53])  # colors for few rows and many rows
SHOWN_SIZES = 5  # maximum number of curves that can be told apart
TRUE: dict[str, Any] = {"color": INK, "linestyle": (0, (4, 2)), "linewidth": 1.0, "zorder": 1}

words = Words(Path(__file__).with_name("words.j2"))


def numbers_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Return a table with one line per `cloud`, `n` and `label` of an estimate.

    The other columns are `zeta`, `truth`, `bias`, `standard_deviation` and `rmse`; undefined numbers are NaN.
    """
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        label = label_of(**row["at"])
        zeta = row["at"].get("zeta", np.nan)
        shared = {"cloud": row["dataset"], "n": row["n"], "label": label, "zeta": zeta, "truth": row["truth"]}
        numbers = lines.setdefault((row["dataset"], row["n"], label), shared)
        numbers[row["measure"].removeprefix("stability.")] = np.nan if row["value"] is None else row["value"]
    return pd.DataFrame(list(lines.values()))


def label_of(estimator: str, zeta: float | None = None) -> str:
    """Return the label of an estimate: plain, unbiased, or such as `IsoScore* (ζ = 0.2)`."""
    return {"isoscore": "plain", "isoscore[unbiased]": "unbiased"}.get(estimator) or f"IsoScore* (ζ = {zeta:g})"


def labels_of(zetas: Sequence[float]) -> list[str]:
    """Return the labels of the estimates in the second figure."""
    return ["plain", "unbiased", *(label_of("isoscore_star", zeta) for zeta in zetas)]


def draw_stability(rows: Sequence[Row], zetas: Sequence[float]) -> dict[str, Drawing]:
    """Draw both figures; `zetas` are the ζ of IsoScore* in the second figure."""
    numbers = numbers_of(rows)
    return {
        "stability_shrinkage": Drawing(
            "IsoScore* against its shrinkage", shrinkage_figure(numbers), words("shrinkage")
        ),
        "stability_errors": Drawing(
            "Which estimate of isotropy to use", errors_figure(numbers, zetas), words("errors")
        ),
    }


def tell(rows: Sequence[Row], n: int, zetas: Sequence[float]) -> list[str]:
    """Say how biased plain and unbiased IsoScore of n rows are, and which estimate has the smallest error."""
    by_estimate: dict[tuple[str, str], dict[str, Row]] = {}  # (estimate, measure) → cloud → row
    for row in rows:
        if row["n"] == n and row["value"] is not None:
            by_estimate.setdefault((label_of(**row["at"]), row["measure"]), {})[row["dataset"]] = row
    plain, unbiased = (by_estimate.get((label, "stability.bias"), {}) for label in ("plain", "unbiased"))
    if not plain or not unbiased:
        return []
    worst = [max(biases.values(), key=lambda row: abs(row["value"])) for biases in (plain, unbiased)]
    numbers = [(plus_minus(row["value"], row.get("standard_error")), row["dataset"], row["truth"]) for row in worst]
    unbent = [cloud for cloud, row in unbiased.items() if not differ(row, {"value": 0.0, "standard_error": 0.0})]
    best = {}
    for cloud in plain:
        errors = {label: by_estimate.get((label, "stability.rmse"), {}).get(cloud) for label in labels_of(zetas)}
        known = {label: row for label, row in errors.items() if row is not None}
        least = min(known.values(), key=lambda row: row["value"])
        best[cloud] = [label for label, row in known.items() if not differ(row, least)]
    biases = words("biases", n, worst[0]["d"], *numbers, len(unbent), len(unbiased))
    return [biases, words("least", n, best)]


def shrinkage_figure(numbers: pd.DataFrame) -> Figure:
    """Draw Figure 4 of the paper, with one panel per cloud."""
    stars = numbers.dropna(subset=["zeta"]).sort_values("zeta", kind="stable")
    sizes = _some(sorted(numbers["n"].unique()), SHOWN_SIZES)
    colors = [to_hex(LIGHTER + (DARKER - LIGHTER) * share) for share in np.linspace(0, 1, len(sizes))]
    panels = []
    for cloud, truth in _truths(numbers).items():
        curves = []
        for n, color in zip(sizes, colors, strict=True):
            curve = stars[(stars["cloud"] == cloud) & (stars["n"] == n)]
            x, mean, spread = (np.asarray(curve[key]) for key in ("zeta", "bias", "standard_deviation"))
            style = {"marker": "o", "markersize": 2.5}
            curves.append(PanelCurve(x, mean + truth, color, f"n = {n}", "-", f"star:{cloud}:{n}", style, spread))
        title = f"{cloud}, true score {fixed(truth, 3)}"
        panels.append(Panel("IsoScore*", curves, (0, None), levels={truth: TRUE}, title=title))
    size, xlabel = (WIDTH, 0.5 + 1.75 * len(panels)), "ζ (0: the rows alone, 1: $C_0$ alone)"
    return panels_figure(panels, size=size, xlabel=xlabel, legend={"ncols": 3})


def errors_figure(numbers: pd.DataFrame, zetas: Sequence[float]) -> Figure:
    """Draw two panels per cloud, bias and root mean square error of the estimates."""
    known = numbers.dropna(subset=["rmse"]).sort_values("n", kind="stable")
    panels = []
    for cloud in _truths(numbers):
        for number in ("bias", "rmse"):
            curves = []
            for label, style in zip(labels_of(zetas), STYLES, strict=False):
                curve = known[(known["cloud"] == cloud) & (known["label"] == label)]
                x, y = np.asarray(curve["n"]), np.asarray(curve[number])
                curves.append(PanelCurve(x, y, label=label, gid=f"{number}:{cloud}:{label}", **style))
            if number == "bias":
                panels.append(Panel("bias", curves, levels={0.0: TRUE}, title=cloud))
            else:
                panels.append(Panel("RMSE", curves, log=True))
    size = (WIDTH, 0.6 + 1.45 * len(panels) / 2)
    figure = panels_figure(panels, size=size, xlabel="rows n", columns=2, legend={"ncols": 2})
    for axes in figure.axes:
        axes.set_xscale("log", base=2)
        axes.xaxis.set(major_locator=FixedLocator(_some(sorted(known["n"].unique()), 3)), major_formatter="{x:g}")
        axes.xaxis.set(minor_locator=NullLocator())
    return figure


def _truths(numbers: pd.DataFrame) -> dict[str, float]:
    """Map each cloud to its true score, in the order of the table."""
    return dict(zip(numbers["cloud"], numbers["truth"], strict=True))


def _some(sizes: Sequence[int], most: int) -> list[int]:
    """Return at most `most` sizes, evenly spaced and including the first and the last."""
    places = np.linspace(0, len(sizes) - 1, min(len(sizes), most)).round().astype(int)
    return [int(sizes[place]) for place in places]

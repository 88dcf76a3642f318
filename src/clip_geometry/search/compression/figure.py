"""Figure of the loss of all combinations against their bytes."""

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from clip_geometry.display.style import COLORS, DASHED, HEIGHT, INK, WIDTH, styled

if TYPE_CHECKING:
    from clip_geometry.search.compression import Compression

MARKERS = "osD^vPX"
LEAST = 1e-3  # losses below are drawn here


@styled
def draw(compression: "Compression") -> Figure:
    """Draw one panel without and one with rescoring."""
    figure = Figure(figsize=(2 * WIDTH, 1.1 * HEIGHT), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    types = list(dict.fromkeys(compression.frame.sort_values("bytes", ascending=False).dtype))
    for axes, rescored in zip(panels, (False, True), strict=True):
        shown = compression.frame[compression.frame.rescored == rescored]
        for k, dtype in enumerate(types):
            of_type = shown[shown.dtype == dtype]
            loss = of_type.loss.clip(lower=LEAST)
            axes.plot(of_type.bytes, loss, MARKERS[k % 7], color=COLORS[k + 1], markersize=3, label=dtype)
        front = compression.frontier[compression.frontier.rescored == rescored]
        axes.plot(front.bytes, front.loss.clip(lower=LEAST), color=INK, linewidth=0.8, label="smallest loss")
        axes.axhline(max(compression.lose, LEAST), color=INK, linewidth=0.8, linestyle=DASHED, label="allowed")
        axes.set(yscale="log", xlabel="bytes per item", title="rescored" if rescored else "not rescored")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_major_formatter("{x:.1%}")
    panels[0].set_ylabel(f"lost in an index of {max(compression.sizes.values()):,}")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=7)
    return figure

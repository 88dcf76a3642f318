"""Draw docs/overview.svg, the figure at the top of the README: real CLIP embeddings before and after centering, and
what a search in one index of both finds first.

CLIP_GEOMETRY_DATA=… python scripts/site/overview.py
"""

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

import clip_geometry as cg
from clip_geometry.display.style import COLOR, INK, MARKER, MATCHING, NEUTRAL, styled
from clip_geometry_experiments.report.figures import save_figure, singular_plane

ROOT = Path(__file__).parents[2]
SOURCE = Path("embeddings", "coco500-clip-vit-b16")
REPAIRS = {"none": "as CLIP gives them", "center": "each modality centered", "posterior": "calibrated by diagnose"}
SHOWN = 150  # pairs in the planes; the numbers are of all


def numbers(folder: Path) -> dict[str, Any]:
    """The numbers of the figure: the gap before and after centering, the share of image queries that find their caption
    first in an index of both (with its standard error), and the same among captions alone."""
    gap = {
        name: cg.measure(folder, pipeline=steps, measures=["modality_gap"], blocks=0)["modality_gap"].value
        for name, steps in (("none", "normalize"), ("center", "normalize,center[each]"))
    }
    compared = cg.diagnose(folder, repairs=[name for name in REPAIRS if name != "none"]).comparison
    assert compared is not None
    recalls = {name: compared.candidates[name].numbers["r_at_1.image"] for name in REPAIRS}
    return {"gap": gap, "found": recalls, "among_captions": compared.candidates["none"].numbers["cross_r_at_1.image"]}


@styled
def draw(folder: Path) -> Figure:
    shown = numbers(folder)
    sets = {name: cg.transforms.Normalize().apply(np.load(folder / f"{name}.npy")) for name in ("image", "text")}
    figure = Figure(figsize=(9.2, 3), layout="constrained")
    *planes, bars = figure.subplots(1, 3, width_ratios=(1, 1, 1.25))
    chosen = np.random.default_rng(0).choice(len(sets["image"]), SHOWN, replace=False)
    titles = (f"Two cones, {shown['gap']['none']:.2f} apart …", "… centered: no gap is left …")
    for axes, title, centered in zip(planes, titles, (False, True), strict=True):
        rows = {name: x - x.mean(axis=0) if centered else x for name, x in sets.items()}
        plane, _ = singular_plane(*rows.values())
        points = {name: (x @ plane)[chosen].round(4) for name, x in rows.items()}
        pairs = np.stack([points["image"], points["text"]], axis=1)
        axes.add_collection(LineCollection(list(pairs), colors=NEUTRAL, linewidths=0.3, alpha=0.4, zorder=1))
        for name, label in (("image", "image"), ("text", "its caption")):
            style = {"marker": MARKER[name], "color": COLOR[name], "linewidths": 0, "alpha": 0.75, "label": label}
            axes.scatter(*points[name].T, s=9, **style)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
        axes.margins(0.08)
        axes.spines[:].set_visible(False)
        axes.grid(False)
    planes[0].legend(
        loc="lower center", ncols=2, handletextpad=0.1, markerscale=1.8, fontsize=8, bbox_to_anchor=(0.5, -0.12)
    )
    ceiling = 100 * shown["among_captions"].value
    for k, (name, label) in enumerate(REPAIRS.items()):
        value, error = (100 * number for number in shown["found"][name][:2])
        bars.barh(k, value, height=0.5, xerr=error or None, color=MATCHING if name == "posterior" else NEUTRAL)
        bars.text(0, k - 0.34, label, fontsize=8, va="bottom", color=INK)
        inside = value > 50  # the line of the ceiling is right of the bar
        style = {"ha": "right", "color": "white"} if inside else {"color": INK}
        bars.text(value + (-1 if inside else 1) * (error + 1.5), k, f"{value:.0f}%", fontsize=9, va="center", **style)
    bars.axvline(ceiling, color=INK, linewidth=1, linestyle=(0, (3, 2)))
    bars.text(ceiling + 1, -0.42, f"captions\nalone: {ceiling:.0f}%", fontsize=8, va="top", color=INK)
    bars.set_title("… yet few searches find the caption", loc="left", fontsize=9)
    bars.set(xlim=(0, 80), ylim=(2.5, -0.75), yticks=[], xticks=[0, 20, 40, 60])
    bars.set_xlabel("image queries that find their caption first, %")
    bars.grid(False)
    bars.spines["left"].set_visible(False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    folder = Path(os.environ["CLIP_GEOMETRY_DATA"], SOURCE)
    with TemporaryDirectory() as scratch:
        _, svg = save_figure(draw(folder), scratch, "overview")
        (ROOT / "docs" / "overview.svg").write_bytes(svg.read_bytes())


if __name__ == "__main__":
    main()

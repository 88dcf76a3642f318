"""The articles: their numbers, computed from the shipped records, their pages and their figures.

An article has a template in scripts/site/findings/, a function that computes its numbers, and one that draws its figure
from the same numbers.

docs/findings/records/ has rows of two runs, written by scripts/record_run.py RUN --where SELECTORS:
- configs/tyshchuk2023/initialization.yaml with the options that the rows name: {measure: average_cosine,
  model_options.zero_bias: false, at.operation: [embedding, attention residual, mlp residual, projection]}, and with
  --label zero_bias {measure: average_cosine, model_options.zero_bias: true, at.operation: projection},
  and with --label rn101 {measure: average_cosine, at.modality: image}
- configs/rudman2024/stability.yaml: {measure: stability.bias, dataset: [Gaussian, heavy-tailed],
  at.estimator: [isoscore, "isoscore[unbiased]"]}, and with --label d16 and the options that the rows name
  {measure: stability.bias, at.estimator: [isoscore, "isoscore[unbiased]"], n: [8, 16, 32, 64, 128]}
the whole table of configs/repairs.yaml (record_run.py --table), and the output of scripts/held_out_pairs.py,
scripts/class_means.py and scripts/centered_gap.py with --json. mixed_index.jsonl has numbers that
scripts/mixed_index.py computes, recorded by an experiment that it replaces.
"""

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binomtest

import clip_geometry as cg
from clip_geometry.display.numbers import fixed, plus_minus
from clip_geometry.display.style import DOTTED, IMAGE, INK, MARKER, MATCHING, NEUTRAL, SECOND, TEXT, styled
from clip_geometry.display.words import render
from clip_geometry.search.repairs import repairs
from clip_geometry.steps import transforms
from clip_geometry_experiments.published.comparing import flat, matches
from clip_geometry_experiments.published.ledger import entries
from clip_geometry_experiments.published.recorded import read_recorded
from clip_geometry_experiments.studies.repair_table.figures import draw, short
from clip_geometry_experiments.studies.repair_table.table import (
    MeasureRelation,
    RepairTable,
    from_compact,
    registered,
    summary,
)
from clip_geometry_experiments.studies.train_clip.data import LR, SIGLIP_LR

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEMPLATES = Path(__file__).with_suffix("")
WIDTH = 5.6  # inches: the text column of the site
COLORS = {"image": IMAGE, "text": TEXT}
Numbers = SimpleNamespace


class Number(NamedTuple):
    """A value with its standard error, or its standard deviation over seeds or splits."""

    value: float
    error: float | None = None

    def __str__(self) -> str:
        return plus_minus(self.value, self.error)

    @property
    def rest(self) -> "Number":
        """What is left of 1."""
        return Number(1 - self.value, self.error)

    def minus(self, other: "Number") -> "Number":
        """The difference; its error takes both as independent, and is not known where one of theirs is not."""
        difference = self.value - other.value
        if self.error is None or other.error is None:
            return Number(difference)
        return Number(difference, float(np.hypot(self.error, other.error)))

    def over(self, other: "Number") -> "Number":
        """The ratio; its error takes both as independent, and is not known where one of theirs is not."""
        ratio = self.value / other.value
        if self.error is None or other.error is None:
            return Number(ratio)
        return Number(ratio, abs(ratio) * float(np.hypot(self.error / self.value, other.error / other.value)))

    @property
    def percent(self) -> str:
        return f"{Number(100 * self.value, None if self.error is None else 100 * self.error)}%"


# --- records ---


@cache
def rows_of(folder: str) -> dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]]:
    """Name of a run → its recorded rows in a folder of docs/, each with its flat form."""
    return {run: [(row, flat(row)) for row in rows] for run, rows in read_recorded(DOCS / folder).items()}


def found(folder: str, run: str, **where: Any) -> Iterator[Mapping[str, Any]]:
    """The rows of a run that fulfill selectors, whose dots are written as two underscores."""
    selectors = {key.replace("__", "."): value for key, value in where.items()}
    return (row for row, fields in rows_of(folder)[run] if matches(fields, selectors))


def number(folder: str, run: str, **where: Any) -> Number:
    """The one row that fulfills selectors."""
    (row,) = found(folder, run, **where)
    return Number(row["value"], row.get("standard_error"))


def over(values: Sequence[float]) -> Number:
    """Mean and standard deviation."""
    return Number(fmean(values), stdev(values))


def printed(path: str) -> float:
    """A number of the first paper."""
    (value,) = [number.value for number in entries("tyshchuk2023") if number.path == path]
    assert value is not None
    return value


# --- figures ---


def panels(count: int = 1, height: float = 2.6, **options: Any) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, **options)[0])


def named(axes: Axes, names: Sequence[str]) -> None:
    """Names along y, the first on top."""
    axes.set(yticks=range(len(names)), ylim=(len(names) - 0.5, -0.5))
    axes.set_yticklabels(names)


def dots(axes: Axes, values: Sequence[Number], at: Sequence[float], **style: Any) -> None:
    style = {"fmt": "o", "markersize": 5, "elinewidth": 1} | style
    axes.errorbar([v.value for v in values], at, xerr=[v.error or 0 for v in values], **style)


def curve(axes: Axes, x: Sequence[float], values: Sequence[Number], **style: Any) -> None:
    style = {"marker": "o", "markersize": 4, "elinewidth": 1} | style
    axes.errorbar(x, [v.value for v in values], yerr=[v.error or 0 for v in values], **style)


# --- the published I1 and I2 ---

KINDS = {"definition": "", "signs": "[canonical]", "rows": "[rows]", "random": "[random]", "mean": "[mean]"}


def isotropy_numbers() -> Numbers:
    def of(measure: str, kind: str, modality: str, pipeline: str = "normalize") -> Number:
        return number("reproduction", "tyshchuk2023-isotropy_coco500", measure=f"isotropy_{measure}{KINDS[kind]}",
                      at__modality=modality, pipeline=pipeline)  # fmt: skip

    kinds = {"i1": ("definition", "signs", "rows", "random"), "i2": ("definition", "signs", "rows", "random", "mean")}
    ours = {m: {k: {s: of(m, k, s) for s in COLORS} for k in kinds[m]} for m in kinds}
    theirs = {m: {s: printed(f"table1_isotropy.CLIP.{m}_{s}") for s in COLORS} for m in kinds}
    centered = {
        m: {k: {s: of(m, k, s, "normalize,center,normalize") for s in COLORS} for k in ("definition", "rows")}
        for m in kinds
    }
    return Numbers(ours=ours, theirs=theirs, centered=centered)


@styled
def isotropy_figure(numbers: Numbers) -> Figure:
    figure, (left, right) = panels(2)
    names = {
        "definition": "eigenvectors (definition)", "signs": "the same, one sign each",
        "rows": "rows of their matrix", "random": "random bases", "mean": "length of the mean / √d",
    }  # fmt: skip
    for axes, measure in ((left, "i1"), (right, "i2")):
        shown = list(names)
        named(axes, [names[kind] for kind in shown])
        for place, (side, color) in enumerate(COLORS.items()):
            places = [k + 0.12 * (2 * place - 1) for k, kind in enumerate(shown) if kind in numbers.ours[measure]]
            values = [numbers.ours[measure][kind][side] for kind in shown if kind in numbers.ours[measure]]
            dots(axes, values, places, fmt=MARKER[side], color=color, label=f"{side}s, ours")
            style = {"color": color, "linestyle": DOTTED, "zorder": 1}
            axes.axvline(numbers.theirs[measure][side], label=f"{side}s, published", **style)
        axes.set_xlabel({"i1": "I1 (1 is isotropic)", "i2": "I2 (0 is isotropic)"}[measure])
    left.set_xlim(0, 1)
    right.set_xlim(0, 0.06)
    right.set_yticklabels([])
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return figure


# --- Procrustes and new classes ---


def procrustes_numbers() -> Numbers:
    def of(half: str, row: str, run: str = "tyshchuk2023-cifar10") -> Number:
        # of all draws of the known classes
        return number("reproduction", run, measure=f"class_generalization.{half}", at__row=row, at__draw=None)

    maps = {"raw": "CLIP", "lapack": "Procrustes, LAPACK", "identity": "Procrustes", "lstsq": "LSTSQ"}
    (none_right,) = found("reproduction", "tyshchuk2023-cifar10", measure="class_generalization.new",
                          at__row=maps["lapack"], at__draw=None)  # fmt: skip
    limit = binomtest(0, none_right["n"]).proportion_ci(0.90, "exact").high  # two-sided 90%: 95% to one side
    return Numbers(
        limit=f"95% limit {fixed(100 * limit, 1)}%",
        ours={key: {half: of(half, row) for half in ("known", "new")} for key, row in maps.items()},
        scenes={
            row: of("new", name, "tyshchuk2023-trained")
            for row, name in (("raw", "CLIP"), ("lapack", "Procrustes, LAPACK"))
        },
        theirs={half: printed(f"table4_generalization.Procrustes.{half}") for half in ("known", "new")},
        theirs_raw=printed("table4_generalization.CLIP.new"),
    )


@styled
def procrustes_figure(numbers: Numbers) -> Figure:
    figure, (axes,) = panels(height=2.1)
    names = {"raw": "no map", "lapack": "Procrustes, completed by LAPACK",
             "identity": "Procrustes, nearest to the identity", "lstsq": "least squares"}  # fmt: skip
    named(axes, list(names.values()))
    for half, color, marker in (("known", NEUTRAL, "s"), ("new", TEXT, "o")):
        shift = -0.12 if half == "known" else 0.12
        values = [Number(100 * v.value, 100 * (v.error or 0)) for v in (numbers.ours[key][half] for key in names)]
        dots(axes, values, [k + shift for k in range(len(names))], fmt=marker, color=color, label=f"{half} classes")
    axes.axvline(10, color=INK, linestyle=DOTTED, label="chance")
    axes.set(xlim=(-3, 100), xlabel="accuracy on CIFAR-10, percent")
    figure.legend(loc="outside upper left", ncols=3)
    return figure


# --- centering and neighbors ---

REPAIRS = {"none": "none", "center": "centering", "whiten": "whitening", "procrustes": "Procrustes",
           "zscore": "z-score", "posterior": "posterior"}  # fmt: skip


def centering_numbers() -> Numbers:
    def of(repair: str, name: str, modality: str, dataset: str) -> Number:
        return number("findings/records", "mixed_index", measure=f"mixed_index.{name}", dataset=dataset,
                      at__repair=repair, at__modality=modality)  # fmt: skip

    names = ("r_at_1", "own_share", "cross_r_at_1", "neighbors")
    sets = {"coco": "coco500-clip-vit-b16", "scenes": "scenes"}
    table = {row["repair"]: row["values"] for row in found("findings/records", "repairs", set="COCO")}
    gap = Numbers(before=Number(*table["none"]["gap"][:2]), after=Number(*table["center[each]"]["gap"][:2]))
    halves, all_pairs = found("findings/records", "centered_gap")
    whole = Numbers(gap=fixed(all_pairs["gap"], 3), null=Number(all_pairs["null"], all_pairs["null_deviation"]))
    queries = next(row["n"] for row in found("findings/records", "mixed_index"))
    no_first = f"{100 * (1 - 0.05 ** (1 / queries)):.1f}%"
    chance = Number(halves["null"], halves["null_deviation"])
    return Numbers(gap=gap, chance=chance, all_pairs=whole, no_first=no_first, **{
        key: {side: {repair: {name: of(repair, name, side, data) for name in names} for repair in REPAIRS}
              for side in COLORS}
        for key, data in sets.items()
    })  # fmt: skip


@styled
def centering_figure(numbers: Numbers) -> Figure:
    figure, (axes,) = panels(height=2.9)
    for side, color in COLORS.items():
        by_repair = {key: numbers.coco[side][key] for key in REPAIRS}
        shares = [scores["own_share"] for scores in by_repair.values()]
        recalls = [scores["r_at_1"] for scores in by_repair.values()]
        axes.errorbar(
            [100 * share.value for share in shares], [100 * recall.value for recall in recalls],
            xerr=[100 * (share.error or 0) for share in shares], yerr=[100 * (recall.error or 0) for recall in recalls],
            fmt=MARKER[side], color=color, markersize=5, elinewidth=1, label=f"{side} queries",
        )  # fmt: skip
    shifts = {"none": (0, 6), "center": (-4, 6), "whiten": (0, -14), "procrustes": (0, 9), "zscore": (0, -14),
              "posterior": (9, -3)}  # fmt: skip
    for key, name in REPAIRS.items():
        scores = numbers.coco["image"][key]
        place = 100 * scores["own_share"].value, 100 * scores["r_at_1"].value
        align = {"center": "right", "posterior": "left"}.get(key, "center")
        axes.annotate(name, place, shifts[key], textcoords="offset points", ha=align, fontsize=7.5, color=INK)
    ceiling = 100 * numbers.coco["image"]["none"]["cross_r_at_1"].value
    axes.axhline(ceiling, color=IMAGE, linestyle=DOTTED, label="image queries among captions only")
    axes.axvline(50, color=NEUTRAL, linestyle=DOTTED)
    axes.set(xlim=(30, 103), yticks=range(0, 80, 10), ylim=(-11, 72), ylabel="partner found first, percent")
    axes.set_xlabel("own modality in the top ten, percent (50: an even mix)")
    figure.legend(loc="outside upper left", ncols=3)
    return figure


# --- few pairs ---

PROCRUSTES, CENTER = "normalize,procrustes[text-to-image]", "normalize,center[each]"
LAPACK = "normalize,procrustes(completion=lapack)[text-to-image]"  # what scipy.linalg.orthogonal_procrustes gives
RECALL, SHARE = "R@1 of image queries, index of texts", "images among the ten rows nearest to an image"
MIXED = "R@1 of image queries, mixed index"


def few_pairs_numbers() -> Numbers:
    def of(pipeline: str, name: str, when: str = "after", data: str = "coco500-clip-vit-b16") -> dict[int, Number]:
        rows = found("findings/records", "held_out_pairs", rows=data, number=name)
        of_pipeline = [row for row in rows if row["pipeline"] == pipeline]  # a text here, not a list of steps
        return {row["fit"]: Number(row[when]["mean"], row[when]["deviation"]) for row in of_pipeline}

    def mean_of(fit: int) -> float:
        return fitted[fit].value

    raw, centered, fitted = of(CENTER, RECALL, "before"), of(CENTER, RECALL), of(PROCRUSTES, RECALL)
    falls = [100 * (raw[fit].value - centered[fit].value) for fit in raw]
    return Numbers(
        fits=sorted(fitted), best=max(fitted, key=mean_of), worst=min(fitted, key=mean_of),
        lower=(min(falls), max(falls)),
        raw=of(PROCRUSTES, RECALL, "before"),
        mixed=of(PROCRUSTES, MIXED), mixed_before=next(iter(of(PROCRUSTES, MIXED, "before").values())),
        procrustes=fitted, procrustes_share=of(PROCRUSTES, SHARE),
        lapack=of(LAPACK, RECALL), lapack_share=of(LAPACK, SHARE),
        center=of(CENTER, RECALL), center_share=of(CENTER, SHARE),
        splits=next(found("findings/records", "held_out_pairs"))["splits"],
        scenes=of(PROCRUSTES, RECALL, data="scenes"), scenes_raw=of(PROCRUSTES, RECALL, "before", "scenes"),
    )  # fmt: skip


@styled
def few_pairs_figure(numbers: Numbers) -> Figure:
    figure, both = panels(2, height=2.4)
    fits = numbers.fits
    curves = {
        "no map": (None, INK, "s"),
        "centering": ("center", MATCHING, "^"),
        "Procrustes, nearest to the identity": ("procrustes", TEXT, "o"),
        "Procrustes, LAPACK": ("lapack", SECOND, "D"),
    }
    for axes, share in zip(both, (False, True), strict=True):
        for name, (key, color, marker) in curves.items():
            if not key:
                values = [Number(1.0) if share else numbers.raw[fit] for fit in fits]
            else:
                values = [getattr(numbers, key + "_share" if share else key)[fit] for fit in fits]
            style = {"color": color, "marker": marker, "linestyle": "-" if key else DOTTED}
            curve(axes, fits, [Number(100 * v.value, 100 * (v.error or 0)) for v in values], label=name, **style)
        axes.set(xscale="log", xticks=fits, ylim=(0, 105), xlabel="pairs that the map was fitted on")
        axes.set_xticklabels(fits)
        axes.minorticks_off()
    both[0].set_ylabel("R@1 among captions, percent")
    both[1].set_ylabel("images in the top ten, percent")
    figure.legend(*both[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


# --- the gap and the temperature ---

ARMS = {"clip": "CLIP's loss", "fixed_temperature": "CLIP's loss, temperature fixed", "istar": "CLIP's loss + I-STAR",
        "cosreg": "CLIP's loss + CosReg", "siglip": "SigLIP"}  # fmt: skip


def temperature_numbers() -> Numbers:
    def of(arm: str, measure: str) -> list[float]:
        return [row["value"] for row in found("training", "train_scenes_arms", measure=measure, at__arm=arm,
                                              at__modality="both")]  # fmt: skip

    return Numbers(
        gaps={arm: over(of(arm, "modality_gap")) for arm in (*ARMS, "classes")},
        temperatures={arm: over(of(arm, "train_clip.temperature")) for arm in ARMS},
        points={
            arm: list(zip(of(arm, "train_clip.temperature"), of(arm, "modality_gap"), strict=True)) for arm in ARMS
        },
        first=over([row["trajectory"][0] for row in found("training", "train_scenes_arms", measure="modality_gap",
                                                          at__arm="clip")]),
        accuracies={
            arm: {classes: over([row["value"] for row in found("training", "train_scenes_arms", at__arm=arm,
                                                               measure="zero_shot.top_1", at__classes=classes,
                                                               at__pictures="tested")])
                  for classes in ("seen", "held out")}
            for arm in ("clip", "fixed_temperature", "siglip")
        },
        rates=Numbers(siglip=SIGLIP_LR, others=LR),
        names=ARMS,
    )  # fmt: skip


@styled
def temperature_figure(numbers: Numbers) -> Figure:
    figure, (axes,) = panels(height=2.6)
    styles = {
        "clip": (IMAGE, "o"), "fixed_temperature": (IMAGE, "s"), "istar": (SECOND, "^"), "cosreg": (MATCHING, "D"),
        "siglip": (TEXT, "v"),
    }  # fmt: skip
    for arm, name in ARMS.items():
        color, marker = styles[arm]
        x, y = zip(*numbers.points[arm], strict=True)
        axes.plot(
            x, y, marker, color=color, markersize=5.5, label=name, markerfacecolor="none" if marker == "s" else color
        )
    compared = ("clip", "fixed_temperature")
    temperatures = [numbers.temperatures[arm].value for arm in compared]
    axes.plot(
        temperatures,
        [numbers.gaps[arm].value for arm in compared],
        color=IMAGE,
        linestyle=DOTTED,
        linewidth=1,
        zorder=1,
    )
    axes.set(xscale="log", ylim=(0, 0.72), xlim=(0.018, 0.085), xlabel="temperature at the end", ylabel="modality gap")
    axes.set_xticks([0.02, 0.03, 0.05, 0.07], ["0.02", "0.03", "0.05", "0.07"])
    axes.minorticks_off()
    figure.legend(loc="outside upper left", ncols=3)
    return figure


# --- IsoScore of few rows ---

CLOUDS = ("Gaussian", "heavy-tailed")


def isoscore_numbers() -> Numbers:
    d = 128
    spectrum = np.arange(1, d + 1) ** -0.5  # of the heavy-tailed cloud, see configs/rudman2024/stability.yaml
    ratio = spectrum.sum() ** 2 / (spectrum**2).sum()
    truth = {"Gaussian": 1.0, "heavy-tailed": float((ratio - 1) / (d - 1))}

    def bias(cloud: str, estimator: str, d: int = d) -> dict[int, Number]:
        rows = found("findings/records", "rudman2024-stability", dataset=cloud, at__estimator=estimator, d=d)
        return {row["n"]: Number(row["value"], row["standard_error"]) for row in rows}

    def of(cloud: str, estimator: str) -> dict[int, Number]:
        return {n: Number(truth[cloud] + off.value, off.error) for n, off in bias(cloud, estimator).items()}

    star = number("reproduction", "rudman2024-stability", at__zeta=0.2)
    return Numbers(
        truth=truth,
        plain={cloud: of(cloud, "isoscore") for cloud in CLOUDS},
        unbiased={cloud: of(cloud, "isoscore[unbiased]") for cloud in CLOUDS},
        star=Number(1 + star.value, star.error),
        left={d: bias("Gaussian", "isoscore[unbiased]", d) for d in (16, 128)},
        left_heavy=bias("heavy-tailed", "isoscore[unbiased]"),
        left_steep=bias("Gaussian, steep spectrum", "isoscore[unbiased]", 16),
        null={n: cg.geometry.null_value("isoscore", n, 512) for n in (300, 500, 2000)},
        unbiased_null=cg.geometry.null_value("isoscore[unbiased]", 300, 512),
    )


@styled
def isoscore_figure(numbers: Numbers) -> Figure:
    figure, (axes,) = panels(height=2.6)
    for cloud, color, marker in zip(CLOUDS, (IMAGE, TEXT), ("o", "^"), strict=True):
        for key, line in (("unbiased", "-"), ("plain", (0, (4, 1.5)))):
            values = {n: v for n, v in getattr(numbers, key)[cloud].items() if n >= 16}
            curve(axes, list(values), list(values.values()), color=color, marker=marker, linestyle=line,
                  label=f"{cloud}, {key}", markerfacecolor=color if key == "unbiased" else "white")  # fmt: skip
        axes.axhline(numbers.truth[cloud], color=color, linestyle=DOTTED, linewidth=1, zorder=1)
    axes.axvline(128, color=NEUTRAL, linewidth=0.8, zorder=0)
    axes.annotate("n = d", (128, 0.03), (3, 0), textcoords="offset points", fontsize=7.5, color=NEUTRAL)
    axes.set(xscale="log", ylim=(0, 1.1), xlabel="rows n, in 128 dimensions", ylabel="IsoScore (dotted: true)")
    axes.set_xticks([16, 32, 64, 128, 256, 512, 1024, 2048], ["16", "32", "64", "128", "256", "512", "1,024", "2,048"])
    axes.minorticks_off()
    figure.legend(loc="outside upper left", ncols=2)
    return figure


# --- the cone before training ---


def cone_numbers() -> Numbers:
    run = "tyshchuk2023-initialization"

    def by_seed(**where: Any) -> dict[int, float]:
        return {row["model_options"]["seed"]: row["value"] for row in found("findings/records", run, **where)}

    def seeds(**where: Any) -> Number:
        return over(list(by_seed(**where).values()))

    layers = range(1, 13)
    stream = {
        side: [seeds(at__modality=side, at__operation="embedding")]
        + [seeds(at__modality=side, at__operation="mlp residual", at__layer=layer) for layer in layers]
        for side in COLORS
    }
    cosines = {
        bias: {side: by_seed(at__modality=side, at__operation="projection", model_options__zero_bias=bias == "zero")
               for side in COLORS}
        for bias in ("initial", "zero")
    }  # fmt: skip
    moved = {side: max(abs(cosines["zero"][side][seed] - value) for seed, value in cosines["initial"][side].items())
             for side in COLORS}  # fmt: skip
    trained = {
        side: [row["trajectory"] for row in found("training", "train_scenes_arms", measure="average_cosine",
                                                  at__arm="clip", at__modality=side)]
        for side in COLORS
    }  # fmt: skip
    resnet = [row["value"] for row in found("findings/records", run, model="open_clip:RN101/fresh")]
    return Numbers(
        stream=stream, moved=moved, resnet=over(resnet),
        ends={bias: {side: over(list(values.values())) for side, values in of.items()} for bias, of in cosines.items()},
        before={side: over([course[0] for course in courses]) for side, courses in trained.items()},
        after={side: over([course[-1] for course in courses]) for side, courses in trained.items()},
    )  # fmt: skip


@styled
def cone_figure(numbers: Numbers) -> Figure:
    figure, (axes,) = panels(height=2.6)
    for side, color in COLORS.items():
        curve(axes, range(13), numbers.stream[side], color=color, marker=MARKER[side], label=f"{side} tower")
        for bias, fill in (("initial", color), ("zero", "white")):
            label = f"{side} embeddings, {'biases zero' if bias == 'zero' else 'as initialized'}"
            x = 13.6 + (0.5 if bias == "zero" else 0) + (0.2 if side == "text" else 0)
            curve(axes, [x], [numbers.ends[bias][side]], color=color, marker="s" if bias == "initial" else "D",
                  markerfacecolor=fill, linestyle="none", label=label)  # fmt: skip
    axes.set(ylim=(0, 1.05), xlabel="block of an untrained ViT-B/32 (0: input of the first)", ylabel="average cosine")
    axes.set_xticks([0, 2, 4, 6, 8, 10, 12, 14], ["0", "2", "4", "6", "8", "10", "12", "out"])
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2)
    return figure


# --- labels at random ---

TASKS = {"cola": "CoLA", "mrpc": "MRPC", "rte": "RTE", "wnli": "WNLI"}


def shuffled_numbers() -> Numbers:
    def rows(measure: str) -> dict[str, Mapping[str, Any]]:
        return {task: next(found("reproduction", "mickus2024-glue", measure=f"classify.{measure}", dataset=task))
                for task in TASKS}  # fmt: skip

    def mean(values: Sequence[float]) -> Number:
        return Number(fmean(values), stdev(values) / len(values) ** 0.5)

    pearson, spearman = rows("pearson"), rows("spearman")
    paper = {each.path: each.value for each in entries("mickus2024")}
    nulls = {task: mean(row["null_values"]) for task, row in pearson.items() if "null_values" in row}
    each = {task: mean(pearson[task]["seed_values"]) for task in nulls}
    pooled = {task: row["null_pooled"] for task, row in pearson.items() if "null_pooled" in row}
    apart = {task: each[task].minus(null) for task, null in nulls.items()}
    differences = [value.value for value in apart.values()]
    differences += [pearson[task]["value"] - null for task, null in pooled.items()]
    unshown = {"sst2": number("reproduction", "mickus2024-glue", measure="classify.pearson", dataset="sst2"),
               "snli": number("reproduction", "mickus2024-snli", measure="classify.pearson")}  # fmt: skip
    return Numbers(
        own={task: Number(row["value"]) for task, row in pearson.items()},  # pooled over seeds: no error
        theirs={task: paper[f"table3_glue_correlations.minilm.{task}.r"] for task in TASKS},
        names=TASKS, nulls=nulls, each=each,
        each_ranks={task: mean(spearman[task]["seed_values"]) for task in nulls},
        null_ranks={task: mean(spearman[task]["null_values"]) for task in nulls},
        pooled=pooled, apart=apart, within=math.ceil(100 * max(map(abs, differences))) / 100,
        unshown={name: value.value for name, value in unshown.items()},
    )  # fmt: skip


@styled
def shuffled_figure(numbers: Numbers) -> Figure:
    figure, (axes,) = panels(height=2.0)
    named(axes, list(TASKS.values()))
    styles = {"theirs": ("published", INK, "|", 10), "own": ("ours, the task's labels", IMAGE, "o", 5),
              "nulls": ("randomly permuted labels, mean over seeds", TEXT, "^", 5),
              "pooled": ("the same, seeds pooled", SECOND, "v", 5)}  # fmt: skip
    for key, (name, color, marker, size) in styles.items():
        shift = {"theirs": -0.16, "own": 0.0}.get(key, 0.16)
        values = {
            k + shift: getattr(numbers, key)[task] for k, task in enumerate(TASKS) if task in getattr(numbers, key)
        }
        points = [value.value if isinstance(value, Number) else value for value in values.values()]
        axes.plot(points, list(values), marker, color=color, markersize=size, label=name)
    axes.set(
        xlim=(-1, -0.8),
        xticks=(-1, -0.95, -0.9, -0.85, -0.8),
        xlabel="Pearson r of silhouette and IsoScore over the states of a training",
    )
    figure.legend(loc="outside upper left", ncols=2)
    return figure


# --- the convention of the intrinsic dimension ---


def dimension_numbers() -> Numbers:
    def of(run: str, measure: str, **where: Any) -> Number:
        return number("reproduction", run, measure=measure, **where)

    def both(run: str, **where: Any) -> dict[str, Number]:
        return {"published": of(run, "lid[cai2021-cosine]", **where), "standard": of(run, "lid[cosine]", **where)}

    known = known_dimensions()
    (table,) = (each.text for each in entries("cai2021") if each.path == "table3_lid_cosine.GNEWS.lid")
    return Numbers(
        table=table,
        static=both("cai2021-static"),
        words=both("cai2021-contextual", data_options__window=None),  # the whole words of sentences
        windows=both("cai2021-contextual", data_options__window=512),
        known=known,
        low=[k for k, each in known.items() if each["standard"].value + 2 * (each["standard"].error or 0) < k],
    )  # fmt: skip


def known_dimensions(n: int = 1000, seeds: int = 5) -> dict[int, dict[str, Number]]:
    """Both conventions on Gaussian rows of k dimensions, turned into 64: dimension → convention → estimate."""
    result: dict[int, dict[str, Number]] = {}
    for k in (2, 4, 8, 16):
        estimates: dict[str, list[float]] = {"published": [], "standard": []}
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            rows = rng.normal(size=(n, k)) @ np.linalg.qr(rng.normal(size=(64, k)))[0].T
            for name, measure in (("published", "lid[cai2021]"), ("standard", "lid")):
                estimates[name].append(float(cg.geometry.measures[measure](rows)))
        result[k] = {name: over(values) for name, values in estimates.items()}
    return result


@styled
def dimension_figure(numbers: Numbers) -> Figure:
    figure, (left, right) = panels(2, height=2.4)
    styles = {"standard": (IMAGE, "o"), "published": (TEXT, "^")}
    for name, (color, marker) in styles.items():
        dims = list(numbers.known)
        curve(
            left,
            dims,
            [numbers.known[k][name] for k in dims],
            color=color,
            marker=marker,
            label={"standard": "standard", "published": "the authors' code"}[name],
        )
        shown = [numbers.static[name], numbers.words[name], numbers.windows[name]]
        dots(right, shown, range(3), fmt=marker, color=color)
    left.plot([2, 16], [2, 16], color=NEUTRAL, linestyle=DOTTED, label="true")
    left.set(xlabel="true dimension of a Gaussian", ylabel="estimate", xlim=(0, 17), ylim=(0, 17),
             yticks=(0, 5, 10, 15))  # fmt: skip
    named(right, ["word2vec,\n1,000 words", "MiniLM, words\nin context", "MiniLM, sub-words\nin windows"])
    right.set(xlim=(0, 23), xlabel="estimate")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


# --- least squares from prompts ---

FITTED = {
    "zero-shot": "no map (zero-shot)",
    "least squares from the prompts": "least squares, the prompts",
    "least squares from shuffled prompts": "least squares, shuffled prompts",
    "least squares from noise": "least squares, noise",
    "nearest class mean": "nearest class mean",
}


def least_squares_numbers() -> Numbers:
    numbers = {row["number"]: Number(row["mean"], row["deviation"]) for row in found("findings/records", "class_means")}
    table = "table3_zero_shot_cifar100"
    return Numbers(found=numbers, theirs=printed(f"{table}.LSTSQ on CIFAR train"), theirs_raw=printed(f"{table}.CLIP"))


@styled
def least_squares_figure(numbers: Numbers) -> Figure:
    figure, (axes,) = panels(height=2.0)
    named(axes, list(FITTED.values()))
    values = [Number(100 * each.value, 100 * (each.error or 0)) for each in (numbers.found[key] for key in FITTED)]
    for k, value in enumerate(values):
        color = NEUTRAL if k == 0 else TEXT if k < 4 else IMAGE
        dots(axes, [value], [k], color=color, fmt="o" if k else "s")
    axes.axvline(values[-1].value, color=IMAGE, linestyle=DOTTED, zorder=1)
    axes.set(xlim=(85, 93), xlabel="accuracy on CIFAR-10, percent")
    return figure


# --- the repair table ---

# names of the maps that were added after the registered rule (d0e1b055), 33 minutes later
ADDED = ("ridge", "realign", "aniso_align", "combat", "harmony", "mutual_neighbors", "gaussian_transport", "sinkhorn",
         "gromov_wasserstein", "conceptor")  # fmt: skip


def as_listed(table: RepairTable) -> RepairTable:
    """The table without the maps that were added after the registered rule."""
    listed = [not set(re.findall(r"[a-z_]+", name)) & set(ADDED) for name in table.cells["repair"]]
    return replace(table, cells=table.cells[listed])


def relation(among: list[MeasureRelation], measure: str, target: str) -> MeasureRelation | None:
    return next((each for each in among if (each.measure, each.target) == (measure, target)), None)


def repairs_numbers() -> Numbers:
    table = from_compact([row for row, _ in rows_of("findings/records")["repairs"]])
    results = summary(table)

    def change(of: str, repair: str, measure: str) -> Number:
        cells = table.over_sets(repair, measure).set_index("set")
        return Number(cells.loc[of, "change"], cells.loc[of, "change_error"])

    return Numbers(
        table=table, found=results, relation=relation, as_listed=registered(as_listed(table)),
        free=[short(name) for name in results.free],
        costs={name: change("CIFAR-10, object names", name, "ndcg") for name in ("zscore", "quantile")},
        # maps of the recorded table that the package no longer has
        removed=[f"`{name}`" for name in dict.fromkeys(re.split(r"[(\[]", repair)[0] for repair in table.repairs)
                 if name not in repairs and name not in transforms],
        rows=[end(rows for rows, _ in table.sizes.values()) for end in (min, max)],
    )  # fmt: skip


def repairs_figure(numbers: Numbers) -> Figure:
    return draw(numbers.table)


# --- articles ---


class Article(NamedTuple):
    numbers: Callable[[], Numbers]
    draw: Callable[[Numbers], Figure]


ARTICLES = {
    "published-isotropy": Article(isotropy_numbers, isotropy_figure),
    "centering-and-neighbors": Article(centering_numbers, centering_figure),
    "few-pairs": Article(few_pairs_numbers, few_pairs_figure),
    "cone-before-training": Article(cone_numbers, cone_figure),
    "gap-and-temperature": Article(temperature_numbers, temperature_figure),
    "isoscore-of-few-rows": Article(isoscore_numbers, isoscore_figure),
    "procrustes-and-new-classes": Article(procrustes_numbers, procrustes_figure),
    "least-squares-and-prompts": Article(least_squares_numbers, least_squares_figure),
    "clusters-of-random-labels": Article(shuffled_numbers, shuffled_figure),
    "intrinsic-dimension": Article(dimension_numbers, dimension_figure),
    "repair-table": Article(repairs_numbers, repairs_figure),
}


@cache
def numbers_of(name: str) -> Numbers:
    return ARTICLES[name].numbers()


def pages() -> dict[str, str]:
    """Name of a page → its Markdown: the articles, and the index with the claim of each."""
    rendered = {}
    listed = []
    for name in ARTICLES:
        page = render(TEMPLATES / f"{name}.md.j2", n=numbers_of(name), minus=lambda x: str(x).replace("-", "−"))
        title, claim = page.strip().split("\n\n")[:2]
        rendered[f"{name}.md"] = wrapped(page)
        listed.append({"name": name, "title": title.removeprefix("# "), "claim": claim})
    return rendered | {"index.md": wrapped(render(TEMPLATES / "index.md.j2", articles=listed))}


def wrapped(page: str) -> str:
    """Paragraphs and list items filled to 120 columns, without breaks in a number; other parts stay as they are."""
    parts = []
    for part in page.strip().split("\n\n"):
        text = part.strip()
        if not text.startswith(("#", "!", "|")):
            indent = "  " if text.startswith("- ") else ""
            text = re.sub(r"\s+", " ", text).replace(" ± ", "\u00a0±\u00a0")
            text = textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        parts.append(text)
    return "\n\n".join(parts) + "\n"


def figures() -> Iterator[tuple[str, Figure]]:
    """The name and the figure of every article."""
    for name, article in ARTICLES.items():
        yield name, article.draw(numbers_of(name))

"""Figures of the training curves that monitors have logged."""

import csv
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil, isnan
from pathlib import Path
from typing import Any, TypeAlias

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from clip_geometry.catalog import descriptions
from clip_geometry.display.explained import explain
from clip_geometry.display.style import COLOR, COLORS, INK, LINE, WIDTH, styled
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, instance, shown, unknown
from clip_geometry.training import PREFIX

STEPS = (f"{PREFIX}step", "step", "global_step", "_step")  # logger names for the step; the first match counts
COLUMNS = 3

Source: TypeAlias = str | Path | Mapping[int, Mapping[str, float]] | Iterable[Mapping[str, Any]]
Curve: TypeAlias = dict[int, float]  # step → value


def plot_training(source: Source, *, measures: Sequence[str] | None = None) -> Figure:
    """Plot the numbers that a monitor, callback or evaluator of this package logged during training.

    There is one panel per measure, with one line per modality. Steps at which the collapse alarm was on are shaded, and
    a vertical line marks the step at which it switched on.

    Args:
        source: Where the numbers were logged. A folder or event file of TensorBoard; the .csv file of Lightning's
            `CSVLogger`; trainer_state.json of transformers; or a .jsonl file with one line per step (if steps occur
            twice because a training was resumed, the last lines count). In memory: transformers'
            `trainer.state.log_history`; the rows of a Weights & Biases run (`run.scan_history()`); or a mapping of step
            → numbers.
        measures: List of names of the measures to draw; None for all that were logged.

    Returns:
        The matplotlib figure.

    Raises:
        InputError: The source has no numbers of a monitor or cannot be read, a measure was not logged, or the source
            consists of TensorBoard files and tensorboard is not installed.

    Example:
        >>> import torch
        >>> from clip_geometry.training import GeometryMonitor, plot_training
        >>> images, texts = torch.randn(2, 100, 8, generator=torch.Generator().manual_seed(0))
        >>> logged = {}
        >>> monitor = GeometryMonitor(lambda scalars, step: logged.update({step: scalars}), every=1, batches=1)
        >>> for step in range(1, 4):
        ...     monitor.step(step, image=images + step, text=texts)
        >>> figure = plot_training(logged, measures=["modality_gap", "effective_rank"])
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['Modality gap', 'Effective rank']
    """
    if isinstance(measures, str):
        raise InputError(f"measures = {shown(measures)}; expected a list of names")
    curves: dict[str, dict[str, Curve]] = {}  # measure → modality → curve
    for row in _rows(source):
        if not isinstance(row, Mapping):
            raise InputError(f"the source has {shown(row)}; expected a mapping of name → number for each step")
        numbers = {str(key): _number(value) for key, value in row.items()}
        step = next((numbers[key] for key in STEPS if numbers.get(key) is not None), None)
        for key, value in numbers.items():
            _, prefix, name = key.rpartition(PREFIX)  # train/geometry/modality_gap, or a column named modality_gap
            measure, _, modality = name.partition("/")
            is_measure = measure in descriptions or (prefix and measure not in ("step", "invalid_rows"))
            if is_measure and step is not None and value is not None:
                curves.setdefault(measure, {}).setdefault(modality, {})[int(step)] = value
    alarm = curves.pop("collapse", {}).get("", {})
    if not curves:
        raise InputError(
            "the source has no numbers of a monitor; expected names such as geometry/modality_gap in rows with a step"
        )
    for name in measures or ():
        if name not in curves:
            raise unknown("measure", name, curves, "the log")
    return _draw({name: curves[name] for name in measures or curves}, alarm)


def _number(value: Any) -> float | None:
    """Return the value as a number; None for an empty cell and for NaN, where nothing was logged at the step."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if isnan(number) else number


def _rows(source: Source) -> Iterable[Any]:
    """Return a mapping of name → number for each step."""
    if isinstance(source, str | Path):
        return _read(expanded(source))
    if isinstance(source, Mapping):
        expected = "a mapping of name → number for each step"
        return [
            {**instance(numbers, Mapping, f"source[{shown(step)}]", expected), STEPS[0]: step}
            for step, numbers in source.items()
        ]
    return instance(source, Iterable, "source", "a path, rows, or a mapping of step → numbers")


def _read(path: Path) -> Iterable[Any]:
    """Return the logged rows of a training run, in the format that the file name says."""
    if path.is_dir() or "tfevents" in path.name:
        return _events(path)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".csv":
            return list(csv.DictReader(text.splitlines()))
        if path.suffix == ".json":
            return json.loads(text)["log_history"]
        if path.suffix == ".jsonl":
            return _last_run(_json_lines(text.splitlines()))
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise InputError(f"{shown(path)} cannot be read as the log of a training: {error}") from None
    raise InputError(f"{shown(path)} has an unknown ending; expected TensorBoard's files, .csv, .json or .jsonl")


def _json_lines(lines: Sequence[str]) -> Iterator[Any]:
    """Yield the rows of the lines, except a last line that a crash has cut off."""
    for number, line in enumerate(lines, start=1):
        try:
            yield json.loads(line)
        except ValueError:
            if number < len(lines) or number == 1:
                raise ValueError(f"line {number} is not JSON") from None
            warnings.warn("the last line of the log is cut off and left out", stacklevel=2)


def _last_run(rows: Iterable[Any]) -> list[Any]:
    """Return the rows without those that a rerun of the training replaced: all earlier rows from its first step on."""
    rows_by_step: list[tuple[float, Any]] = []
    for row in rows:
        values = [row[key] for key in STEPS if key in row] if isinstance(row, Mapping) else []
        previous = rows_by_step[-1][0] if rows_by_step else 0.0
        step = _number(values[0]) if values else None
        if step is None:
            step = previous
        if step < previous:
            sentence = f"the training was run again from step {step:g}: earlier lines for these steps are left out"
            warnings.warn(sentence, stacklevel=2)
            rows_by_step = [(number, earlier) for number, earlier in rows_by_step if number < step]
        rows_by_step.append((step, row))
    return [row for _, row in rows_by_step]


def _events(path: Path) -> list[dict[str, float]]:
    """Return the scalars in TensorBoard's event files, one mapping per event."""
    folders = {file.parent for file in path.rglob("*tfevents*")} if path.is_dir() else {path}
    if len(folders) != 1:
        raise InputError(f"{shown(path)} has event files of {len(folders)} runs; give the folder of one run")
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ModuleNotFoundError:
        raise InputError("event files need tensorboard, which is not installed: pip install tensorboard") from None
    events = EventAccumulator(str(folders.pop()), size_guidance={"scalars": 0})  # 0 means all of them
    events.Reload()
    tags = events.Tags()["scalars"]
    return [{tag: event.value, STEPS[0]: event.step} for tag in tags for event in events.Scalars(tag)]


@styled
def _draw(curves: Mapping[str, Mapping[str, Curve]], alarm: Curve) -> Figure:
    """Draw one panel per measure and one line per modality; steps with an alarm are shaded."""
    columns = min(COLUMNS, len(curves))
    rows = ceil(len(curves) / columns)
    figure = Figure(figsize=(min(columns, 2) * WIDTH, 0.4 + 1.5 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
    modalities = sorted({modality for lines in curves.values() for modality in lines if modality})
    others = iter(COLORS[3:] * len(modalities))
    colors = {name: COLOR[name] if name in COLOR else next(others) for name in modalities} | {"": INK}
    for axes, (measure, lines) in zip(panels, curves.items(), strict=False):
        for modality, curve in lines.items():
            steps = sorted(curve)
            style = {"color": colors[modality], "linestyle": LINE.get(modality, "-"), "label": modality or "_"}
            mark = "." if len(steps) <= 30 else ""
            axes.plot(steps, [curve[step] for step in steps], marker=mark, gid=f"{measure}/{modality}", **style)
        for is_on, run in groupby(sorted(alarm.items()), key=lambda item: bool(item[1])):
            if not is_on:
                continue
            steps = [step for step, _ in run]
            axes.axvspan(steps[0], steps[-1], color=COLORS[3], alpha=0.15, linewidth=0, gid="alarm")
            # the shade of a single step has no width
            axes.axvline(steps[0], color=COLORS[3], linewidth=1, gid="alarm goes on")
        description = explain(measure, descriptions)
        axes.set_title(description.title if description else measure, loc="left", color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(4))
    for axes in panels[len(curves) :]:
        axes.set_axis_off()
    for axes in panels[: len(curves)][-columns:]:
        axes.set_xlabel("step")
        axes.tick_params(labelbottom=True)
    entries = {label: line for axes in panels for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if entries:
        figure.legend(list(entries.values()), list(entries), loc="outside upper left", ncols=4)
    return figure

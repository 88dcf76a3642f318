"""Watch the geometry of a model while it is trained: numbers in its log, and an alarm if it collapses."""

import json
import math
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from clip_geometry.geometry import measures
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, listed, shown
from clip_geometry.rows.arguments import real_number, whole_number
from clip_geometry.training import PREFIX
from clip_geometry.training.metrics import EmbeddingGeometry

SMOOTHED = 3  # measurements in the median that becomes the baseline


class CollapseWarning(UserWarning):
    """The geometry of a model that is trained has collapsed.

    Example:
        >>> import warnings
        >>> from clip_geometry.training import CollapseWarning
        >>> warnings.simplefilter("error", CollapseWarning)  # end the training with an exception
        >>> warnings.simplefilter("default", CollapseWarning)
    """


@dataclass(frozen=True)
class Threshold:
    """When a measure counts as collapsed: relative to its best value so far, the baseline.

    Args:
        measure: Name in `cg.measures`; that of each modality is watched on its own.
        enter: Share of the baseline beyond which it is collapsed. Below 1, the baseline is the largest magnitude and
            smaller ones are worse; above 1, it is the smallest and larger ones are worse.
        leave: Share of the baseline from which on it is well again, between `enter` and 1.
        least: Smallest baseline, so that a model which collapses before it has been well is noticed, and rises of tiny
            values are not.

    Raises:
        InputError: The measure is unknown, or the shares are not in this order.

    Example:
        >>> from clip_geometry.training import Threshold
        >>> Threshold("effective_rank", enter=0.65, leave=0.8).worse(5.0, baseline=10.0, share=0.65)
        True
    """

    measure: str
    enter: float
    leave: float
    least: float = 0.0

    def __post_init__(self):
        if "/" in str(self.measure):
            raise InputError(f"measure = {shown(self.measure)}; expected it without a modality, since each is watched")
        measures[self.measure]
        for name in ("enter", "leave"):
            real_number(getattr(self, name), name, lambda share: 0 <= share < math.inf, "a share of the baseline")
        if not (0 < self.enter <= self.leave < 1 or 1 < self.leave <= self.enter):
            raise InputError(
                f"{self.measure} enters at {self.enter} and leaves at {self.leave} of its baseline; expected enter ≤ "
                "leave < 1 for a fall, 1 < leave ≤ enter for a rise"
            )

    @property
    def falls(self) -> bool:
        return self.enter < 1

    def worse(self, value: float, baseline: float, share: float) -> bool:
        """Whether a magnitude lies beyond a share of the baseline. An undefined value does: the rows are all equal."""
        if not math.isfinite(value):
            return True
        return value < share * baseline if self.falls else value > share * baseline


# docs/howto/training.md has the trainings behind these numbers
THRESHOLDS = (
    Threshold("effective_rank", enter=0.65, leave=0.8, least=3.0),
    Threshold("isoscore", enter=0.65, leave=0.8),
    Threshold("uniformity", enter=0.7, leave=0.85, least=0.1),
    Threshold("coordinate_spread", enter=2.0, leave=1.5, least=0.1),
    Threshold("relative_modality_gap", enter=2.0, leave=1.5, least=0.1),
)


@dataclass
class _Signal:
    """One measure of one modality."""

    threshold: Threshold
    recent: deque[float]
    baseline: float | None = None  # None until the signal has settled
    beyond: int = 0  # consecutive measurements beyond `enter`, or, if it is on, back within `leave`
    on: bool = False


class CollapseAlarm:
    """Goes on when rank, isotropy or uniformity fall, or the gap or dead coordinates rise, beyond a share of before.

    A model that is trained from scratch loses most of its rank in the first steps, without any harm. So a signal is
    watched only once it has settled: `settle` consecutive measurements within a factor of `settled`. Its baseline is
    the median of the last three measurements then, or a better one later. The alarm goes on after `patience`
    consecutive measurements beyond `enter`, and off after as many within `leave`, so that noise does not toggle it. A
    signal that is not defined, since all rows are equal, counts as collapsed once it has settled.

    It works on numbers of equal conditions: the same probe, or the same number of rows.

    Args:
        thresholds: The measures and their shares of the baseline.
        patience: Consecutive measurements that it takes.
        settle: Measurements until a signal may have settled.
        settled: Largest ratio of these.

    Attributes:
        on: Whether any signal is collapsed.
        reason: A sentence about the signals that are, or were last.
        since: Step at which it went on last, None before.

    Example:
        >>> from clip_geometry.training import CollapseAlarm
        >>> alarm = CollapseAlarm(patience=2, settle=3)
        >>> ranks = [40, 20, 19, 20, 18, 9, 8, 7]
        >>> [alarm.update({"effective_rank/image": rank}, step) for step, rank in enumerate(ranks)]
        [False, False, False, False, False, False, True, True]
        >>> alarm.reason
        'collapse at step 6: effective_rank/image is 8, 40% of its baseline 20'
    """

    def __init__(
        self,
        thresholds: Iterable[Threshold] = THRESHOLDS,
        *,
        patience: int = 3,
        settle: int = 10,
        settled: float = 1.25,
    ):
        given = list(thresholds)
        if wrong := [each for each in given if not isinstance(each, Threshold)]:
            raise InputError(f"thresholds have {shown(wrong[0])}; expected each as Threshold(measure, enter, leave)")
        self.thresholds = {each.measure: each for each in given}
        if not given or len(self.thresholds) < len(given):
            raise InputError(f"thresholds are of {listed(each.measure for each in given)}; expected each measure once")
        self.patience, self.settle = whole_number(patience, "patience"), whole_number(settle, "settle")
        self.settled = real_number(settled, "settled", lambda ratio: 1 <= ratio < math.inf, "a ratio from 1 on")
        self.on, self.reason, self.since = False, "", None
        self._signals: dict[str, _Signal] = {}

    def missing(self, values: Mapping[str, float]) -> list[Threshold]:
        """The thresholds whose measures are not among these numbers."""
        measured = {name.partition("/")[0] for name in values}
        return [each for each in self.thresholds.values() if each.measure not in measured]

    def update(self, values: Mapping[str, float], step: int) -> bool:
        """Takes the next measurement.

        Args:
            values: Numbers by name, as `EmbeddingGeometry` names them: `effective_rank/image`. `invalid_rows` and
                `items` only explain why the alarm goes on.
            step: Of the training.

        Returns:
            Whether the alarm is on.
        """
        for name, value in values.items():
            if threshold := self.thresholds.get(name.partition("/")[0]):
                recent = deque[float](maxlen=max(self.settle, SMOOTHED))
                self._take(self._signals.setdefault(name, _Signal(threshold, recent)), abs(float(value)))
        was, self.on = self.on, any(signal.on for signal in self._signals.values())
        if self.on and not was:
            self.since, found = step, [self._words(name, each) for name, each in self._signals.items() if each.on]
            self.reason = f"collapse at step {step}: {', '.join(found)}"
            if invalid := values.get("invalid_rows"):
                of = f" of {values['items']:.0f}" if "items" in values else ""
                self.reason += f"; {invalid:.0f}{of} rows are NaN, infinite or zero"
        return self.on

    def _take(self, signal: _Signal, value: float) -> None:
        threshold, recent = signal.threshold, signal.recent
        recent.append(value)
        if signal.baseline is None:
            if len(recent) >= self.settle and not any(map(math.isfinite, recent)):  # all rows equal all along
                signal.baseline = threshold.least
            elif len(recent) >= self.settle and all(map(math.isfinite, recent)):
                steady = max(recent) <= self.settled * min(recent)
                signal.baseline = median([*recent][-SMOOTHED:]) if steady else None
            return
        if not signal.on:
            smoothed = median([*recent][-SMOOTHED:])
            if math.isfinite(smoothed):
                signal.baseline = (max if threshold.falls else min)(signal.baseline, smoothed)
        baseline = max(signal.baseline, threshold.least)
        share = threshold.leave if signal.on else threshold.enter
        signal.beyond = signal.beyond + 1 if threshold.worse(value, baseline, share) != signal.on else 0
        if signal.beyond == self.patience:
            signal.on, signal.beyond = not signal.on, 0

    def _words(self, name: str, signal: _Signal) -> str:
        value, baseline = signal.recent[-1], max(signal.baseline or 0.0, signal.threshold.least)
        share = f", {value / baseline:.0%} of its baseline {baseline:.3g}" if baseline and math.isfinite(value) else ""
        return f"{name} is {value:.3g}{share}" if math.isfinite(value) else f"{name} is not defined"


Embed: TypeAlias = Callable[[Any], Mapping[str, Any] | Iterable[Mapping[str, Any]]]  # modality → (n, d)
Log: TypeAlias = Callable[[dict[str, float], int], Any]


class GeometryMonitor:
    """Measures embeddings every N steps of a training, logs the numbers, and raises the alarm if they collapse.

    It has two modes. Given `embed`, it embeds a probe: the same items each time, in eval mode, without gradients and
    without using up random numbers of the training. Otherwise `step` takes the features that the training step has
    computed anyway, of which the last `batches` before a measurement are used; no forward pass is added, but the items
    and dropout differ from one measurement to the next, so that curves are noisier.

    With several processes, call it on every one, since they gather the features; give `log=None` to all but one.

    Args:
        log: A SummaryWriter of TensorBoard, a run of Weights & Biases (whose x-axis is then `geometry/step`), anything
            else with `add_scalar(name, value, step)` or `log(scalars, step=step)`, a function of (scalars, step), the
            path of a .jsonl file that gains a line per measurement, or None.
        every: Steps between measurements.
        embed: Function of the model that returns modality → (n, d) rows, aligned, or yields them batch by batch.
        batches: Batches of features in a measurement, at most `every`.
        metric: What is measured; default: `EmbeddingGeometry` of the modalities that are given. In several processes
            the default gathers the features of all of them; a probe is expected to be the same in each and is not
            gathered. Give a metric where each process embeds its part of the probe.
        alarm: The alarm, None for none.
        on_collapse: Called with this monitor when the alarm goes on, after the warning.

    Attributes:
        values: The last numbers, by name.
        collapsed: Whether the alarm is on.

    Raises:
        InputError: The log is none of these, or `step` is given neither a probe nor features.

    Example:
        >>> import torch
        >>> from clip_geometry.training import GeometryMonitor
        >>> images, texts = torch.randn(2, 100, 8, generator=torch.Generator().manual_seed(0))
        >>> image_tower, text_tower = torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)
        >>> logged = {}
        >>> monitor = GeometryMonitor(lambda scalars, step: logged.update({step: scalars}), every=2, batches=1)
        >>> for step in range(1, 5):
        ...     monitor.step(step, image=image_tower(images), text=text_tower(texts))
        >>> sorted(logged), logged[4]["geometry/collapse"]
        ([2, 4], 0.0)
    """

    def __init__(
        self,
        log: Any = None,
        *,
        every: int = 100,
        embed: Embed | None = None,
        batches: int = 8,
        metric: EmbeddingGeometry | None = None,
        alarm: CollapseAlarm | bool | None = True,
        on_collapse: Callable[["GeometryMonitor"], Any] | None = None,
    ):
        self.log = _scalar_log(log)
        if embed is not None and not callable(embed):
            raise InputError(f"embed = {shown(embed)}; expected a function of the model that returns modality → rows")
        self.every, self.embed = whole_number(every, "every"), embed
        self.batches = min(whole_number(batches, "batches"), self.every)
        self.metric, self.on_collapse = metric, on_collapse
        self.alarm = CollapseAlarm() if alarm is True else alarm or None
        if not isinstance(self.alarm, CollapseAlarm | None):
            raise InputError(f"alarm = {shown(alarm)}; expected a CollapseAlarm, or None for none")
        self.values: dict[str, float] = {}
        self._taken, self._measured, self._warned = 0, -1, set[str]()

    @property
    def collapsed(self) -> bool:
        return self.alarm is not None and self.alarm.on

    def step(self, step: int, model: Any = None, **features: Any) -> None:
        """Call it once a training step: measures and logs where `step` is a multiple of `every`.

        Args:
            step: Number of the step.
            model: What `embed` takes; a module is in eval mode meanwhile.
            features: (n, d) rows of each modality, aligned, without `embed`.
        """
        step = whole_number(step, "step", least=0)
        left = -step % self.every  # steps until the next measurement
        if step == self._measured:  # another part of a batch whose gradients are accumulated
            return
        self._measured = -1
        if self.embed is None:
            if not features:
                raise InputError(
                    "step was given no features; expected step(step, image=…, text=…), or a monitor with embed"
                )
            if left < self.batches:
                self._add(features)
                self._taken += 1
            if left == 0 and (step or self._taken >= self.batches):
                if self._taken < self.batches:
                    given = f"{self._taken} of {self.batches} batches were given before step {step}"
                    self._warn("batches", f"{given}; lower batches= or call step at every step")
                self.report(step)
            if left == 0 and self.metric is not None:
                self.metric.reset()
                self._taken = 0
        elif left == 0:
            self.measure(step, model)
        if left == 0:
            self._measured = step

    def measure(self, step: int, model: Any = None) -> dict[str, float]:
        """Embeds the probe, measures and logs, whatever the step. Returns the numbers, with the prefix `geometry/`."""
        if self.embed is None:
            raise InputError("there is no probe to measure; give GeometryMonitor an embed")
        with evaluating(model):
            found = self.embed(model)
            whole = isinstance(found, Mapping | torch.Tensor) or not isinstance(found, Iterable)
            parts: Any = [found] if whole else found
            for rows in parts:
                if not isinstance(rows, Mapping):
                    got = type(found).__name__ + ("" if whole else f" of {type(rows).__name__}")
                    raise InputError(
                        f"embed gave {got}; expected a mapping of modality → rows (n, d), or several one by one"
                    )
                self._add(rows, sync=False)
        scalars = self.report(step)
        if not scalars:
            raise InputError("embed gave no rows; expected a mapping of modality → rows (n, d), or several one by one")
        if self.metric is not None:
            self.metric.reset()
        return scalars

    def report(self, step: int) -> dict[str, float]:
        """Measures what was added, checks for collapse, and logs."""
        self.values = {} if self.metric is None else {name: float(each) for name, each in self.metric.compute().items()}
        scalars = {PREFIX + name: value for name, value in self.values.items()}
        was = self.collapsed
        few = self.metric is not None and self.metric.items < 2
        if few and self.values:  # nothing is defined, which is not a collapse
            several = "the measures need several, so raise batches= and every="
            self._warn("few", f"one item was given before step {step}; {several}")
        elif self.metric is not None and self.metric.items == self.values.get("invalid_rows"):
            self._warn("invalid", f"all {self.metric.items} items before step {step} have a zero, NaN or infinite row")
        if self.alarm is not None and self.values and not few:
            missing = self.alarm.missing(self.values)
            if len(missing) == len(self.alarm.thresholds) or any(each not in THRESHOLDS for each in missing):
                names = listed(each.measure for each in missing)
                self._warn("missing", f"the alarm watches {names}, which the metric does not measure")
            items = {} if self.metric is None else {"items": self.metric.items}
            scalars[PREFIX + "collapse"] = float(self.alarm.update({**self.values, **items}, step))
        if self.log is not None and scalars:
            self.log(scalars, step)
        if self.alarm is not None and self.alarm.on and not was:
            warnings.warn(self.alarm.reason, CollapseWarning, stacklevel=3)
            if self.on_collapse is not None:
                self.on_collapse(self)
        return scalars

    def _warn(self, about: str, sentence: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warnings.warn(sentence, stacklevel=4)

    def _add(self, rows: Mapping[str, Any], *, sync: bool = True) -> None:
        if self.metric is None:
            self.metric = EmbeddingGeometry(*rows, sync_on_compute=sync)
            self.metric.to(next((each.device for each in rows.values() if isinstance(each, torch.Tensor)), "cpu"))
        self.metric.update(**rows)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Eval mode without gradients, after which the modes of all modules and the random generators are as before."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [module.training for module in modules]
    devices = {each.device for each in model.parameters()} if modules else set()
    cuda = [device for device in devices if device.type == "cuda"]
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - of the global generator
    with torch.random.fork_rng(devices=cuda), torch.no_grad():
        try:
            if modules:
                model.eval()
            yield
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002


def _scalar_log(log: Any) -> Log | None:
    """A function of (scalars, step)."""
    if isinstance(log, str | Path):
        path = expanded(log)
        if path.suffix != ".jsonl" or not path.parent.is_dir():
            raise InputError(f"log = {shown(log)}; expected a .jsonl file in a folder that exists")

        def to_file(scalars: dict[str, float], step: int) -> None:
            with path.open("a", encoding="utf-8") as file:  # closed after each line, which a crash then keeps
                file.write(json.dumps({"step": step, **scalars}) + "\n")

        return to_file
    if hasattr(log, "add_scalar"):
        return lambda scalars, step: [log.add_scalar(name, value, step) for name, value in scalars.items()]
    if hasattr(log, "log") and hasattr(log, "define_metric"):
        log.define_metric(f"{PREFIX}*", step_metric=f"{PREFIX}step")

        def to_run(scalars: dict[str, float], step: int) -> None:
            """W&B drops what is logged at a step before its own, which grows with each call without step=."""
            own = getattr(log, "step", math.inf)
            log.log({**scalars, f"{PREFIX}step": step}, step=step if own <= step else None)

        return to_run
    if hasattr(log, "log"):
        return lambda scalars, step: log.log(scalars, step=step)
    if log is not None and not callable(log):
        raise InputError(
            f"log = {shown(log)}; expected a SummaryWriter, a W&B run, a .jsonl path or a function of (scalars, step)"
        )
    return log

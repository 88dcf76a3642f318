"""Monitoring of a model's geometry during training: numbers in the training log, and an alarm if it collapses."""

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
from clip_geometry.registry import InputError, instance, listed, shown
from clip_geometry.rows.arguments import real_number, whole_number
from clip_geometry.training import PREFIX
from clip_geometry.training.metrics import EmbeddingGeometry

Embed: TypeAlias = Callable[[Any], Mapping[str, Any] | Iterable[Mapping[str, Any]]]  # modality → (n, d)
Log: TypeAlias = Callable[[dict[str, float], int], Any]

# shares of the baseline; docs/howto/training.md describes the training runs behind these numbers
THRESHOLDS = {
    "effective_rank": 0.65,
    "isoscore": 0.65,
    "uniformity": 0.7,
    "coordinate_spread": 2.0,
    "relative_modality_gap": 2.0,
}
# smallest baselines: they expose a model that was never healthy, and ignore rises of tiny values
LEAST = {"effective_rank": 3.0, "uniformity": 0.1, "coordinate_spread": 0.1, "relative_modality_gap": 0.1}
SMOOTHED = 3  # number of measurements whose median becomes the baseline
SETTLED = 1.25  # largest ratio between the measurements of a settled signal
PROBE = "expected a mapping of modality → rows (n, d), or several one by one"


class CollapseWarning(UserWarning):
    """Warning that the embeddings of a model in training have collapsed, issued by a `GeometryMonitor` with an alarm.

    Example:
        >>> import warnings
        >>> from clip_geometry.training import CollapseWarning
        >>> warnings.simplefilter("error", CollapseWarning)  # end the training with an exception
        >>> warnings.simplefilter("default", CollapseWarning)
    """


@dataclass
class _Signal:
    """The state of one measure of one modality."""

    recent: deque[float]
    baseline: float | None = None  # None until the signal has settled
    contrary: int = 0  # consecutive measurements that contradict `on`
    on: bool = False


class CollapseAlarm:
    """Alarm that switches on when the embeddings of a model in training collapse.

    It watches measures of isotropy, rank, uniformity, modality gap and constant coordinates, each for each modality. A
    measure has collapsed if it stays beyond its threshold, a share of its baseline, for `patience` consecutive
    measurements. The alarm switches off after the same number of measurements within the threshold.

    A model that is trained from scratch loses most of its rank in the first steps, without any harm. Therefore a
    measure is watched only after it has settled: `settle` consecutive measurements are within 25% of each other. Its
    baseline is the median of the last three measurements at that point, or a better value later. A measure that is
    undefined because all rows are equal counts as collapsed once it has settled.

    All measurements must be made in the same way: on the same probe, or on the same number of rows.

    Args:
        thresholds: Name in `cg.geometry.measures` → share of the baseline beyond which the measure has collapsed: below
            1 for measures that fall in a collapse, above 1 for measures that rise.
        patience: Number of consecutive measurements that switch the alarm on or off, at least 1.
        settle: Number of consecutive measurements that must agree before a measure is watched, at least 1.

    Attributes:
        on: Whether any measure has collapsed.
        reason: A sentence about the measures that have collapsed, or about those of the last alarm.
        since: Step at which the alarm last switched on; None if it never did.

    Raises:
        InputError: A measure is unknown, or a share is not a positive number other than 1.

    Example:
        >>> from clip_geometry.training import CollapseAlarm
        >>> alarm = CollapseAlarm(patience=2, settle=3)
        >>> ranks = [40, 20, 19, 20, 18, 9, 8, 7]
        >>> [alarm.update({"effective_rank/image": rank}, step) for step, rank in enumerate(ranks)]
        [False, False, False, False, False, False, True, True]
        >>> alarm.reason
        'collapse at step 6: effective_rank/image is 8, 40% of its baseline 20'
    """

    def __init__(self, thresholds: Mapping[str, float] = THRESHOLDS, *, patience: int = 3, settle: int = 10):
        if not isinstance(thresholds, Mapping) or not thresholds:
            raise InputError(f"thresholds = {shown(thresholds)}; expected measure → share of the baseline")
        for name, share in thresholds.items():
            _ = measures[name]
            expected = "a share of the baseline, above 0 and not 1"
            real_number(share, f"the threshold of {name}", lambda value: 0 < value < math.inf and value != 1, expected)
        self.thresholds = dict(thresholds)
        self.patience = whole_number(patience, "patience")
        self.settle = whole_number(settle, "settle")
        self.on = False
        self.reason = ""
        self.since = None
        self._signals: dict[str, _Signal] = {}

    def update(self, values: Mapping[str, float], step: int) -> bool:
        """Add the next measurement.

        Args:
            values: Numbers under the names of `EmbeddingGeometry`, such as `effective_rank/image`. `invalid_rows` only
                helps to explain why the alarm goes on.
            step: The training step.

        Returns:
            Whether the alarm is on.
        """
        was_on = self.on
        for name, value in values.items():
            measure = name.partition("/")[0]
            if measure in self.thresholds:
                recent = deque[float](maxlen=max(self.settle, SMOOTHED))
                signal = self._signals.setdefault(name, _Signal(recent))
                self._add(signal, abs(float(value)), self.thresholds[measure], LEAST.get(measure, 0.0))
        collapsed = {name: signal for name, signal in self._signals.items() if signal.on}
        self.on = bool(collapsed)
        if self.on and not was_on:
            self.since = step
            states = ", ".join(_state(name, signal) for name, signal in collapsed.items())
            self.reason = f"collapse at step {step}: {states}"
            if values.get("invalid_rows"):
                self.reason += f"; {values['invalid_rows']:.0f} rows are NaN, infinite or zero"
        return self.on

    def _add(self, signal: _Signal, value: float, threshold: float, least: float) -> None:
        """Add a value to a signal: find its baseline once it has settled, and switch the signal on or off."""
        recent = signal.recent
        recent.append(value)
        smoothed = median([*recent][-SMOOTHED:])
        if signal.baseline is None:
            defined = [number for number in recent if math.isfinite(number)]
            if len(recent) >= self.settle and not defined:
                signal.baseline = least
            elif len(defined) == len(recent) >= self.settle and max(recent) <= SETTLED * min(recent):
                signal.baseline = max(smoothed, least)
            return
        if not signal.on and math.isfinite(smoothed):
            better = max if threshold < 1 else min
            signal.baseline = max(better(signal.baseline, smoothed), least)
        limit = threshold * signal.baseline
        beyond = not math.isfinite(value) or (value < limit if threshold < 1 else value > limit)
        signal.contrary = signal.contrary + 1 if beyond != signal.on else 0
        if signal.contrary == self.patience:
            signal.on = beyond
            signal.contrary = 0


def _state(name: str, signal: _Signal) -> str:
    """Describe the last value of a signal, relative to its baseline."""
    value = signal.recent[-1]
    baseline = signal.baseline
    if not math.isfinite(value):
        return f"{name} is not defined"
    return f"{name} is {value:.3g}" + (f", {value / baseline:.0%} of its baseline {baseline:.3g}" if baseline else "")


class GeometryMonitor:
    """Measure embeddings every N steps of any training loop, log the numbers, and raise an alarm on collapse.

    Call `step` in each training step. There are two modes. With `embed`, the monitor embeds a probe, the same inputs
    each time, in eval mode, without gradients and without using random numbers of the training. Without it, `step`
    takes the features that the training step has computed anyway, and the last `batches` batches before a measurement
    are used. This needs no additional forward pass, but the curves are noisier, because inputs and dropout differ
    between measurements.

    With several processes, call the monitor in each of them, since they gather the features; give `log=None` in all but
    one.

    Args:
        log: Where the numbers go: a SummaryWriter of TensorBoard, a run of Weights & Biases (whose x-axis is then
            `geometry/step`), a function of (scalars, step), the path of a .jsonl file to which each measurement adds a
            line, or None.
        every: Steps between measurements.
        embed: Function of the model that returns the embeddings of the probe: modality → (n, d) rows, aligned; or that
            yields them batch by batch.
        batches: Batches of features in a measurement, at most `every`.
        metric: The metric to compute; default: `EmbeddingGeometry` of the given modalities. With several processes, the
            default gathers the features of all of them. A probe should be the same in each process and is not gathered;
            give a metric if each process embeds a part of the probe.
        alarm: The alarm; True for a `CollapseAlarm` with its defaults, None for no alarm.

    Attributes:
        values: The last numbers by name.
        collapsed: Whether the alarm is on.

    Raises:
        InputError: The log is none of these, or `step` has neither a probe nor features.

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
    ):
        self.log = _scalar_log(log)
        if embed is not None and not callable(embed):
            raise InputError(f"embed = {shown(embed)}; expected a function of the model that returns modality → rows")
        self.every = whole_number(every, "every")
        self.embed = embed
        self.batches = min(whole_number(batches, "batches"), self.every)
        self.metric = metric
        instance(alarm, CollapseAlarm | bool | None, "alarm", "a CollapseAlarm, or None for none")
        self.alarm = CollapseAlarm() if alarm is True else alarm or None
        self.values: dict[str, float] = {}
        self._taken = 0  # batches of features since the last measurement
        self._measured = -1  # step of the last measurement
        self._warned = set[str]()

    @property
    def collapsed(self) -> bool:
        """Whether the alarm is on; False without an alarm."""
        return self.alarm is not None and self.alarm.on

    def step(self, step: int, model: Any = None, **features: Any) -> None:
        """Measure and log if `step` is a multiple of `every`; call this method at every training step.

        Args:
            step: Number of the training step.
            model: Argument of `embed`; a module is switched to eval mode in the meantime.
            features: (n, d) rows of each modality, aligned; only without `embed`.
        """
        step = whole_number(step, "step", least=0)
        if step == self._measured:  # another part of the same step, with gradient accumulation
            return
        remaining = -step % self.every  # steps until the next measurement
        if self.embed is not None:
            if remaining == 0:
                self.measure(step, model)
            return
        if not features:
            raise InputError(
                "step was given no features; expected step(step, image=…, text=…), or a monitor with embed"
            )
        if remaining < self.batches:
            self._add(features)
            self._taken += 1
        if remaining == 0 and self.metric is not None:
            if self._taken < self.batches and step:
                problem = f"{self._taken} of {self.batches} batches were given before step {step}"
                self._warn("batches", f"{problem}; lower batches= or call step at every step")
            if self._taken >= self.batches or step:
                self._report(step)
            self.metric.reset()
            self._taken = 0

    def measure(self, step: int, model: Any = None) -> dict[str, float]:
        """Embed the probe, measure, and log, regardless of the step.

        Args:
            step: Number of the training step, for the log.
            model: Argument of `embed`.

        Returns:
            The numbers, with the prefix `geometry/`.

        Raises:
            InputError: There is no `embed`, or it returns no rows.
        """
        if self.embed is None:
            raise InputError("there is no probe to measure; give GeometryMonitor an embed")
        with evaluating(model):
            probe: Any = self.embed(model)
            for rows in [probe] if isinstance(probe, Mapping) or not isinstance(probe, Iterable) else probe:
                if not isinstance(rows, Mapping):
                    raise InputError(f"embed returned {type(rows).__name__}; {PROBE}")
                self._add(rows, sync=False)
        scalars = self._report(step)
        if self.metric is None or not scalars:
            raise InputError(f"embed returned no rows; {PROBE}")
        self.metric.reset()
        return scalars

    def _add(self, rows: Mapping[str, Any], *, sync: bool = True) -> None:
        """Add rows to the metric, which is created for the modalities of the first rows."""
        if self.metric is None:
            self.metric = EmbeddingGeometry(*rows, sync_on_compute=sync)
            self.metric.to(next((x.device for x in rows.values() if isinstance(x, torch.Tensor)), "cpu"))
        self.metric.update(**rows)

    def _report(self, step: int) -> dict[str, float]:
        """Measure what was added, check for collapse, and log."""
        self._measured = step
        numbers = {} if self.metric is None else self.metric.compute()
        self.values = {name: float(value) for name, value in numbers.items()}
        if self.metric is None or not self.values:
            return {}
        scalars = {PREFIX + name: value for name, value in self.values.items()}
        was_collapsed = self.collapsed
        if self.metric.items < 2:  # nothing is defined; this is not a collapse
            remedy = "the measures need several, so raise batches= and every="
            self._warn("few", f"one item was given before step {step}; {remedy}")
        elif self.alarm is not None:
            if not any(name.partition("/")[0] in self.alarm.thresholds for name in self.values):
                watched = listed(self.alarm.thresholds)
                self._warn("missing", f"the alarm watches {watched}, which the metric does not measure")
            scalars[f"{PREFIX}collapse"] = float(self.alarm.update(self.values, step))
        if self.metric.items == self.values["invalid_rows"]:
            self._warn("invalid", f"all {self.metric.items} items before step {step} have a zero, NaN or infinite row")
        if self.log is not None:
            self.log(scalars, step)
        if self.alarm is not None and self.collapsed and not was_collapsed:
            warnings.warn(self.alarm.reason, CollapseWarning, stacklevel=3)
        return scalars

    def _warn(self, about: str, sentence: str) -> None:
        """Warn once about each subject."""
        if about not in self._warned:
            self._warned.add(about)
            warnings.warn(sentence, stacklevel=4)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Use eval mode without gradients; afterwards, restore the modes of all modules and the random generators."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [module.training for module in modules]
    devices = {parameter.device for parameter in model.parameters()} if modules else set()
    cuda = [device for device in devices if device.type == "cuda"]
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002 - of the global generator
    with torch.random.fork_rng(devices=cuda), torch.no_grad():
        try:
            if modules:
                model.eval()
            yield
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002


def _scalar_log(log: Any) -> Log | None:
    """Return the logger as a function of (scalars, step); None if nothing is logged."""
    if isinstance(log, str | Path):
        path = expanded(log)
        if path.suffix != ".jsonl" or not path.parent.is_dir():
            raise InputError(f"log = {shown(log)}; expected a .jsonl file in a folder that exists")

        def to_file(scalars: dict[str, float], step: int) -> None:
            with path.open("a", encoding="utf-8") as file:  # closed after each line, so that a crash loses nothing
                file.write(json.dumps({"step": step, **scalars}) + "\n")

        return to_file
    if hasattr(log, "add_scalar"):
        return lambda scalars, step: [log.add_scalar(name, value, step) for name, value in scalars.items()]
    if hasattr(log, "log") and hasattr(log, "define_metric"):
        log.define_metric(f"{PREFIX}*", step_metric=f"{PREFIX}step")

        def to_run(scalars: dict[str, float], step: int) -> None:
            """Log to W&B, which drops values logged at a step before its own; calls without step= advance that one."""
            run_step = getattr(log, "step", math.inf)
            log.log({**scalars, f"{PREFIX}step": step}, step=step if run_step <= step else None)

        return to_run
    if log is not None and not callable(log):
        raise InputError(
            f"log = {shown(log)}; expected a SummaryWriter, a W&B run, a .jsonl path or a function of (scalars, step)"
        )
    return log

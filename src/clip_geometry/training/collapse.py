"""An alarm for embeddings that collapse while a model is trained."""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from clip_geometry.geometry import measures
from clip_geometry.registry import InputError, listed, shown
from clip_geometry.rows.arguments import real_number, whole_number

PREFIX = "geometry/"  # of the names that are logged
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

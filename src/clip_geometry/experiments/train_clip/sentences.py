"""A training in sentences, read off its curves: what changes first, what last, and what stays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clip_geometry.report.numbers import fixed, percent

Row = Mapping[str, Any]
Key = tuple[str, str, str]
GAP: Key = ("modality_gap", "both", "")
CONE: Key = ("average_cosine", "image", "")
SEEN: Key = ("zero_shot.top_1", "both", "seen")
HELD_OUT: Key = ("zero_shot.top_1", "both", "held out")
CLASSES: Key = ("silhouette", "image", "")
ISOSCORE: Key = ("isoscore[unbiased]", "image", "")
STAYS = 0.1  # of the whole change; a number that moves by less stays


class Curve:
    """The recorded states of a number."""

    def __init__(self, row: Row):
        values = [float("nan") if value is None else value for value in row["trajectory"]]
        self.values: NDArray[np.float64] = np.array(values)
        self.steps: NDArray[np.int64] = np.array(row["steps"])

    @property
    def first(self) -> float:
        return float(self.values[0])

    @property
    def last(self) -> float:
        return float(self.values[-1])

    def half_way(self) -> int:
        """The first recorded step at which half of the way from the first state to the last is gone."""
        way = (self.values - self.first) / (self.last - self.first)
        return int(self.steps[np.argmax(way >= 0.5)])

    def since(self, step: int) -> tuple[float, float]:
        """The smallest and the largest value from that step on."""
        later = self.values[self.steps >= step]
        return float(later.min()), float(later.max())


def tell(rows: Sequence[Row]) -> list[str]:
    """What the curves of one training say; nothing of those that are not there."""
    curves = {
        _key(row): curve
        for row in rows
        if "trajectory" in row and np.isfinite((curve := Curve(row)).values).all() and curve.first != curve.last
    }
    told = (_order(curves), _gap_left(curves), _classes(curves), _isotropy(curves))
    return [sentence for sentence in told if sentence]


def _key(row: Row) -> Key:
    return row["measure"], row["at"].get("modality", "both"), row["at"].get("classes", "")


def _order(curves: Mapping[Key, Curve]) -> str | None:
    """What is half done first: the gap, the cone, the classes."""
    wanted = {"the modality gap": GAP, "the cone of images": CONE, "accuracy on seen classes": SEEN}
    found = {name: curves[key].half_way() for name, key in wanted.items() if key in curves}
    if len(found) < 2:
        return None
    ranked = sorted(found.items(), key=lambda each: each[1])
    (first, step), *others = ranked
    rest = ", ".join(f"{name} at step {at}" for name, at in others)
    return f"{_start(first)} is half way to its final value at step {step}, {rest}, of {_steps(curves)}."


def _gap_left(curves: Mapping[Key, Curve]) -> str | None:
    if GAP not in curves:
        return None
    gap = curves[GAP]
    settled = next(
        int(step)
        for step in gap.steps
        if max(abs(value - gap.last) for value in gap.since(step)) <= STAYS * abs(gap.last - gap.first)
    )
    low, high = gap.since(settled)
    return (
        f"The gap falls from {fixed(gap.first, 2)} and does not close: from step {settled} on it stays between "
        f"{fixed(low, 2)} and {fixed(high, 2)}."
        if low > 0 and settled < gap.steps[-1] and gap.last < gap.first
        else f"The gap goes from {fixed(gap.first, 2)} to {fixed(gap.last, 2)}."
    )


def _classes(curves: Mapping[Key, Curve]) -> str | None:
    if SEEN not in curves or HELD_OUT not in curves:
        return None
    seen, held_out = curves[SEEN], curves[HELD_OUT]
    step = seen.half_way()
    there = float(held_out.values[list(held_out.steps).index(step)])
    now = float(seen.values[list(seen.steps).index(step)])
    return (
        f"When {percent(now)} of the pictures of seen classes are named right (step {step}), {percent(there)} are of "
        f"the classes never trained on; at the end {percent(seen.last)} and {percent(held_out.last)}."
    )


def _isotropy(curves: Mapping[Key, Curve]) -> str | None:
    """Whether clusters form at the cost of isotropy, as is claimed of classifiers."""
    if CLASSES not in curves or ISOSCORE not in curves:
        return None
    clusters, score = curves[CLASSES], curves[ISOSCORE]
    moved = score.last / score.first - 1
    how = "hardly moves" if abs(moved) < 0.25 else "rises" if moved > 0 else "falls"
    return (
        f"Classes become clusters (silhouette of images {fixed(clusters.first, 2)} to {fixed(clusters.last, 2)}), and "
        f"IsoScore {how} ({fixed(score.first, 3)} to {fixed(score.last, 3)})."
        if clusters.last > clusters.first
        else None
    )


def _steps(curves: Mapping[Key, Curve]) -> int:
    return int(next(iter(curves.values())).steps[-1])


def _start(text: str) -> str:
    return text[:1].upper() + text[1:]

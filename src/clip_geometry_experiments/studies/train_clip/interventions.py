"""Claims tested by a grid of trainings.

The unit is the seed: a test yields one number per seed over all settings of the grid, and the interval is Student's
interval over the seeds, since trainings with the same seed share their initial weights and the order of their batches.
The interval generalizes to other seeds with these settings, but not to other settings or other scenes, which all seeds
share. Contrasts compare trainings that differ in one setting; relations cover trainings that differ in several.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import StatisticsError, fmean
from typing import Any, Literal

import numpy as np
from pydantic import Field
from scipy import stats

from clip_geometry.config import Config, read_yaml, validate
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.clip_training import ZERO_SHOT
from clip_geometry_experiments.kit.significance import Values, spearman
from clip_geometry_experiments.studies.train_clip.figures import words

VERDICTS = ("holds", "does not hold", "tie")
CONFIDENCE = 0.95
FACTORS = ("objective", "dimension", "noise", "class_captions")
OBJECTIVES = {"clip": "ClipLoss", "siglip": "SigLIP"}


@dataclass(frozen=True)
class Training:
    """A training of the grid: its settings, and its numbers by the key "measure modality state"."""

    objective: str
    dimension: int
    noise: float
    class_captions: float
    seed: int
    values: Mapping[str, float] = field(repr=False)

    @property
    def setting(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in FACTORS)


class ClaimTest(Config):
    """The computation for each seed; claims.yaml explains the kinds."""

    kind: Literal["level", "change", "contrast", "relation", "stronger"]
    of: str
    less: str = ""
    than: str = ""
    with_: str = Field(default="", alias="with")
    factor: str = ""
    high: str | float = ""
    low: str | float = ""
    within: tuple[str, ...] = ()
    where: dict[str, str | float] = Field(default_factory=dict)


class StudyClaim(Config):
    """A claim of a paper or of this project, with the test that decides it."""

    name: str
    says: str
    source: str
    test: ClaimTest
    expects: Literal["above", "below", "equal"]
    bound: float = 0.0
    smallest: float = Field(ge=0)

    @property
    def published(self) -> bool:
        """Whether the claim is from a paper; claims of this project are counted separately."""
        return not self.source.startswith("this project")


@dataclass(frozen=True)
class DecidedClaim:
    """A claim with its verdict.

    Args:
        claim: The claim.
        effects: Mapping from seed to the number that the test yields.
        mean: Mean of the effects over the seeds.
        low: Lower end of the interval.
        high: Upper end of the interval.
        verdict: "holds", "does not hold" or "tie".
        without: Mapping from seed to the verdict of the other seeds.
        p: One-sided p-values. For "holds", the null hypothesis is no effect on the claimed side of the bound; for "does
            not hold", it is an effect that counts.
    """

    claim: StudyClaim
    effects: Mapping[int, float]
    mean: float
    low: float
    high: float
    verdict: str
    without: Mapping[int, str]
    p: Mapping[str, float]

    @property
    def survives(self) -> bool:
        """Whether the verdict stays the same if any one seed is left out."""
        return set(self.without.values()) <= {self.verdict}


@cache
def claims() -> tuple[StudyClaim, ...]:
    """Return the claims in claims.yaml."""
    listed = read_yaml(Path(__file__).with_name("claims.yaml"))
    return tuple(validate(StudyClaim, {"name": name, **fields}, f"claim {name}") for name, fields in listed.items())


# --- trainings, from the rows of a run


def trainings(rows: Iterable[Mapping[str, Any]]) -> list[Training]:
    """Return the trainings of a run whose config has `tasks`, one per cell."""
    result = []
    for _, group in groupby(rows, key=lambda row: row["cell"]):
        cell = list(group)
        at = cell[0]["at"]
        values = {}
        accuracies: dict[str, list[tuple[float, int]]] = {}  # (accuracy, number of images) on seen and held-out classes
        for row in cell:
            key = f"{row['measure']} {row['at'].get('modality', 'both')}"
            if "trajectory" in row:
                ends = {"first": row["trajectory"][0], "last": row["trajectory"][-1]}
                values |= {f"{key} {state}": value for state, value in ends.items() if value is not None}
            elif row["at"].get("pictures") == "tested":
                state = "centered" if "center" in row["pipeline"] else "tested"
                accuracies.setdefault(f"{key} {state}", []).append((row["value"], row["n"]))
        # pooled accuracy on images of seen and of held-out classes
        for key, parts in accuracies.items():
            values[key] = math.fsum(share * n for share, n in parts) / sum(n for _, n in parts)
        objective = OBJECTIVES.get(at["arm"], f"ClipLoss at {at.get('temperature', 0.07):g}")
        dimension = next(row["d"] for row in cell if row["measure"] == ZERO_SHOT)
        noise, class_captions = at.get("caption_noise", 0.0), at.get("class_captions", 0.0)
        result.append(Training(objective, dimension, noise, class_captions, cell[0]["seed"], values))
    return result


def in_grid(trained: Sequence[Training]) -> list[Training]:
    """Return the trainings with the most common share of class captions; the others serve only tests of that factor."""
    shares = Counter(training.class_captions for training in trained)
    return [training for training in trained if training.class_captions == shares.most_common(1)[0][0]]


# --- tests


def effects(test: ClaimTest, trained: Sequence[Training]) -> dict[int, float]:
    """Return the number of a test for each seed. Raises InputError if the trainings cannot provide it."""
    if test.factor != "class_captions":
        trained = in_grid(trained)
    result = {}
    for seed in sorted({training.seed for training in trained}):
        of_seed = [
            training
            for training in trained
            if training.seed == seed and all(getattr(training, name) == value for name, value in test.where.items())
        ]
        try:
            result[seed] = _KINDS[test.kind](test, of_seed)
        except (KeyError, StatisticsError) as missing:  # a number is missing, or all trainings are
            raise InputError(f"seed {seed} has no trainings that decide {test.kind} of {test.of}: {missing}") from None
    if not result or not all(map(math.isfinite, result.values())):
        raise InputError(f"there are no trainings that decide {test.kind} of {test.of}")
    return result


def _contrast(test: ClaimTest, trained: Sequence[Training]) -> float:
    """Return the mean difference of a result between two levels of one factor, all other factors being equal."""
    rest = [name for name in FACTORS if name != test.factor]

    def level(wanted: Any) -> dict[tuple[Any, ...], float]:
        chosen = (training for training in trained if getattr(training, test.factor) == wanted)
        return {tuple(getattr(training, name) for name in rest): training.values[test.of] for training in chosen}

    high, low = level(test.high), level(test.low)
    return fmean(high[key] - low[key] for key in high.keys() & low.keys())


def _relation(test: ClaimTest, trained: Sequence[Training], of: str = "") -> float:
    """Return the mean rank correlation of two results within groups of trainings."""
    strata: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for training in trained:
        key = tuple(getattr(training, name) for name in test.within)
        strata.setdefault(key, []).append((training.values[of or test.of], training.values[test.with_]))
    return fmean(float(spearman(*np.transpose(pairs))) for pairs in strata.values())


_KINDS: dict[str, Callable[[ClaimTest, Sequence[Training]], float]] = {
    "level": lambda test, trained: fmean(training.values[test.of] for training in trained),
    "change": lambda test, trained: fmean(one.values[test.of] - one.values[test.less] for one in trained),
    "contrast": _contrast,
    "relation": _relation,
    "stronger": lambda test, trained: abs(_relation(test, trained)) - abs(_relation(test, trained, test.than)),
}


# --- verdicts


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return (mean, low, high) of Student's interval of the mean, which is unbounded for one value."""
    n = len(values)
    if n < 2:
        return math.fsum(values), -math.inf, math.inf
    mean = fmean(values)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return mean, mean - half, mean + half


def verdict(claim: StudyClaim, mean: float, low: float, high: float) -> str:
    """Return "holds", "does not hold" or "tie" for an effect and its interval.

    A directional claim holds if the interval lies beyond the bound on the claimed side and the mean exceeds the bound
    by at least the smallest difference that counts. It does not hold if the interval excludes such a difference. A
    claim of equality holds if the interval lies within that difference, and does not hold if the interval lies outside
    of it.
    """
    mean, low, high = (effect - claim.bound for effect in (mean, low, high))
    if claim.expects == "equal":
        if -claim.smallest < low and high < claim.smallest:
            return "holds"
        return "does not hold" if low >= claim.smallest or high <= -claim.smallest else "tie"
    if claim.expects == "below":
        mean, low, high = -mean, -high, -low
    if low > 0 and mean >= claim.smallest:
        return "holds"
    return "does not hold" if high < claim.smallest or high < 0 else "tie"


def p_values(claim: StudyClaim, values: Sequence[float]) -> dict[str, float]:
    """Map each verdict to its one-sided p-value.

    For a claim of equality, "holds" has the larger p-value of the two ends, and "does not hold" has twice the smaller
    one, at most 1.
    """
    centered = np.asarray(values) - claim.bound
    if claim.expects == "equal":
        above, below = claim.smallest + centered, claim.smallest - centered
        return {"holds": max(_one_sided(above), _one_sided(below)),
                "does not hold": min(1.0, 2 * min(_one_sided(-above), _one_sided(-below)))}  # fmt: skip
    centered = -centered if claim.expects == "below" else centered
    return {"holds": _one_sided(centered), "does not hold": _one_sided(claim.smallest - centered)}


def _one_sided(values: Values) -> float:
    """Return the p-value of the hypothesis that the mean is 0 or less."""
    n = len(values)
    error = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    if not error:
        return float(values[0] <= 0)
    return float(stats.t.sf(values.mean() / error, max(n - 1, 1)))


def judge(claim: StudyClaim, trained: Sequence[Training]) -> DecidedClaim:
    """Decide a claim with all seeds, and with each seed left out."""
    by_seed = effects(claim.test, trained)
    values = list(by_seed.values())
    without = {
        seed: verdict(claim, *interval([value for other, value in by_seed.items() if other != seed]))
        for seed in by_seed
    }
    ends = interval(values)
    return DecidedClaim(claim, by_seed, *ends, verdict(claim, *ends), without, p_values(claim, values))


def summary(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say how many claims hold, with a sentence for each claim that these rows decide, in the order of claims.yaml."""
    of_run = trainings(rows)
    judged = []
    for claim in claims():
        with suppress(InputError):
            judged.append(judge(claim, of_run))
    if not judged:
        return []
    seeds = max(len(decided.effects) for decided in judged)
    return [words("verdicts", counted(judged), seeds), *(words("judged", decided) for decided in judged)]


def counted(judged: Sequence[DecidedClaim]) -> dict[bool, dict[str, int]]:
    """Map whether a claim is published to the number of claims by verdict."""
    return {
        published: {kind: sum(decided.claim.published == published and decided.verdict == kind for decided in judged)
                    for kind in VERDICTS}
        for published in (True, False)
    }  # fmt: skip

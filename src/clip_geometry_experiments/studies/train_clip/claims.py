"""Published claims about trainings beside ours, over several seeds: what agrees, what does not, what is undecided."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from clip_geometry_experiments.studies.train_clip.figures import SEPARABILITY, words

Row = Mapping[str, Any]
ARMS = {
    "clip": "ClipLoss",
    "siglip": "SigLIP",
    "fixed_temperature": "fixed temperature",
    "istar": "I-STAR",
    "cosreg": "CosReg",
    "sigreg": "SIGReg",
    "classes": "class labels",
}
MODALITIES = ("image", "text")
CONE = 0.3  # average cosine above which rows count as a cone
APART = 0.9  # probe accuracy above which the modalities count as separable
AT_ODDS = -0.5  # correlation below which clusters count as traded for isotropy
SEEDS = 3  # with fewer, nothing is claimed: arms of one seed differ by chance too

Ends = np.ndarray  # (seeds, 2): the first and the last value of each training
Claim = tuple[bool | None, str]  # whether our numbers agree (None: in some seeds), and the claim with our numbers


class Arm(NamedTuple):
    """The trainings of a loss. ends: (measure, modality) → first and last values, where all are defined. correlations:
    modality → those of class silhouette and IsoScore over the states, one for each seed."""

    name: str
    ends: dict[tuple[str, str], Ends]
    correlations: dict[str, np.ndarray]

    @classmethod
    def of(cls, trainings: Iterable[Iterable[Row]]) -> "Arm":
        """trainings: the rows of each seed."""
        name, ends, correlations = "", {}, {}
        trainings = [list(rows) for rows in trainings]
        for row in (row for rows in trainings for row in rows):
            at = row["at"]
            name, modality = ARMS.get(at["arm"], str(at["arm"])), at.get("modality", "both")
            if "trajectory" in row and None not in (both := (row["trajectory"][0], row["trajectory"][-1])):
                ends.setdefault((row["measure"], modality), []).append(both)
            elif row["measure"] == "train_clip.pearson" and (at["of"], at["with"]) == ("silhouette", "isoscore"):
                correlations.setdefault(modality, []).append(row["value"])
        seeds = len(trainings)
        return cls(
            name,
            {key: np.array(values) for key, values in ends.items() if len(values) == seeds},
            {
                key: np.array(values, dtype=float)
                for key, values in correlations.items()
                if len(values) == seeds and None not in values
            },
        )


def train_clip_findings(rows: Iterable[Row]) -> list[str]:
    """A sentence for the claims that every seed agrees with, one for those that none agrees with, one for the rest.

    Claims that the rows cannot decide are left out. A seed counts if every loss has it, and of several trainings with
    one loss and seed the first. With fewer than three seeds nothing is claimed, and that is said.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        at = row["at"]
        groups.setdefault((at["arm"], row.get("seed"), at.get("penalty"), at.get("tower")), []).append(row)
    trainings: dict[str, dict[Any, list[Row]]] = {}
    for (code, seed, *_), group in groups.items():
        trainings.setdefault(code, {}).setdefault(seed, group)
    seeds = [seed for seed in next(iter(trainings.values()), {}) if all(seed in each for each in trainings.values())]
    arms = {code: Arm.of([each[seed] for seed in seeds]) for code, each in trainings.items()}
    claims = [claim for judge in (_cones, _gap, _temperature, _istar, _clusters) for claim in judge(arms)]
    if claims and len(seeds) < SEEDS:
        return [words("too_few_seeds", len(seeds), SEEDS)]
    sentences = ((agrees, [text for holds, text in claims if holds is agrees]) for agrees in (True, False, None))
    return [words("findings", agrees, texts, len(seeds)) for agrees, texts in sentences if texts]


def _verdict(holds: np.ndarray) -> bool | None:
    """Of each seed → of all: None where they differ."""
    return bool(holds[0]) if holds.all() or not holds.any() else None


def _spread(values: np.ndarray) -> tuple[float, float]:
    """(mean, standard deviation over the seeds)."""
    return float(values.mean()), float(values.std(ddof=1)) if np.ptp(values) else 0.0


def _cones(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    for arm in list(arms.values())[:1]:  # all arms have the same first weights
        first = [arm.ends["average_cosine", each][:, 0] for each in MODALITIES if ("average_cosine", each) in arm.ends]
        if len(first) == 2:
            yield _verdict(np.minimum(*first) > CONE), words("claim_cones", *map(_spread, first))


def _gap(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    found = []
    for code, arm in arms.items():
        gap, accuracy = arm.ends.get(("modality_gap", "both")), arm.ends.get((SEPARABILITY, "both"))
        if code != "classes" and gap is not None and accuracy is not None:
            found.append((_verdict(accuracy[:, 1] >= APART), arm.name, gap, accuracy))
    for holds in (True, False, None):
        some = [each[1:] for each in found if each[0] is holds]
        if some:
            _, gap, accuracy = some[0]
            last = [(name, _spread(gap[:, 1]), _spread(accuracy[:, 1])) for name, gap, accuracy in some]
            yield holds, words("claim_gap", (_spread(gap[:, 0]), _spread(accuracy[:, 0])), last)


def _temperature(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    """With CLIP's loss, and over all losses that have a temperature."""
    found = {}
    for code, arm in arms.items():
        gap, temperature = arm.ends.get(("modality_gap", "both")), arm.ends.get(("train_clip.temperature", "both"))
        if gap is not None and temperature is not None:
            found[code] = (temperature[:, 1], gap[:, 1], arm.name)
    if not {"clip", "fixed_temperature"} <= found.keys():
        return
    for codes in (("clip", "fixed_temperature"), tuple(found))[: 1 + (len(found) > 2)]:
        ranked = sorted((found[code] for code in codes), key=lambda each: each[0].mean())
        of_all = len(codes) > 2
        temperatures, gaps = (np.array([each[k] for each in ranked]) for k in (0, 1))  # (arms, seeds)
        ordered = np.take_along_axis(gaps, temperatures.argsort(0), 0)
        falls = np.asarray(ordered[1:] < ordered[:-1]).all(axis=0)
        told = [(_spread(temperature), _spread(gap), name) for temperature, gap, name in ranked]
        if not of_all or not falls.all():
            yield _verdict(np.asarray(falls)), words("claim_temperature", told, of_all=of_all)


def _istar(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    found = []
    for key in (("isoscore", modality) for modality in MODALITIES):
        ends = [arms[code].ends.get(key) for code in ("istar", "clip") if code in arms]
        if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
            with_penalty, without = (each[:, 1] for each in ends if each is not None)
            found.append((_verdict(with_penalty > without), key[1], _spread(with_penalty), _spread(without)))
    for holds in (True, False, None):
        if some := [each[1:] for each in found if each[0] is holds]:
            yield holds, words("claim_istar", some)


def _clusters(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    """The claim is about classifiers; contrastive arms are listed with them."""
    found: dict[bool | None, dict[str, list[tuple[str, tuple[float, float]]]]] = {True: {}, False: {}, None: {}}
    for modality, arm in product(MODALITIES, arms.values()):
        silhouette, isoscore = (arm.ends.get((name, modality)) for name in ("silhouette", "isoscore"))
        r = arm.correlations.get(modality)
        if silhouette is not None and isoscore is not None and r is not None:
            traded = (silhouette[:, 1] > silhouette[:, 0]) & (isoscore[:, 1] < isoscore[:, 0]) & (r <= AT_ODDS)
            found[_verdict(traded)].setdefault(modality, []).append((arm.name, _spread(r)))
    yield from ((holds, words("claim_clusters", some)) for holds, some in found.items() if some)

"""Published claims about trainings beside ours: what agrees and what does not, in a sentence each."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from clip_geometry.experiments.train_clip.figures import SEPARABILITY, words

Row = Mapping[str, Any]
ARMS = {
    "clip": "ClipLoss",
    "siglip": "SigLIP",
    "fixed_temperature": "fixed temperature",
    "istar": "I-STAR",
    "cosreg": "CosReg",
    "classes": "class labels",
}
MODALITIES = ("image", "text")
CONE = 0.3  # average cosine above which rows count as a cone
APART = 0.9  # probe accuracy above which the modalities count as separable
AT_ODDS = -0.5  # correlation below which clusters count as traded for isotropy

Claim = tuple[bool, str]  # whether our numbers agree, and the claim with our numbers


class Arm(NamedTuple):
    """One training. ends: (measure, modality) → its first and last value, where both are defined. correlations:
    modality → that of class silhouette and IsoScore over the states."""

    name: str
    ends: dict[tuple[str, str], tuple[float, float]]
    correlations: dict[str, float | None]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "Arm":
        name, ends, correlations = "", {}, {}
        for row in rows:
            at = row["at"]
            name, modality = ARMS.get(at["arm"], str(at["arm"])), at.get("modality", "both")
            if "trajectory" in row and None not in (both := (row["trajectory"][0], row["trajectory"][-1])):
                ends[row["measure"], modality] = both
            elif row["measure"] == "train_clip.pearson" and (at["of"], at["with"]) == ("silhouette", "isoscore"):
                correlations[modality] = row["value"]
        return cls(name, ends, correlations)


def train_clip_findings(rows: Iterable[Row]) -> list[str]:
    """A sentence for the claims that the rows agree with and one for the others; claims that the rows cannot decide are
    left out. Of several trainings with one loss the first counts."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        at = row["at"]
        groups.setdefault((at["arm"], at.get("penalty"), at.get("tower"), row.get("seed")), []).append(row)
    arms: dict[str, Arm] = {}
    for (code, *_), group in groups.items():
        arms.setdefault(code, Arm.of(group))
    claims = [claim for judge in (_cones, _gap, _temperature, _istar, _clusters) for claim in judge(arms)]
    sentences = ((agrees, [text for holds, text in claims if holds is agrees]) for agrees in (True, False))
    return [words("findings", agrees, texts) for agrees, texts in sentences if texts]


def _cones(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    for arm in list(arms.values())[:1]:  # all arms have the same first weights
        first = [arm.ends["average_cosine", each][0] for each in MODALITIES if ("average_cosine", each) in arm.ends]
        if len(first) == 2:
            yield min(first) > CONE, words("claim_cones", *first)


def _gap(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    found = []
    for code, arm in arms.items():
        gap, accuracy = arm.ends.get(("modality_gap", "both")), arm.ends.get((SEPARABILITY, "both"))
        if code != "classes" and gap and accuracy:
            found.append((arm.name, gap, accuracy))
    for holds in (True, False):
        some = [each for each in found if (each[2][1] >= APART) is holds]
        if some:
            _, gap, accuracy = some[0]
            last = [(name, gap[1], accuracy[1]) for name, gap, accuracy in some]
            yield holds, words("claim_gap", (gap[0], accuracy[0]), last)


def _temperature(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    """With CLIP's loss, and over all losses that have a temperature."""
    found = {}
    for code, arm in arms.items():
        gap, temperature = arm.ends.get(("modality_gap", "both")), arm.ends.get(("train_clip.temperature", "both"))
        if gap and temperature:
            found[code] = (temperature[1], gap[1], arm.name)
    if not {"clip", "fixed_temperature"} <= found.keys():
        return
    clip = sorted((found["clip"], found["fixed_temperature"]))
    yield clip[0][1] > clip[1][1], words("claim_temperature", clip, of_all=False)
    ranked = sorted(found.values())
    gaps = [gap for _, gap, _ in ranked]
    if gaps != sorted(gaps, reverse=True):
        yield False, words("claim_temperature", ranked, of_all=True)


def _istar(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    found = []
    for key in (("isoscore", modality) for modality in MODALITIES):
        ends = [arms[code].ends.get(key) for code in ("istar", "clip") if code in arms]
        if len(ends) == 2 and ends[0] and ends[1]:
            found.append((key[1], ends[0][1], ends[1][1]))
    for holds in (True, False):
        if some := [each for each in found if (each[1] > each[2]) is holds]:
            yield holds, words("claim_istar", some)


def _clusters(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    """The claim is about classifiers; contrastive arms are listed with them."""
    found: dict[bool, dict[str, list[tuple[str, float]]]] = {True: {}, False: {}}
    for modality, arm in product(MODALITIES, arms.values()):
        silhouette, isoscore = (arm.ends.get((name, modality)) for name in ("silhouette", "isoscore"))
        r = arm.correlations.get(modality)
        if silhouette and isoscore and r is not None:
            traded = silhouette[1] > silhouette[0] and isoscore[1] < isoscore[0] and r <= AT_ODDS
            found[traded].setdefault(modality, []).append((arm.name, r))
    yield from ((holds, words("claim_clusters", some)) for holds, some in found.items() if some)

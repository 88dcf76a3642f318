"""A training beside what papers claim of trainings: what agrees and what does not, in a sentence each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from clip_geometry.experiments.train_clip.panels import SEPARABILITY
from clip_geometry.report.numbers import fixed

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
CONE = 0.3  # an average cosine from which on one speaks of a cone
APART = 0.9  # the share told right from which on modalities are apart
AT_ODDS = -0.5  # a correlation up to which one speaks of a trade


class Claim(NamedTuple):
    """text: the claim with our numbers; holds: whether they agree."""

    text: str
    holds: bool


class Arm:
    """What the rows say of one training."""

    def __init__(self, rows: Sequence[Row]):
        self.name = ARMS.get(rows[0]["at"]["arm"], rows[0]["at"]["arm"])
        states = [row for row in rows if "trajectory" in row]
        self._ends = {_place(row): (row["trajectory"][0], row["trajectory"][-1]) for row in states}
        self._correlations = {
            (row["at"]["of"], row["at"]["with"], row["at"]["modality"]): row["value"]
            for row in rows
            if row["measure"] == "train_clip.pearson"
        }

    def ends(self, measure: str, modality: str = "both") -> tuple[float, float] | None:
        """(first, last) value, where both are defined."""
        found = self._ends.get((measure, modality), (None, None))
        return None if None in found else found

    def clusters_against_isotropy(self, modality: str) -> tuple[float, float, float] | None:
        """(change of the class silhouette, change of IsoScore, their correlation over the states)."""
        silhouette, isoscore = self.ends("silhouette", modality), self.ends("isoscore", modality)
        r = self._correlations.get(("silhouette", "isoscore", modality))
        if silhouette is None or isoscore is None or r is None:
            return None
        return silhouette[1] - silhouette[0], isoscore[1] - isoscore[0], r


def _place(row: Row) -> tuple[str, str]:
    return row["measure"], row["at"].get("modality", "both")


def train_clip_findings(rows: Iterable[Row]) -> list[str]:
    """What agrees with published claims, and what does not; of what the rows do not allow to judge nothing."""
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        at = row["at"]
        grouped.setdefault((at["arm"], at.get("penalty"), at.get("tower"), row.get("seed")), []).append(row)
    arms: dict[str, Arm] = {}
    for group in grouped.values():
        arms.setdefault(group[0]["at"]["arm"], Arm(group))  # of several seeds the first
    claims = [claim for judge in _JUDGES for claim in judge(arms)]
    told = [
        (head, [claim.text for claim in claims if claim.holds is holds])
        for head, holds in (("Agrees with papers, one run per loss", True), ("Does not agree, one run per loss", False))
    ]
    return [f"{head}: {'; '.join(texts)}." for head, texts in told if texts]


def _cones(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    """All arms have the same first weights."""
    for arm in list(arms.values())[:1]:
        ends = [arm.ends("average_cosine", modality) for modality in MODALITIES]
        first = [each[0] for each in ends if each is not None]
        if len(first) == 2:
            yield Claim(
                "cones before any training (Liang et al. 2022, Tyshchuk et al. 2023), average cosine "
                f"{fixed(first[0], 2)} of images and {fixed(first[1], 2)} of texts at step 0",
                min(first) > CONE,
            )


def _gap(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    found = [
        (arm.name, gap, right)
        for code, arm in arms.items()
        if code != "classes" and (gap := arm.ends("modality_gap")) and (right := arm.ends(SEPARABILITY))
    ]
    for holds in (True, False):
        some = [each for each in found if (each[2][1] >= APART) is holds]
        told = [f"{fixed(gap[1], 2)} and {fixed(right[1], 2)} ({name})" for name, gap, right in some]
        if some:
            _, gap, right = some[0]
            yield Claim(
                "contrastive training keeps the modalities apart (Liang et al. 2022), gap and share that a linear "
                f"classifier tells {fixed(gap[0], 2)} and {fixed(right[0], 2)} at first, {', '.join(told)} at last",
                holds,
            )


def _temperature(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    """Within CLIP's loss, and over all losses that have a temperature."""
    found = {}
    for code, arm in arms.items():
        gap, temperature = arm.ends("modality_gap"), arm.ends("train_clip.temperature")
        if gap is not None and temperature is not None:
            found[code] = (temperature[1], gap[1], arm.name)
    if not {"clip", "fixed_temperature"} <= found.keys():
        return
    claim = "the lower the temperature, the larger the gap that is left (Liang et al. 2022)"
    (low, at_low, _), (high, at_high, _) = sorted((found["clip"], found["fixed_temperature"]))
    yield Claim(
        f"{claim}, with ClipLoss {fixed(at_low, 2)} at {fixed(low, 3)} and {fixed(at_high, 2)} at {fixed(high, 3)}",
        at_low > at_high,
    )
    ranked = sorted(found.values())
    gaps = [gap for _, gap, _ in ranked]
    if gaps != sorted(gaps, reverse=True):
        told = ", ".join(f"{fixed(gap, 2)} at {fixed(at, 3)} ({name})" for at, gap, name in ranked)
        yield Claim(f"{claim}, over all losses {told}", False)


def _istar(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    found = [
        (modality, with_it[1], without[1])
        for modality in MODALITIES
        if {"istar", "clip"} <= arms.keys()
        and (with_it := arms["istar"].ends("isoscore", modality))
        and (without := arms["clip"].ends("isoscore", modality))
    ]
    for holds in (True, False):
        told = [f"{fixed(y, 3)} against {fixed(x, 3)} of {of}s" for of, y, x in found if (y > x) is holds]
        if told:
            yield Claim(f"I-STAR raises IsoScore (Rudman & Eickhoff 2024), {', '.join(told)}", holds)


def _clusters(arms: Mapping[str, Arm]) -> Iterator[Claim]:
    """The claim is of classifiers; the contrastive arms are told with it."""
    found = [
        (modality, arm.name, changes)
        for modality in MODALITIES
        for arm in arms.values()
        if (changes := arm.clusters_against_isotropy(modality))
    ]
    for holds in (True, False):
        told = []
        for modality in MODALITIES:
            some = [(name, of[-1]) for which, name, of in found if which == modality and _at_odds(*of) is holds]
            if some:
                told.append(f"of {modality}s {', '.join(f'{fixed(r, 2)} ({name})' for name, r in some)}")
        if told:
            yield Claim(
                "clusters grow at the cost of isotropy (Mickus et al. 2024, of classifiers, r −0.81 to −0.98), r of "
                f"class silhouette and IsoScore {', '.join(told)}",
                holds,
            )


def _at_odds(up: float, down: float, r: float) -> bool:
    return up > 0 > down and r <= AT_ODDS


_JUDGES = (_cones, _gap, _temperature, _istar, _clusters)

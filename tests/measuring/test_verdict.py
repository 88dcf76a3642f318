"""The verdict: each sentence where its numbers are, and no claim within two standard errors."""

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.measuring.records import CORE
from clip_geometry.measuring.table import verdict

OWN = "retrieval[mixed].{}.same_modality_at_10".format
NOTES = [{"measure": name, "value": None, "at": {}} for name in CORE]


def row(measure, place, value, null=0.0, error=0.01):
    return {"measure": measure, "at": {"modality": place}, "value": value, "null_value": null, "standard_error": error}


def said(*rows):
    return verdict([*NOTES, *(row(*each) for each in rows)])


def cones(**values):
    return [("average_cosine", place, value) for place, value in values.items()]


def gap(first, second, value=0.8, error=0.01, place="both"):
    own = ((OWN(role), place, share, 0.5) for role, share in (("image", first), ("text", second)))
    return [*cones(image=0.0, text=0.0), ("modality_gap", place, value, 0.1, error), *own]


def pairs(matching, random, error=0.01, place="both"):
    first = (("retrieval.image_to_text.r_at_1", place, 0.3), ("retrieval.text_to_image.r_at_1", place, 0.998))
    cosines = (("matching_cosine", place, matching, 0, error), ("random_cosine", place, random, 0, error))
    return [*cones(image=0.0, text=0.0), *cosines, *first]


SENTENCES = {
    "cone": (cones(rows=0.53), "The rows sit in a cone (average cosine 0.53; isotropic rows have 0)"),
    "cones": (cones(image=0.53, text=0.4), "Image and text rows sit in cones (average cosine 0.53 and 0.40; is"),
    "weak": (cones(rows=0.19), "The rows lean slightly to one side (average cosine 0.19; isotropic rows have 0)"),
    "none": (cones(rows=0.028), "The rows sit in no cone (average cosine 0.028; isotropic rows have 0)"),
    "negative": ([("average_cosine", "rows", -0.1, -0.9)], "The rows sit in no cone (average cosine −0.10"),
    "of each kind": (
        cones(image=0.5, text=0.1, audio=0.0),
        "Image rows sit in a cone (average cosine 0.50; isotropic rows have 0); text rows lean slightly to one side "
        "(average cosine 0.10; isotropic rows have 0); audio rows sit in no cone (average cosine 0.000; is",
    ),
    "far": ([("isoscore[unbiased]", "rows", 0.4, 1.0)], "The variance of the rows is far from isotropic (IsoScore 0.4"),
    "uneven": ([("isoscore[unbiased]", "rows", 0.7, 1.0)], "The variance of the rows is not isotropic (IsoScore 0.70"),
    "isotropic": ([("isoscore[unbiased]", "rows", 0.96, 1.0)], "The variance of the rows is as even as that of isotr"),
    "isotropic, within its error": (
        [("isoscore[unbiased]", "rows", 0.7, 1.0, 0.12)], "The variance of the rows is as even as that of isotr",
    ),
    "gap": (gap(0.7, 0.7), "A gap lies between the modalities: their means are 0.80 apart (by chance: 0.10); in "),
    "gap between cones": (
        [*gap(0.7, 0.7), *cones(image=0.4, text=0.6)],
        "their means are 0.80 apart (by chance in such cones: 0.071); in a",
    ),
    "no gap": (
        gap(0.5, 0.5, value=0.12),
        "No gap shows: the means of the modalities are no further apart than by chance (0.12 against 0.10); a mixed "
        "index is about even",
    ),
    "gap without an error": (gap(0.5, 0.5, error=None), "The means of the modalities are 0.80 apart (by chance:"),
    "separated": (gap(0.99, 0.95), "it separates them in a mixed index, where 99% (image queries) and 95% (text q"),
    "even": (gap(0.51, 0.51), "; a mixed index is about even: 51% of a query's 10 nearest rows are of its own mod"),
    "mixed": (gap(0.95, 0.6), "; in a mixed index 95% (image queries) and 60% (text queries) of a query's 10 nearest"),
    "separated without a gap": (gap(0.95, 0.95, value=0.11), "; in a mixed index 95% of a query's 10 nearest rows are"),
    "the one couple in one space": (
        gap(0.95, 0.6, place="audio+text"),
        "A gap lies between audio and text: their means are 0.80 apart (by chance: 0.10); in a mixed index 95% "
        "(audio queries) and 60% (text queries)",
    ),
    "several gaps": (
        [("modality_gap", "image+text", 0.8, 0.1), ("modality_gap", "audio+text", 0.12, 0.1),
         ("modality_gap", "audio+image", 0.9, 0.1)],
        "The means of the modalities are 0.12 (audio and text) to 0.90 (audio and image) apart; the gap between "
        "audio and text is not clearly larger than by chance.",
    ),
    "several without one": (
        [("modality_gap", "image+text", 0.1, 0.1), ("modality_gap", "audio+text", 0.12, 0.1)],
        "The means of the modalities are 0.10 (image and text) to 0.12 (audio and text) apart, none clearly "
        "further than by chance.",
    ),
    "pairs": (
        pairs(0.3, 0.1),
        "Pairs are closer than random ones (cosine 0.30 against 0.10) and come first for 30% of images and over 99% of "
        "texts.",
    ),
    "pairs of other modalities": (
        [*pairs(0.3, 0.1)[2:], *cones(text=0.0, audio=0.0)], "come first for 30% of audio rows and over 99% of texts.",
    ),
    "no pairs": (pairs(0.12, 0.1), "Pairs are not closer than random ones by two standard errors (cosine 0.12 again"),
    "pairs without an error": (pairs(0.3, 0.1, error=None), "Pairs have cosine 0.30 and random ones 0.10."),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_each_sentence(rows, sentence):
    assert sentence in said(*rows)
    assert said(*rows[::-1]).endswith(".")


@pytest.mark.parametrize(
    ("made", "claim"),
    [
        (lambda errors: cones(rows=errors * 0.01), "lean"),
        (lambda errors: [("isoscore[unbiased]", "rows", 0.9 - errors * 0.01, 0.9, 0.01 + 1e-9)], "not isotropic"),
        (lambda errors: gap(0.5, 0.5, value=0.1 + errors * 0.01), "A gap lies"),
        (lambda errors: pairs(0.1 + errors * 0.01, 0.1), "Pairs are closer"),
        (lambda errors: gap(0.5 + errors * 0.01, 0.5), "; in a mixed index"),
    ],
)
def test_a_claim_needs_two_standard_errors_of_the_difference(made, claim):
    """Both numbers have an error: that of the difference is √2 of theirs."""
    limit = 2 * np.sqrt(2)
    small = {"lean": 1, "not isotropic": 5.1}.get(claim, 1)  # an IsoScore of 0.95 of its null value is none either
    assert claim not in said(*made(limit - 0.1))
    assert claim in said(*made(max(limit + 0.1, small)))


def test_nothing_is_said_without_the_core_in_groups_or_without_errors():
    rows = [row("average_cosine", "rows", 0.5), row("modality_gap", "both", 0.8)]
    assert verdict(rows) == "" and verdict([*NOTES, *rows]) != ""
    assert verdict([*NOTES, *rows, {**rows[0], "at": {"layer": 1, "modality": "rows"}}]) == ""
    assert said(("average_cosine", "rows", 0.5, 0.0, None), ("isoscore[unbiased]", "rows", 0.1, 1.0, None)) == ""
    assert said(("average_cosine", "rows", 0.5, None)) == verdict(NOTES) == ""


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_neither_a_cone_nor_a_gap(seed):
    image, text = np.random.default_rng(seed).normal(size=(2, 60, 16))
    text = cg.measure(image, text, seed=seed).verdict
    assert text.startswith("Image and text rows sit in no cone") and "No gap shows: the means" in text
    assert "as even as that of isotropic rows" in text and "Pairs are not closer" in text


def test_a_small_gap_between_narrow_cones_is_one():
    """Chance shrinks with the spread of the rows; the null value is that of rows without a common direction."""
    rng, e = np.random.default_rng(0), np.eye(64)
    noise = 0.001 * rng.normal(size=(2, 100, 64))
    apart = cg.measure(e[0] + noise[0], e[0] + 0.05 * e[1] + noise[1])
    assert apart["modality_gap"].value < apart["modality_gap"].null_value
    assert (
        "A gap lies between the modalities: their means are 0.050 apart (by chance in such cones: 0.001"
        in apart.verdict
    )
    assert "it separates them in a mixed index" in apart.verdict
    assert "No gap shows" in cg.measure(e[0] + noise[0], e[0] + noise[1]).verdict

"""Sentences are read off the rows; what the rows do not carry is not said."""

import pytest

from clip_geometry_experiments.report.findings import across, before_and_after, differ, findings


def row(measure, value, modality="both", **more):
    return {"measure": measure, "value": value, "at": {"modality": modality}, **more}


CLIP = [
    row("matching_cosine", 0.3099),
    row("random_cosine", 0.1616),
    row("average_cosine", 0.5315, "image"),
    row("modality_gap", 0.8514, null_value=0.0632),
    row("cone_half_angle", 62.81, "image", null_value=95.98),
    row("cone_half_angle", 68.39, "text", null_value=97.2),
    row("participation_ratio", 42.7, "image", d=512, null_value=253.1),
    row("participation_ratio", 4.1713, "text", d=512, null_value=251.9),
]


def test_clip():
    nearest, gap, cone, dimensions = findings(CLIP)
    assert "closer to a random image (cosine 0.5315) than to its own text (0.3099)" in nearest
    assert nearest.endswith("the text of another image is 0.1616.")
    assert gap == "The mean image and the mean text lie 0.8514 apart; without a gap it would be about 0.0632."
    assert cone.startswith(
        "Each modality lies in a cone: every image is within 63° of the mean image direction and every"
    )
    assert "text within 69° of the mean" in cone and cone.endswith(
        "; isotropic samples of the same sizes reach 96° and 97°."
    )
    assert "equivalent of 43 of 512 directions, that of the texts over 4.2; isotropic samples" in dimensions
    assert dimensions.endswith(" give 253 and 252.")


def test_a_quoted_number_has_the_standard_error_of_its_row():
    errors = {"matching_cosine": 0.002, "random_cosine": 0.0009, "average_cosine": 0.0051, "modality_gap": 0.00031}
    errors |= {"participation_ratio": 0.44}
    told = findings([{**line, "standard_error": errors.get(line["measure"])} for line in CLIP])
    assert "a random image (cosine 0.5315 ± 0.0051) than to its own text (0.3099 ± 0.0020)" in told[0]
    assert told[0].endswith("another image is 0.16160 ± 0.00090.")
    assert told[1] == (
        "The mean image and the mean text lie 0.85140 ± 0.00031 apart; without a gap it would be about 0.06320."
    )
    assert told[2] == findings(CLIP)[2]  # an extreme has none
    assert "equivalent of 42.70 ± 0.44 of 512 directions, that of the texts over 4.17 ± 0.44;" in told[3]


def test_equal_to_the_digits_shown_is_not_called_closer():
    rows = [row("matching_cosine", 0.00480), row("average_cosine", 0.00484, "image")]
    assert findings(rows) == ["On average an image is as close to a random image as to its own text (cosine 0.0048)."]


@pytest.mark.parametrize(("value", "closer"), [(0.029, False), (0.031, True)])
def test_a_difference_within_two_standard_errors_is_not_called_closer(value, closer):
    """Errors of .003 and .004 make one of .005 of the difference."""
    rows = [
        row("matching_cosine", value, standard_error=0.003),
        row("average_cosine", 0.02, "image", standard_error=0.004),
    ]
    assert findings(rows)[0].startswith("On average an image is closer to its own text") == closer


def test_what_chance_gives_is_not_called_closer():
    """64 pairs in 512 dimensions: the mean cosine of random directions has a standard error of 1/√(64·512) = .0055."""
    noise = [row("matching_cosine", 0.0069, n=64, d=512), row("average_cosine", 0.0012, "image", n=64, d=512)]
    assert findings(noise) == [
        "An image is not significantly closer to its own text (cosine 0.0069) than to a random image (0.0012)."
    ]
    clear = [row("matching_cosine", 0.0669, n=64, d=512), row("average_cosine", 0.0012, "image", n=64, d=512)]
    assert findings(clear)[0].startswith("On average an image is closer to its own text")


@pytest.mark.parametrize(("angle", "null"), [(97.0, None), (97.0, 120.0), (54.7, 54.7), (88.0, 90.0)])
def test_no_cone_is_claimed_beyond_a_right_angle_or_where_any_sample_of_this_size_fits_one(angle, null):
    assert findings([row("cone_half_angle", angle, "image", null_value=null)]) == []


WHEN = ("before training", "after training")
FRESH = [
    row("modality_gap", 0.97, null_value=0.05),
    row("matching_cosine", -0.014),
    row("average_cosine", 0.452, "image"),
    row("average_cosine", 0.449, "text"),
    row("silhouette", -0.19, "image"),
    row("participation_ratio", 7.1, "image", d=256),
    row("participation_ratio", 14.2, "text", d=256),
]
TRAINED = [
    row("modality_gap", 0.24, null_value=0.048),
    row("matching_cosine", 0.89),
    row("average_cosine", 0.2, "image"),
    row("average_cosine", 0.051, "text"),
    row("silhouette", 0.23, "image"),
    row("participation_ratio", 7.3, "image", d=256),
    row("participation_ratio", 10.2, "text", d=256),
]


def test_a_model_before_and_after_training():
    gap, pairs, cones, classes, dimensions = before_and_after(FRESH, TRAINED, WHEN)
    assert gap.startswith(
        "Before training the mean image and the mean text lie 0.97 apart, after training 0.24; without"
    )
    assert gap.endswith(" 0.048.")
    assert "closer to a random image (cosine 0.45) than to its own caption (cosine −0.014), after training" in pairs
    assert pairs.endswith("closer to its own caption (cosine 0.89) than to a random image (cosine 0.20).")
    assert "cosine of 0.45 and two random texts of 0.45; after training 0.20 and 0.051." in cones
    assert classes.endswith("silhouette of images is −0.19 before training and 0.23 after training.")
    assert "7.3 of 256 directions and that of texts over 10 (before training 7.1 and 14)." in dimensions


def gaps(*values, error=None):
    return [(f"run {k}", [row("modality_gap", value, standard_error=error)]) for k, value in enumerate(values)]


def test_extremes_within_two_standard_errors_are_a_tie():
    (tie,) = across(gaps(0.50, 0.52, error=0.01))
    assert tie.endswith("is 0.500 ± 0.010 to 0.520 ± 0.010, equal within two standard errors.")
    (apart,) = across(gaps(0.50, 0.53, error=0.01))
    assert "(run 0)" in apart and "equal" not in apart
    (same,) = across(gaps(0.5, 0.5))
    assert same.endswith("is 0.5000 in both runs.")


@pytest.mark.parametrize(
    ("values", "errors", "expected"),
    [((1.0, 1.2), (0.1, 0.0), False), ((1.0, 1.21), (0.1, 0.0), True), ((1.0, 1.25), (0.1, 0.1), False),
     ((1.0, 1.0 + 1e-15), (None, None), False), ((1.0, 9.0), (None, None), None), ((1.0, 9.0), (0.1, None), None)],
)  # fmt: skip
def test_values_within_two_standard_errors_of_their_difference_are_a_tie(values, errors, expected):
    one, other = ({"value": v, "standard_error": e} for v, e in zip(values, errors, strict=True))
    assert differ(one, other) is differ(other, one) is expected

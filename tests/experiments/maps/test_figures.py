"""Sentences state what the rows of the table state, and the figure draws every row in its place."""

from clip_geometry_experiments.maps.figures import sentences

KEYS = {
    "gap": ("modality_gap", "both", ""),
    "score": ("isoscore[unbiased]", "image", ""),
    "own": ("retrieval[mixed].image.same_modality_at_10", "both", ""),
    "first": ("retrieval[mixed].image_to_text.r_at_1", "both", ""),
    "seen": ("zero_shot.top_1", "both", "seen"),
    "held_out": ("zero_shot.top_1", "both", "held out"),
}


def rows(name, **values):
    """The rows of a line of the table; searches have no standard error."""
    found = []
    for key, value in values.items():
        measure, modality, classes = KEYS[key]
        at = {"row": name, "modality": modality} | ({"classes": classes} if classes else {})
        error = {"standard_error": 0.01} if classes else {}
        found.append({"measure": measure, "value": value, "null_value": 0.0125, "n": 414, "at": at} | error)
    return found


PLAIN = rows("plain", gap=0.24, score=0.025, own=0.81, first=0.134, seen=0.9988, held_out=0.98)
CENTERED = rows("centering", gap=0.017, score=0.027, own=0.7, first=0.37, seen=0.99, held_out=0.87)
WHITENED = rows("whitening", gap=0.3, score=0.6, own=0.9, first=0.001, seen=0.02, held_out=0.01)
CALIBRATED = rows("calibrated", own=0.45, first=0.66, seen=0.9988, held_out=0.98)  # a repair has no geometry
ALL = [*PLAIN, *CENTERED, *WHITENED, *CALIBRATED]


def test_the_sentences():
    index, first, isotropic, held_out, seen = sentences(ALL)
    assert index == (
        "81% of the ten rows nearest to an image are images, where an even mix has 50%; “centering” reduces the "
        "modality gap from 0.24 to 0.017, but 70% are still images."
    )
    assert first.startswith("The share of image queries that find their partner first in one index of both is 0.134")
    assert "highest after “calibrated” (0.660" in first and "lowest after “whitening”" in first
    assert "“whitening” raises the IsoScore of images from 0.025 to 0.60" in isotropic
    assert isotropic.endswith("falls from over 99% to 2%.")
    assert held_out.startswith("The zero-shot accuracy on held-out classes is 0.980 ± 0.010 with “plain”")
    assert seen.startswith("The zero-shot accuracy on seen classes is 0.999 ± 0.010 with “plain”")

"""What is said of a training is read off its curves."""

import pytest

from clip_geometry.experiments.train_clip.sentences import tell

STEPS = [0, 1, 10, 100, 1000]


def row(measure, values, modality="both", **at):
    return {
        "measure": measure,
        "value": values[-1],
        "at": {"modality": modality, **at},
        "trajectory": values,
        "steps": STEPS,
    }


GAP = row("modality_gap", [0.97, 0.95, 0.4, 0.26, 0.24])
CONE = row("average_cosine", [0.45, 0.2, 0.1, 0.12, 0.2], "image")
SEEN = row("zero_shot.top_1", [0.01, 0.02, 0.1, 0.58, 0.99], classes="seen")
HELD_OUT = row("zero_shot.top_1", [0.01, 0.01, 0.1, 0.31, 0.97], classes="held out")
CLUSTERS = row("silhouette", [-0.33, -0.3, -0.2, 0.1, 0.21], "image")
SCORE = row("isoscore[unbiased]", [0.023, 0.02, 0.02, 0.02, 0.025], "image")
ALL = [GAP, CONE, SEEN, HELD_OUT, CLUSTERS, SCORE]


def test_a_training():
    """Half way: the cone's .325 is passed at step 1, the gap's .605 at step 10, the accuracy's .5 at step 100."""
    assert tell(ALL) == [
        "The cone of images is half way to its final value at step 1, the modality gap at step 10, accuracy on seen "
        "classes at step 100, of 1000.",
        "The gap falls from 0.97 and does not close: from step 100 on it stays between 0.24 and 0.26.",
        "When 58% of the pictures of seen classes are named right (step 100), 31% are of the classes never trained on; "
        "at the end 99% and 97%.",
        "Classes become clusters (silhouette of images −0.33 to 0.21), and IsoScore hardly moves (0.023 to 0.025).",
    ]


def test_the_order_is_that_of_the_curves():
    late = row("average_cosine", [0.45, 0.45, 0.45, 0.44, 0.2], "image")
    assert tell([GAP, late])[0] == (
        "The modality gap is half way to its final value at step 10, the cone of images at step 1000, of 1000."
    )


def test_a_gap_that_widens_is_not_said_to_fall():
    assert tell([row("modality_gap", [0.2, 0.3, 0.4, 0.5, 0.6])]) == ["The gap goes from 0.20 to 0.60."]


@pytest.mark.parametrize(("last", "word"), [(0.05, "rises"), (0.01, "falls"), (0.028, "hardly moves")])
def test_isotropy_moves_as_it_does(last, word):
    score = row("isoscore[unbiased]", [0.023, 0.02, 0.02, 0.02, last], "image")
    assert f"IsoScore {word} (0.023 to" in tell([CLUSTERS, score])[0]


def test_nothing_is_said_of_states_that_are_missing():
    gap = {**GAP, "trajectory": [0.97, None, 0.4, 0.26, 0.24]}
    assert tell([gap, {"measure": "train_clip.change", "value": 0.1, "at": {"of": "silhouette"}}]) == []
    assert tell([]) == []

"""Sentences are read off the rows; what the rows do not carry is not said."""

from clip_geometry.report.findings import findings


def row(measure, value, modality="both", **more):
    return {"measure": measure, "value": value, "at": {"modality": modality}, **more}


CLIP = [
    row("matching_cosine", 0.3099),
    row("random_cosine", 0.1616),
    row("average_cosine", 0.5315, "image"),
    row("modality_gap", 0.8514, null_value=0.0632),
    row("cone_half_angle", 62.81, "image", null_value=95.98),
    row("cone_half_angle", 68.39, "text"),
    row("participation_ratio", 42.7, "image", d=512, null_value=253.1),
    row("participation_ratio", 41.71, "text", d=512),
]


def test_clip():
    assert findings(CLIP) == [
        "On average an image is closer to another image drawn at random (cosine 0.5315) than to its own text "
        "(0.3099); the text of another image comes to 0.1616.",
        "The mean image and the mean text lie 0.8514 apart; without a gap it would be about 0.0632.",
        "Embeddings fill a cone: every image lies within 63° of the mean image direction and every text lies within "
        "68° of the mean text direction; an isotropic cloud of this size reaches 96°.",
        "The variance of images spreads over the equivalent of 43 of 512 directions, that of texts over 42; an "
        "isotropic sample of the same size would give 253.",
    ]


def test_the_sentence_follows_the_numbers():
    rows = [row("matching_cosine", 0.91), row("average_cosine", 0.07, "image")]
    assert findings(rows) == [
        "On average an image is closer to its own text (cosine 0.9100) than to another image drawn at random (0.0700)."
    ]


def test_no_cone_is_claimed_beyond_a_right_angle():
    assert findings([row("cone_half_angle", 97.0, "image")]) == []


def test_nothing_is_said_of_missing_numbers():
    rows = [{**line, "value": None, "note": "needs pairs"} for line in CLIP]
    assert findings(rows) == []
    assert findings([{"measure": "modality_gap", "value": 0.4}]) == []


def test_texts_alone():
    told = findings([row("participation_ratio", 17.2, "text", d=64)])
    assert told == ["The variance of texts spreads over the equivalent of 17 of 64 directions."]

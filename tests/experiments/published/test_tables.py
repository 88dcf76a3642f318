import pytest

from clip_geometry_experiments.published.ledger import all_entries
from clip_geometry_experiments.published.tables import beside

PROMPT = "low-resolution photo of a {_}"
ZERO_SHOT, ISOTROPY = "tyshchuk2023-zero_shot", "tyshchuk2023-isotropy"


def row(measure, value, **fields):
    shared = {"standard_error": 0.0041, "n": 10000, "d": 512, "pipeline": ["normalize"], "model": "scenes-clip/fresh"}
    return {"measure": measure, "value": value, **shared, "model_options": {"seed": 0}, **fields}


def accuracy(value, label="CLIP", measure="zero_shot.top_1", **fields):
    place = {"dataset": "cifar100", "split": "test", "at": {"row": label, "split": "test"}}
    return row(measure, value, **place | {"data_options": {"prompt": PROMPT}} | fields)


def cells_of(table, label):
    """The rows of a number, the following variants included."""
    return [cells for cells in table.rows if cells.label == label]


def test_every_difference_of_a_setup_has_words_and_every_label_is_readable():
    for entry in all_entries():
        unlike = set(entry.rule.same) or ({"setup"} if entry.rule.config else set())  # where nothing is named
        assert unlike <= set(entry.rule.differs), entry.path
        assert "_" not in entry.label, entry.label
        assert all(not text.endswith(".") and len(text) < 80 for text in entry.causes), entry.causes


def test_an_accuracy_among_other_classes_has_no_difference():
    clip = {"model": "open_clip:ViT-B-32-quickgelu/openai"}
    (table,) = beside([accuracy(0.621) | clip], ZERO_SHOT)
    assert cells_of(table, "CLIP")[0].difference == "−0.99"
    (table,) = beside([accuracy(0.888) | clip | {"dataset": "cifar10"}], ZERO_SHOT)
    assert cells_of(table, "CLIP")[0].difference == "–"
    assert cells_of(table, "CLIP")[0].cause == "CIFAR-10 instead of CIFAR-100"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        # which have other prompts
        (
            {"dataset": "scenes", "data_options": {}, "n": 64},
            "64 instead of 10,000 images; drawn scenes instead of CIFAR-100",
        ),
        ({"n": 64}, "64 instead of 10,000 images"),
        (
            {"n": 64, "model": "scenes-clip/fresh"},
            "64 instead of 10,000 images; a small untrained CLIP instead of ViT-B/32",
        ),
        ({"data_options": {"prompt": "low-resolution photo of a {}"}}, "the prompt: no underscores"),
        ({"data_options": {"prompt": "a {}"}}, "the prompt: a {}"),
        ({"fitted_on": "scenes/train:pooled"}, "a map fitted on drawn scenes instead of COCO"),
    ],
)
def test_what_differs_is_named_and_not_what_follows_from_it(changes, words):
    ((table),) = beside([accuracy(0.5, **{"model": "open_clip:ViT-B-32-quickgelu/openai", **changes})], ZERO_SHOT)
    assert table.rows[0].cause == words

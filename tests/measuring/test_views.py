import numpy as np
import pytest
import torch

from clip_geometry import Pipeline
from clip_geometry.embeddings import Embeddings
from clip_geometry.evaluate import ensemble, retrieval, zero_shot
from clip_geometry.evaluate.base import Z
from clip_geometry.measuring.records import measure_sets, named
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.steps import parse_pipeline
from support.clouds import cone, unit

CLASSES = np.array(["cat", "dog", "owl"])


def labeled(seed=0, n=60):
    rng = np.random.default_rng(seed)
    labels = CLASSES[np.arange(n) % 3]
    ids = np.array([f"i{k}" for k in range(n)])
    return Embeddings(cone(n, 5, rng), "image", ids, labels)


def prompts(labels, seed=1):
    rows = cone(len(labels), 5, np.random.default_rng(seed))
    return Embeddings(rows, "text", np.array([f"p{k}" for k in range(len(labels))]), labels, pair_on="label")


def rows_of(image, text, names, **options):
    return list(measure_sets(MeasuredSets({"image": image, "text": text}, (), **options), names))


def test_zero_shot_of_prompts_in_any_order():
    image, text = labeled(), prompts(CLASSES[[2, 0, 1]])
    codes = np.searchsorted(CLASSES, image.labels)
    expected = zero_shot(image.vectors, codes, text.vectors[[1, 2, 0]])
    rows = {row["measure"]: row for row in rows_of(image, text, ["zero_shot.top_1", "zero_shot.mean_per_class"])}
    for name, row in rows.items():
        assert row["value"] == expected[name.removeprefix("zero_shot.")]
        assert row["n"] == 60 and row["at"] == {"modality": "both"}


@pytest.mark.parametrize("logits", ["cosine", "dot", "neg_distance"])
def test_several_prompts_of_a_class_are_an_ensemble_before_the_pipeline(logits):
    """So that nothing makes the moved rows unit length again, and the three logits differ."""
    image, text = labeled(), prompts(np.repeat(CLASSES, 4))
    codes = np.searchsorted(CLASSES, image.labels)
    steps = parse_pipeline("normalize,whiten(3)[pooled]")
    one = ensemble(text.vectors, np.repeat([0, 1, 2], 4))
    moved = Pipeline(steps).fit_transform({"image": image.vectors, "text": one})[1]
    expected = zero_shot(moved["image"], codes, moved["text"], logits=logits)["top_1"]
    name = "zero_shot.top_1" if logits == "cosine" else f"zero_shot[{logits}].top_1"
    (row,) = measure_sets(MeasuredSets({"image": image, "text": text}, steps, blocks=0), [name])
    assert row["value"] == expected


def test_the_error_is_that_of_the_images_alone():
    """The interval is Wilson's of 59 images, as the variance over n images has n − 1; class texts are no sample."""
    image, text = labeled(), prompts(CLASSES)
    (row,) = rows_of(image, text, ["zero_shot.top_1"])
    assert [row["low"], row["high"]] == pytest.approx(wilson(row["value"], 59), rel=1e-9)
    assert row["standard_error"] == pytest.approx((row["high"] - row["low"]) / (2 * Z), rel=1e-9)


def test_a_class_without_a_prompt_and_sets_without_labels_are_errors():
    with pytest.raises(InputError, match="needs a prompt for every class"):
        rows_of(labeled(), prompts(CLASSES[:2]), ["zero_shot.top_1"])
    image = labeled()
    unlabeled = Embeddings(image.vectors, "image", image.item_id)
    with pytest.raises(InputError, match="needs labels of the images"):
        rows_of(unlabeled, prompts(CLASSES), ["zero_shot.top_1"])
    texts = Embeddings(prompts(CLASSES).vectors, "text")
    with pytest.raises(InputError, match="needs the class of every text as its label: a column 'label'"):
        rows_of(image, texts, ["zero_shot.top_1"])


def test_labeled_captions_are_no_class_prompts():
    image = labeled()
    captions = Embeddings(labeled(1).vectors, "text", image.item_id, image.labels)
    with pytest.raises(InputError, match=rf"needs one text per class, but {len(captions)} texts have"):
        rows_of(image, captions, ["zero_shot.top_1"])


def test_a_number_that_these_sets_do_not_have_is_told_beside_those_they_have():
    result = {row["measure"]: row for row in rows_of(labeled(), prompts(CLASSES), ["zero_shot"])}
    assert result["zero_shot.top_5"]["value"] is None
    assert result["zero_shot.top_5"]["note"] == "does not exist for so few rows, classes or relevant items"
    assert result["zero_shot.top_1"]["value"] is not None


def test_an_evaluator_stands_for_all_of_its_numbers():
    image, text = labeled(), labeled(1)
    pairs = Embeddings(text.vectors, "text", image.item_id)
    result = {row["measure"]: row["value"] for row in rows_of(image, pairs, ["retrieval"], blocks=0)}
    expected = retrieval(image.vectors, pairs.vectors)
    assert result == {f"retrieval.{name}": value for name, value in expected.items()}


def wilson(p, n):
    center, half = p + Z**2 / (2 * n), Z * np.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    return [(center + sign * half) / (1 + Z**2 / n) for sign in (-1, 1)]


def test_every_caption_is_a_query_of_retrieval():
    """Five captions an image: all five count, in the value, in its null and in its standard error."""
    rng = np.random.default_rng(0)
    image = labeled()
    of = rng.permutation(np.arange(60).repeat(5))
    text = Embeddings(image.vectors[of] + rng.normal(size=(300, 5)), "text", image.item_id[of])
    names = ["retrieval.text_to_image.r_at_1", "retrieval.image_to_text.r_at_5"]
    text_to_image, image_to_text = rows_of(image, text, names, blocks=60, seed=3)
    expected = retrieval(image.vectors, text.vectors, (of, np.arange(300)))
    assert text_to_image["value"] == expected["text_to_image.r_at_1"] != 0
    assert image_to_text["value"] == expected["image_to_text.r_at_5"] != 0
    assert text_to_image["note"] == "60 images and 300 texts are queries, each correct if it finds any of its pairs"
    generator = torch.Generator().manual_seed(3)
    noise = [
        torch.randn(rows.shape, generator=generator, dtype=torch.float64) for rows in (image.vectors, text.vectors)
    ]
    null = retrieval(*noise, (of, np.arange(300)))
    assert text_to_image["null_value"] == null["text_to_image.r_at_1"]
    cosines = unit(text.vectors) @ unit(image.vectors).T
    right = cosines.argmax(1) == of  # an image has one row, so that a caption has one pair
    by_item = np.bincount(of, right) / 5  # the five captions of an image are one item
    assert text_to_image["by_item"] == pytest.approx(by_item.tolist())
    share = by_item.mean()
    least = wilson(share, share * (1 - share) / (by_item.var(ddof=1) / 60))  # over queries, with the index as it is
    assert text_to_image["low"] <= least[0] + 1e-9 and least[1] - 1e-9 <= text_to_image["high"]


def test_rows_without_a_pair_are_told():
    image, rng = labeled(), np.random.default_rng(0)
    of = np.arange(50).repeat(2)
    ids = np.concatenate([image.item_id[of], ["x1", "x2", "x3"]])
    text = Embeddings(rng.normal(size=(103, 5)), "text", ids)
    (row,) = rows_of(image, text, ["retrieval.text_to_image.r_at_1"], blocks=0)
    assert row["n"] == 50
    assert row["note"] == (
        "50 images and 100 texts are queries, each correct if it finds any of its pairs; "
        "10 of 60 image rows have no pair and are left out; 3 of 103 text rows have no pair and are left out"
    )


def test_a_pair_that_is_left_out_is_told():
    image = labeled()
    text = Embeddings(np.repeat(image.vectors[:, ::-1], 5, axis=0), "text", np.repeat(image.item_id, 5))
    (row,) = rows_of(image, text, ["random_cosine"], blocks=0)
    assert (row["n"], row["note"]) == (60, "one pair of each item, 60 of 300 pairs")
    once = Embeddings(text.vectors[::5], "text", image.item_id)
    assert "note" not in rows_of(image, once, ["random_cosine"], blocks=0)[0]


def test_names_are_found_once_and_unknown_ones_are_told():
    names = [each.name for each in named(["retrieval", "isoscore", "retrieval.image_to_text.r_at_1"])]
    assert len(names) == len(set(names)) == 9
    with pytest.raises(InputError, match="unknown measure 'retreival'; did you mean 'retrieval'"):
        named(["retreival"])
    with pytest.raises(InputError, match=r"linear_probe\.top_1 needs train and test sets"):
        rows_of(labeled(), prompts(CLASSES), ["linear_probe.top_1"])

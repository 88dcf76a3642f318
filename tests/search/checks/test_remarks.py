"""What is out of order is remarked on, and clean sets are not."""

import numpy as np
import pytest

from clip_geometry.embeddings import Embeddings
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.search.checks.remarks import looks_transposed
from support.clouds import cone


def pairs(n=200, seed=0, noise=1.0):
    """Images and texts of two cones apart from each other, as those of CLIP are."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, 16))
    image = shared + noise * rng.normal(size=shared.shape)
    return image + 3 * rng.normal(size=16), shared + noise * rng.normal(size=shared.shape) + 3 * rng.normal(size=16)


def remarks(image, text=None, **columns):
    sets = {"image": Embeddings(np.asarray(image, np.float32), "image", **columns)}
    if text is not None:
        sets["text"] = Embeddings(np.asarray(text, np.float32), "text", **columns)
    return MeasuredSets(sets, ()).remarks()


@pytest.mark.parametrize("n", [20, 60, 3000])
@pytest.mark.parametrize("seed", range(5))
def test_clean_sets_have_none(n, seed):
    image, text = pairs(n, seed)
    assert remarks(image, text) == []
    assert remarks(image.astype(np.float16), text, item_id=np.arange(n).astype(str)) == []
    assert remarks(cone(n, 5, np.random.default_rng(seed))) == []


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_pairs(seed):
    image, text = pairs(seed=seed)
    (remark,) = remarks(image, np.random.default_rng(seed).permutation(text))
    assert remark.startswith("the pairs match no better than random ones (")
    assert remarks(image[:19], text[:19][::-1]) == []  # so few prove nothing


@pytest.mark.parametrize(
    ("shift", "where"), [(1, "1 row further on"), (-1, "1 row before"), (40, "40 rows further on")]
)
@pytest.mark.parametrize("seed", range(3))
def test_shifted_pairs(seed, shift, where):
    image, text = pairs(noise=0.5, seed=seed)
    (remark,) = remarks(image, np.roll(text, shift, axis=0))
    assert remark.startswith("the pairs look shifted: ")
    assert remark.endswith(f" of 200 images are nearer to the text {where} than to their own")
    assert 150 < int(remark.split()[4]) <= 200


def test_five_captions_an_image_and_class_prompts_are_no_shift():
    image, text = pairs(60, noise=0.3)
    ids = np.arange(60).astype(str)
    captions = np.repeat(text, 5, axis=0) + 0.01 * np.random.default_rng(0).normal(size=(300, 16))
    sets = {"image": Embeddings(image, "image", ids), "text": Embeddings(captions, "text", ids.repeat(5))}
    assert MeasuredSets(sets, ()).remarks() == []
    classes = np.arange(60) // 2
    prompts = {"image": Embeddings(text + image, "image", labels=classes)}
    prompts["text"] = Embeddings(text[::2] + image[::2], "text", labels=np.arange(30), pair_on="label")
    assert MeasuredSets(prompts, ()).remarks() == []


def test_an_untrained_model_is_known_as_one():
    image, text = (
        Embeddings(cone(60, 5, np.random.default_rng(k)), name, provenance={"model": "open_clip:ViT-B-32/fresh"})
        for k, name in enumerate(("image", "text"))
    )
    assert MeasuredSets({"image": image, "text": text}, ()).remarks() == []


def test_copies_are_counted_unless_the_ids_explain_them():
    image, text = pairs()
    image[50:53] = image[3]
    expected = "3 of 200 image rows are exact copies of rows"
    assert remarks(image) == [expected]
    assert remarks(image, text) == [expected]
    ids = np.arange(200).astype(str)
    assert remarks(image, item_id=ids) == [f"{expected} with other ids"]
    ids[50:53] = ids[3]
    assert remarks(image, item_id=ids) == []
    words = np.array(["a"] * 200)
    assert remarks(image, metadata={"text": words}) == []


def spectrum(n, d, seed):
    """Unit rows about a cone's axis, whose dimensions vary unevenly, as those of CLIP do."""
    rng = np.random.default_rng(seed)
    rows = rng.lognormal(0, 0.7, d) * (rng.normal(size=(n, d)) + rng.normal(size=d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("shape", [(500, 512), (20, 5), (5000, 3), (30, 1)])
def test_isotropic_rows_and_few_dimensions_are_not_transposed(shape):
    rng = np.random.default_rng(0)
    for shift in (0, 1, 10):
        for x in (rng.normal(size=shape) + shift, rng.uniform(size=shape) + shift):
            assert not looks_transposed(Embeddings(x, "image"))


def test_a_transposed_pair_is_remarked_on():
    image, text = (spectrum(100, 128, seed) for seed in (1, 2))
    lines = remarks(image.T, text.T)
    for name in ("image", "text"):
        expected = f"the {name} rows look transposed: the 100 columns are about equally long and the 128 rows are not, "
        assert sum(remark.startswith(expected) for remark in lines) == 1
    assert not any("transposed" in remark for remark in remarks(image, text))


def test_ids_of_one_set_alone_pair_nothing():
    image, text = pairs(60)
    ids = np.arange(60).astype(str)
    sets = {"image": Embeddings(image, "image"), "text": Embeddings(text, "text", ids)}
    assert MeasuredSets(sets, ()).remarks() == ["text rows have ids and image rows have none: they pair by row number"]
    swapped = {"image": Embeddings(image, "image", ids), "text": Embeddings(text, "text")}
    assert MeasuredSets(swapped, ()).remarks() == [
        "image rows have ids and text rows have none: they pair by row number"
    ]
    longer = {"image": Embeddings(image, "image", ids), "text": Embeddings(text[:50], "text")}
    assert MeasuredSets(longer, ()).remarks() == []  # they do not pair at all
    prompts = {"image": Embeddings(image, "image", ids, np.arange(60))}
    prompts["text"] = Embeddings(text, "text", labels=np.arange(60), pair_on="label")
    assert MeasuredSets(prompts, ()).remarks() == []


@pytest.mark.parametrize("seed", range(3))
def test_one_caption_for_all_is_no_pairing(seed):
    image, text = pairs(seed=seed)
    same = np.repeat(text[:1], 200, axis=0) * np.random.default_rng(seed).uniform(1, 2, (200, 1))
    assert not any("match" in remark for remark in (*remarks(image, same), *remarks(same, image)))

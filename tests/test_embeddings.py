import numpy as np
import pandas as pd
import pytest
import torch

from clip_geometry.embeddings import Embeddings, LazyRows, pair
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import StreamedRows


def rows(modality, ids=None, labels=None, n=None, **options):
    ids = None if ids is None else list(ids)
    n = len(ids) if ids is not None else len(labels) if labels is not None else n
    vectors = np.arange(3.0 * n, dtype=np.float32).reshape(n, 3)
    return Embeddings(
        vectors,
        modality,
        item_id=None if ids is None else np.array(ids, dtype=object),
        labels=None if labels is None else np.array(labels),
        **options,
    )


def pairs(image, text):
    i, j = pair(image, text)
    assert i.dtype == j.dtype == np.int64
    return list(zip(i.tolist(), j.tolist(), strict=True))


def test_many_to_many_agrees_with_the_definition():
    generator = np.random.default_rng(0)
    left, right = generator.integers(0, 40, 150).astype(str), generator.integers(0, 50, 120).astype(str)
    expected = [(i, j) for i in range(150) for j in range(120) if left[i] == right[j]]
    assert pairs(rows("image", left), rows("text", right)) == expected
    assert len(expected) > 150


def test_class_prompts_pair_with_every_image_of_their_class():
    image = rows("image", ["x", "y", "z"], labels=[2, 0, 2])
    prompts = rows("text", ["class-0", "class-1", "class-2"], labels=[0, 1, 2], pair_on="label")
    assert pairs(image, prompts) == [(0, 2), (1, 0), (2, 2)]


def test_rows_without_ids_pair_by_position():
    assert pairs(rows("image", n=3), rows("text", n=3)) == [(0, 0), (1, 1), (2, 2)]
    assert pairs(rows("image", "ab"), rows("text", n=2)) == [(0, 0), (1, 1)]


@pytest.mark.parametrize(
    ("image", "text", "message"),
    [
        (rows("image", n=3), rows("text", n=4), "3 image rows and 4 text rows cannot be paired.*no common item_id"),
        (rows("image", n=2), rows("text", labels=[0, 1], pair_on="label"), "cannot be paired.*no common label"),
        (rows("image", "ab"), rows("text", "cd"), "image and text rows have no item_id in common"),
        (
            rows("image", labels=[7]),
            rows("text", labels=[0], pair_on="label"),
            "image and text rows have no label in common",
        ),
    ],
)
def test_what_cannot_be_paired(image, text, message):
    with pytest.raises(InputError, match=message):
        pair(image, text)
    with pytest.raises(InputError, match="expected two sets of Embeddings"):
        pair(image.vectors, text)
    with pytest.raises(InputError, match="distinct = 'no'; expected True or False"):
        pair(image, text, distinct="no")


def test_take_keeps_what_belongs_to_the_rows():
    source = rows("text", "abcd", labels=[3, 1, 4, 1], language="de", metadata={"text": np.array(["p", "q", "r", "s"])})
    for chosen in (np.array([3, 1]), slice(3, 0, -2), np.array([False, True, False, True])):
        part = source.take(chosen)
        assert np.array_equal(part.vectors, source.vectors[chosen])
        assert list(part.item_id) == list(source.item_id[chosen])
        assert list(part.labels) == [1, 1]
        assert list(part.metadata["text"]) == list(source.metadata["text"][chosen])
        assert (part.language, part.modality, len(part), part.dim) == ("de", "text", 2, 3)
    assert rows("image", n=4).take(slice(2)).item_id is None


@pytest.mark.parametrize(
    ("vectors", "columns", "message"),
    [
        (np.zeros((2, 3, 4)), {}, r"image embeddings has shape \(2, 3, 4\)"),
        (np.zeros((2, 3)), {"item_id": np.array(["a"])}, "image embeddings have 2 rows but 1 values of item_id"),
        (np.zeros((2, 3)), {"metadata": {"path": 3}}, "'path' of image embeddings is 3; expected a list or an array"),
        (np.zeros((2, 3)), {"metadata": "path"}, "metadata = 'path'; expected metadata and provenance as"),
        (np.zeros((2, 3)), {"labels": np.zeros((2, 2))}, "'labels' of image embeddings is .*one value per row"),
        (np.zeros((2, 3)), {"labels": torch.ones(2, device="meta")}, "'labels' of image embeddings is"),
        (np.zeros((2, 3)), {"modality": "pooled"}, "modality 'pooled' is not a modality name"),
        (np.zeros((2, 3)), {"pair_on": "labels"}, "pair_on 'labels' is unknown; did you mean 'label'"),
        (np.zeros((2, 3), dtype=int), {}, "the set of image embeddings has dtype int64; expected floating point"),
        (np.ma.masked_array(np.zeros((2, 3))), {}, "masked array"),
        (LazyRows([np.zeros((2, 3), dtype=int)]), {}, "dtype int64"),
    ],
)
def test_columns_that_do_not_fit(vectors, columns, message):
    with pytest.raises(InputError, match=message):
        Embeddings(vectors, **{"modality": "image", **columns})


@pytest.mark.parametrize("missing", [None, np.nan, pd.NaT, pd.NA, "", b""])
def test_missing_ids_are_refused_because_they_would_pair_with_each_other(missing):
    """420 pairs of 40 items, most of them of ids None: matching_cosine 0.145 instead of 0.994."""
    ids = ["a", missing, "c", missing]
    for given in (ids, np.array(ids, dtype=object), pd.Series(ids, dtype=object)):
        with pytest.raises(InputError, match="item_id of image embeddings is missing or empty in row 1"):
            Embeddings(np.zeros((4, 2)), "image", item_id=given)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_labels_do_not_pair(missing):
    prompts = rows("text", labels=[0, 1], pair_on="label")
    image = Embeddings(np.zeros((3, 2)), "image", labels=np.array([0, missing, 1], dtype=object))
    with pytest.raises(InputError, match="labels of image embeddings lack a value in row 1"):
        pair(image, prompts)


IDS = {
    "words": np.array(["1", "2"]),
    "integers": np.array([1, 2]),
    "bytes": np.array([b"1", b"2"]),
    "a list": ["1", 2],
    "a tensor": torch.tensor([1, 2]),
    "a column": pd.Series(["1", "2"], dtype="string"),
    "objects": np.array(["1", "2"], dtype=object),
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_any_kind_are_words(kind):
    found = Embeddings(np.zeros((2, 3)), "image", item_id=IDS[kind]).item_id
    assert found.dtype == object and found.tolist() == ["1", "2"] and {type(each) for each in found} == {str}


def test_vectors_become_arrays_and_what_is_not_in_memory_stays(tmp_path):
    x = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "x.npy", x)
    for lazy in (np.load(tmp_path / "x.npy", mmap_mode="r"), LazyRows([x, x]), StreamedRows.of(x)):
        assert Embeddings(lazy, "image").vectors is lazy
    for given in (torch.from_numpy(x).bfloat16().requires_grad_(), pd.DataFrame(x), x.tolist(), x[::-1][::-1]):
        found = Embeddings(given, "image").vectors
        assert isinstance(found, np.ndarray) and np.array_equal(found, x)


def test_distinct_pairs_are_one_for_each_item():
    image = Embeddings(np.ones((5, 2)), "image", item_id=np.array(list("aabca")))
    text = Embeddings(np.ones((6, 2)), "text", item_id=np.array(list("cbaabb")))
    left, right = pair(image, text, distinct=True)
    assert left.tolist() == [0, 2, 3]
    assert right.tolist() == [2, 1, 0]
    positional = pair(Embeddings(np.ones((3, 2)), "image"), Embeddings(np.ones((3, 2)), "text"), distinct=True)
    assert positional[0].tolist() == positional[1].tolist() == [0, 1, 2]


def test_a_repr_says_what_it_is():
    assert repr(rows("text", "ab", labels=[0, 1])) == "<Embeddings: 2 × 3 float32, text, with item_id, labels>"
    named = rows("image", n=4, provenance={"model": "scenes-clip/fresh", "dataset": "scenes", "split": "test"})
    assert repr(named) == "<Embeddings: 4 × 3 float32, image, scenes-clip/fresh, scenes>"
    streamed = Embeddings(StreamedRows.of(np.zeros((5, 2))), "image")
    assert repr(streamed) == "<Embeddings: 5 × 2 float64, image>"
    origin = {"model": "\x1b[31mred", "dataset": "\u202ewen"}  # of a file: nothing that a terminal would interpret
    foreign = Embeddings(np.eye(2), "image", provenance=origin)
    assert repr(foreign) == r"<Embeddings: 2 × 2 float64, image, \x1b[31mred, \u202ewen>"
    assert repr(LazyRows([np.zeros((2, 3)), np.ones((4, 3))])) == "<LazyRows: 6 × 3 float64 in 2 parts>"

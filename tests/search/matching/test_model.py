"""A fitted match model: its interface to search engines, and its file."""

import json

import numpy as np
import pytest
import torch

import clip_geometry as cg
from clip_geometry.registry import InputError

from .test_match import pairs, searched


@pytest.fixture(scope="module")
def fitted():
    return cg.match(*pairs(400))


@pytest.fixture(scope="module")
def model(fitted):
    return fitted["image_to_text"]


SEARCH = {"mean": [0.45, 0.45], "std": [0.1, 0.1], "m": 400}
TOP = [[0.8, 0.6, 0.5], [0.7, 0.69, 0.5]]


def test_arrays_tensors_and_lists_are_accepted(model):
    expected = model.probability(TOP, **SEARCH)
    assert expected.shape == (2,) and expected[0] > expected[1]
    for make in (np.array, torch.tensor, lambda x: np.array(x, dtype=np.float32)):
        arguments = {name: make(value) if name != "m" else value for name, value in SEARCH.items()}
        np.testing.assert_allclose(model.probability(make(TOP), **arguments), expected, rtol=1e-5)


def test_only_the_two_best_scores_count(model):
    two = [row[:2] for row in TOP]
    assert (model.probability(two, **SEARCH) == model.probability(TOP, **SEARCH)).all()


def test_a_search_engine_with_ten_hits_and_a_sample_of_200_rows_gives_nearly_the_same(model):
    """The mean difference is at most 0.01 when mean and standard deviation are exact, and 0.03 from a sample."""
    faiss = pytest.importorskip("faiss")
    image, text = pairs(2400, seed=0)
    image, text = (x[400:].astype(np.float32) for x in (image, text))
    index = faiss.IndexFlatIP(32)
    index.add(text)
    top, _ = index.search(image, 10)
    exact, _, mean, std = searched(image, text)
    expected = model.probability(exact, mean=mean, std=std, m=2000)
    assert np.abs(model.probability(top, mean=mean, std=std, m=2000) - expected).mean() < 1e-4
    sample = image @ text[np.random.default_rng(0).permutation(2000)[:200]].T
    found = model.probability(top, mean=sample.mean(1), std=sample.std(1), m=2000)
    assert np.abs(found - expected).mean() < 0.03


def test_cutoffs_fall_with_the_rate_and_lie_between_those_of_the_sizes(model):
    rates = [0.01, 0.05, 0.1, 0.5]
    cutoffs, kept = ([f(rate) for rate in rates] for f in (model.cutoff, model.kept))
    assert cutoffs == sorted(cutoffs, reverse=True) and kept == sorted(kept)
    assert model.sizes == (100, 200, 400)
    at_sizes = [model.cutoff(0.05, m=m) for m in model.sizes]
    assert min(at_sizes[1:]) <= model.cutoff(0.05, m=300) <= max(at_sizes[1:])
    assert model.cutoff(0.05, m=10**6) == at_sizes[-1] == model.cutoff(0.05)
    assert model.cutoff(0.05, m=10) == at_sizes[0]


def test_accepts_is_the_comparison_with_the_cutoff(model):
    p = model.probability(TOP, **SEARCH)
    assert (model.accepts(TOP, **SEARCH, false_accepts=0.1) == (p > model.cutoff(0.1))).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top": [0.5, 0.4]}, r"top has shape \(2,\); expected \(q, k\) with at least the 2 best scores"),
        ({"top": [[0.8], [0.7]]}, r"top has shape \(2, 1\)"),
        ({"top": [[0.5, 0.6], [0.7, 0.6]]}, "the scores of query 0 ascend; expected descending scores, not distances"),
        ({"top": [[0.5, 0.4], [np.nan, 0.6]]}, "top has NaN or infinity for query 1"),
        ({"top": [[0.5, -np.inf], [0.7, 0.6]]}, "top has NaN or infinity for query 0"),
        ({"top": [["a", "b"]]}, "top = .*; expected an array or a tensor of numbers"),
        ({"top": [[80.0, 60.0], [70.0, 60.0]]}, "the best score of query 0 is 80, and those of the fit were from"),
        ({"mean": [0.4]}, r"mean has shape \(1,\); expected \(2,\), one number per query"),
        ({"mean": [0.4, np.inf]}, "mean has NaN or infinity for query 1"),
        ({"std": [0.1, 0]}, "std of query 1 is 0; expected a positive standard deviation"),
        ({"std": [0.1, -1]}, "std of query 1 is -1"),
        ({"m": 1}, "m = 1; expected a whole number"),
        ({"m": 3.5}, "m = 3.5"),
    ],
)
def test_wrong_searches_are_a_sentence(model, changes, message):
    arguments = {"top": TOP, **SEARCH, **changes}
    with pytest.raises(InputError, match=message):
        model.probability(arguments.pop("top"), **arguments)


@pytest.mark.parametrize("rate", [0, 1, -0.1, "5%", np.nan])
def test_a_rate_is_a_share(model, rate):
    with pytest.raises(InputError, match="expected a share between 0 and 1"):
        model.cutoff(rate)


def test_rows_of_another_dimension_model_or_map_are_refused():
    image, text = pairs(100)
    sets = {
        name: cg.Embeddings(rows, name, provenance={"model": "open_clip:ViT-B-32/openai"})
        for name, rows in (("image", image), ("text", text))
    }
    model = cg.match(sets)["image_to_text"]
    model.check(sets["image"], sets["text"])
    model.check(cg.Embeddings(image, "image"), cg.Embeddings(text, "text"))  # rows of unknown origin
    for changed, message in (
        (cg.Embeddings(text[:, :8], "text"), "the text rows have 8 columns; fitted on 32"),
        (cg.Embeddings(text, "text", provenance={"model": "other"}), "the text rows have the model 'other'; fitted on"),
    ):
        with pytest.raises(InputError, match=message):
            model.check(sets["image"], changed)
    mapped = cg.Embeddings(text, "text", provenance={"maps": [{"file": "m.safetensors"}]})
    other = cg.match({"image": sets["image"], "text": mapped})["image_to_text"]
    with pytest.raises(InputError, match=r"have the maps .*another.*; fitted on"):
        other.check(sets["image"], cg.Embeddings(text, "text", provenance={"maps": [{"file": "another"}]}))


# -- the file


def test_a_file_gives_the_same_models_and_no_figure(fitted, tmp_path):
    fitted.save(tmp_path / "match.json")
    read = cg.read_match(tmp_path / "match.json")
    assert read.models == fitted.models and read.verdict == fitted.verdict
    assert (tmp_path / "match.json").stat().st_size < 60_000
    with pytest.raises(InputError, match="no figure for models"):
        read.figure()


def test_a_direction_that_is_not_there_is_a_sentence(fitted):
    with pytest.raises(InputError, match="unknown direction 'image_to_txt'; did you mean 'image_to_text'"):
        fitted["image_to_txt"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values["models"]["image_to_text"].update(dim=3), "is damaged, its checksum does not hold"),
        (lambda values: values.clear(), "not match models"),
        (lambda values: values.pop("checksum"), "is damaged"),
    ],
)
def test_damaged_files_are_a_sentence(fitted, tmp_path, change, message):
    file = tmp_path / "match.json"
    fitted.save(file)
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))
    with pytest.raises(InputError, match=message):
        cg.read_match(file)


def test_what_is_no_file_of_models_is_a_sentence(tmp_path):
    for name, content, message in (
        ("none.json", None, "does not exist"),
        ("empty.json", "", "is empty"),
        ("text.json", "hello", "text.json"),
        ("list.json", "[1]", "list.json"),
    ):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=message):
            cg.read_match(tmp_path / name)

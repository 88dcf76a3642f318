"""What each step is fitted on, and which comparisons are refused."""

import numpy as np
import pytest

from clip_geometry import Pipeline
from clip_geometry.registry import InputError
from clip_geometry.transforms import LeastSquares, Procrustes, Whiten
from support.clouds import cone


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return {"image": cone(30, 4, rng), "text": cone(20, 4, rng) + 3}


PAIRS = (np.array([3, 0, 5, 5, 9, 29, 7, 8]), np.array([1, 2, 0, 19, 4, 6, 11, 12]))


@pytest.mark.parametrize(
    ("step", "image_mean_of", "text_mean_of"),
    [
        ("center", "image", "text"),
        ("center[each]", "image", "text"),
        ("center[image]", "image", "image"),
        ("center[text]", "text", "text"),
        ("center[pooled]", "pooled", "pooled"),
    ],
)
def test_scopes(sets, step, image_mean_of, text_mean_of):
    means = {name: rows.mean(0) for name, rows in sets.items()}
    means["pooled"] = np.concatenate([*sets.values()]).mean(0)
    result = Pipeline(step).fit_transform(sets)[1]
    assert np.allclose(result["image"], sets["image"] - means[image_mean_of], rtol=1e-12)
    assert np.allclose(result["text"], sets["text"] - means[text_mean_of], rtol=1e-12)


@pytest.mark.parametrize("scope", ["image", "text", "pooled"])
def test_one_fit_is_one_object(sets, scope):
    fitted = Pipeline(f"normalize,whiten(3)[{scope}]").fit(sets)
    assert fitted.chains["image"][1] is fitted.chains["text"][1]
    unit = {name: x / np.linalg.norm(x, axis=1, keepdims=True) for name, x in sets.items()}
    alone = Whiten(3).fit(np.concatenate([*unit.values()]) if scope == "pooled" else unit[scope])
    assert np.allclose(fitted.transform(sets)["text"], alone.transform(unit["text"]), rtol=1e-10)
    each = Pipeline("whiten(3)[each]").fit(sets)
    assert each.chains["image"][0] is not each.chains["text"][0]


@pytest.mark.parametrize("step", ["center", "whiten(2)", "pca(2)", "all_but_the_top(1)", "cluster_center(2)"])
def test_fitting_per_modality_unasked_refuses_comparison(sets, step):
    refusal = Pipeline(f"normalize,{step}").fit(sets).refusal
    assert refusal == (
        f"{step} was fitted on each modality separately; write {step}[pooled] for one fit, "
        f"or {step}[each] if separate fits are intended"
    )
    for asked in (f"{step}[each]", f"{step}[pooled]", f"{step}[image]"):
        assert Pipeline(asked).fit(sets).refusal is None
    assert Pipeline(step).fit({"image": sets["image"]}).refusal is None


@pytest.mark.parametrize(("name", "kind"), [("procrustes", Procrustes), ("least_squares", LeastSquares)])
@pytest.mark.parametrize(("source", "target"), [("text", "image"), ("image", "text")])
def test_maps_between_modalities_move_the_source_only(sets, name, kind, source, target):
    rows = dict(zip(("image", "text"), PAIRS, strict=True))
    result = Pipeline(f"{name}[{source}-to-{target}]").fit_transform(sets, PAIRS)[1]
    alone = kind().fit(sets[source][rows[source]], sets[target][rows[target]])
    assert np.allclose(result[source], alone.transform(sets[source]), rtol=1e-12)
    assert result[target] is sets[target]


def test_a_map_is_fitted_on_what_the_steps_before_it_make(sets):
    fitted = Pipeline("center[each],procrustes[text-to-image],normalize").fit(sets, lambda first, second: PAIRS)
    centered = {name: x - x.mean(0) for name, x in sets.items()}
    alone = Procrustes().fit(centered["text"][PAIRS[1]], centered["image"][PAIRS[0]])
    assert np.allclose(fitted.chains["text"][1].W_, alone.W_, atol=1e-12)
    assert [each.name for each in fitted.chains["image"]] == ["center", "normalize"]


def test_maps_to_another_dimension(sets):
    wide = {**sets, "image": cone(30, 6, np.random.default_rng(5))}
    fitted = Pipeline("least_squares[text-to-image],center[pooled]").fit(wide, PAIRS)
    assert fitted.dimensions == {"image": (6, 6), "text": (4, 6)}
    with pytest.raises(InputError, match="source has dimension 4 and target has 6; procrustes needs both in one space"):
        Pipeline("procrustes[text-to-image]").fit(wide, PAIRS)


def test_maps_need_pairs_and_a_direction(sets):
    def none(first, second):
        raise InputError("image and text rows have no item_id in common")

    step = r"procrustes\[text-to-image\]"
    for pairs, message in (
        (none, f"{step} needs pairs: image and text rows have no item_id in common"),
        (None, f"without pairs, {step} pairs rows by position, but there are 20 text and 30 image rows"),
    ):
        with pytest.raises(InputError, match=message):
            Pipeline("procrustes[text-to-image]").fit(sets, pairs)
    with pytest.raises(InputError, match=r"write procrustes\(completion=lapack\)\[text-to-image\] or procrustes"):
        Pipeline("procrustes(lapack)").fit(sets, PAIRS)
    with pytest.raises(InputError, match=f"{step} is to be fitted on text rows, but only image rows were given"):
        Pipeline("procrustes[text-to-image]").fit({"image": sets["image"]}, PAIRS)
    with pytest.raises(InputError, match="to be fitted on source rows, but only image and text rows were given"):
        Pipeline("procrustes[source-to-target]").fit(sets, PAIRS)


def test_a_scope_that_was_not_given(sets):
    with pytest.raises(InputError, match=r"center\[text\] is to be fitted on text rows, but only image rows"):
        Pipeline("center[text]").fit({"image": sets["image"]})
    with pytest.raises(InputError, match=r"pca\(2\)\[text\] is to be fitted on text rows, but only unnamed rows"):
        Pipeline("pca(2)[text]").fit({"any": sets["image"]})


def test_one_fit_needs_one_space(sets):
    wide = {"image": sets["image"], "text": np.ones((5, 9))}
    assert Pipeline("center[each]").fit_transform(wide)[1]["text"].shape == (5, 9)
    with pytest.raises(InputError, match=r"center\[pooled\] needs all sets in one space"):
        Pipeline("center[pooled]").fit(wide)


def test_no_steps_leave_the_rows_as_they_are(sets):
    fitted, rows = Pipeline(()).fit_transform(sets)
    assert rows["image"] is sets["image"]
    assert (fitted.fitted_on, fitted.refusal) == (None, None)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("normalize", None),
        ("normalize,center[pooled],whiten(2)[pooled]", "coco/train:pooled"),
        ("center,pca(2)[text]", "coco/train:each, coco/train:text"),
        ("procrustes[text-to-image]", "coco/train:text-to-image"),
    ],
)
def test_fitted_on_in_words(sets, steps, expected):
    assert Pipeline(steps).fit(sets, PAIRS, origin="coco/train").fitted_on == expected


def test_fit_returns_another_pipeline_and_what_is_not_fitted_maps_nothing(sets, tmp_path):
    pipeline = Pipeline("center[each]")
    fitted = pipeline.fit(sets)
    assert fitted.only("text").transform({"any": sets["text"]})["any"].mean() == pytest.approx(0, abs=1e-12)
    for use in (
        lambda: pipeline.transform(sets),
        lambda: pipeline.affine("text"),
        lambda: pipeline.save(tmp_path / "m.safetensors"),
    ):
        with pytest.raises(InputError, match="the pipeline is not fitted yet"):
            use()


def test_without_steps_lists_become_arrays_and_what_is_no_matrix_is_an_error(sets):
    fitted = Pipeline("").fit({"image": [[1.0, 2.0], [3.0, 4.0]]})
    assert fitted.dimensions == {"image": (2, 2)}
    for rows in ([], np.ones(3), [[1.0], [1.0, 2.0]], None):
        with pytest.raises(InputError, match="image"):
            Pipeline("").fit({"image": rows})
        with pytest.raises(InputError, match="image"):
            fitted.transform({"image": rows})


def test_every_other_modality_is_mapped_onto_one():
    rng = np.random.default_rng(2)
    image = cone(30, 4, rng)
    turns = {name: np.linalg.qr(rng.normal(size=(4, 4)))[0] for name in ("text", "audio")}
    sets = {"image": image, **{name: image @ turn for name, turn in turns.items()}}
    for steps in ("procrustes[all-to-image]", "least_squares[text-to-image],least_squares[audio-to-image]"):
        moved = Pipeline(steps).fit(sets).transform(sets)  # row i with row i
        for name in sets:
            assert np.allclose(moved[name], image, atol=1e-9)
    with pytest.raises(InputError, match="maps other modalities onto image, but only image rows were given"):
        Pipeline("procrustes[all-to-image]").fit({"image": image})
    with pytest.raises(InputError, match="fitted on audo rows, but only image and text and audio rows were given; did"):
        Pipeline("center[audo]").fit(sets)


def test_pairs_of_two_sets_are_in_the_order_of_their_names(sets):
    """The same pairs for either direction, as a function of the names or as indices."""
    named = {"b": sets["text"], "a": sets["image"]}
    asked = []

    def pairs(first, second):
        asked.append((first, second))
        return PAIRS

    for direction in ("a-to-b", "b-to-a"):
        steps = f"procrustes[{direction}]"
        one, other = (Pipeline(steps).fit(named, given).chains[direction[0]][0].W_ for given in (PAIRS, pairs))
        assert np.array_equal(one, other)
    assert asked == [("a", "b")] * 2

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry.transforms import Step, parse_pipeline, prepare
from support.clouds import cone


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return {"image": cone(30, 4, rng), "text": cone(20, 4, rng) + 3}


def test_strings_and_lists_are_the_same():
    assert parse_pipeline("normalize, center[pooled]") == parse_pipeline(["normalize", "center[pooled]"])
    assert parse_pipeline("normalize,center[pooled]") == (Step("normalize"), Step("center", "pooled"))
    assert [str(step) for step in parse_pipeline("center[each],center")] == ["center[each]", "center"]
    assert parse_pipeline("") == parse_pipeline([]) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("normalise", "unknown pipeline step 'normalise'; did you mean 'normalize'"),
        ("center[both]", r"'center\[both\]' has the unknown scope 'both'; known are image, text, pooled, each"),
        ("normalize[image]", "learns nothing and takes no scope"),
        ("center(image)", "is not of the form name or name"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(InputError, match=message):
        parse_pipeline(text)


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
    found = prepare(parse_pipeline(step), sets).sets
    assert np.allclose(found["image"], sets["image"] - means[image_mean_of], rtol=1e-12)
    assert np.allclose(found["text"], sets["text"] - means[text_mean_of], rtol=1e-12)


def test_steps_apply_in_order(sets):
    first = prepare(parse_pipeline("normalize,center[image],normalize"), sets).sets["image"]
    u = sets["image"] / np.linalg.norm(sets["image"], axis=1, keepdims=True)
    c = u - u.mean(0)
    assert np.allclose(first, c / np.linalg.norm(c, axis=1, keepdims=True), rtol=1e-12)


def test_fitting_per_modality_unasked_refuses_comparison(sets):
    assert "center[pooled]" in prepare(parse_pipeline("center"), sets).refusal
    for asked in ("normalize", "center[each]", "center[pooled]", "center[image]"):
        assert prepare(parse_pipeline(asked), sets).refusal is None
    assert prepare(parse_pipeline("center"), {"image": sets["image"]}).refusal is None


def test_a_scope_that_was_not_given(sets):
    with pytest.raises(InputError, match=r"center\[text\] is to be fitted on text rows, but only image rows"):
        prepare(parse_pipeline("center[text]"), {"image": sets["image"]})


def test_one_fit_needs_one_space(sets):
    wide = {"image": sets["image"], "text": np.ones((5, 9))}
    assert prepare(parse_pipeline("center[each]"), wide).sets["text"].shape == (5, 9)
    with pytest.raises(InputError, match=r"center\[pooled\] needs one space"):
        prepare(parse_pipeline("center[pooled]"), wide)


def test_no_steps_leave_the_rows_as_they_are(sets):
    assert prepare((), sets).sets["image"] is sets["image"]

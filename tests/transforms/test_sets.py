"""Steps fitted on two sets that are not aligned, or on both together: what they are given, and what is refused."""

import numpy as np
import pytest

from clip_geometry import Pipeline
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.transforms import IsoCLIP, ReAlign
from support.clouds import cone

ONTO = {
    "realign": ReAlign(),
}


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return {"image": cone(30, 4, rng), "text": cone(20, 4, rng) + 3}


def never(first, second):
    raise InputError("no row has a partner")


@pytest.mark.parametrize("step", ONTO)
def test_all_rows_of_both_sets_are_used_and_no_pairs(sets, step):
    moved = Pipeline(f"{step}[text-to-image]").fit(sets, never).transform(sets)
    alone = ONTO[step].fit(sets["text"], sets["image"]).transform(sets["text"])
    assert np.allclose(moved["text"], alone, rtol=1e-12) and moved["image"] is sets["image"]
    pairs = (np.arange(5), np.arange(5))
    assert (Pipeline(f"{step}[text-to-image]").fit(sets, pairs).transform(sets)["text"] == moved["text"]).all()


def test_each_modality_gets_a_map_of_its_own(sets):
    fitted = Pipeline("center[each],isoclip(1, 1)").fit(sets, never, origin="coco/train")
    moved = fitted.transform(sets)
    centered = [x - x.mean(0) for x in sets.values()]
    for name, each, x in zip(sets, IsoCLIP(1, 1).fit_sets(centered), centered, strict=True):
        assert np.allclose(moved[name], each.transform(x), atol=1e-12)
        assert not np.allclose(moved[name], x, atol=1e-3)
        assert fitted.chains[name][1].fitted_on_ == len(x)
    assert (fitted.fitted_on, fitted.refusal) == ("coco/train:each, coco/train:all", None)
    backwards = Pipeline("center[each],isoclip(1, 1)").fit(dict(reversed(sets.items()))).transform(sets)
    assert all((backwards[name] == moved[name]).all() for name in sets)


def test_three_modalities(sets):
    sets["audio"] = cone(25, 4, np.random.default_rng(3)) - 2
    moved = Pipeline("realign[all-to-image]").fit(sets).transform(sets)
    assert moved["image"] is sets["image"]
    for name in ("text", "audio"):
        assert np.allclose(moved[name], ReAlign().fit(sets[name], sets["image"]).transform(sets[name]))
    with pytest.raises(InputError, match="isoclip is fitted on two modalities, but got 3"):
        Pipeline("isoclip(1, 1)").fit(sets)


def test_what_is_refused(sets):
    with pytest.raises(InputError, match=r"realign maps one modality onto the other: write realign\[text-to-image"):
        Pipeline("realign").fit(sets)
    with pytest.raises(InputError, match="isoclip is fitted on two modalities, but got 1"):
        Pipeline("isoclip(1, 1)").fit({"text": sets["text"]})
    wide = {**sets, "image": cone(30, 6, np.random.default_rng(5))}
    with pytest.raises(InputError, match="isoclip needs both sets in one space, but they have dimensions 6 and 4"):
        Pipeline("isoclip(1, 1)").fit(wide)
    with pytest.raises(InputError, match="source has dimension 4 and target has 6; realign needs both in one space"):
        Pipeline("realign[text-to-image]").fit(wide)
    for transform in (ReAlign(), IsoCLIP(1, 1)):
        with pytest.raises(InputError, match=r"fit it on both, fit\(source, target\); it requires y to be passed"):
            transform.fit(sets["text"])


@pytest.mark.parametrize(
    "step",
    ["realign[text-to-image]", "ridge[text-to-image]"],
)
@pytest.mark.parametrize("few", ["image", "text", "both"])
def test_one_row_is_too_few(sets, step, few):
    few = {name: x[:1] for name, x in sets.items() if few in (name, "both") or step.startswith("ridge")}
    with pytest.raises(InputError, match=r"\w+ needs at least 2 rows of each modality, but one has 1 sample"):
        Pipeline(step).fit(sets | few)


@pytest.mark.parametrize("steps", ["realign[text-to-image]", "realign(centroid=false)[text-to-image]", "isoclip(1, 1)"])
def test_streamed_rows_give_the_same_map(sets, steps):
    streamed = {name: StreamedRows.of(x, name=name) for name, x in sets.items()}
    result, expected = Pipeline(steps).fit(streamed).transform(sets), Pipeline(steps).fit(sets).transform(sets)
    assert all(np.allclose(result[name], expected[name], rtol=1e-11, atol=1e-12) for name in sets)


@pytest.mark.parametrize("steps", [*(f"{step}[text-to-image]" for step in ONTO), "isoclip(1, 1)"])
def test_the_result_of_a_row_depends_on_no_other_row(sets, steps, tmp_path):
    """New rows are mapped one by one by what was fitted, also from the file: none of them is fitted on."""
    fitted, new = Pipeline(steps).fit(sets), cone(7, 4, np.random.default_rng(8)) + 2
    whole = fitted.transform({"text": new})["text"]
    fitted.save(tmp_path / "map.safetensors")
    loaded = Pipeline.load(tmp_path / "map.safetensors")
    assert (loaded.transform({"text": new})["text"] == whole).all()
    alone = np.concatenate([loaded.transform({"text": row[None]})["text"] for row in new])
    assert np.allclose(alone, whole, rtol=1e-12, atol=1e-13)

import json

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.registry import InputError
from clip_geometry.search.table import HEADINGS, SHOWN, by_aim, conditions, narrow
from support.clip_like import clip_like


@pytest.fixture(scope="module")
def found():
    rows = clip_like(300)
    return cg.diagnose(rows["image"], rows["text"], repairs=["zscore", "posterior"], splits=2)


def test_the_verdict_names_the_repair_its_gain_and_its_cost(found):
    text = " ".join(found.verdict)
    assert f"Take {found.recommended} to find" in text
    assert "90% interval" in text
    assert "recall at 1 across modalities stays as it is; 100% of the nearest rows" in text


def test_the_saved_repair_scores_as_the_fitted_one(found, tmp_path):
    repair = found.fitted()
    repair.save(tmp_path / "repair.safetensors")
    rows = clip_like(30, seed=9)
    again = cg.Repair.load(tmp_path / "repair.safetensors")
    for item in rows:
        scores = (each.scores("image", rows["image"], item, rows[item]) for each in (repair, again))
        assert np.array_equal(*scores)


def test_json_has_every_repair(found):
    told = json.loads(found.to_json())
    assert told["recommended"] == found.recommended and set(told["repairs"]) == {"none", "zscore", "posterior"}
    none, zscore = (told["repairs"][name] for name in ("none", "zscore"))
    change = zscore["numbers"]["mrr"]["value"] - none["numbers"]["mrr"]["value"]
    assert zscore["changes"]["mrr"]["value"] == pytest.approx(change)
    assert str(found).endswith(found.verdict[-1])


def test_the_figure_has_a_point_for_every_repair(found):
    axes = found.figure().axes[0]
    points = sum(len(container.lines[0].get_xdata()) for container in axes.containers)
    assert points == len(found.comparison.candidates)
    drawn = {
        xy for each in axes.containers for xy in zip(each.lines[0].get_xdata(), each.lines[0].get_ydata(), strict=True)
    }
    assert drawn == {
        (each.changes["cross_r_at_1"].value, each.numbers[found.comparison.aim].value)
        for each in found.comparison.candidates.values()
    }


def test_the_table_begins_with_the_repair_that_finds_most(found):
    values = [each.numbers[found.comparison.aim].value for each in by_aim(found.comparison)]
    assert len(set(values)) > 1 and values == sorted(values, reverse=True)


def test_each_cell_of_the_narrow_table_is_the_number_of_its_column(found):
    columns, rows, means = narrow(found.comparison)
    names = {HEADINGS.get(name, name): name for name in SHOWN}
    assert "not split" not in conditions(found.comparison)
    assert {name for name in columns if name.startswith(">")} == {f">{name}" for name in means}
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        each = found.comparison.candidates[cells["repair"]]
        assert cells[">columns"].startswith(f"{each.serving.columns:,}") or each.serving.indexes > 1
        for head, cell in cells.items():
            if head.startswith(">") and head != ">columns":
                assert cell.startswith(f"{each.numbers[names[head[1:]]].value:.3f}")


def test_faults_come_before_repairs():
    """Shuffled pairs make every comparison meaningless, so none is made unless repairs are named."""
    rows = clip_like(300)
    order = np.random.default_rng(0).permutation(300)
    found = cg.diagnose(rows["image"], rows["text"][order])
    assert found.findings[0].severity == "error"
    assert found.comparison is None
    assert "would spoil the comparison" in found.skipped
    assert any(said.startswith("Repairs were not compared") for said in found.verdict)
    with pytest.raises(InputError, match="repairs were not compared"):
        found.fitted()
    unpaired = cg.diagnose(rows["image"], rows["text"][:200])
    with pytest.raises(InputError, match="repairs were not compared: nothing says which items are relevant"):
        unpaired.fitted()
    with pytest.raises(InputError, match="nothing to draw"):
        found.figure()
    assert cg.diagnose(rows["image"], rows["text"][order], repairs=["zscore"], splits=1).comparison is not None


def test_one_modality_is_checked_without_repairs():
    found = cg.diagnose(clip_like(100)["image"])
    assert found.recommended is None
    assert "two modalities" in found.skipped


def test_rows_without_a_direction_are_left_out_of_the_repairs():
    rows = clip_like(100)
    rows["image"][7] = 0
    found = cg.diagnose(rows, repairs=["zscore"], splits=1)
    assert found.findings[0].check == "invalid_rows"
    assert found.comparison.facts["n"] == {"image": 99, "text": 100}


def test_no_help_is_said():
    rng = np.random.default_rng(0)
    item = rng.normal(size=(120, 16))
    found = cg.diagnose(*(item + 0.02 * rng.normal(size=item.shape) for _ in range(2)), repairs=["center"], splits=2)
    assert found.recommended == "none"
    assert "No repair" in " ".join(found.verdict)
    with pytest.raises(InputError, match="no repair helps beyond noise"):
        found.fitted()
    assert found.fitted("center").name == "center"


def test_repairs_that_help_at_a_cost_are_named_where_none_is_saved():
    """Captions of one image among each other are what five of them per image lose."""
    rows, noise = clip_like(200), np.random.default_rng(0).normal(size=(1000, 64))
    ids = [str(k) for k in range(200)]
    text = cg.Embeddings(np.tile(rows["text"], (5, 1)) + 0.04 * noise, "text", item_id=5 * ids)
    sets = {"image": cg.Embeddings(rows["image"], "image", item_id=ids), "text": text}
    found = cg.diagnose(sets, repairs=["posterior", "zscore", "rrf"], splits=3)
    with pytest.raises(InputError, match=r"repair that helps \((posterior|zscore), .* has a cost .*\(--repair NAME\)"):
        found.fitted()


def isotropic(n=200, d=32, seed=0):
    rng = np.random.default_rng(seed)
    return {"image": rng.normal(size=(n, d)) + 0.5, "text": rng.normal(size=(n, d)) - 0.5}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_repair_helps_noise(seed):
    """Whatever puts the other modality first raises the reciprocal rank, also where nothing pairs."""
    found = cg.diagnose(isotropic(seed=seed), repairs=["zscore", "posterior", "procrustes"], splits=4)
    assert found.recommended == "none"
    best = max(each.changes["mrr"].value for each in found.comparison.candidates.values())
    assert best > 0.01
    assert "No repair that costs nothing helps beyond noise" in " ".join(found.verdict)


def test_the_gap_is_seen_without_pairs():
    rows = clip_like(300)
    found = cg.diagnose(rows["image"], rows["text"][:250])
    assert "modality_gap" in {each.check for each in found.findings}
    assert "checks of pairs could not be run" in found.verdict[1]


def test_the_verdict_says_what_a_repair_returns():
    rows, alone = clip_like(200), np.arange(200)
    text = " ".join(cg.diagnose(rows, labels=alone, repairs=["posterior"], splits=2, relevant="labels").verdict)
    assert "In an index of 100 image and 100 text held-out rows" in text
    assert "Then under 1% of the top ten of an image query are images" in text
    assert "No two image and text rows share a label" in text


def test_one_split_has_no_interval(found):
    rows = clip_like(200)
    text = " ".join(cg.diagnose(rows, repairs=["zscore"], splits=1).verdict)
    assert "Take zscore" in text and "interval" not in text and "nan" not in text


def test_the_logit_scale_of_a_store_is_used():
    sets = {
        name: cg.Embeddings(rows, name, provenance={"encoder": {"logit_scale": 12.5}})
        for name, rows in clip_like(100).items()
    }
    found = cg.diagnose(sets, repairs=["inverted_softmax"], splits=1)
    assert found.index.known().logit_scale == 12.5
    assert found.fitted("inverted_softmax").terms_["image", "text"].slope == 12.5


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"image": np.ones((1, 4)), "text": np.ones((1, 4))}, "there is 1 image row"),
        ({"image": np.eye(4), "text": np.eye(5)[:4]}, "image rows 4 and text rows 5 dimensions"),
    ],
)
def test_unusable_sets_are_refused(sets, says):
    with pytest.raises(InputError, match=says):
        cg.diagnose(sets)


def test_arguments_are_checked():
    rows = clip_like(50)
    with pytest.raises(InputError, match="relevant is 'ids'; expected 'labels' or 'pairs'"):
        cg.diagnose(rows, relevant="ids")
    with pytest.raises(InputError, match="unknown repair 'zscor'"):
        cg.diagnose(rows, repairs="zscor")
    assert "has no neighbors within it" in cg.diagnose({name: each[:2] for name, each in rows.items()}).skipped


def test_a_batch_written_twice_is_no_shift():
    rows = clip_like(500)
    rows["image"][490:] = rows["image"][:10]
    checks = {each.check for each in cg.diagnose(rows, repairs=[]).findings}
    assert "exact_duplicates" in checks and "shifted_pairs" not in checks


def test_one_file_given_as_both_modalities():
    rows = clip_like(100)["image"]
    (error,) = (each for each in cg.diagnose(rows, rows, repairs=[]).findings if each.severity == "error")
    assert (error.check, error.modalities) == ("exact_duplicates", ("image", "text"))
    assert "100 of 100" in error.evidence and "text rows that they pair with" in error.evidence


def test_the_verdict_and_the_json_list_what_was_not_checked():
    found = cg.diagnose(clip_like(60), repairs=[])
    (said,) = (each for each in found.verdict if each.startswith("Not checked: "))
    assert "near_duplicates (image with text: fewer than 100 distinct pairs)" in said and said.endswith(").")
    told = json.loads(found.to_json())["not_run"]
    assert {"check": "leakage", "reason": "no other split was given", "modalities": []} in told


def test_fifty_texts_shifted_by_one_row_do_not_end_the_diagnosis():
    rows = clip_like(500, d=128)
    rows["text"][200:250] = rows["text"][201:251].copy()
    found = cg.diagnose(rows["image"], rows["text"])
    assert "Text rows 200 to 249 belong with image rows 201 to 250" in str(found)

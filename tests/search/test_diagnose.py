import json

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.registry import InputError
from support.clip_like import clip_like


@pytest.fixture(scope="module")
def diagnosis():
    rows = clip_like(300)
    return cg.diagnose(rows["image"], rows["text"], repairs=["zscore", "posterior"], splits=2)


def test_the_verdict_names_the_repair_its_gain_and_its_cost(diagnosis):
    text = " ".join(diagnosis.verdict)
    assert f"Take {diagnosis.recommended} to find" in text
    assert "90% interval" in text
    assert "recall at 1 across modalities stays as it is; 100% of the nearest rows" in text


def test_json_has_every_repair(diagnosis):
    written = json.loads(diagnosis.to_json())
    assert written["recommended"] == diagnosis.recommended
    assert set(written["repairs"]) == {"none", "zscore", "posterior"}
    none, zscore = (written["repairs"][name] for name in ("none", "zscore"))
    change = zscore["numbers"]["mrr"]["value"] - none["numbers"]["mrr"]["value"]
    assert zscore["changes"]["mrr"]["value"] == pytest.approx(change)
    assert str(diagnosis).endswith(diagnosis.verdict[-1])


def test_the_figure_has_a_point_for_every_repair(diagnosis):
    axes = diagnosis.figure().axes[0]
    points = sum(len(container.lines[0].get_xdata()) for container in axes.containers)
    assert points == len(diagnosis.comparison.candidates)
    drawn = {
        xy for each in axes.containers for xy in zip(each.lines[0].get_xdata(), each.lines[0].get_ydata(), strict=True)
    }
    assert drawn == {
        (each.changes["cross_r_at_1"].value, each.numbers[diagnosis.comparison.aim].value)
        for each in diagnosis.comparison.candidates.values()
    }


def test_each_cell_of_the_table_is_the_number_of_its_column(diagnosis):
    table = diagnosis.comparison.table()
    heads = [column.name for column in table.columns]
    assert heads == ["repair", "both", "r_at_1", "kept", "recall", "neighbors", "columns", "verdict"]
    values = [float(row[1][:5]) for row in table.rows]
    assert values == sorted(values, reverse=True) and "not split" not in table.notes[0]
    for name, *cells, columns, verdict in table.rows:
        each = diagnosis.comparison.candidates[name]
        assert columns.endswith(f"{each.serving.columns:,}") and verdict == diagnosis.comparison.state(name)
        for head, cell in zip(heads[1:-2], cells, strict=True):
            assert cell.startswith(f"{each.numbers['cross_r_at_1' if head == 'recall' else head].value:.3f}")


def test_faults_come_before_repairs():
    """Shuffled pairs make every comparison meaningless, so none is made unless repairs are named."""
    rows = clip_like(300)
    order = np.random.default_rng(0).permutation(300)
    diagnosis = cg.diagnose(rows["image"], rows["text"][order])
    assert diagnosis.findings[0].severity == "error"
    assert diagnosis.comparison is None
    assert "would spoil the comparison" in diagnosis.skipped
    assert any(sentence.startswith("Repairs were not compared") for sentence in diagnosis.verdict)
    with pytest.raises(InputError, match="repairs were not compared"):
        diagnosis.fitted()
    unpaired = cg.diagnose(rows["image"], rows["text"][:200])
    with pytest.raises(InputError, match="repairs were not compared: nothing says which items are relevant"):
        unpaired.fitted()
    with pytest.raises(InputError, match="nothing to draw"):
        diagnosis.figure()
    assert cg.diagnose(rows["image"], rows["text"][order], repairs=["zscore"], splits=1).comparison is not None


def test_rows_without_a_direction_are_left_out_of_the_repairs():
    rows = clip_like(100)
    rows["image"][7] = 0
    diagnosis = cg.diagnose(rows, repairs=["zscore"], splits=1)
    assert diagnosis.findings[0].check == "invalid_rows"
    assert diagnosis.comparison.facts["n"] == {"image": 99, "text": 100}


def test_repairs_that_help_at_a_cost_are_named_where_none_is_saved():
    """Captions of one image among each other are what five of them per image lose."""
    rows, noise = clip_like(200), np.random.default_rng(0).normal(size=(1000, 64))
    ids = [str(k) for k in range(200)]
    text = cg.Embeddings(np.tile(rows["text"], (5, 1)) + 0.04 * noise, "text", item_id=5 * ids)
    sets = {"image": cg.Embeddings(rows["image"], "image", item_id=ids), "text": text}
    diagnosis = cg.diagnose(sets, repairs=["posterior", "zscore", "rrf"], splits=3)
    with pytest.raises(InputError, match=r"repair that helps \((posterior|zscore), .* has a cost .*\(--repair NAME\)"):
        diagnosis.fitted()


def isotropic(n=200, d=32, seed=0):
    rng = np.random.default_rng(seed)
    return {"image": rng.normal(size=(n, d)) + 0.5, "text": rng.normal(size=(n, d)) - 0.5}


@pytest.mark.parametrize("seed", [0, 2])
def test_no_repair_helps_noise(seed):
    """Whatever puts the other modality first raises the reciprocal rank, also where nothing pairs."""
    diagnosis = cg.diagnose(isotropic(seed=seed), repairs=["zscore", "posterior", "procrustes"], splits=4)
    assert diagnosis.recommended == "none"
    best = max(each.changes["mrr"].value for each in diagnosis.comparison.candidates.values())
    assert best > 0.01
    assert "Neither a repair without costs nor a baseline helps beyond noise" in " ".join(diagnosis.verdict)
    with pytest.raises(InputError, match="no repair helps beyond noise"):
        diagnosis.fitted()
    assert diagnosis.fitted("zscore").name == "zscore"


def test_the_verdict_says_what_a_repair_returns():
    rows, alone = clip_like(200), np.arange(200)
    text = " ".join(cg.diagnose(rows, labels=alone, repairs=["posterior"], splits=2, relevant="labels").verdict)
    assert "In an index of 100 image and 100 text held-out rows" in text
    assert "Then under 1% of the top ten of an image query are images" in text
    assert "No two image and text rows share a label" in text


def test_the_logit_scale_of_a_store_is_used():
    sets = {
        name: cg.Embeddings(rows, name, provenance={"encoder": {"logit_scale": 12.5}})
        for name, rows in clip_like(100).items()
    }
    diagnosis = cg.diagnose(sets, repairs=["inverted_softmax"], splits=1)
    assert diagnosis.index.known().logit_scale == 12.5
    assert diagnosis.fitted("inverted_softmax").terms_["image", "text"].slope == 12.5


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"image": np.ones((1, 4)), "text": np.ones((1, 4))}, "image has 1 row; expected at least 2"),
        ({"image": np.eye(4), "text": np.eye(5)[:4]}, "image rows have 4 and text rows have 5 dimensions"),
    ],
)
def test_unusable_sets_are_refused(sets, says):
    with pytest.raises(InputError, match=says):
        cg.diagnose(sets)


def test_arguments_are_checked():
    rows = clip_like(50)
    with pytest.raises(InputError, match="relevant 'ids' is unknown; known are 'labels', 'pairs'"):
        cg.diagnose(rows, relevant="ids")
    with pytest.raises(InputError, match="unknown repair 'zscor'"):
        cg.diagnose(rows, repairs="zscor")
    assert (
        "has no neighbors within that modality" in cg.diagnose({name: each[:2] for name, each in rows.items()}).skipped
    )


def test_the_verdict_and_the_json_list_what_was_not_checked():
    diagnosis = cg.diagnose(clip_like(60), repairs=[])
    (sentence,) = (each for each in diagnosis.verdict if each.startswith("Not checked: "))
    assert "near_duplicates (image with text: fewer than 100 distinct pairs)" in sentence and sentence.endswith(").")
    not_run = json.loads(diagnosis.to_json())["not_run"]
    assert {"check": "leakage", "reason": "no other split was given", "modalities": []} in not_run

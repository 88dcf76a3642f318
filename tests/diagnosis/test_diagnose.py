import json

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.registry import InputError
from support.clip_like import clip_like


@pytest.fixture(scope="module")
def found():
    rows = clip_like(300)
    return cg.diagnose(rows["image"], rows["text"], repairs=["zscore", "posterior"], splits=2)


def test_the_verdict_names_the_repair_its_gain_and_its_cost(found):
    text = " ".join(found.verdict)
    assert f"Take {found.recommended}:" in text
    assert "90% interval" in text
    assert "Recall at 1 across modalities stays as it is, and 100% of the nearest rows" in text


def test_the_saved_repair_scores_as_the_fitted_one(found, tmp_path):
    repair = found.fitted()
    repair.save(tmp_path / "repair.safetensors")
    rows = clip_like(30, seed=9)
    again = cg.Repair.load(tmp_path / "repair.safetensors")
    for item in rows:
        scores = (each.scores("image", rows["image"], item, rows[item]) for each in (repair, again))
        assert np.array_equal(*scores)


def test_table_and_json_have_every_repair(found):
    assert set(found.frame["repair"]) == {"none", "zscore", "posterior"}
    row = found.frame.set_index("repair").loc["zscore"]
    assert row["mrr_change"] == pytest.approx(row["mrr"] - found.frame.set_index("repair").loc["none"]["mrr"])
    told = json.loads(found.to_json())
    assert told["recommended"] == found.recommended
    assert told["repairs"]["zscore"]["numbers"]["mrr"]["value"] == pytest.approx(row["mrr"])
    assert str(found).endswith(found.verdict[-1])


def test_the_figure_has_a_point_for_every_repair(found):
    axes = found.figure().axes[0]
    points = sum(len(container.lines[0].get_xdata()) for container in axes.containers)
    assert points == len(found.comparison.candidates)


def test_faults_come_before_repairs():
    """Shuffled pairs make every comparison meaningless, so none is made unless repairs are named."""
    rows = clip_like(300)
    order = np.random.default_rng(0).permutation(300)
    found = cg.diagnose(rows["image"], rows["text"][order])
    assert found.findings[0].severity == "error"
    assert found.comparison is None
    assert "would spoil the comparison" in found.skipped
    assert found.verdict[-1].startswith("Repairs were not compared")
    with pytest.raises(InputError, match="no repair was compared"):
        found.fitted()
    with pytest.raises(InputError, match="nothing to draw"):
        found.figure()
    assert cg.diagnose(rows["image"], rows["text"][order], repairs=["zscore"], splits=1).comparison is not None


def test_one_modality_is_checked_without_repairs():
    found = cg.diagnose(clip_like(100)["image"])
    assert found.recommended is None
    assert "two modalities" in found.skipped
    assert found.frame.empty


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

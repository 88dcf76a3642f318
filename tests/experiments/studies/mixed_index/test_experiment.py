"""Records hold the whole comparison; table, figure and sentences of the report are made of them alone."""

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry import diagnose
from clip_geometry.config import validate
from clip_geometry.diagnosis.comparison import Candidate, Cost, RepairComparison
from clip_geometry.diagnosis.search import Estimate
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Results
from clip_geometry_experiments.run.runner import RunFolder, run
from clip_geometry_experiments.studies.mixed_index import MixedIndex, MixedIndexConfig
from clip_geometry_experiments.studies.mixed_index.figures import table, tell
from clip_geometry_experiments.studies.mixed_index.records import comparison_of, records_of
from support.clip_like import clip_like

REPAIRS = ["zscore", "center", "whiten", "rrf"]  # whiten keeps 64 directions, which 32 dimensions have not


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for name, rows in clip_like(160, d=32).items():
        np.save(folder / f"{name}.npy", rows)
    return {
        "name": "c",
        "experiment": "mixed_index",
        "title": "A mixed index",
        "description": "Generated rows.",
        "rows": {"embeddings": str(folder), "dataset": "clip-like"},
        "repairs": REPAIRS,
        "splits": 3,
        "seed": 5,
    }


@pytest.fixture(scope="module")
def planned(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "c"
    folder.mkdir()
    experiment = MixedIndex(validate(MixedIndexConfig, config, "test"), RunFolder(folder, "cpu"))
    results = Results(folder / "results.jsonl")
    for cell in experiment.cells():
        results.append(cell.key, cell.compute())
    return experiment


@pytest.fixture(scope="module")
def found(config):
    rows = clip_like(160, d=32)
    return diagnose(rows["image"], rows["text"], repairs=REPAIRS, splits=3, seed=5)


def same(one: RepairComparison, other: RepairComparison):
    assert one.candidates.keys() == other.candidates.keys()
    for name, each in one.candidates.items():
        assert dict(each.numbers) == dict(other.candidates[name].numbers)
        assert dict(each.changes) == dict(other.candidates[name].changes)
        assert each.costs == other.candidates[name].costs
        assert one.state(name) == other.state(name)
    assert (one.failed, one.recommended, one.ties) == (other.failed, other.recommended, other.ties)
    assert [each.serving for each in one.candidates.values()] == [each.serving for each in other.candidates.values()]
    assert (one.front, dict(one.facts)) == (other.front, dict(other.facts))
    assert one.full.keys() == other.full.keys()
    for name, each in one.full.items():
        assert dict(each.numbers) == dict(other.full[name].numbers)
        assert dict(each.changes) == dict(other.full[name].changes)


def test_the_records_hold_what_diagnose_found(planned, found):
    same(planned.compared, found.comparison)
    assert found.comparison.candidates["center"].costs  # or nothing would be said of costs here
    (row,) = (
        row
        for row in planned.finished_rows()
        if row["measure"] == "mixed_index.mrr" and row["at"] == {"repair": "zscore", "modality": "image"}
    )
    estimate, change = (each["mrr.image"] for each in (found.comparison.candidates["zscore"].numbers,
                                                       found.comparison.candidates["zscore"].changes))  # fmt: skip
    assert (row["value"], row["standard_error"]) == estimate[:2]
    assert (row["change"], row["change_error"]) == change[:2]
    assert row["state"] == found.comparison.state("zscore")
    assert (row["n"], row["d"], row["dataset"]) == (160, 32, "clip-like")


def test_a_repair_that_could_not_be_fitted_is_a_record_with_the_reason(planned, found):
    assert set(found.comparison.failed) == {"whiten"}
    (row,) = (row for row in planned.finished_rows() if row.get("state") == "not fitted")
    assert row["value"] is None and row["note"] == found.comparison.failed["whiten"]
    assert f"whiten was left out: {row['note']}." in " ".join(table(planned.compared).legend)


def test_the_report_has_the_table_the_figure_and_the_verdict(config, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(__import__("json").dumps(config))
    report = run(path, {}, runs=tmp_path / "runs", device="cpu")
    page = report.read_text()
    assert (report.parent / "figures" / "repairs.svg").is_file()
    compared = MixedIndex(validate(MixedIndexConfig, config, "test"), RunFolder(report.parent, "cpu")).compared
    assert f"{compared.recommended} to find a list with relevant results of both modalities" in page
    for name in compared.candidates:
        assert f'<th scope="row">{name}</th>' in page
    for text in ("Repairs, all queries", "costs neighbors", "Figure 1. What repairs find", "2.2" * 0):
        assert text in page


def test_one_line_of_the_table_per_repair_the_best_first(planned):
    grid = table(planned.compared)
    assert [cells[0] for cells in grid.rows][-1] == "none"
    values = [float(cells[1].split(" ")[0]) for cells in grid.rows]
    assert values == sorted(values, reverse=True)
    (marked,) = (cells for cells, mark in zip(grid.rows, grid.marked, strict=True) if mark)
    assert marked[0] == planned.compared.recommended and marked[-1] == "recommended"


def test_the_table_of_measures_shows_the_best_by_modality(planned):
    shown = [row for row in planned.finished_rows() if planned.tabled(row)]
    repairs = {row["at"].get("repair") for row in shown}
    assert repairs == {None, "none", planned.compared.recommended, *planned.compared.ties}
    assert not any("ndcg" in row["measure"] for row in shown)  # of pairs


def test_faults_are_said_and_keep_nothing_from_being_compared(config, tmp_path):
    rows = clip_like(160, d=32)
    np.save(tmp_path / "image.npy", rows["image"])
    np.save(tmp_path / "text.npy", rows["text"][np.random.default_rng(0).permutation(160)])
    values = {**config, "rows": {"embeddings": str(tmp_path)}, "repairs": ["zscore"], "splits": 1}
    experiment = MixedIndex(validate(MixedIndexConfig, values, "test"), RunFolder(tmp_path, "cpu"))
    (cell,) = experiment.cells()
    rows = cell.compute()
    assert "shuffled_pairs" in [each["check"] for each in rows[0]["findings"]]
    said = tell(comparison_of(rows), rows[0]["findings"])
    assert any(sentence.startswith("The check shuffled_pairs fails (image and text): ") for sentence in said)


def compared(**mrr):
    """Repairs with these reciprocal ranks (value, error); what is called costly… has a cost."""

    def candidate(name, value, error):
        keys = ("r_at_1", "own_share", "cross_r_at_1", "neighbors")
        numbers = {f"{key}{of}": Estimate(0.62, 0.02, 0.03, 4) for key in keys for of in ("", ".image")}
        changes = {key: Estimate(0.0, 0.0, 0.0, 4) for key in numbers}
        numbers["both"], changes["both"] = Estimate(value, error, 0.05, 4), Estimate(value - 0.1, error, 0.05, 4)
        lost = Estimate(-0.21, 0.03, 0.04, 4)
        if costly := name.startswith("inverted"):
            changes["cross_r_at_1.image"] = lost
        return Candidate(name, numbers, changes, (Cost("recall", "image", lost),) if costly else ())

    candidates = {name: candidate(name, *value) for name, value in {"none": (0.1, 0.01), **mrr}.items()}
    n = {"image": 300, "text": 400}
    facts = {"n": n, "index": n, "relevant_by": "pairs", "splits": 4, "seed": 0}
    return RepairComparison(candidates, {}, "zscore", ("zscore",), ("none",), facts)


def test_what_finds_more_at_a_cost_is_said_beyond_the_error_only():
    shares = {"own_share.text": Estimate(0.5, 0.01)}
    for value, is_said in ((0.71, True), (0.64, False)):  # errors 0.03 and 0.04: 0.1 is beyond neither, 0.21 is
        comparison = compared(zscore=(0.54, 0.03), inverted_softmax=(value, 0.04))
        for each in comparison.candidates.values():
            each.numbers.update(shares)
        text = " ".join(tell(comparison, []))
        expected = (
            "inverted_softmax finds more (0.710 ± 0.040 in both, zscore 0.540 ± 0.030) at a cost: "
            "recall of image queries across modalities −0.210 ± 0.030."
        )
        assert (expected in text) == is_said
        assert "centering" not in text


def test_one_split_has_no_error_of_fitting(found):
    rows = clip_like(60, d=32)
    comparison = diagnose(rows["image"], rows["text"], repairs=["zscore"], splits=1).comparison
    records = records_of(comparison)
    assert {row["split_error"] for row in records} == {None}
    again = comparison_of([Record.from_json(row.to_json()) for row in records])
    assert np.isnan(again.candidates["zscore"].numbers["mrr"].split_error)
    assert again.candidates["zscore"].numbers["mrr"][:2] == comparison.candidates["zscore"].numbers["mrr"][:2]


def test_records_of_a_modality_whose_rows_have_no_labels():
    """Texts of no class find nothing, so that they have no rank, and that is no record."""
    rows = clip_like(60, d=32)
    labels = {"image": np.repeat(["a", "b", "c"], 20), "text": np.array(["a"] * 10 + [None] * 50)}
    sets = {name: cg.Embeddings(rows[name], name, labels=of) for name, of in labels.items()}
    comparison = diagnose(sets, repairs=["zscore"], splits=2).comparison
    same(comparison_of(records_of(comparison)), comparison)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"repairs": ["zscor"]}, "unknown repair 'zscor'; did you mean 'zscore'"),
        ({"repairs": []}, "repairs is empty; name some, or set it to null for all"),
        ({"model": "scenes-clip/fresh"}, "rows has stored embeddings, which no model is needed for"),
        ({"rows": "scenes"}, "rows has scenes, which a model has to embed; set model"),
        ({"relevant": "ids"}, "relevant"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(config, changes, message):
    with pytest.raises(InputError, match=message):
        validate(MixedIndexConfig, {**config, **changes}, "c")


def test_no_records_are_one_sentence():
    with pytest.raises(InputError, match="there are no records of repairs; run the experiment first"):
        comparison_of([])

"""The experiment: its config, its rows, and a run that is stopped in the middle of a cell."""

import json

import numpy as np
import pytest
from scipy import stats

from clip_geometry.config import validate
from clip_geometry.geometry import silhouette
from clip_geometry.registry import InputError
from clip_geometry.results import Results
from clip_geometry_experiments.mickus2024.classify import Classify, ClassifyConfig
from clip_geometry_experiments.mickus2024.classify.training import (
    SHUFFLED,
    ClassificationTrainer,
    LayerPlace,
    layer_correlation_rows,
)
from clip_geometry_experiments.run.runner import RunFolder, run
from clip_geometry_experiments.tasks import load_task, resolve_task
from support.parameters import parameter_count

IMAGES = {
    "name": "tiny",
    "experiment": "classify",
    "model": "scenes-clip/fresh",
    "data": {"name": "scenes", "size": 40},
    "pipeline": ["normalize"],
    "updates": 6,
    "seeds": [0, 1],
    "measures": ["silhouette", "silhouette[cosine]", "isoscore", "isoscore[unbiased]", "average_cosine"],
}


@pytest.fixture
def pairs(tmp_path):
    """A table of 24 pairs of 36 captions, of two classes; each pair shares a caption with one other."""
    rows = [(f"item {3 * k + j}", f"item {3 * k + j + 1}", j) for k in range(12) for j in (0, 1)]
    path = tmp_path / "pairs.tsv"
    path.write_text("one\ttwo\tlabel\n" + "".join("\t".join(map(str, row)) + "\n" for row in rows))
    return {"name": "table", "path": str(path), "text": ["one", "two"]}


def configured(**changes):
    values = {key: value for key, value in (IMAGES | changes).items() if value is not None}
    return validate(ClassifyConfig, values, "test")


def ran(folder, name="runs", **changes):
    """(the report, rows) of a run."""
    config = folder / "tiny.yaml"
    config.write_text(json.dumps({key: value for key, value in (IMAGES | changes).items() if value is not None}))
    report = run(config, {}, runs=folder / name, device="cpu")
    return report, Results(report.parent / "results.jsonl").read()


def only(rows, measure, **at):
    at = {"classifier.seed" if key == "seed" else key: value for key, value in at.items()}
    (row,) = (r for r in rows if r["measure"] == measure and at.items() <= r["at"].items())
    return row


# --- rows


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return ran(tmp_path_factory.mktemp("images"))


def test_correlations_are_those_of_all_states(images):
    _, rows = images
    x, y = (
        np.array([only(rows, name, seed=seed, examples="trained")["trajectory"] for seed in (0, 1)])
        for name in ("silhouette", "isoscore")
    )
    at = {"of": "silhouette", "with": "isoscore"}
    pooled = [
        only(rows, f"classify.{name}", seed="all", **at)["value"] for name in ("pearson", "spearman", "pearson_log")
    ]
    x_all, y_all = x.ravel(), y.ravel()
    expected = [stats.pearsonr(x_all, y_all), stats.spearmanr(x_all, y_all), stats.pearsonr(x_all, np.log(y_all))]
    assert pooled == pytest.approx([each.statistic for each in expected], rel=1e-12)
    for seed in (0, 1):
        row = only(rows, "classify.pearson", seed=seed, **at)
        assert row["value"] == pytest.approx(np.corrcoef(x[seed], y[seed])[0, 1], rel=1e-9) and row["n"] == 7
        assert "null_value" not in row and row["standard_error"] is None
    told = {(row["at"]["of"], row["at"]["with"]) for row in rows if row["measure"] == "classify.pearson"}
    plain, cosine = "silhouette", "silhouette[cosine]"
    assert told == {(plain, "isoscore"), (plain, "isoscore[unbiased]"), (cosine, "isoscore")}
    spread = np.abs(x[0] - x[1]) / 2**0.5  # of two seeds
    for name, value in (("largest", spread.max()), ("mean", spread.mean())):
        assert only(rows, f"classify.{name}_deviation", of="silhouette")["value"] == pytest.approx(value)


def test_the_null_of_a_correlation_is_that_of_shuffled_labels(images):
    report, rows = images
    loaded = Classify(configured(), RunFolder(report.parent, "cpu")).loaded
    at = {"examples": "shuffled labels", "layer": "input"}
    found = {name: [] for name in ("silhouette", "isoscore")}
    for seed in (0, 1):
        shuffled = loaded.trained.shuffled(seed)
        assert sorted(shuffled.targets.tolist()) == sorted(loaded.trained.targets.tolist())
        assert not shuffled.targets.equal(loaded.trained.targets) and shuffled.items is loaded.trained.items
        row = only(rows, "silhouette", seed=seed, **at)
        assert row["trajectory"][0] == pytest.approx(float(silhouette(shuffled.items, shuffled.targets)), rel=1e-9)
        for name, values in found.items():
            values.append(only(rows, name, seed=seed, **at)["trajectory"])
    pooled = only(rows, "classify.pearson", seed="all", of="silhouette", **{"with": "isoscore"})
    x, y = (np.array(values) for values in found.values())
    within = [np.corrcoef(*each)[0, 1] for each in zip(x, y, strict=True)]
    assert pooled["null_values"] == pytest.approx(within, rel=1e-9)
    assert pooled["null_value"] == pytest.approx(np.mean(within), rel=1e-9)
    assert pooled["null_value"] != pytest.approx(np.corrcoef(x.ravel(), y.ravel())[0, 1], rel=1e-9)
    own = [
        only(rows, "classify.pearson", seed=seed, of="silhouette", **{"with": "isoscore"})["value"] for seed in (0, 1)
    ]
    assert pooled["seed_values"] == pytest.approx(own, rel=1e-9)
    assert pooled["standard_error"] == pytest.approx(
        abs(own[0] - own[1]) / 2, rel=1e-6
    )  # of the pooled r, without each
    assert pooled["null_value"] != pooled["value"] and (pooled["updates"], pooled["seeds"]) == (6, 2)
    of_seeds = sorted(f"{np.corrcoef(*each)[0, 1]:.3f}".replace("-", "−") for each in zip(x, y, strict=True))
    assert all(each in pooled["note"] for each in of_seeds) and "with shuffled labels" in pooled["note"]
    assert "with randomly permuted labels it is" in report.read_text()
    deviations = [row for row in rows if row["measure"] == "classify.largest_deviation"]
    assert {row["at"]["examples"] for row in deviations} == {"trained"}


def test_the_null_does_not_pool_seeds_with_different_labels():
    """Every seed falls as it rises, ρ = −1, on a curve of its own: pooled, the curves would cross."""
    x = np.linspace(0, 1, 20) + 0.3 * np.arange(3)[:, None]
    curves = {}
    for examples in ("trained", SHUFFLED):
        curves |= {
            LayerPlace("silhouette", examples): x,
            LayerPlace("isoscore", examples): np.exp(2 * np.arange(3)[:, None] - x),
        }
    config = configured(measures=("silhouette", "isoscore"))
    (row,) = (row for row in layer_correlation_rows(config, curves, "all") if row["measure"] == "classify.spearman")
    assert row["value"] > 0  # of the pooled states
    assert row["null_values"] == pytest.approx([-1, -1, -1]) and row["null_value"] == pytest.approx(-1)


def test_the_error_of_a_pooled_correlation_is_that_of_its_seeds():
    """Each seed has r = −1, so an error within seeds is 0; the pooled r depends on the three offsets of the curves."""
    states, offsets = np.linspace(0, 1, 20), np.array([0.0, 0.3, 1.1])[:, None]
    x, y = states + offsets, 2 + 0.4 * offsets - states
    curves = {LayerPlace("silhouette"): x, LayerPlace("isoscore"): y}
    config = configured(measures=("silhouette", "isoscore"))
    (row,) = (row for row in layer_correlation_rows(config, curves, "all") if row["measure"] == "classify.pearson")
    without = [np.corrcoef(np.delete(x, seed, 0).ravel(), np.delete(y, seed, 0).ravel())[0, 1] for seed in range(3)]
    assert row["seed_values"] == pytest.approx([-1, -1, -1])
    assert row["standard_error"] == pytest.approx(
        np.sqrt(2 / 3 * np.square(without - np.mean(without)).sum()), rel=1e-9
    )
    assert row["standard_error"] > 0.01


@pytest.mark.parametrize("bias", [True, False])
def test_parameters_are_those_of_the_published_formula(pairs, tmp_path, bias):
    _, rows = ran(tmp_path, data=None, task=pairs, bias=bias, seeds=[3], updates=1)
    task = load_task(resolve_task(pairs))
    assert only(rows, "classify.parameters")["value"] == parameter_count(task, 512, bias)


# --- going on


def test_a_run_stopped_in_a_cell_goes_on_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr("clip_geometry_experiments.kit.training.SECONDS", 0)
    monkeypatch.setattr("clip_geometry_experiments.kit.training.SHARE", float("inf"))
    (tmp_path / "whole").mkdir()
    report, _ = ran(tmp_path / "whole", sample=20, shuffled=False)
    step, steps = ClassificationTrainer.step, []

    def stopping(self):
        steps.append(self.number)
        if len(steps) == 10:  # in the second seed
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(ClassificationTrainer, "step", stopping)
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path, sample=20, shuffled=False)
    (kept,) = (tmp_path / "runs").glob("tiny-*/checkpoints/*.pt")
    again, rows = ran(tmp_path, sample=20, shuffled=False)
    assert steps == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 3, 4, 5]  # no update twice but the one that was not made
    assert not kept.exists()
    assert (again.parent / "results.jsonl").read_bytes() == (report.parent / "results.jsonl").read_bytes()
    monkeypatch.setattr(ClassificationTrainer, "step", lambda *_: pytest.fail("a finished cell was computed again"))
    assert ran(tmp_path, sample=20, shuffled=False) == (again, rows)


def test_every_setting_makes_its_own_cells(tmp_path):
    changes = (
        {}, {"lr": 0.01}, {"sample": 10}, {"held_out": 0.1}, {"measure_every": 2}, {"init_scale": 2.0}, {"bias": False},
        {"loss": "triplet"}, {"classifier": "two-layer"}, {"pipeline": []}, {"modality": "text"}, {"seed": 1},
    )  # fmt: skip
    folder = RunFolder(tmp_path / "run", "cpu")
    keys = [{cell.key for cell in Classify(configured(**change), folder).cells()} for change in changes]
    assert [len(each) for each in keys] == [5] * 12 and len(set.union(*keys)) == 60
    more = {cell.key for cell in Classify(configured(seeds=[1, 2, 3]), folder).cells()}
    assert len(more & keys[0]) == 2  # a seed and its null are the same beside others, what is pooled is not
    without = {cell.key for cell in Classify(configured(shuffled=False), folder).cells()}
    assert len(without) == 3 and len(without & keys[0]) == 2


# --- what cannot be


def test_data_without_the_modality_or_without_labels(tmp_path):
    rows = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    stored = {"model": None, "data": {"embeddings": str(tmp_path / "rows.npy")}}
    for modality, says in (("text", "has no text embeddings"), ("image", "have no labels")):
        with pytest.raises(InputError, match=says):
            _ = Classify(configured(**stored, modality=modality), RunFolder(tmp_path / "run", "cpu")).loaded

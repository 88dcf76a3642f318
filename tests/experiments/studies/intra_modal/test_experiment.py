"""Intra-modal retrieval by native features and by those that were inverted into the other modality."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from clip_geometry.encoders import load_encoder
from clip_geometry.registry import InputError
from clip_geometry.results import Results
from clip_geometry_experiments.run.runner import RunFolder, plan
from clip_geometry_experiments.studies.intra_modal import average_precision, chance_level
from clip_geometry_experiments.studies.intra_modal.inversion import Inversion, invert

VALUES = {
    "name": "c",
    "experiment": "intra_modal",
    "model": "local-dir:shipped/scenes-trained",
    "data": {"name": "scenes", "split": "test", "size": 48},
    "queries": 24,
    "to_text": {"steps": 3},
    "to_image": {"steps": 2, "pseudo_tokens": 4},
    "seeds": [0, 1],
    "batch_size": 48,
}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    ((kind, config),) = plan(VALUES, "c")
    folder = tmp_path_factory.mktemp("runs") / "c"
    folder.mkdir()
    found = kind(config, RunFolder(folder, "cpu"))
    for cell in found.cells():
        Results(folder / "results.jsonl").append(cell.key, cell.compute())
    return found


@pytest.mark.parametrize("seed", range(3))
def test_average_precision_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    index, labels, itself = rng.normal(size=(40, 5)), rng.integers(0, 4, 40), np.arange(3, 9)
    queries = index[itself] + rng.normal(size=(6, 5))
    relevant = labels[itself, None] == labels
    found = average_precision(queries, index, relevant, itself)
    for k, row in enumerate(itself):
        others = np.arange(40) != row
        cosines = index @ queries[k] / np.linalg.norm(index, axis=1)
        assert found[k] == pytest.approx(average_precision_score(relevant[k][others], cosines[others]), rel=1e-12)


def test_chance_level_is_the_mean_over_random_orders():
    rng, relevant = np.random.default_rng(0), np.arange(12) < 4
    index, itself = rng.normal(size=(12, 300)), np.full(4000, 11)
    drawn = average_precision(rng.normal(size=(4000, 300)), index, np.tile(relevant, (4000, 1)), itself)
    assert drawn.mean() == pytest.approx(chance_level(np.array([4]), 11)[0], abs=3 * drawn.std() / 4000**0.5)


def test_rows_are_paired_over_queries(experiment):
    rows = {(row["at"]["modality"], row["measure"]): row for row in experiment.finished_rows()}
    assert len(rows) == 8
    sets = experiment.workspace.embeddings(experiment.config.model, experiment.config.data, limit=None, batch_size=48)
    encoder = load_encoder(experiment.config.model, "cpu")
    vectors, labels = np.asarray(sets["image"].vectors), np.asarray(sets["image"].labels)
    relevant = labels[:24, None] == labels
    asked = np.flatnonzero(relevant.sum(1) > 1)
    images = torch.from_numpy(vectors[asked])
    found = [invert(encoder, images, "text", Inversion(steps=3), seed=seed).rows.numpy() for seed in (0, 1)]
    inverted = np.mean([average_precision(each, vectors, relevant[asked], asked) for each in found], axis=0)
    native = average_precision(vectors[asked], vectors, relevant[asked], asked)
    gain = rows["image", "intra_modal.gain"]
    assert gain["value"] == pytest.approx((inverted - native).mean(), abs=1e-9)
    assert gain["standard_error"] == pytest.approx((inverted - native).std(ddof=1) / len(asked) ** 0.5, abs=1e-9)
    assert gain["n"] == len(asked) and gain["null_value"] == 0
    assert rows["image", "intra_modal.native"]["value"] == pytest.approx(native.mean(), rel=1e-12)
    assert 0 < rows["image", "intra_modal.native"]["null_value"] < native.mean()


def test_labels_and_a_model_of_open_clip_are_needed(experiment, tmp_path):
    values = VALUES | {"data": {"name": "scenes", "split": "test", "size": 3}, "to_image": None}
    ((kind, config),) = plan(values, "c")
    (cell,) = kind(config, RunFolder(tmp_path, "cpu")).cells()
    with pytest.raises(InputError, match="0 of the first 24 images share their label with another row"):
        cell.compute()

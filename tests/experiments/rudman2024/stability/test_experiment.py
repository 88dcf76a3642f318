"""The stability study: batched estimates are the library's, errors are those of the draws, bad configs are refused."""

import math
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.geometry import isoscore, isoscore_star
from clip_geometry.registry import InputError
from clip_geometry_experiments.rudman2024.stability import CloudConfig, Stability
from clip_geometry_experiments.run.runner import plan, resolve

CONFIG = Path(__file__).parents[4] / "configs" / "rudman2024" / "stability.yaml"
HEAVY = CloudConfig(name="heavy", decay=0.5, heavy_tailed=True)


def small(**changes):
    values = {"d": 6, "sizes": [5, 40], "draws": 30, "zetas": [0, 0.2, 1], "reference_rows": 50}
    values |= {"table_sizes": [40], "table_zetas": [0.2], **changes}
    ((_, config),) = plan(resolve(CONFIG, values, smoke=False), "stability")
    return config


@pytest.mark.parametrize("n", [5, 40])
def test_batched_estimates_are_those_of_the_library(n, workspace):
    """In the order plain, corrected, and IsoScore* of each ζ with the covariance of the other rows."""
    experiment, rng = Stability(small(), workspace), np.random.default_rng([0, n, 6])
    x, reference = HEAVY.draw(30, n, 6, rng).numpy(), HEAVY.draw(30, 50, 6, rng).numpy()
    for k, found in enumerate(experiment.scores(HEAVY, n).numpy()):
        stars = [isoscore_star(x[k], np.cov(reference[k].T), zeta=zeta) for zeta in (0, 0.2, 1)]
        try:
            unbiased = isoscore(x[k], unbiased=True)
        except InputError:
            unbiased = math.nan
        assert found == pytest.approx([isoscore(x[k]), unbiased, *stars], rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("config", [CloudConfig(name="g"), CloudConfig(name="d", decay=1.0), HEAVY])
def test_the_true_score_is_that_of_the_distribution(config):
    """Of 400 000 rows in 5 dimensions, whose own bias is below 1e-4."""
    (rows,) = config.draw(1, 400_000, 5, np.random.default_rng(0))
    assert float(isoscore(rows)) == pytest.approx(config.isoscore(5), abs=0.005)
    assert (config.isoscore(5) == pytest.approx(1)) == (config.decay == 0)


def test_rows_are_the_errors_of_the_draws(workspace):
    experiment = Stability(small(clouds=[HEAVY.model_dump()]), workspace)
    cells = list(experiment.cells())
    assert len(cells) == 2 and cells[0].key != cells[1].key
    rows = {(row["measure"], row["at"]["estimator"], row["at"].get("zeta")): row for row in cells[1].compute()}
    values = experiment.scores(HEAVY, 40)[:, 3].numpy()
    error = values - HEAVY.isoscore(6)
    bias, deviation, rmse = (
        rows[f"stability.{name}", "isoscore_star", 0.2] for name in ("bias", "standard_deviation", "rmse")
    )
    assert bias["value"] == pytest.approx(error.mean()) and deviation["value"] == pytest.approx(values.std(ddof=1))
    assert rmse["value"] == pytest.approx(np.sqrt((error**2).mean()))
    assert bias["standard_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(30))
    assert 0 < deviation["standard_error"] < deviation["value"]
    assert (bias["n"], bias["d"], bias["draws"], bias["reference_rows"]) == (40, 6, 30, 50)
    assert len(rows) == 3 * (2 + 3)
    assert {name for name, _, _ in rows} == set(Stability.explanations)


def test_draws_in_which_the_corrected_score_is_undefined_are_counted(workspace, monkeypatch):
    experiment = Stability(small(sizes=[40]), workspace)
    whole = experiment.scores(HEAVY, 40)
    for count in (3, 29):
        broken = whole.clone()
        broken[:count, 1] = math.nan
        monkeypatch.setattr(experiment, "scores", lambda cloud, n, broken=broken: broken)
        rows = [row for row in next(experiment.cells()).compute() if row["at"]["estimator"] == "isoscore[unbiased]"]
        assert f"undefined in {count} of 30 draws" in rows[0]["note"]
        assert (rows[0]["value"] is None) == (count == 29)


def test_cells_depend_on_what_they_say(workspace):
    def keys(**changes):
        return [cell.key for cell in Stability(small(**changes), workspace).cells()]

    assert keys() == keys(title="another", table_zetas=[1])
    for change in ({"seed": 1}, {"draws": 31}, {"reference_rows": 51}, {"zetas": [0.2]}, {"d": 7}):
        assert not set(keys()) & set(keys(**change))
    assert set(keys(sizes=[40])) < set(keys())  # sizes can be added


@pytest.fixture
def workspace(tmp_path):
    class Folder:
        folder = tmp_path

    return Folder()

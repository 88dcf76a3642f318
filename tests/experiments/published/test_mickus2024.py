"""Which rows of the experiment `classify` stand beside the numbers of Mickus et al. 2024. The rows are its own."""

from pathlib import Path

import numpy as np
import pytest

from clip_geometry.results import Record
from clip_geometry_experiments.mickus2024.classify.training import LayerPlace, deviation_rows, layer_correlation_rows
from clip_geometry_experiments.published.comparing import compare
from clip_geometry_experiments.run.runner import plan, resolve

CONFIGS = Path(__file__).parents[3] / "configs" / "mickus2024"


def rows_of(stem, seeds=5, updates=None, model=None, path=None, **changes):
    """What a run of the config would write in its last cell, of made-up states that fall as they rise."""
    path_of_task = {} if path is None else {"data_options": {"path": path}}
    ((_, config),) = plan(resolve(CONFIGS / f"{stem}.yaml", changes, smoke=False), stem)
    states = 1 + (updates or config.updates)
    x = np.linspace(0, 1, states) + 0.001 * np.arange(seeds)[:, None]
    curves = {LayerPlace("silhouette"): x, LayerPlace("isoscore"): np.exp(-3 * x)}
    config = config.model_copy(update={"measures": ("silhouette", "isoscore")})
    shared = {"model": model or config.model.model, "dataset": config.task.name, "split": config.task.split}
    rows = [*layer_correlation_rows(config, curves, "all"), *layer_correlation_rows(config, curves, 0)]
    sizes = {"examples": 7, "items": 9, "parameters": 99}
    rows += [*deviation_rows(config, curves)]
    rows += [Record(f"classify.{name}", value, at=config.options()) for name, value in sizes.items()]
    shared |= {"updates": states - 1, "seeds": seeds, "pipeline": list(config.pipeline)}
    return [{**shared, **path_of_task, **row} for row in rows]


def lines(stem, **options):
    """Path of a published number → ours beside it, where there are any."""
    found = compare(rows_of(stem, **options), f"mickus2024-{stem}")
    return {line.path: line for line in found if line.ours}


def test_a_task_of_glue():
    found = lines("glue", task="wnli")
    assert set(found) == {
        "correlations.glue_always_below.pearson",
        "correlations.glue_always_below.spearman",
        "table2_glue_sizes.wnli.items",
        "table2_glue_sizes.wnli.minilm",
        "table3_glue_correlations.minilm.wnli.r",
        "table3_glue_correlations.minilm.wnli.rho",
    }
    assert all(line.comparable for line in found.values())
    assert [ours.value for ours in found["table2_glue_sizes.wnli.items"].ours] == [7]  # examples are what is counted
    assert [ours.value for ours in found["table2_glue_sizes.wnli.minilm"].ours] == [99]
    plain, log = found["table3_glue_correlations.minilm.wnli.r"].ours
    assert (plain.variant.label, log.variant.label) == ("as published", "with log IsoScore")
    assert -0.99 < plain.value < -0.9 and log.value == pytest.approx(-1, abs=1e-9)
    assert (plain.row["n"], plain.row["at"]["classifier.seed"], plain.seeds) == (5 * 251, "all", 1)


@pytest.mark.parametrize(
    "changes",
    [{"init_scale": 10}, {"classifier": "two-layer"}, {"loss": "triplet"}, {"held_out": 0.2}, {"lr": 0.01}],
)
def test_another_training_stands_beside_no_correlation(changes):
    assert not any(path.startswith(("table3", "correlations")) for path in lines("glue", task="wnli", **changes))


def test_fewer_states_or_unit_rows_are_a_proxy():
    path = "table3_glue_correlations.minilm.wnli.r"
    for options, unlike in (
        ({"updates": 20}, ("updates",)),
        ({"seeds": 1}, ("seeds",)),
        ({"measure_every": 10}, ("at.measure_every",)),
        ({"pipeline": ["normalize"]}, ("pipeline",)),
    ):
        assert lines("glue", task="wnli", **options)[path].ours[0].unlike == unlike
    exact = lines("glue", task="sst2", sample=None)["table3_glue_correlations.minilm.sst2.r"]
    assert exact.ours[0].unlike == ("at.sample",)


def test_polarity_has_no_bias():
    found = lines("polarity")
    assert found["table1_sizes.polarity.parameters"].comparable and found["correlations.polarity"].comparable
    assert "correlations.polarity" not in lines("polarity", bias=True)
    labels = {
        kind: [ours.variant.label for ours in found[f"correlations.standard_deviation_over_seeds.{kind}"].ours]
        for kind in ("maximum", "mean")
    }
    assert labels == {kind: ["silhouette", "IsoScore"] for kind in labels} and len(labels) == 2
    assert [ours.variant.label for ours in found["correlations.spearman_always_below"].ours] == ["polarity"]

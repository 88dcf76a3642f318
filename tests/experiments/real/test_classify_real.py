"""Mickus et al. 2024 on WNLI with all-MiniLM-L6-v2, one seed: every state of 250 updates. `-s` prints the numbers."""

import numpy as np
import pytest

from clip_geometry_experiments.kit.training import correlations
from clip_geometry_experiments.mickus2024.classify import Classify, ClassifyConfig
from clip_geometry_experiments.published.ledger import entries
from clip_geometry_experiments.run.runner import RunFolder
from support.minilm import minilm

pytestmark = pytest.mark.slow

NAMES = ("silhouette", "isoscore")


@pytest.fixture(scope="module")
def wnli(data, tmp_path_factory):
    """(the rows of one seed, the experiment)."""
    config = ClassifyConfig.model_validate(
        {
            "name": "wnli",
            "experiment": "classify",
            "model": f"sentence:{minilm()}",
            "task": {"name": "wnli", "path": str(data / "text" / "glue" / "wnli_train.parquet")},
            "updates": 250,
            "seeds": (0,),
            "shuffled": False,
            "measures": NAMES,
        },
        strict=False,
    )
    planned = Classify(config, RunFolder(tmp_path_factory.mktemp("wnli") / "run", "cpu"))
    first, _ = planned.cells()
    return first.compute(), planned


def test_correlations_over_all_states_are_the_published_ones(wnli):
    """Within .005, as issue 6 asks of five seeds; seen: r −.89773, ρ −.99990 of this one."""
    r, rho = (row.value for row in entries("mickus2024") if row.path.startswith("table3_glue_correlations.minilm.wnli"))
    found = {row["measure"]: row["value"] for row in wnli[0] if "trajectory" not in row}
    print(found)
    assert found["classify.pearson"] == pytest.approx(r, abs=0.005)
    assert found["classify.spearman"] == pytest.approx(rho, abs=0.005)
    assert found["classify.pearson_log"] < -0.99  # nearer to a line


def test_every_state_counts(wnli):
    """The published value is that of all states: without the initial one, or with every tenth only, it is another.

    All states give −.8977."""
    silhouette, score = (np.array({row["measure"]: row for row in wnli[0]}[name]["trajectory"]) for name in NAMES)

    def r(states):
        return correlations(silhouette[states], score[states])["pearson"]

    assert r(slice(1, None)) == pytest.approx(-0.8946, abs=5e-4)
    assert r(slice(None, None, 10)) == pytest.approx(-0.9091, abs=5e-4)

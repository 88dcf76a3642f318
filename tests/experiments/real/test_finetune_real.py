"""Rudman & Eickhoff 2024 in small: the first layer of all-MiniLM-L6-v2 on a part of WNLI. `-s` prints the numbers."""

import pytest

from clip_geometry.config import validate
from clip_geometry.geometry import average_cosine, isoscore
from clip_geometry_experiments.rudman2024.finetune import Finetune, FinetuneConfig, Method
from clip_geometry_experiments.rudman2024.finetune.measuring import evaluate
from clip_geometry_experiments.run.runner import RunFolder
from support.minilm import minilm

pytestmark = pytest.mark.slow

METHODS = {
    "none": Method("none"),
    "lower": Method("i_star", -3.0),
    "higher": Method("i_star", 3.0),
    "cosreg": Method("cosreg", 1.0),
}


@pytest.fixture(scope="module")
def found(data, tmp_path_factory):
    """method → (IsoScore of the tokens of all layers, average cosine of those of the last)."""
    minilm()
    path = str(data / "text" / "glue" / "wnli_train.parquet")
    values = {
        "name": "wnli",
        "experiment": "finetune",
        "model": {"model": "all-MiniLM-L6-v2", "layers": 1, "pooling": "mean"},
        "task": {"name": "wnli", "path": path, "limit": 240},
        "held_out": 0.2,
        "epochs": 1,
        "lr": 1e-4,
        "max_length": 64,
        "refresh_sample": 3000,
    }
    planned = Finetune(validate(FinetuneConfig, values, "test"), RunFolder(tmp_path_factory.mktemp("wnli"), "cpu"))
    told = {}
    for name, method in METHODS.items():
        training = planned.trained(method, 0)
        seen = evaluate(training, planned.inputs[1], tokens=None, seed=0)
        told[name] = (float(isoscore(seen.layers)), float(average_cosine(seen.last)))
    print(told)
    return told


def test_i_star_moves_isotropy_by_the_sign_of_lambda(found):
    """Same seed, against plain training; of two layers and 32 steps .169 becomes .067 and .303."""
    assert found["lower"][0] < 0.95 * found["none"][0] < found["none"][0] < 0.95 * found["higher"][0]

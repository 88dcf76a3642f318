"""Fresh models on 128 COCO photographs and captions: the average cosines that the project's notes give (A.5)."""

import pytest

from clip_geometry.config import validate
from clip_geometry_experiments.run.runner import RunFolder
from clip_geometry_experiments.tyshchuk2023.initialization import Initialization, InitializationConfig

pytestmark = pytest.mark.slow

# of seed 0, with torch 2.15: (modality, batch-norm mode, zero biases) → average cosine
SEEN = {
    "open_clip:ViT-B-32/fresh": {
        ("image", None, False): 0.706, ("image", None, True): 0.705,
        ("text", None, False): 0.694, ("text", None, True): 0.695,
    },
    "open_clip:RN50/fresh": {
        ("image", "eval", False): 0.9993, ("image", "batch", False): 0.607, ("text", None, False): 0.727,
    },
}  # fmt: skip
WITHIN = 0.0015  # the notes have three decimals; sums of float32 in another order change the fifth


WEEKLY = "open_clip:RN50/fresh"  # the modes of batch norm have a small ResNet in the tests of the experiment


@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=pytest.mark.weekly if name == WEEKLY else ()) for name in SEEN]
)
def test_the_cone_of_a_fresh_model(model, data, tmp_path):
    settings = {
        "name": "real",
        "experiment": "initialization",
        "models": [model],
        "images": {"name": "folder", "path": str(data / "images/coco128")},
        "captions": {"name": "xtd10", "path": str(data / "captions")},
        "limit": 128,
        "seeds": [0],
    }
    planned = Initialization(validate(InitializationConfig, settings, "test"), RunFolder(tmp_path, "cpu"))
    rows = [row for cell in planned.cells() for row in cell.compute()]
    found = {
        (row["at"]["modality"], row["model_options"].get("batch_norm"), row["model_options"]["zero_bias"]): row["value"]
        for row in rows
        if row["measure"] == "average_cosine" and "layer" not in row["at"]
    }
    print(model, found)
    for place, expected in SEEN[model].items():
        assert found[place] == pytest.approx(expected, abs=WITHIN), place

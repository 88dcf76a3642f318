"""A config that cannot be run is one sentence, in every experiment, before anything is computed."""

import re
from pathlib import Path

import pytest
import yaml

from clip_geometry.config import validate
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.base import RunFolder, experiments

WRONG = yaml.safe_load(Path(__file__).with_name("wrong_configs.yaml").read_text(encoding="utf-8"))
CASES = [(name, change, said) for name, each in WRONG.items() for change, said in each["wrong"]]


def planned(name, change, folder):
    """The experiment of a config in which keys are changed; those that become null are left out."""
    values = {key: value for key, value in (WRONG[name]["base"] | change).items() if value is not None}
    kind = experiments[name]
    return kind(validate(kind.Config, {"experiment": name, **values}, "test"), RunFolder(folder, "cpu"))


@pytest.mark.parametrize(("name", "change", "said"), CASES, ids=[f"{name}-{said[:40]}" for name, _, said in CASES])
def test_a_wrong_config_is_one_sentence(name, change, said, tmp_path):
    with pytest.raises(InputError) as error:
        planned(name, change, tmp_path)
    message = str(error.value)
    assert "\n" not in message and (said in message or re.search(said, message)), message


@pytest.mark.parametrize("name", WRONG)
def test_the_config_itself_is_right(name, tmp_path):
    assert planned(name, {}, tmp_path).config.experiment == name

"""The tasks of Mickus et al. 2024 on their data: distinct sentences give the published counts of parameters."""

import numpy as np
import pytest

from clip_geometry.config import read_yaml
from clip_geometry_experiments.published.ledger import FILE
from clip_geometry_experiments.tasks import load_task, resolve_task
from support.parameters import WITHOUT_BIAS, parameter_count, size_table

PAPER = read_yaml(FILE)["mickus2024"]
HERE = ("polarity", "snli", "supersense", "cola", "mrpc", "rte", "sst2", "wnli")


@pytest.fixture(scope="module")
def loaded(data):
    return {name: load_task(resolve_task(name)) for name in HERE}


@pytest.mark.parametrize("name", ["polarity", "mrpc", "rte", "sst2", "wnli"])
def test_parameters_as_published(loaded, name):
    published = PAPER["table1_sizes"].get(name) or PAPER["table2_glue_sizes"][name]
    count = parameter_count(loaded[name], 384, bias=name not in WITHOUT_BIAS)
    assert count == published.get("parameters", published.get("minilm"))
    assert len(loaded[name]) == published["items"]
    for encoder in {"mpnet", "roberta"} & published.keys():
        assert parameter_count(loaded[name], 768) == published[encoder]


@pytest.mark.parametrize(
    ("name", "items", "published"),
    [
        ("snli", 12935, 12982),  # the copy at hand is lower-cased, without punctuation
        ("cola", 8524, 8532),  # a cleaned copy
        ("supersense", 602, 2275),  # of the 1000 words whose vectors are at hand
    ],
)
def test_proxies_differ_by_what_is_known(loaded, name, items, published):
    row = next(row for row in size_table(PAPER, loaded) if row["task"] == name)
    assert (row["our items"], row["items"]) == (items, published)
    assert row["parameters"] - row["our parameters"] == (published - items) * row["d"]


def test_labels_are_those_of_the_sets(loaded):
    share = {name: np.bincount(task.labels)[1] / len(task) for name, task in loaded.items() if not task.multi_label}
    assert share["polarity"] == 0.5
    assert {name: task.dropped for name, task in loaded.items()} == dict.fromkeys(HERE, 0)
    assert (share["mrpc"], share["cola"]) == (pytest.approx(0.6745, abs=1e-4), pytest.approx(0.7044, abs=1e-4))
    assert loaded["snli"].class_names[loaded["snli"].labels[0]] == "neutral"
    labels = loaded["supersense"].labels
    assert labels.shape == (602, 26) and labels.any(axis=1).all() and labels.any(axis=0).all()

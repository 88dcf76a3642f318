"""What every task keeps: over the whole registry, each member in a tiny form."""

import json
import re

import numpy as np
import pytest

from clip_geometry.data import load_dataset
from clip_geometry_experiments.tasks import TaskConfig, items_of, load_task, resolve_task, tasks
from clip_geometry_experiments.tasks.text import GLUE

TEXTS = ["Ein Hund.", "ein Hund.", " ein Hund.", "Zwei Hunde"]


def _glue(name):
    def make(write_table, write_json):
        columns, class_names = GLUE[name]
        texts = {column: TEXTS[k:] + TEXTS[:k] for k, column in enumerate(columns)}
        path = write_table(f"{name}_train.parquet", **texts, label=[0, 1, -1, len(class_names) - 1])
        return {"name": name, "path": str(path)}

    return make


def _snli(write_table, write_json):
    path = write_table("snli_dev.parquet", premise=TEXTS, hypothesis=TEXTS[::-1], label=[0, 1, 2, -1])
    return {"name": "snli", "path": str(path)}


def _polarity(write_table, write_json):
    return {"name": "polarity", "path": str(write_table("p.parquet", text=TEXTS, label=[0, 0, 1, 1]))}


def _supersense(write_table, write_json):
    return {"name": "supersense", "path": str(write_json("s.json", {"dog": ["a"], "bank": ["a", "b"], "of": []}))}


def _pos(write_table, write_json):
    path = write_table("pos.parquet", word=["dog", "dog", "big"], pos=["noun", "verb", "adjective"])
    return {"name": "pos", "path": str(path)}


def _table(write_table, write_json):
    return {"name": "table", "path": str(write_table("mine.parquet", text=TEXTS, label=["b", "a", "", "b"]))}


def _sst5(write_table, write_json):
    return {"name": "sst5", "path": str(write_table("sst5_train.parquet", text=TEXTS, label=[0, 4, 2, 1]))}


def _scenes(write_table, write_json):
    return {"name": "scenes", "size": 12}


# a new task needs a row here: how to make a tiny one
MINIMAL = {
    **{name: _glue(name) for name in GLUE},
    "snli": _snli,
    "sst5": _sst5,
    "scenes": _scenes,
    "polarity": _polarity,
    "supersense": _supersense,
    "pos": _pos,
    "table": _table,
}


@pytest.fixture(params=MINIMAL)
def config(request, write_table, write_json):
    return resolve_task(MINIMAL[request.param](write_table, write_json))


def test_every_task_has_a_tiny_form_here():
    assert MINIMAL.keys() == {name for name, entry in tasks.items() if entry.kind == "class"}


def test_examples_point_to_distinct_items(config):
    task = load_task(config)
    assert task.name == ("mine" if config.name == "table" else config.name)  # a table is named after its file
    assert len(set(task.items)) == len(task.items) and all(isinstance(item, str) for item in task.items)
    assert task.examples.dtype == np.int64 and task.examples.shape == (len(task), task.width) and task.width in (1, 2)
    assert sorted(set(task.examples.ravel().tolist())) == list(range(len(task.items)))


def test_labels_are_aligned_and_in_range(config):
    task = load_task(config)
    assert len(task.labels) == len(task) > 1 and len(set(task.class_names)) == len(task.class_names)
    if task.multi_label:
        assert task.labels.dtype == bool and task.labels.shape[1] == len(task.class_names)
        assert task.labels.any(axis=1).all()
    else:
        assert task.labels.dtype == np.int64
        assert task.labels.min() >= 0 and task.labels.max() < len(task.class_names)


def test_the_config_survives_json_and_the_revision_is_stable(config):
    assert resolve_task(json.loads(config.model_dump_json())) == config == resolve_task(config)
    assert load_task(config).revision == load_task(config).revision


def test_its_items_are_a_data_set(config):
    task, text = load_task(config), load_dataset(items_of(config)).text
    assert text is not None
    assert [text.load(k) for k in range(len(text))] == list(task.items)


@pytest.mark.parametrize("name", MINIMAL)
def test_every_task_and_option_is_explained(name):
    entry = tasks[name]
    explained = " ".join(kind.__doc__ or "" for kind in entry.config.__mro__ if issubclass(kind, TaskConfig))
    for option in entry.config.model_fields:
        assert re.search(rf"\b{option}\b", explained), option

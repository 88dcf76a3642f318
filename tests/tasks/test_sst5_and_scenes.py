"""SST-5 in the layout of its hub, and captions of scenes as a task without files."""

import json

import numpy as np
import pytest

from clip_geometry.data import load_dataset, resolve_dataset
from clip_geometry.registry import InputError
from clip_geometry.tasks import load_task, resolve_task


def load(name, **options):
    return load_task(resolve_task({"name": name, **options}))


def test_sst5_has_five_degrees(tmp_path):
    rows = [{"text": f"sentence {k}", "label": k, "label_text": "…"} for k in (4, 0, 2)]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = load("sst5", path=tmp_path, split="validation")
    assert [task.class_names[k] for k in task.labels] == ["very positive", "very negative", "neutral"]
    assert len(task.class_names) == 5 and task.width == 1
    with pytest.raises(InputError, match="unknown split 'dev'; known are train, validation, test"):
        resolve_task({"name": "sst5", "split": "dev"})


def test_scenes_are_the_captions_and_shapes_of_the_data_set():
    for split, part in (("train", "train"), ("validation", "test")):
        data = load_dataset(resolve_dataset("scenes", split=part, size=30))
        task = load("scenes", split=split, size=30)
        texts = [data.text.load(k) for k in range(30)]
        assert [task.items[k] for k in task.examples[:, 0]] == texts
        shapes = [data.class_names[k].split()[1] for k in data.text.labels]
        assert [task.class_names[k] for k in task.labels] == shapes


def test_scenes_are_spread_under_a_limit_and_differ_by_seed():
    whole, some = load("scenes", size=40), load("scenes", size=40, limit=10)
    texts = [whole.items[k] for k in whole.examples[:, 0]]
    assert [some.items[k] for k in some.examples[:, 0]] == texts[::4]
    assert np.array_equal(some.labels, whole.labels[::4])
    assert load("scenes", size=40, seed=1).revision != whole.revision

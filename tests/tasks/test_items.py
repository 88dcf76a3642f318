"""The items of a task as a data set, up to their embeddings in a run's store."""

import numpy as np
import pytest

from clip_geometry.config import digest
from clip_geometry.data import dataset_from, load_dataset
from clip_geometry.encoders import resolve_encoder
from clip_geometry.registry import InputError
from clip_geometry.runner import RunFolder
from clip_geometry.tasks import items_of, load_task, resolve_task

WORDS = {"dog": ["a"], "bank": ["a", "b"], "cat": ["a"]}


def test_embeddings_come_in_the_order_of_the_items(tmp_path, write_json, vectors):
    """Through the encoder, the store and back: row k is the vector of item k."""
    names = ["cat", "ship", "bank", "dog"]
    config = resolve_task({"name": "supersense", "path": write_json("s.json", WORDS), "vectors": vectors(names)})
    model = resolve_encoder(f"words:{tmp_path / 'vectors.npy'}")
    found = RunFolder(tmp_path / "run").embeddings(model, items_of(config), limit=None, batch_size=2)["text"]
    task, rows = load_task(config), np.load(tmp_path / "vectors.npy")
    assert found.vectors.tolist() == [rows[names.index(item)].tolist() for item in task.items]
    assert (found.provenance["dataset"], found.provenance["split"]) == ("task", "all")
    assert found.provenance["data_options"]["task"]["name"] == "supersense"


def test_a_section_of_a_config_and_its_json(write_table):
    path = write_table("wnli_train.parquet", sentence1=["a", "b"], sentence2=["c", "d"], label=[0, 1])
    config = dataset_from({"name": "task", "task": {"name": "wnli", "path": str(path)}})
    assert config == items_of(resolve_task({"name": "wnli", "path": path}))
    assert config.split == "train"
    again = dataset_from(config.model_dump(mode="json", serialize_as_any=True))
    assert (again, digest(again)) == (config, digest(config))


def test_labels_where_every_item_is_one_example(write_table):
    """So that a sentence task can be measured as labelled data; not where one sentence could have two labels."""
    alone = write_table("a.parquet", text=["x", "y", "z"], label=[1, 0, 1])
    twice = write_table("b.parquet", text=["x", "y", "x"], label=[1, 0, 0])
    labels = [
        load_dataset(items_of(resolve_task({"name": "polarity", "path": path}))).text.labels for path in (alone, twice)
    ]
    assert labels[0].tolist() == [1, 0, 1] and labels[1] is None


def test_the_revision_is_that_of_the_items(write_table):
    """Other labels on the same sentences need no new embeddings."""
    paths = [write_table(f"{k}.parquet", text=["x", "y", "z"], label=[1, 0, k]) for k in (0, 1)]
    paths.append(write_table("2.parquet", text=["x", "y", "Z"], label=[1, 0, 0]))
    sets = [load_dataset(items_of(resolve_task({"name": "polarity", "path": path}))) for path in paths]
    assert sets[0].revision == sets[1].revision != sets[2].revision


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"name": "task"}, "key 'task' is missing"),
        ({"name": "task", "task": "wnl"}, "unknown task 'wnl'; did you mean 'wnli'"),
        (
            {"name": "task", "task": "wnli", "split": "test"},
            "split=test beside a task of split train; set the split",
        ),
    ],
)
def test_a_wrong_section_is_one_sentence(section, sentence):
    with pytest.raises(InputError) as error:
        dataset_from(section)
    assert sentence in str(error.value)

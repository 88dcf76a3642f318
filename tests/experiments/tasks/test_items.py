"""The items of a task as a data set, labeled embeddings as a task, and held-out examples."""

import numpy as np
import pytest

from clip_geometry.data import dataset_from
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders import resolve_encoder
from clip_geometry.registry import InputError
from clip_geometry_experiments.run.runner import RunFolder
from clip_geometry_experiments.tasks import items_of, labeled_task, load_task, resolve_task
from clip_geometry_experiments.tasks.base import held_out

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


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"name": "task"}, "key 'task' is missing"),
        ({"name": "task", "task": "wnl"}, "unknown task 'wnl'; did you mean 'wnli'"),
        (
            {"name": "task", "task": "wnli", "split": "test"},
            "split=test, but its task has split train; set the split",
        ),
    ],
)
def test_a_wrong_section_is_one_sentence(section, sentence):
    with pytest.raises(InputError) as error:
        dataset_from(section)
    assert sentence in str(error.value)


VECTORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def test_equal_captions_are_one_item():
    """Five captions of an image share its item_id and are five items; the same sentence twice is one."""
    text = np.array(["a dog", "a cat", "a dog", "Dog", "a cat"])
    rows = Embeddings(
        VECTORS, "text", item_id=np.array(list("xxyyz")), labels=np.arange(5) % 2, metadata={"text": text}
    )
    task, first = labeled_task("scenes", rows)
    assert (task.items, first.tolist()) == (("a dog", "a cat", "Dog"), [0, 1, 3])
    assert task.examples[:, 0].tolist() == [0, 1, 0, 2, 1]
    assert [text[row] for row in first] == list(task.items)


def test_without_labels_it_is_one_sentence():
    with pytest.raises(InputError, match="the image rows of photos have no labels; choose a data set with classes"):
        labeled_task("photos", Embeddings(VECTORS, "image"))
    with pytest.raises(InputError, match="all 5 examples of photos have the same label"):
        labeled_task("photos", Embeddings(VECTORS, "image", labels=np.ones(5)))


CHAIN = [("a", "b"), ("b", "c"), ("d",), ("c", "e"), ("f", "g"), ("g",)]  # groups {0, 1, 3}, {2}, {4, 5}


def test_examples_that_share_an_item_through_others_stay_together():
    for seed in range(20):
        held = held_out(CHAIN, 0.5, seed)
        assert 0 < held.sum() <= 3
        assert held[0] == held[1] == held[3] and held[4] == held[5]


def test_a_share_smaller_than_any_group_is_an_error():
    with pytest.raises(InputError, match=r"held_out = 0\.3 of 4 examples holds out none"):
        held_out([("a", "b"), ("b", "c"), ("d", "e"), ("e",)], 0.3, 0)

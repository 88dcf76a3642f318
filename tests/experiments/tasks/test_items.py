"""The items of a task as a data set, labeled embeddings as a task, and held-out examples."""

import numpy as np
import pytest

from clip_geometry.config import digest
from clip_geometry.data import dataset_from, load_dataset
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders import resolve_encoder
from clip_geometry.registry import InputError
from clip_geometry_experiments.run.runner import RunFolder
from clip_geometry_experiments.tasks import items_of, labeled_task, load_task, resolve_task
from clip_geometry_experiments.tasks.items import held_out
from support.parameters import parameter_count

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
    """So that a sentence task can be measured as labeled data; not where one sentence could have two labels."""
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


VECTORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def test_images_are_items_one_by_one():
    ids = np.array(["a", "b", "c", "d", "e"])
    rows = Embeddings(
        VECTORS,
        "image",
        item_id=ids,
        labels=np.array([3, 1, 3, 1, 1]),
        provenance={"class_names": ["w", "x", "y", "z"]},
    )
    task, first = labeled_task("cifar100", rows)
    assert (task.items, first.tolist(), task.examples[:, 0].tolist()) == (tuple(ids), [0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert (task.class_names, task.labels.tolist()) == (("x", "z"), [1, 0, 1, 0, 0])
    assert parameter_count(task, 3) == 5 * 3 + 2 * 3 + 2


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


@pytest.mark.parametrize("ids", [None, np.array(list("aabbc"))])
def test_rows_without_a_name_of_their_own_have_their_number(ids):
    task, _ = labeled_task("t", Embeddings(VECTORS, "image", item_id=ids, labels=np.array(list("vuvuu"))))
    assert (task.items, task.class_names, task.labels.tolist()) == (tuple("01234"), ("u", "v"), [1, 0, 1, 0, 0])


def test_labels_that_are_no_places_name_themselves():
    rows = Embeddings(VECTORS, "image", labels=np.array([7, 0, 7, 0, 0]), provenance={"class_names": ["w", "x"]})
    assert labeled_task("t", rows)[0].class_names == ("0", "7")


def test_without_labels_it_is_one_sentence():
    with pytest.raises(InputError, match="the image rows of photos carry no labels; choose a data set with classes"):
        labeled_task("photos", Embeddings(VECTORS, "image"))
    with pytest.raises(InputError, match="all 5 examples of photos have the same label"):
        labeled_task("photos", Embeddings(VECTORS, "image", labels=np.ones(5)))


CHAIN = [("a", "b"), ("b", "c"), ("d",), ("c", "e"), ("f", "g"), ("g",)]  # groups {0, 1, 3}, {2}, {4, 5}


def test_examples_that_share_an_item_through_others_stay_together():
    for seed in range(20):
        held, smallest = held_out(CHAIN, 0.5, seed)
        assert smallest == 1 and 0 < held.sum() <= 3
        assert held[0] == held[1] == held[3] and held[4] == held[5]


def test_a_share_smaller_than_any_group_holds_nothing():
    held, smallest = held_out([("a", "b"), ("b", "c"), ("d", "e"), ("e",)], 0.3, 0)
    assert smallest == 2 and not held.any()


def test_of_independent_examples_it_is_the_share_drawn_by_the_seed():
    items = [(k,) for k in range(100)]
    first, again, other = (held_out(items, 0.2, seed)[0] for seed in (0, 0, 1))
    assert first.sum() == 20 and (first == again).all() and (first != other).any()
    assert isinstance(first, np.ndarray)

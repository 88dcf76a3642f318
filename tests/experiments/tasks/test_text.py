"""Tasks of texts: where their tables are found, columns and labels, the hub where there is none; captions of scenes."""

import json
import sys
from types import ModuleType

import pytest

from clip_geometry.data import load_dataset
from clip_geometry.registry import InputError
from clip_geometry_experiments.tasks import load_task, resolve_task

PAIR = {"sentence1": ["a", "b", "a"], "sentence2": ["b", "c", "d"], "label": [0, 1, 1]}


def load(name, **options):
    return load_task(resolve_task({"name": name, **options}))


def test_found_in_the_shared_folder(shared, write_table):
    write_table("text/glue/rte_train.parquet", **PAIR)
    task = load("rte")
    assert (task.items, task.class_names) == (("a", "b", "c", "d"), ("entailment", "not_entailment"))
    assert resolve_task("rte").model_dump(mode="json")["path"] is None  # a cell does not depend on where it lies


def test_another_suffix_gives_the_same_task(write_table, tmp_path):
    path = write_table("rte.parquet", **PAIR)
    rows = zip(*PAIR.values(), strict=True)
    tsv = tmp_path / "mine.tsv"
    tsv.write_text("\n".join("\t".join(map(str, row)) for row in [PAIR.keys(), *rows]))
    tasks = [load("rte", path=place) for place in (path, tsv)]
    assert len({task.revision for task in tasks}) == 1
    assert tasks[0].labels.tolist() == [0, 1, 1]


def test_snli_in_the_layout_of_its_archive(tmp_path):
    """Labels are words, and "-" where the annotators found no majority."""
    gold = ["neutral", "-", "entailment", "contradiction"]
    rows = [{"gold_label": label, "sentence1": f"P{k}", "sentence2": "H"} for k, label in enumerate(gold)]
    file = tmp_path / "snli_1.0_dev.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    task = load("snli", path=file)
    assert (task.labels.tolist(), task.dropped) == ([1, 0, 2], 1)
    assert task.items == ("P0", "H", "P2", "P3")


def test_a_table_with_one_class_says_what_was_left_out(write_table):
    path = write_table("t.parquet", text=list("abc"), label=["x", None, "x"])
    with pytest.raises(InputError, match=r"all 2 examples of table \(1 without a label are left out\) have the same"):
        load("table", path=path)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"text": ["a"], "label": [1]}, "has the columns text, label; expected sentence1, sentence2, label"),
        ({"sentence1": ["a"], "sentence2": ["a"]}, "has the columns sentence1, sentence2; expected"),
        ({**PAIR, "sentence1": ["a", None, "b"]}, "row 2 of column 'sentence1' in"),
        ({**PAIR, "label": ["entailment", "entailed", "-"]}, "has the label 'entailed'; expected one of entailment"),
        ({**PAIR, "label": [[0], [1], [1]]}, "row 1 of"),
        ({**PAIR, "label": [0, 1, 2]}, "rte has the label 2; expected 0 to 1 for entailment, not_entailment"),
    ],
)
def test_a_wrong_table_is_one_sentence(write_table, columns, sentence):
    path = write_table("rte_train.parquet", **columns)
    with pytest.raises(InputError) as error:
        load("rte", path=path)
    assert sentence in str(error.value)


def test_wrong_places_are_one_sentence(tmp_path, write_table, monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    path = write_table("t.parquet", text=["a", "b"], label=[0, 1])
    for options, sentence in [
        ({"path": str(tmp_path / "no.parquet")}, "does not exist; a table"),
        ({"path": str(tmp_path)}, "is a directory"),
        ({"path": "$NOWHERE/x"}, "needs the environment variable NOWHERE, which is not set"),
    ]:
        with pytest.raises(InputError) as error:
            load("rte", **options)
        assert sentence in str(error.value)
    with pytest.raises(InputError, match="has no column 'txt'; did you mean 'text'"):
        load("table", path=path, text=["txt"])
    with pytest.raises(InputError, match="key 'path' is missing"):
        load("table")


# --- the hub


class FakeRows:
    """As much of datasets.Dataset as is used."""

    def __init__(self, columns):
        self.column_names = list(columns)
        self.columns = columns

    def __getitem__(self, name):
        return self.columns[name]


@pytest.fixture
def hub(monkeypatch, shared):
    """A package `datasets` whose load_dataset records what it is asked for, or raises."""
    module, asked = ModuleType("datasets"), []

    def load_dataset(repository, subset, split):
        asked.append((repository, subset, split))
        if isinstance(module.answer, Exception):
            raise module.answer
        return FakeRows(module.answer)

    module.load_dataset, module.asked = load_dataset, asked  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module


@pytest.mark.parametrize(
    ("name", "columns", "asked"),
    [
        ("wnli", ("sentence1", "sentence2"), ("nyu-mll/glue", "wnli", "train")),
        ("mnli", ("premise", "hypothesis"), ("nyu-mll/glue", "mnli", "train")),
        ("qnli", ("question", "sentence"), ("nyu-mll/glue", "qnli", "train")),
        ("qqp", ("question1", "question2"), ("nyu-mll/glue", "qqp", "train")),
        ("snli", ("premise", "hypothesis"), ("stanfordnlp/snli", None, "validation")),
        ("polarity", ("text",), ("cornell-movie-review-data/rotten_tomatoes", None, "train+validation+test")),
    ],
)
def test_fetched_where_no_file_is_at_hand(hub, name, columns, asked):
    hub.answer = {**{column: ["a", "b"] for column in columns}, "label": [0, 1], "idx": [0, 1]}
    assert load(name).items == ("a", "b")
    assert hub.asked == [asked]


@pytest.mark.parametrize("error", [ConnectionError("offline\nmode"), FileNotFoundError("x"), ValueError("no split")])
def test_without_network_it_says_what_to_download_and_where_to_put_it(hub, error):
    hub.answer = error
    with pytest.raises(InputError) as raised:
        load("mnli")
    sentence = str(raised.value)
    assert sentence.startswith("nyu-mll/glue (mnli), split train, could not be fetched from huggingface.co (")
    assert type(error).__name__ in sentence and "\n" not in sentence
    assert "give its file (.csv .tsv .parquet .jsonl) with path=…" in sentence
    assert sentence.endswith("or put it at $CLIP_GEOMETRY_DATA/text/glue/mnli_train.parquet")


def test_without_the_package_it_says_so(monkeypatch):
    monkeypatch.delenv("CLIP_GEOMETRY_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"could not be fetched .* import of datasets halted"):
        load("snli")


def test_scenes_are_the_captions_and_shapes_of_the_data_set():
    for split, part in (("train", "train"), ("validation", "test")):
        data = load_dataset("scenes", split=part, size=30)
        task = load("scenes", split=split, size=30)
        texts = [data.text.load(k) for k in range(30)]
        assert [task.items[k] for k in task.examples[:, 0]] == texts
        shapes = [data.class_names[k].split()[1] for k in data.text.labels]
        assert [task.class_names[k] for k in task.labels] == shapes

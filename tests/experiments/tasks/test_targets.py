"""Tasks with other targets than classes: STS-B, and SQuAD as a table and from the hub."""

import json

import pandas as pd
import pytest
from pydantic import ValidationError

from clip_geometry.registry import InputError
from clip_geometry_experiments.tasks import resolve_task, tasks
from clip_geometry_experiments.tasks.base import TaskItemsConfig

PAIRS = {"sentence1": ["a", "b", "c", "d"], "sentence2": ["e", "f", "g", "h"], "label": [5.0, 2.5, -1.0, 0.0]}


def stsb(**options):
    return tasks["stsb"].load(resolve_task({"name": "stsb", **options}))


def test_pairs_and_scores(shared, write_table):
    write_table("text/glue/stsb_validation.parquet", **PAIRS)
    found = stsb(split="validation")
    assert found.texts == (("a", "e"), ("b", "f"), ("d", "h")) and found.targets.tolist() == [5.0, 2.5, 0.0]
    assert found.dropped == 1 and stsb(split="validation", limit=2).texts == (("a", "e"), ("b", "f"))
    assert stsb(split="validation", limit=2).revision != found.revision


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"label": [1.0, 2.0, 6.0, 1.0]}, "row 3 of .* has the score 6.0; expected a number from 0 to 5"),
        ({"label": ["1", "x", "2", "3"]}, "row 2 of .* has the score 'x'"),
        ({"label": ["1", "0_3", "2", "3"]}, "row 2 of .* has the score '0_3'"),
        ({"label": [2.0, 2.0, 2.0, -1.0]}, "all 3 scores in .* are equal"),
        ({"sentence2": [1, 2, 3, 4]}, "row 1 of column 'sentence2' in .* holds int; expected text"),
    ],
)
def test_wrong_scores_are_one_sentence(shared, write_table, change, says):
    path = write_table("s.parquet", **{**PAIRS, **change})
    with pytest.raises(InputError, match=says):
        stsb(path=path)


def test_a_table_without_the_columns(shared, write_table):
    path = write_table("s.parquet", text=["a", "b"], label=[0.0, 1.0])
    with pytest.raises(InputError, match="has the columns text, label; expected sentence1, sentence2, label"):
        stsb(path=path)


def test_a_task_without_classes_is_not_classified():
    with pytest.raises(
        ValidationError, match="the task stsb has no classes; choose another of clip-geometry list tasks"
    ):
        TaskItemsConfig(task="stsb")


def test_tasks_of_every_kind_are_known_by_name():
    assert resolve_task("rte").split == "train"
    config = resolve_task("stsb")
    assert resolve_task(config) is config
    with pytest.raises(InputError, match="unknown task 'stsc'; did you mean 'stsb'"):
        resolve_task("stsc")
    with pytest.raises(InputError, match="unknown task 'xyzzy'; clip-geometry list tasks names all "):
        resolve_task("xyzzy")
    with pytest.raises(
        InputError, match="expected the name of a task or a section with the key 'name'; clip-geometry list tasks"
    ):
        resolve_task({"split": "train"})
    with pytest.raises(InputError, match="unknown key 'splot'; did you mean 'split'"):
        resolve_task({"name": "stsb", "splot": "train"})


PASSAGE = "Ada wrote a program in 1843."
ROWS = [
    {"question": "Who?", "context": PASSAGE, "answers": {"text": ["Ada", "Ada"], "answer_start": [0, 0]}},
    {"question": "When?", "context": PASSAGE, "answers": {"text": ["1843"], "answer_start": [23]}},
    {"question": "Why?", "context": PASSAGE, "answers": {"text": [], "answer_start": []}},
]


def load(**options):
    config = resolve_task({"name": "squad", **options})
    return tasks["squad"].load(config)


def as_lines(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_questions_with_an_answer_are_read(tmp_path):
    one = load(path=as_lines(tmp_path / "q.jsonl", ROWS))
    assert one.texts == (("Who?", PASSAGE), ("When?", PASSAGE))  # without an answer there is nothing to learn
    assert one.answers == (("Ada", "Ada"), ("1843",)) and one.targets.tolist() == [0, 23]


def test_the_split_chooses_the_file_and_the_limit_is_spread(tmp_path, monkeypatch):
    monkeypatch.setenv("CLIP_GEOMETRY_DATA", str(tmp_path))
    (tmp_path / "text").mkdir()
    pd.DataFrame(ROWS[:2] * 3).to_parquet(tmp_path / "text" / "squad_validation.parquet")
    found = load(split="validation", limit=2)
    assert [question for question, _ in found.texts] == ["Who?", "When?"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            [{**ROWS[0], "answers": {"text": ["Ada"], "answer_start": [1]}}],
            "the answer 'Ada' to 'Who\\?' is not at character",
        ),
        (
            [{**ROWS[0], "answers": {"text": [""], "answer_start": [0]}}],
            "the answer '' to 'Who\\?' is not at character",
        ),
        ([{**ROWS[0], "answers": {"text": ["Ada"]}}], "answers that are not two lists 'text' and 'answer_start'"),
        ([{**ROWS[0], "answers": ["Ada"]}], "answers that are not two lists"),
        (
            [{"question": "Who?", "context": PASSAGE}],
            "has the columns question, context; expected question, context",
        ),
        (ROWS[2:], "holds no questions with an answer"),
    ],
)
def test_a_wrong_table_is_one_sentence(tmp_path, rows, says):
    with pytest.raises(InputError, match=says):
        load(path=as_lines(tmp_path / "q.jsonl", rows))

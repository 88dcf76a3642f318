"""STS-B: scores instead of classes."""

import pytest

from clip_geometry.registry import InputError
from clip_geometry.tasks import stsb
from clip_geometry.tasks.targets import resolve_any_task, target_tasks

PAIRS = {"sentence1": ["a", "b", "c", "d"], "sentence2": ["e", "f", "g", "h"], "label": [5.0, 2.5, -1.0, 0.0]}


def load(**options):
    return target_tasks["stsb"].load(resolve_any_task({"name": "stsb", **options}))


def test_pairs_and_scores(shared, write_table):
    write_table("text/glue/stsb_validation.parquet", **PAIRS)
    found = load(split="validation")
    assert found.texts == (("a", "e"), ("b", "f"), ("d", "h")) and found.scores.tolist() == [5.0, 2.5, 0.0]
    assert found.dropped == 1 and load(split="validation", limit=2).texts == (("a", "e"), ("b", "f"))
    assert load(split="validation", limit=2).revision != found.revision


def test_it_comes_from_the_hub_where_no_file_is_at_hand(shared, monkeypatch):
    class Found:
        path, names = shared, tuple(PAIRS)

        @staticmethod
        def values(name):
            return PAIRS[name]

    asked = []
    monkeypatch.setattr(stsb, "hub_table", lambda *given: asked.append(given) or Found)
    assert len(load().scores) == 3 and asked[0][:3] == ("nyu-mll/glue", "stsb", "train")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"label": [1.0, 2.0, 6.0, 1.0]}, "row 3 of .* has the score 6.0; expected a number from 0 to 5"),
        ({"label": ["1", "x", "2", "3"]}, "row 2 of .* has the score 'x'"),
        ({"label": [2.0, 2.0, 2.0, -1.0]}, "has 3 pairs with a score, all of them equal"),
        ({"sentence2": [1, 2, 3, 4]}, "row 1 of column 'sentence2' in .* holds int; text was expected"),
    ],
)
def test_a_wrong_table_is_one_sentence(shared, write_table, change, says):
    path = write_table("s.parquet", **{**PAIRS, **change})
    with pytest.raises(InputError, match=says):
        load(path=path)


def test_a_table_without_the_columns(shared, write_table):
    path = write_table("s.parquet", text=["a", "b"], label=[0.0, 1.0])
    with pytest.raises(InputError, match="has the columns text, label; stsb needs sentence1, sentence2, label"):
        load(path=path)


def test_tasks_of_both_registries_are_known_by_name():
    assert resolve_any_task("rte").split == "train"
    config = resolve_any_task("stsb")
    assert resolve_any_task(config) is config
    with pytest.raises(InputError, match="unknown task 'stsc'; did you mean 'stsb'"):
        resolve_any_task("stsc")
    with pytest.raises(InputError, match="unknown task 'xyzzy'; clip-geometry list tasks names all "):
        resolve_any_task("xyzzy")
    with pytest.raises(
        InputError, match="expected the name of a task or a section with the key 'name'; clip-geometry list tasks"
    ):
        resolve_any_task({"split": "train"})
    with pytest.raises(InputError, match="unknown key 'splot'; did you mean 'split'"):
        resolve_any_task({"name": "stsb", "splot": "train"})

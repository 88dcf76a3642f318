"""Any number of modalities: measures across them are those of every couple, whatever the order of the sets."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from clip_geometry import embeddings as embeddings_module
from clip_geometry.embeddings import Embeddings
from clip_geometry.measuring.records import CORE, measure_sets
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.steps import parse_pipeline
from support.clouds import cone

IDS = [f"item {k}" for k in range(40)]


def made(name, seed, n=40, d=6, **columns):
    rng = np.random.default_rng(seed)
    shared = np.random.default_rng(99).normal(size=(n, d))
    rows = shared + 0.5 * cone(n, d, rng)
    return Embeddings(rows, name, **{"item_id": IDS[:n], **columns})


@pytest.fixture
def sets():
    labels = np.arange(40) % 3
    return {
        "image": made("image", 0, labels=labels),
        "text": made("text", 1).take(np.random.default_rng(0).permutation(40)),
        "audio": made("audio", 2, n=30),
    }


def rows_of(sets, names=None, steps="normalize", optional=False, **options):
    measured = MeasuredSets(sets, parse_pipeline(steps), **{"seed": 3, "blocks": 5, **options})
    return list(measure_sets(measured, names, optional=optional))


def numbers(rows):
    keys = ("value", "standard_error", "null_value", "n", "d", "note")
    return {(row["measure"], row["at"].get("modality")): [row.get(key) for key in keys] for row in rows}


def test_every_couple_has_the_numbers_of_two_sets(sets):
    """Only a measure of one set sees the third; noise and blocks are those of the whole, so they may differ."""
    together = numbers(rows_of(sets, FEW, optional=True))
    for one, other in combinations(sorted(sets), 2):
        alone = numbers(rows_of({one: sets[one], other: sets[other]}, FEW, optional=True))
        across = {name: row for (name, place), row in alone.items() if place == "both" and row[0] is not None}
        assert len(across) > 8
        for name, row in across.items():
            result = together[name, f"{one}+{other}"]
            assert [result[k] for k in (0, 3, 4, 5)] == [row[k] for k in (0, 3, 4, 5)]
    within = {key: row for key, row in together.items() if key[1] in sets and row[0] is not None}
    assert len(within) > 8
    for (name, place), row in within.items():
        assert row[0] == numbers(rows_of({place: sets[place]}, [name]))[name, place][0]


FEW = [*CORE, "cka", "lid[cosine]", "mutual_knn", "zero_shot", "cone_half_angle"]


@pytest.mark.parametrize("steps", ["normalize,center[pooled]", "normalize,procrustes[all-to-image]"])
def test_permuting_modalities_permutes_the_table(sets, steps):
    expected = numbers(rows_of(sets, FEW, steps, optional=True))
    one, two, three = sets
    for order in ((three, two, one), (two, three, one)):  # every couple is turned round, and every set is moved
        assert numbers(rows_of({name: sets[name] for name in order}, FEW, steps, optional=True)) == expected


def test_a_modality_of_another_dimension_is_left_out_of_one_space_only(sets):
    sets["audio"] = made("audio", 2, d=4)
    result = numbers(rows_of(sets, ["modality_gap", "isoscore", "cka"]))
    assert [place for name, place in result if name == "modality_gap"] == ["image+text"]
    assert [place for name, place in result if name == "isoscore"] == ["image", "text", "audio"]
    assert [place for name, place in result if name == "cka"] == ["image+text", "audio+image", "audio+text"]
    remarks = MeasuredSets(sets, parse_pipeline("normalize")).remarks()
    assert remarks == [
        "audio has dimension 4 and image 6: measures that need one space leave them out",
        "audio has dimension 4 and text 6: measures that need one space leave them out",
    ]
    with pytest.raises(InputError, match="modality_gap needs both sets in one space, but image has dimension 6"):
        rows_of({"image": sets["image"], "audio": sets["audio"]}, ["modality_gap"])


def test_all_sets_are_streamed_where_one_is_large(sets, monkeypatch):
    names = ["average_cosine", "isoscore", "modality_gap", "relative_modality_gap"]
    expected = numbers(rows_of(sets, names, blocks=0))
    monkeypatch.setattr(embeddings_module, "LARGE", 40 * 6 * 8 * 2)  # two of them would fit
    measured = MeasuredSets(sets, parse_pipeline("normalize"), seed=3, blocks=0)
    assert measured.streamed
    result = numbers(measure_sets(measured, names))
    assert result.keys() == expected.keys() and len(result) == 12
    for key, row in result.items():
        assert row[0] == pytest.approx(expected[key][0], abs=1e-12)  # sums in another order


@pytest.mark.parametrize("steps", ["normalize", "normalize,center[each]"])
def test_many_rows_have_the_numbers_of_few(sets, steps, monkeypatch):
    """From sums over the blocks, which all couples share."""
    sets["text"] = replace(sets["text"], labels=np.arange(40) % 4)
    expected = numbers(rows_of(sets, CORE, steps))
    monkeypatch.setattr("clip_geometry.measuring.sets.QUADRATIC_ROWS", 35)
    result = numbers(rows_of(sets, CORE, steps))
    assert result.keys() == expected.keys() and len(result) == 41
    for (name, place), row in result.items():
        few = expected[name, place]
        assert row[0] == pytest.approx(few[0], rel=1e-12, abs=1e-14)
        assert row[2:] == [pytest.approx(few[2], rel=1e-12, abs=1e-14), *few[3:]]
        assert row[1] == (None if name.startswith("retrieval") else pytest.approx(few[1], rel=1e-9))


def test_retrieval_of_many_couples_is_taken_where_it_is_named(sets, monkeypatch):
    """The core stays a table in seconds."""
    monkeypatch.setattr("clip_geometry.measuring.records.MOST_WORK", 40 * 40 * 6 + 1)
    measured = MeasuredSets(sets, parse_pipeline("normalize"), blocks=0)
    (row,) = measure_sets(measured, ["retrieval.image_to_text.r_at_1"], optional=True)
    assert row["value"] is None
    assert "is minutes for 3 couples of these sizes; name it in --measures to compute it anyway" in row["note"]
    named = list(measure_sets(measured, ["retrieval.image_to_text.r_at_1"]))
    assert [row["value"] is not None for row in named] == [True] * 3
    pair = MeasuredSets({name: sets[name] for name in ("image", "text")}, (), blocks=0)
    assert next(measure_sets(pair, ["retrieval.image_to_text.r_at_1"], optional=True))["value"] is not None


def test_class_prompts_are_the_second_of_every_couple(sets):
    prompts = Embeddings(np.eye(6)[:3], "a prompt", labels=np.arange(3), pair_on="label")
    result = numbers(rows_of({"a prompt": prompts, **sets}, ["zero_shot.top_1"]))
    assert result["zero_shot.top_1", "image+a prompt"][0] is not None
    assert "needs labels of the texts" in result["zero_shot.top_1", "text+a prompt"][5]

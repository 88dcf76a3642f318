"""The generator of faulty folders, on generated sources: a small confusion table."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from support.clip_like import clip_like

SCRIPTS = Path(__file__).parents[2] / "scripts/diagnosis"


@pytest.fixture(scope="module")
def faults():
    sys.path.insert(0, str(SCRIPTS))
    try:
        return importlib.import_module("faults")
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def sources(faults):
    """A model of two cones and an unrelated pair of them, which stands for an untrained one."""
    trained, second = clip_like(1600, d=96), clip_like(1600, d=96, space=3)
    apart = {"image": clip_like(800, d=96, space=4)["image"], "text": clip_like(800, d=96, space=5)["text"]}
    facts = {"architecture": "ViT-B-32", "sha256": faults.SHA256["ViT-B-32"]}
    strangers = {name: [x] for name, x in second.items()}
    return {
        "trained": [faults.Source("trained", trained, strangers, facts)],
        "untrained": [faults.Source("untrained", apart, strangers)],
    }


@pytest.mark.slow
@pytest.mark.weekly
def test_two_dozen_folders(faults, sources):
    """All that is planted is named and no clean folder is accused; the shares of a thousand folders are in docs/."""
    records = [faults.trial(sources, 5, number) for number in range(24)]
    assert {len(each["planted"]) for each in records} == {0, 1, 2}
    planted = [ok for each in records for ok in each["named"].values()]
    assert len(planted) >= 20 and sum(planted) >= 0.95 * len(planted)
    assert [faults.alarms(each) for each in records if not each["planted"]] == [set()] * sum(
        not each["planted"] for each in records
    )
    text = faults.table(records)
    assert f"Planted faults named: {sum(planted)} of {len(planted)}" in text and "Seeds (5, 0 … 23)" in text


def test_a_folder_is_that_of_its_seed(faults, sources):
    one, other = (faults.faulty_folder(sources, np.random.default_rng([5, 3])) for _ in range(2))
    assert one.planted == other.planted
    for name, x in one.sets.items():
        np.testing.assert_array_equal(x, other.sets[name])


def folder_of(sources, n=300):
    source = sources["trained"][0]
    sets = {name: x[:n].copy() for name, x in source.modalities.items()}
    native = {name: np.ones(n, dtype=bool) for name in sets}
    return sys.modules["planting"].Folder(source, sets, None, store=False, native=native)


@pytest.mark.parametrize("seed", range(6))
def test_a_planted_shift_moves_the_stated_rows_only(faults, sources, seed):
    folder = folder_of(sources)
    done = sys.modules["planting"].shifted_pairs(folder, np.random.default_rng(seed))
    before, after = folder.source.modalities["text"][:300], folder.sets["text"]
    moved = np.flatnonzero((before != after).any(1))
    assert moved[0] == done["first"] and moved[-1] == done["last"]
    if done["kind"] == "segment":
        rows = np.arange(done["first"], done["last"] + 1)
        np.testing.assert_array_equal(after[rows], before[rows - done["shift"]])

"""What is judged is held out, and every measure says what it should of a gap that is known."""

from zlib import crc32

import numpy as np
import pytest

from clip_geometry.config import validate
from clip_geometry.registry import InputError
from clip_geometry.search.mixed_index import MixedIndex
from clip_geometry.transforms import Affine, Normalize
from clip_geometry_experiments.studies.repair_table.measuring import (
    MEASURED,
    MEASURES,
    Halves,
    Planted,
    RowRepair,
    SetConfig,
    repair_of,
)


@pytest.fixture(scope="module")
def planted():
    return Planted(gap="offset", n=160, d=24, classes=4)


@pytest.fixture(scope="module")
def halves(planted):
    return Halves(MixedIndex.of(planted.embeddings()), splits=2, seed=0)


@pytest.fixture(scope="module")
def none(halves):
    return means(halves.judge(repair_of("none")))


def means(found):
    return {name: np.mean(values) for name, values in found.items()}


class Memory(RowRepair):
    """Puts each text that it has seen where its image is, and leaves others where they are."""

    name = "memory"

    def _learn(self, known):
        i, j = range(len(known.rows["image"])), range(len(known.rows["text"]))  # known rows are aligned here
        self.seen = {known.rows["text"][b].tobytes(): known.rows["image"][a] for a, b in zip(i, j, strict=True)}

    def rows(self, modality, x):
        if modality == "text":
            x = np.array([self.seen.get(row.tobytes(), row) for row in x])
        return Normalize().apply(x)


class Noise(RowRepair):
    """Gaussian rows in place of all rows, the same for the same ones: the null value of every measure."""

    def _learn(self, known):
        pass

    def rows(self, modality, x):
        seed = crc32(modality.encode(), crc32(x.tobytes()))
        return Normalize().apply(np.random.default_rng(seed).normal(size=x.shape))


class Removed(RowRepair):
    """The planted gap taken away by the map that is known: what a perfect repair would do."""

    def __init__(self, planted):
        super().__init__()
        inverse = {name: (np.linalg.inv(w), b) for name, (w, b) in planted.maps().items()}
        self.maps = {name: Affine(w, -b @ w, renormalise=True) for name, (w, b) in inverse.items()}

    def rows(self, modality, x):
        return self.maps[modality](x)


def test_memorizing_the_fitting_half_gains_nothing(halves, none):
    found = means(halves.judge(Memory()))
    retrieval = [name for name, each in MEASURES.items() if each.group == "retrieval"]
    assert {name: found[name] for name in retrieval} == {name: none[name] for name in retrieval}
    known = halves.index.known(halves.splits[0].fit)  # on the rows that it has seen, it is perfect
    memory = Memory().fit(known)
    scores = memory.scores("image", known.rows["image"], "text", known.rows["text"])
    assert (scores.argmax(1) == np.arange(len(scores))).all() and none["cross_r_at_1"] < 0.9


def test_halves_share_no_item(halves):
    for split in halves.splits:
        assert not any(set(split.fit[name]) & set(split.searched[name]) for name in ("image", "text"))
    assert halves.ratio == 1


def test_a_known_gap_is_found_and_its_removal_is_better(halves, planted, none):
    truth = means(halves.judge(Removed(planted)))
    for name, each in MEASURED.items():
        assert np.isfinite(none[name]) and np.isfinite(truth[name])
        if name in ("gap", "average_cosine", "ilisi", "separability", "r_at_1", "hit_at_10"):
            assert each.better * (truth[name] - none[name]) > 0, name
    assert (none["neighbors"], none["cka"]) == pytest.approx((1, 1))
    assert none["separability"] > 0.95


def test_noise_is_the_null_value(halves):
    found = means(halves.judge(Noise()))
    assert found["ilisi"] > 0.8 and abs(found["separability"] - 0.5) < 0.1 and abs(found["cka"]) < 0.15
    assert found["neighbors"] == pytest.approx(10 / 79, abs=0.05) and found["probe"] == pytest.approx(1 / 4, abs=0.1)
    assert found == means(halves.judge(Noise()))  # the same noise each time


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "a"}, "the set a has neither rows nor planted; expected one of them"),
        ({"name": "a", "rows": "scenes"}, "rows is the data set scenes, which a model has to embed; set model"),
        ({"name": "a", "planted": {"gap": "turn"}}, "gap"),
    ],
)
def test_a_set_that_makes_no_sense_is_one_sentence(values, message):
    with pytest.raises(InputError, match=message):
        validate(SetConfig, values, "c")

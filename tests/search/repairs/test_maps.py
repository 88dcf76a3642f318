"""Maps of the rows: their formulas in plain NumPy, and a planted rotation that is found again."""

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry.search.repairs import Known, repairs
from support.clouds import rotation, unit
from support.mixed_index import labelled, paired, rows

KINDS = [("image", "image"), ("image", "text"), ("text", "image"), ("text", "text")]


def check(repair, of_query, of_item):
    """The scores of new rows are cosines after the two functions of modality and unit rows."""
    q, x = rows(1, n=7), rows(2, n=6)
    for query, item in KINDS:
        expected = unit(of_query(query, unit(q[query]))) @ unit(of_item(item, unit(x[item]))).T
        np.testing.assert_allclose(repair.scores(query, q[query], item, x[item]), expected, rtol=0, atol=1e-12)


def test_none_is_the_cosine():
    repair = repairs["none"].make().fit(Known(rows()))
    check(repair, lambda _, q: q, lambda _, x: x)


def test_center():
    sets = rows()
    means = {name: unit(x).mean(0) for name, x in sets.items()}
    repair = repairs["center"].make().fit(Known(sets))
    check(repair, lambda name, q: q - means[name], lambda name, x: x - means[name])


def test_whiten_keeps_64_directions_at_equal_variance():
    sets = rows(n=200)
    pooled = np.concatenate([unit(x) for x in sets.values()])
    values, vectors = np.linalg.eigh(np.cov(pooled.T))
    w = vectors[:, -64:] / np.sqrt(values[-64:])
    repair = repairs["whiten"].make().fit(Known(sets))
    check(repair, lambda _, q: (q - pooled.mean(0)) @ w, lambda _, x: (x - pooled.mean(0)) @ w)


def test_procrustes_finds_a_planted_rotation():
    r = rotation(70, np.random.default_rng(5))
    x = rows()["image"]
    repair = repairs["procrustes"].make().fit(paired({"image": x, "text": 3 * x @ r}))
    new = rows(1)["image"]
    np.testing.assert_allclose(np.diag(repair.scores("text", new @ r, "image", new)), 1, atol=1e-12)


def test_least_squares():
    """As many pairs as dimensions would fit exactly; here are 100 of 70 dimensions."""
    sets = rows()
    w = np.linalg.lstsq(unit(sets["text"]), unit(sets["image"]))[0]
    repair = repairs["least_squares"].make().fit(paired(sets))
    maps = {"text": w, "image": np.eye(70)}
    check(repair, lambda name, q: q @ maps[name], lambda name, x: x @ maps[name])


def test_pairs_come_from_the_relevance():
    """Shuffled pairs: the same map as of aligned rows, to the rounding of sums in another order."""
    sets, order = rows(), np.random.default_rng(4).permutation(100)
    known = paired(sets)
    shuffled = {"image": sets["image"][order], "text": sets["text"]}
    assert known.relevance is not None
    relevance = type(known.relevance).of_labels(image=order, text=np.arange(100), within=False)
    one, two = (repairs["procrustes"].make().fit(each) for each in (known, Known(shuffled, relevance)))
    q, x = rows(1)["text"], rows(1)["image"]
    np.testing.assert_allclose(one.scores("text", q, "image", x), two.scores("text", q, "image", x), atol=1e-10)


@pytest.mark.parametrize("name", ["procrustes", "least_squares"])
def test_paired_maps_need_pairs(name):
    with pytest.raises(InputError, match="needs pairs: no pairs or labels of both modalities were given"):
        repairs[name].make().fit(Known(rows()))


@pytest.mark.parametrize("name", ["none", "center", "csls", "zscore"])
def test_zero_rows_are_refused(name):
    sets = rows()
    sets["text"][3] = 0
    with pytest.raises(InputError, match="zero"):
        repairs[name].make().fit(labelled(sets))

"""One pass over the rows gives what NumPy gives on all of them, and needs little memory."""

import numpy as np

import clip_geometry as cg
from clip_geometry.search.checks import Context
from clip_geometry.search.monitoring import profile
from support.clip_like import clip_like


def test_a_pass_over_a_file_is_a_pass_over_an_array(tmp_path, monkeypatch):
    monkeypatch.setattr(profile, "BLOCK", 64)
    x = (2 * clip_like(500)["image"]).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    sets = [np.load(tmp_path / "x.npy", mmap_mode="r"), x]
    one, other = (cg.gate({"image": rows})["image"] for rows in sets)
    assert one == other
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(one.mean.values, unit.mean(0), atol=1e-6)
    assert np.allclose(one.lengths, 2, atol=1e-5)
    nearest = np.argsort(-(one.canaries.values @ unit.T), axis=1)[:, :11]
    same = [len(np.intersect1d(a, b)) for a, b in zip(one.neighbors.values, nearest, strict=True)]
    assert np.mean(same) > 10.9  # canaries are stored in float16


def test_sketches_estimate_distances():
    from clip_geometry.search.monitoring.known import _points

    x = clip_like(400)["image"]
    directions = profile.random_directions(x.shape[1], 0)
    sketches = np.round(x @ directions.T * profile.STEP * np.sqrt(x.shape[1])).astype(np.int16)
    points = _points(sketches)
    estimated = np.linalg.norm(points[:200] - points[200:], axis=1)
    true = np.linalg.norm(x[:200] - x[200:], axis=1)
    assert 0.9 < np.mean(estimated / true) < 1.1


def test_keys_of_rows_that_share_an_id_differ():
    keys = profile.keys_of(cg.Embeddings(np.eye(4), "text", item_id=["a", "a", "b", "a"]))
    assert len(set(keys.tolist())) == 4
    again = profile.keys_of(cg.Embeddings(np.eye(4), "text", item_id=["b", "a", "a", "a"]))
    assert set(again.tolist()) == set(keys.tolist()) and again[0] == keys[2]


def test_few_rows_ask_no_queries():
    rows = clip_like(300)
    sets = {"image": cg.Embeddings(rows["image"], "image"), "text": cg.Embeddings(rows["text"][:40], "text")}
    context = Context(sets)
    assert set(profile._queries(context, "image")) == {"image"}

"""`compress`: numbers against theorems and a direct search, the extrapolation, the choice, and its sentences."""

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.search.compression.sweep import Extrapolation, Found


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    item = rng.normal(size=(400, 32)) * np.linspace(2, 0.5, 32)
    return item + 0.3 * rng.normal(size=(400, 32)), item + 0.3 * rng.normal(size=(400, 32))


@pytest.fixture(scope="module")
def result(pairs):
    return cg.compress(*pairs, lose=0.05)


def row(result, cut, columns, dtype, rescored=False):
    frame = result.frame
    chosen = (frame["cut"] == cut) & (frame["columns"] == columns) & (frame.dtype == dtype)
    (found,) = frame[chosen & (frame.rescored == rescored)].to_dict("records")
    return found


def test_empty_columns_cost_nothing():
    rows = np.random.default_rng(1).normal(size=(300, 8)) @ np.eye(8, 32)
    result = cg.compress(rows)
    assert row(result, "first", 8, "float32")["loss"] < 2e-3 and row(result, "pca", 8, "float32")["loss"] < 2e-3
    assert row(result, "random", 8, "float32")["loss"] > 0.3
    assert bool(result.chosen["columns"] <= 8) and result.frame.recall_at_1.isna().all()


def test_rotated_rows_have_the_same_principal_axes(pairs):
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(32, 32)))[0]
    plain, turned = (cg.compress(*(x @ r for x in pairs)) for r in (np.eye(32), turn))
    for columns in (16, 8):
        a, b = (row(each, "pca[pooled]", columns, "float32") for each in (plain, turned))
        assert a["kept_at_10"] == pytest.approx(b["kept_at_10"], abs=2e-3)
        assert a["recall_at_1"] == pytest.approx(b["recall_at_1"], abs=2e-3)


def test_numbers_equal_those_of_a_direct_search(pairs, result):
    """Fold by fold, for a cut that learns nothing."""
    from clip_geometry.search.compression import _halves

    sets = {name: cg.Embeddings(x, name) for name, x in zip(("image", "text"), pairs, strict=True)}
    kept, first = [], []
    for _, searched, _ in _halves(sets, 0)[0]:
        unit = {name: x[searched[name]] / np.linalg.norm(x[searched[name]], axis=1, keepdims=True) for name, x in
                zip(("image", "text"), pairs, strict=True)}  # fmt: skip
        half = {name: x[:, :16] / np.linalg.norm(x[:, :16], axis=1, keepdims=True) for name, x in unit.items()}
        for query, item in (("image", "text"), ("text", "image")):
            full, cut = (np.argsort(-x[query] @ x[item].T, axis=1) for x in (unit, half))
            kept.append(np.mean([len({*a} & {*b}) / 10 for a, b in zip(full[:, :10], cut[:, :10], strict=True)]))
            first.append(np.mean(searched[item][cut[:, 0]] == searched[query]))
    found = row(result, "first", 16, "float32")
    assert found["kept_at_10"] == pytest.approx(np.mean(kept), abs=1e-3)
    assert found["recall_at_1"] == pytest.approx(np.mean(first), abs=1e-3)


def test_pairs_stay_together_if_not_all_rows_are_searched(pairs, monkeypatch):
    from clip_geometry.search import compression

    monkeypatch.setattr(compression, "SEARCHED", 30)
    sets = {name: cg.Embeddings(x, name) for name, x in zip(("image", "text"), pairs, strict=True)}
    for fit, searched, _ in compression._halves(sets, 0)[0]:
        assert len(searched["image"]) == 30 and np.array_equal(searched["image"], searched["text"])
        assert not {*fit["image"]} & {*searched["text"]}


def test_full_vectors_lose_nothing_and_rescoring_helps(result):
    full = row(result, "all", 32, "float32")
    assert full["loss"] == full["high"] == 0 and full["recall_change"] == 0
    frame = result.frame.set_index(["cut", "columns", "dtype", "rescored"]).loss.unstack()
    assert (frame[True] <= frame[False] + 1e-9).sum() == frame[True].notna().sum()
    assert result.frame.low.le(result.frame.loss).all() and result.frame.high.ge(result.frame.loss).all()


def test_the_chosen_one_is_the_smallest_within_the_loss(result):
    allowed = result.frame[result.frame.loss <= 0.05]
    assert result.chosen.bytes == allowed.bytes.min() and result.chosen.loss <= 0.05
    assert cg.compress(np.eye(64) + 0.1, lose=0).chosen.loss == 0  # a lattice


def test_the_certain_one_is_the_smallest_whose_interval_is_within_the_loss(result):
    assert result.certain.high <= 0.05 and result.certain.bytes == result.frame[result.frame.high <= 0.05].bytes.min()
    assert result.certain.bytes >= result.chosen.bytes
    assert (result.chosen.high > 0.05) == ("For at most 5.0% at the end of this interval" in result.verdict[0])


def test_only_the_given_types_are_compared(pairs, result):
    few = cg.compress(*pairs, lose=0.05, types=["float16", "binary"])
    assert {*few.frame.dtype} == {"float16", "binary", "float32"} and (few.frame.dtype == "float32").sum() == 1
    assert row(few, "first", 16, "float16") == pytest.approx(row(result, "first", 16, "float16"), nan_ok=True)
    assert "int8" not in str(few)


def test_frontier_loses_less_with_every_byte(result):
    for _, group in result.frontier.groupby("rescored"):
        assert group.bytes.is_monotonic_increasing and (group.loss.diff().dropna() < 0).all()


def test_extrapolation_is_exact_if_the_share_depends_on_the_fraction():
    """A share σ(a + b log(k/m) + c log k) is extrapolated exactly, within and beyond one neighbor."""

    def share(k, m):
        return 1 / (1 + np.exp(-(0.3 - 0.2 * np.log(k / m) + 0.1 * np.log(k))))

    for size in (200, 500, 1000):
        index = Extrapolation(100, size)
        found = Found(share(10, 100), share(index.k, 100), share(index.k, 10 * index.k), share(index.k, 50))
        trend = 0.2 * np.log(10 / index.k * 100 / size * index.k / 10) if index.beyond > 1 else 0
        assert trend == 0 and index.predict(found) == pytest.approx(share(10, size), abs=1e-9)
    index = Extrapolation(100, 2000)
    found = Found(share(10, 100), share(1, 100), share(1, 10), share(1, 50))
    assert index.beyond == pytest.approx(2) and index.predict(found) == pytest.approx(share(10, 2000), abs=1e-9)


def test_a_sample_predicts_the_full_index():
    rng = np.random.default_rng(3)
    item = rng.normal(size=(2400, 24))
    image, text = (item + 0.3 * rng.normal(size=item.shape) for _ in range(2))
    small = cg.compress(image[:300], text[:300], full_size=2400).frame
    large = cg.compress(image, text).frame
    keys = ["cut", "columns", "dtype", "rescored"]
    both = small[small["cut"] != "random"].merge(large, on=keys)
    assert ((both.loss_y >= both.low_x) & (both.loss_y <= both.high_x)).mean() >= 0.9
    assert (both.loss_x - both.loss_y).abs().median() < 0.03


def test_dominant_columns_are_explained():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(400, 64))
    assert cg.compress(rows).explanation[0].startswith("No columns dominate")
    rows[:, :3] += 12
    first, second = (result := cg.compress(rows)).explanation
    assert "3 of 64 columns carry" in first and "so scale per column" in first
    loss = [row(result, "all", 64, dtype)["loss"] for dtype in ("int8", "int8[column]")]
    assert loss[0] > loss[1] and f"int8 loses {100 * loss[0]:.1f}%" in first
    assert "intrinsic dimension" in second and "so pca to 32 columns loses" in second


def test_labels_say_what_is_right(pairs):
    labels = np.arange(400) % 40
    result = cg.compress(*pairs, labels={"image": labels, "text": labels})
    assert row(result, "all", 32, "float32")["recall_at_1"] > 0.5


def test_compressor_is_saved_and_read(result, pairs, tmp_path):
    for dtype in result.frame.dtype.unique():
        compressor = result.fit(dtype=dtype)
        compressor.save(tmp_path / "c.safetensors")
        again = cg.search.read_compressor(tmp_path / "c.safetensors")
        codes = compressor.encode(pairs[0], "image")
        assert np.array_equal(again.encode(pairs[0], "image"), codes)
        assert np.allclose(again.scores(pairs[1], codes, "image"), compressor.scores(pairs[1], codes, "image"))
    assert result.fit("pca[each]", 8, "int8").columns == 8


def test_wrong_arguments_are_sentences(result, pairs, tmp_path):
    compressor = result.fit(dtype="int8")
    (tmp_path / "other.safetensors").write_bytes(b"x" * 20)
    for call, sentence in (
        (lambda: cg.compress(pairs[0][:50]), "has 50 rows; expected at least 60"),
        (lambda: cg.compress(pairs[0], lose=2), "lose = 2; expected a share from 0 to 1"),
        (
            lambda: cg.compress(pairs[0], full_size=10**6),
            "full_size = 1000000; expected a whole number from 400 to 3200, because 400 rows tell nothing about more",
        ),
        (lambda: cg.compress(pairs[0], full_size=10), "full_size = 10"),
        (lambda: cg.compress(pairs[0][:, :1]), "1 column"),
        (lambda: cg.compress(pairs[0], pairs[1][:, :8]), "one index needs rows of one dimension"),
        (lambda: cg.compress(np.zeros((100, 4))), "zero row"),
        (lambda: cg.compress(pairs[0], types=["halfvec"]), "types 'halfvec' is unknown"),
        (lambda: cg.compress(pairs[0], types="int8"), "types"),
        (lambda: result.fit(dtype="int9"), "dtype 'int9' is unknown"),
        (lambda: result.fit(cut="first", columns=5), "no combination has cut='first', columns=5"),
        (lambda: compressor.encode(pairs[0], "audio"), "fitted for image and text rows, not 'audio'"),
        (lambda: compressor.encode(pairs[0][:, :5], "image"), "rows have 5 columns; the compressor was fitted on 32"),
        (lambda: cg.search.read_compressor(tmp_path / "other.safetensors"), "other.safetensors"),
    ):
        with pytest.raises(cg.InputError, match=sentence.replace("[", r"\[")):
            call()

"""Baselines: planted changes are named, clean indexes pass, and files are refused in one sentence."""

import json

import numpy as np
import pytest

import clip_geometry as cg
from support.clip_like import clip_like, unit

N = 600


@pytest.fixture(scope="module")
def index():
    return clip_like(N)


@pytest.fixture(scope="module")
def baseline(index):
    return cg.gate(sets(index))


def sets(rows, ids=None, texts=None):
    ids = [f"item {k}" for k in range(N)] if ids is None else ids
    columns = {} if texts is None else {"text": texts}
    return {name: cg.Embeddings(x, name, item_id=np.array(ids), metadata=columns) for name, x in rows.items()}


def rounded(x):
    """Rows in whole steps, 127 of them for the largest value of a row."""
    step = np.abs(x).max(1, keepdims=True) / 127
    return (np.round(x / step) * step).astype(np.float32)


def orthogonal(d, seed=5):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


def some(x, rows, values):
    changed = x.copy()
    changed[rows] = values[rows]
    return changed


def noisy(x, size, seed=6):
    return unit(x + size * np.random.default_rng(seed).normal(size=x.shape) / np.sqrt(x.shape[1]))


@pytest.mark.parametrize(
    ("change", "kind", "detail"),
    [
        (lambda x: x.astype(np.float16), "quantized", "float16"),
        (rounded, "quantized", "int8"),
        (lambda x: 3 * x, "preprocessing", "normalization"),
        (lambda x: x * np.linspace(0.9, 1.1, N)[:, None], "preprocessing", "normalization"),
        (lambda x: noisy(x, 0.4), "preprocessing", "prefix"),
        (lambda x: noisy(x, 1.5), "preprocessing", "pooling"),
        (lambda x: unit(x @ orthogonal(x.shape[1])), "model", ""),
        (lambda x: x[:, :32], "model", ""),
        (lambda x: some(x, slice(40, 70), x @ orthogonal(x.shape[1])), "mixed", "30 rows"),
        (lambda x: some(x, slice(0, 300), x @ orthogonal(x.shape[1])), "mixed", "300 rows"),
        (lambda x: some(x, slice(100, 150), np.roll(x, 1, axis=0)), "ids", "49 rows"),
        (lambda x: some(x, slice(0, 120), noisy(x, 0.3)), "preprocessing", "truncation"),
    ],
)
def test_a_planted_change_is_named(index, baseline, change, kind, detail):
    changed = {"image": index["image"], "text": np.asarray(change(index["text"]), dtype=np.float32)}
    if changed["text"].shape[1] != changed["image"].shape[1]:
        changed["image"] = changed["image"][:, :32]
    result = baseline.check(sets(changed))
    assert (result.kind, result.changed) == (kind, True), result
    if kind == "ids":
        assert len(result.cause.rows) >= 49
    else:
        assert result.cause.detail == detail
    if kind == "mixed":
        count = int(detail.split()[0])
        first = 40 if count == 30 else 0
        assert set(result.cause.rows) == set(range(first, first + count))


def test_poisoned_captions_are_named_with_what_they_capture(index, baseline):
    text = index["text"].copy()
    text[[7, 90]] = unit(text[[7, 90]] + 0.25 * index["image"].mean(0))
    result = baseline.check(sets({**index, "text": text}))
    assert result.kind == "poisoned" and set(result.cause.rows) == {7, 90}
    assert 0 <= result.cause.values["captured"]["image"] <= 1


def test_new_hubs_and_copies_are_poisoned(index, baseline):
    ids = [f"new {k}" for k in range(N)]
    other = clip_like(N, seed=1)
    hub = other["text"].copy()
    hub[5] = unit(other["image"].mean(0, keepdims=True))[0]
    result = baseline.check(sets({**other, "text": hub}, ids))
    assert result.kind == "poisoned" and 5 in result.cause.rows
    # ten copies near the middle flood the lists, although no single one stands out
    hub[:10] = hub[5]
    result = baseline.check(sets({**other, "text": hub}, ids))
    assert result.kind == "poisoned" and set(range(10)) <= set(result.cause.rows)


def test_texts_tell_truncation_from_padding_and_the_order_of_lengths(index):
    length = np.random.default_rng(0).integers(1, 200, N)
    texts = np.array(["x" * each for each in length], dtype=object)
    recorded = cg.gate(sets(index, texts=texts))

    def checked(text):
        return recorded.check(sets({**index, "text": text}, texts=texts))

    changed = noisy(index["text"], 0.5)
    assert checked(some(index["text"], length > 150, changed)).cause.detail == "truncation"
    assert checked(some(index["text"], length < 150, changed)).cause.detail == "padding"
    few = np.argsort(length)[-6:]
    assert checked(some(index["text"], few, changed)).cause.detail == "truncation"
    assert checked(index["text"][np.argsort(length, kind="stable")]).kind == "text_length"


@pytest.mark.parametrize("has_ids", [True, False])
def test_clean_indexes_pass(index, has_ids):
    order = np.random.default_rng(1).permutation(N)
    given = sets(index) if has_ids else index
    recorded = cg.gate(given)
    reordered = {name: each[order] for name, each in index.items()}
    batch = clip_like(N, seed=2)
    again = {name: noisy(x, 1e-6) for name, x in index.items()}
    if has_ids:
        again = sets(again)
        reordered = sets(reordered, [f"item {k}" for k in order])
        batch = sets(batch, [f"new {k}" for k in range(N)])
    for clean in (given, again, reordered, batch):
        result = recorded.check(clean)
        assert not result.changed, result
    assert recorded.check(given).kept == {"image": 1.0, "text": 1.0}
    assert min(recorded.check(reordered).kept.values()) == 1
    assert recorded.check(given).verdict == "Same: the index is what it was."


def test_pairs_by_position_must_move_together(index):
    recorded = cg.gate(index)
    moved = some(index["text"], slice(100, 200), np.roll(index["text"], 1, axis=0))
    assert recorded.check({**index, "text": moved}).kind == "ids"


def test_a_few_edited_rows_are_reported_but_tolerated(index, baseline):
    text = some(index["text"], [3, 4], clip_like(N, seed=4)["text"])
    result = baseline.check(sets({**index, "text": text}))
    assert (result.kind, result.changed, result.cause.rows) == ("data", False, (3, 4))
    assert "within the tolerance" in result.verdict
    assert baseline.check(
        sets({**index, "text": some(index["text"], slice(0, 60), clip_like(N, seed=4)["text"])})
    ).changed


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("shuffled", [False, True])
def test_missing_rows_fail_and_new_rows_pass(index, has_ids, shuffled):
    """A truncated file is no index that is the same; a few missing rows, and any number of new ones, are tolerated."""
    numbers = np.arange(400)
    known = {name: x[:400] for name, x in index.items()}

    def given(rows):
        return sets({name: x[rows] for name, x in index.items()}, [f"item {k}" for k in rows]) if has_ids else {
            name: cg.Embeddings(x[rows], name) for name, x in index.items()
        }  # fmt: skip

    baseline = cg.gate(given(numbers) if has_ids else {name: cg.Embeddings(x, name) for name, x in known.items()})
    for rows, detail, changed in (
        (numbers[:60], "340 removed", True),
        (numbers[::2], "200 removed", True),
        (numbers[:390], "10 removed", False),
        (np.arange(600), "200 new", False),
    ):
        order = np.random.default_rng(0).permutation(rows) if shuffled else rows
        result = baseline.check(given(order))
        assert {each.detail for each in result.differences} == {detail} and result.changed is changed, detail
        assert result.kind == "data" and f"({detail}) in image, text" in result.verdict
    others = given(np.arange(400, 600))
    assert not any("removed" in each.detail for each in baseline.check(others).differences)


def test_drift_beyond_its_tolerance_fails(index, baseline):
    ids = [f"new {k}" for k in range(N)]
    batch = clip_like(N, seed=3)
    axis = np.linalg.svd(batch["text"] - batch["text"].mean(0), full_matrices=False)[2][0]
    shifted = unit(batch["text"] + 0.5 * axis)
    result = baseline.check(sets({**batch, "text": shifted}, ids))
    assert (result.kind, result.cause.detail, result.cause.modality) == ("data", "drift", "text")
    assert result.cause.values["low"] > 0.25


def test_queries_of_another_model(index, baseline):
    log = clip_like(200, seed=9)["text"]
    assert not baseline.check(sets(index), queries={"text": log}).changed
    result = baseline.check(sets(index), queries={"text": log @ orthogonal(log.shape[1])})
    assert (result.kind, result.changed) == ("queries", True)
    assert baseline.check(sets(index), queries={"text": log[:, :8]}).kind == "queries"


def test_files_are_small_and_read_back(index, baseline, tmp_path):
    baseline.save(tmp_path / "b.json")
    assert (tmp_path / "b.json").stat().st_size < 1_000_000
    read = cg.read_gate(tmp_path / "b.json")
    assert read.profiles == baseline.profiles and (read.checks, read.error_rate) == (365, 0.05)
    assert read.check(sets(index)).kind == "same"


def test_the_file_stays_below_a_megabyte(tmp_path):
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(12_000, 128)).astype(np.float32) for name in ("image", "text")}
    cg.gate(rows).save(tmp_path / "b.json")
    assert (tmp_path / "b.json").stat().st_size < 1_000_000


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda values: values.pop("sets"), "is JSON, but not a baseline"),
        (lambda values: values.update(checks=7), "is damaged, its checksum does not hold"),
        (lambda values: values.update(checksum="0"), "is damaged, its checksum does not hold"),
    ],
)
def test_a_damaged_file_is_refused(baseline, tmp_path, edit, sentence):
    baseline.save(tmp_path / "b.json")
    values = json.loads((tmp_path / "b.json").read_text())
    edit(values)
    (tmp_path / "b.json").write_text(json.dumps(values))
    with pytest.raises(cg.InputError, match=sentence):
        cg.read_gate(tmp_path / "b.json")


def test_another_format_and_broken_arrays_are_refused(baseline, tmp_path):
    from clip_geometry.files import write_json

    baseline.save(tmp_path / "b.json")
    values = json.loads((tmp_path / "b.json").read_text())
    values.pop("checksum")
    write_json(tmp_path / "newer.json", {**values, "format": 2})
    with pytest.raises(cg.InputError, match="has format 2; this version reads format 1"):
        cg.read_gate(tmp_path / "newer.json")
    for data, sentence in (("?", "not base64"), ("AAAA", "another size than its shape")):
        values["sets"]["text"]["mean"]["data"] = data
        write_json(tmp_path / f"{len(data)}.json", values)
        with pytest.raises(cg.InputError, match=sentence):
            cg.read_gate(tmp_path / f"{len(data)}.json")


def test_wrong_arguments_are_one_sentence(index, baseline):
    with pytest.raises(cg.InputError, match="the sets are image, and those of the baseline image, text"):
        baseline.check({"image": index["image"]})
    with pytest.raises(cg.InputError, match="the image rows of the baseline have ids, and these have no"):
        baseline.check(index)
    with pytest.raises(cg.InputError, match="the queries are audio rows, and the baseline has image, text"):
        baseline.check(sets(index), queries={"audio": index["text"]})
    with pytest.raises(cg.InputError, match="the image rows have 50 valid rows; expected at least 100"):
        cg.gate({"image": index["image"][:50]})
    for wrong in ({"checks": 0}, {"error_rate": 1.0}, {"seed": -1}):
        with pytest.raises(cg.InputError, match=next(iter(wrong))):
            cg.gate(index, **wrong)


def test_a_row_without_direction_is_left_out(index, baseline):
    text = index["text"].copy()
    text[9] = 0
    text[10] = np.nan
    assert not baseline.check(sets({**index, "text": text})).changed

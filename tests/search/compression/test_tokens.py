"""`compress` of items of several vectors: numbers against a direct MaxSim search, and the slope on length."""

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

import clip_geometry as cg
from clip_geometry.search import TokenRows

KEYS = ["cut", "columns", "dtype", "pool_factor", "rescored"]
FILES = {
    "npz": lambda path, arrays: np.savez(path, **arrays),
    "safetensors": lambda path, arrays: save_file(arrays, path),
}


def tokens_of(rng, n=64, t=6, d=8):
    return rng.normal(size=(n, t, d)).astype(np.float32), rng.integers(2, t + 1, size=n)


@pytest.fixture(scope="module")
def arrays():
    image, lengths = tokens_of(np.random.default_rng(0))
    text = image[:, :4] + 0.5 * np.random.default_rng(1).normal(size=(64, 4, 8)).astype(np.float32)
    return {"image": image, "image_lengths": lengths, "text": text, "text_lengths": np.minimum(lengths, 4)}


@pytest.fixture(scope="module")
def sets(arrays):
    return {name: TokenRows(arrays[name], arrays[f"{name}_lengths"]) for name in ("image", "text")}


@pytest.fixture(scope="module")
def result(sets):
    return cg.compress(sets)


def test_one_token_per_item_gives_the_numbers_of_single_vectors():
    rows = np.random.default_rng(2).normal(size=(64, 4))
    tokens = np.full((64, 3, 4), np.nan)
    tokens[:, 0] = rows
    single, multi = cg.compress(rows), cg.compress(TokenRows(tokens, np.ones(64, int)))
    pd.testing.assert_frame_equal(single.frame, multi.frame)
    assert single.explanation == multi.explanation and multi.length_slope is None


def test_padding_and_the_order_of_tokens_do_not_matter():
    rng = np.random.default_rng(3)
    array, lengths = tokens_of(rng, d=4)
    other = np.full((64, 9, 4), np.nan)
    for row, new, count in zip(array, other, lengths, strict=True):
        new[:count] = rng.permutation(row[:count])
    one, two = (cg.compress(TokenRows(x, lengths)).frame.sort_values(KEYS, ignore_index=True) for x in (array, other))
    assert one[KEYS].equals(two[KEYS]) and one.bytes.equals(two.bytes)
    # float sums in another order may change the last bit of a range
    assert (one.kept_at_10 - two.kept_at_10).abs().max() < 0.01 and (one.kept_at_10 == two.kept_at_10).mean() > 0.9


def test_numbers_equal_those_of_a_direct_search(sets, result):
    """Fold by fold, for pooled tokens of the first columns, which learn nothing."""
    from clip_geometry.search.compression import _halves

    embeddings = {name: cg.Embeddings(x, name) for name, x in sets.items()}
    kept, size = [], []
    for _, searched, queries in _halves(embeddings, 0)[0]:
        for query, item in (("image", "text"), ("text", "image")):
            asked, items = sets[query][searched[query]][queries[query]], sets[item][searched[item]]
            pooled = items.pooled(2)
            full = _nearest(asked, items, slice(None))
            cut = _nearest(asked, pooled, slice(4))
            kept.append(np.mean([len({*a} & {*b}) / 10 for a, b in zip(full, cut, strict=True)]))
            size.append(pooled.lengths.mean() * 4 * 4)
    (found,) = result.frame.query("cut == 'first' and columns == 4 and dtype == 'float32' and pool_factor == 2 and "
                                  "not rescored").to_dict("records")  # fmt: skip
    assert found["kept_at_10"] == pytest.approx(np.mean(kept), abs=1e-3)
    assert found["bytes"] == round(np.mean(size)) and 0 < found["loss"] < 1


def _nearest(queries, items, columns):
    """The ten nearest of each query by a direct MaxSim in float64."""
    scores = np.zeros((len(queries), len(items)))
    for i in range(len(queries)):
        for j in range(len(items)):
            a, b = (x.rows[:, columns].astype(np.float64) for x in (queries[i], items[j]))
            a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
            scores[i, j] = (a @ b.T).max(1).sum()
    return np.argsort(-scores, axis=1)[:, :10]


def test_pooling_is_an_axis_of_the_sweep(result):
    counts = result.frame.groupby("pool_factor").size()
    assert [*counts.index] == [1, 2, 4] and counts[1] + 1 >= counts[2] >= counts[4] > 0
    full = result.frame.query("cut == 'all' and dtype == 'float32' and not rescored").set_index("pool_factor")
    assert full.loss[1] == 0 < full.loss[2] < full.loss[4] and full.bytes.is_monotonic_increasing
    assert full.recall_at_1[1] > 0.8
    assert "tokens/2" in str(result) and f"instead of {full.bytes[1]} bytes" in str(result).replace("\n", " ")


@pytest.mark.parametrize("seed", range(3))
def test_copies_of_a_token_have_no_slope_on_length_and_random_tokens_have_one(seed):
    rng = np.random.default_rng(seed)
    array, lengths = tokens_of(rng, n=100, t=12, d=4)
    slope, error = cg.compress(TokenRows(array, lengths)).length_slope
    assert slope > 5 * error > 0
    result = cg.compress(TokenRows(np.repeat(array[:, :1], 12, axis=1), lengths))
    slope, error = result.length_slope
    assert abs(slope) < 3 * error and len(result.explanation) == 3
    assert "twice the tokens" in result.explanation[2] and "favors" not in result.explanation[2]


def test_items_of_equal_lengths_have_no_slope():
    result = cg.compress(TokenRows(tokens_of(np.random.default_rng(4), d=4)[0]))
    assert result.length_slope is None and len(result.explanation) == 2


def test_compressor_scores_are_max_sim(sets, result):
    compressor = result.fit("first", 4, "float32", pool_factor=2)
    items, queries = sets["image"].pooled(2), sets["text"][:5]
    codes = compressor.encode(items, "image")
    scores = compressor.scores(queries, codes, "image", items.lengths)
    first = [TokenRows(x.rows[:, :4] / np.linalg.norm(x.rows[:, :4], axis=1, keepdims=True), x.lengths)
             for x in (queries, items)]  # fmt: skip
    assert codes.shape == (items.lengths.sum(), 4) and np.allclose(scores, first[0].max_sim(first[1]), atol=1e-5)
    with pytest.raises(cg.InputError, match="lengths are"):
        compressor.scores(queries, codes, "image", items.lengths[:-1])
    with pytest.raises(cg.InputError, match="no combination has cut='first', columns=4, dtype='int8', pool_factor=3"):
        result.fit("first", 4, "int8", pool_factor=3)


@pytest.mark.parametrize("ending", FILES)
def test_files_with_lengths_are_read(arrays, sets, ending, tmp_path):
    FILES[ending](tmp_path / f"a.{ending}", arrays)
    read = cg.read(tmp_path / f"a.{ending}")
    assert [*read] == ["image", "text"]
    for name, x in sets.items():
        assert np.array_equal(read[name].vectors.rows, x.rows)
    FILES[ending](tmp_path / f"b.{ending}", arrays | {"image_lengths": arrays["image_lengths"] + 5})
    with pytest.raises(cg.InputError, match=r"b\.\w+, array 'image': lengths are .* from 1 to 6 for each of 64 items"):
        cg.read(tmp_path / f"b.{ending}")


def test_zero_tokens_are_a_sentence(sets):
    tokens = TokenRows(sets["image"].rows.copy(), sets["image"].lengths)
    tokens.rows[7] = 0
    with pytest.raises(cg.InputError, match="zero row"):
        cg.compress(tokens)

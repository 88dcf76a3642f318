"""Encoders that give an item several rows: through the store and back, resumed, limited, layer by layer."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import support.embed_fakes as fakes
from clip_geometry.data.base import Dataset, Side, words_of
from clip_geometry.embedding.store import read_store
from clip_geometry.embeddings import LazyRows, chosen_rows
from clip_geometry.encoders.base import EncodedRows
from clip_geometry.registry import InputError
from support.embed_fakes import FakeConfig, FakeDatasetConfig, FakeEncoder, run

LAYERS = 3
WORDS = [["cat", "the"][: k % 3] for k in range(40)]
TEXTS = [type("Text", (str,), {})(" ".join(words)) for words in WORDS]  # which are told apart by identity


class WordEncoder(FakeEncoder):
    """Row 100 k + 10 layer + position of text k; the text's number is in its place among `texts`."""

    texts = TEXTS

    def tokenize(self, texts):
        numbers = [next(k for k, each in enumerate(self.texts) if each is text) for text in texts]
        return fakes.Tokens(numbers, sum(k == 7 for k in numbers))

    def text_rows(self, tokens):
        self.batches.append(("text", len(tokens.inputs)))
        if self.on_batch:
            self.on_batch()
        found = [
            (place, layer, position, 100 * k + 10 * layer + position)
            for place, k in enumerate(tokens.inputs)
            for layer in range(LAYERS)
            for position in range(len(words_of(self.texts[k])))
        ]
        item, layer, position, value = np.array(found, dtype=np.int64).reshape(-1, 4).T
        words = [words_of(self.texts[k]) for k in tokens.inputs]
        columns = {
            "layer": layer.astype(np.int32),
            "token": np.array([words[i][p] for i, p in zip(item, position, strict=True)], dtype=object),
            "position": position.astype(np.int32),
            "tag": np.array(["x"] * len(item), dtype=object),
        }
        vectors = torch.from_numpy(value.astype(np.float32))[:, None].expand(-1, fakes.DIM).contiguous()
        return EncodedRows(vectors, item, columns, lost=sum(k == 5 for k in tokens.inputs))


@pytest.fixture
def install(monkeypatch):
    """A function that makes embed() use WordEncoder; it returns the encoders that were built."""

    monkeypatch.setattr(fakes, "FakeEncoder", WordEncoder)
    begin = fakes.installer(monkeypatch)
    return lambda **options: begin(modalities=("text",), **options).encoders


def corpus(texts=TEXTS):
    side = Side("text", [f"s{k}" for k in range(len(texts))], texts.__getitem__, language="en")
    return Dataset(FakeDatasetConfig(), "r1", text=side)


def files_of(folder):
    return {path.name: path.read_bytes() for path in (folder / "text").iterdir()}


def embedded(folder, **options):
    return run(folder, corpus(), max_corrupt=0.5, **options)


def test_rows_have_their_items_and_columns(install, tmp_path):
    install()
    manifest = embedded(tmp_path)
    rows = read_store(tmp_path)["text"]
    expected = [(k, layer, position) for k in range(40) for layer in range(LAYERS) for position in range(len(WORDS[k]))]
    assert [100 * k + 10 * layer + position for k, layer, position in expected] == list(np.asarray(rows.vectors)[:, 0])
    assert [k for k, _, _ in expected] == list(rows.metadata["sentence"]) == list(rows.metadata["index"])
    assert list(rows.item_id) == [f"s{k}" for k, _, _ in expected]
    assert list(rows.metadata["token"]) == [WORDS[k][p] for k, _, p in expected]
    # of all 40 sentences, whichever shard they are in
    counts = {"cat": sum("cat" in words for words in WORDS), "the": sum("the" in words for words in WORDS)}
    assert list(rows.metadata["frequency"]) == [counts[WORDS[k][p]] for k, _, p in expected]
    side = manifest["sides"]["text"]
    assert (side["n"], side["items"], side["truncated"], side["lost"]) == (len(expected), 40, 1, 1)
    assert side["shards"][0]["batch_sizes"] == [[4, 4]]
    assert (rows.provenance["n"], rows.provenance["lost"]) == (len(expected), 1)
    assert "text" not in pq.read_table(tmp_path / "text" / "metadata-00000.parquet").column_names


def test_an_item_without_rows_is_skipped_with_the_reason(install, tmp_path):
    install()
    skipped = embedded(tmp_path)["sides"]["text"]["skipped"]
    assert [each["index"] for each in skipped] == list(range(0, 40, 3))
    assert skipped[1] == {"index": 3, "item_id": "s3", "reason": "it has no tokens"}
    with pytest.raises(InputError, match=r"cannot be read, more than the share 0\.01"):
        run(tmp_path / "strict", corpus())


def test_a_limit_is_a_view_of_the_leading_items(install, tmp_path):
    install()
    embedded(tmp_path)
    whole = read_store(tmp_path)["text"]
    for limit in (2, 16, 17, 23, 40):
        some = read_store(tmp_path, limit=limit)["text"]
        kept = whole.metadata["index"] < limit
        assert np.array_equal(np.asarray(some.vectors), np.asarray(whole.vectors)[kept])
        assert list(some.metadata["token"]) == list(whole.metadata["token"][kept])
        assert some.provenance["skipped"] == len(range(0, limit, 3))


def test_a_store_that_was_interrupted_ends_as_if_it_had_not_been(install, tmp_path):
    install()
    embedded(tmp_path / "whole")
    batches = []

    def stop_in_the_second_shard():
        batches.append(1)
        if len(batches) == 6:
            raise KeyboardInterrupt

    install(on_batch=stop_in_the_second_shard)
    with pytest.raises(KeyboardInterrupt):
        embedded(tmp_path / "broken")
    with pytest.raises(InputError, match="was not finished"):
        read_store(tmp_path / "broken")
    built = install()
    embedded(tmp_path / "broken")
    assert [batch for encoder in built for batch in encoder.batches] == [("text", 4)] * 6  # all but the first shard
    assert files_of(tmp_path / "broken") == files_of(tmp_path / "whole")
    (tmp_path / "broken" / "text" / "vectors-00001.npy").write_bytes(b"damage")
    with pytest.raises(InputError, match=r"vectors-00001\.npy is damaged"):
        read_store(tmp_path / "broken")
    built = install()
    embedded(tmp_path / "broken")
    assert len(built[0].batches) == 4 and files_of(tmp_path / "broken") == files_of(tmp_path / "whole")


def test_shards_hold_fewer_items_where_these_have_many_rows(install, tmp_path, monkeypatch):
    for number, (item_bytes, batch, expected) in enumerate(
        [(0, 3, 4095), (2**20, 4, 128), (2**20, 50, 100), (2**26, 4, 2)]
    ):
        monkeypatch.setattr(WordEncoder, "item_bytes", item_bytes)
        install()
        manifest = run(tmp_path / str(number), corpus(), max_corrupt=0.5, batch_size=batch, shard_size=None)
        assert manifest["shard_size"] == expected


def test_one_layer_is_read_without_the_others(install, tmp_path):
    install()
    embedded(tmp_path)
    rows = read_store(tmp_path)["text"]
    assert isinstance(rows.vectors, LazyRows)
    assert all(isinstance(part, np.memmap) for part in rows.vectors.parts)
    layer = rows.take(rows.metadata["layer"] == 1)
    assert type(layer.vectors) is np.ndarray and set(layer.metadata["layer"]) == {1}
    assert np.array_equal(layer.vectors, np.asarray(rows.vectors)[rows.metadata["layer"] == 1])


def test_rows_of_one_each_are_as_before(monkeypatch, tmp_path):
    fakes.installer(monkeypatch)()
    manifest = run(tmp_path)
    assert not isinstance(read_store(tmp_path)["image"].vectors, LazyRows)
    assert "lost" not in manifest["sides"]["text"] and "lost" not in manifest["sides"]["text"]["shards"][0]
    encoder = FakeEncoder(FakeConfig())
    given = encoder.text_rows(encoder.tokenize(["abc"]))
    assert given.item is None and torch.equal(given.vectors, encoder.text_features(encoder.tokenize(["abc"])))


# --- LazyRows: numpy is the oracle


@pytest.fixture
def sharded():
    whole = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)
    return LazyRows([whole[:4], whole[4:5], whole[5:]]), whole


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(11) % 3 == 1,
        np.zeros(11, dtype=bool),
        np.array([10, 0, 4, 4, -1]),
        [],
        slice(2, 9, 3),
        slice(None, None, -1),
        slice(0, 0),
        slice(2, 50),
        3,
        np.int64(-2),
        ...,
    ],
    ids=repr,
)
def test_chosen_rows_are_those_of_the_whole(sharded, rows):
    parts, whole = sharded
    found = parts[rows]
    assert np.array_equal(found, whole[rows]) and found.dtype == np.float32 and found.shape == whole[rows].shape


OTHER = "rows are selected by an integer, a slice, a mask or indices"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((3, 2), OTHER),
        ((np.arange(3), [0, 1, 2]), OTHER),
        (np.arange(4).reshape(4, 1), OTHER),
        (None, OTHER),
        (True, OTHER),
        (np.zeros((11, 3), dtype=bool), "too many indices"),
        (np.zeros(4, dtype=bool), "boolean index did not match"),
        ([0.5], "only integers, slices"),
        (np.array([11]), "out of bounds"),
        (11, "out of bounds"),
    ],
)
def test_what_does_not_choose_rows_is_refused(sharded, rows, message):
    with pytest.raises(IndexError, match=message):
        sharded[0][rows]


def test_it_is_an_array_to_numpy_and_its_chosen_rows_are_a_view(sharded):
    parts, whole = sharded
    assert (parts.shape, len(parts), parts.ndim, parts.size) == ((11, 3), 11, 2, 33)
    assert np.asarray(parts, dtype=np.float64).dtype == np.float64
    chosen = chosen_rows(chosen_rows(parts, np.array([9, 0, 4, 4])), np.array([3, 0, 1]))
    assert np.array_equal(chosen, whole[[4, 9, 0]]) and np.array_equal(chosen[1:], whole[[9, 0]])
    assert all(np.shares_memory(part, whole) for part in chosen.parts)


def test_a_dataset_side_counts_its_words_once():
    loads = []
    side = replace(corpus().text, load=lambda k: loads.append(k) or TEXTS[k])
    assert side.word_counts == side.word_counts and loads == list(range(40))


def test_the_command_line_says_how_many_words_have_no_row():
    from clip_geometry.cli.stores import left_out

    assert left_out({"skipped": [], "truncated": 2, "lost": 7}) == " (2 truncated, 7 words without a row)"
    assert left_out({"lost": 0}) == ""

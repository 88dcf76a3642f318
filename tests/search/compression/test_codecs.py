"""Codes equal those of FAISS and sentence-transformers, and stand for the nearest rows of their kind."""

import numpy as np
import pytest

from clip_geometry import InputError
from clip_geometry.search.compression.codecs import CODECS, codec


@pytest.fixture
def rows():
    x = np.random.default_rng(0).normal(size=(1000, 32)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize(("name", "kind"), [("int8[column]", "QT_8bit"), ("int8", "QT_8bit_uniform")])
def test_int8_equals_faiss_bit_for_bit(rows, name, kind):
    faiss = pytest.importorskip("faiss")
    theirs = faiss.ScalarQuantizer(32, getattr(faiss.ScalarQuantizer, kind))
    theirs.train(rows[:500])
    ours = codec(name).fit(rows[:500])
    for x in (rows[:500], rows[500:], 2 * rows):  # also values outside of the ranges
        codes = ours.encode(x)
        assert np.array_equal(codes.astype(int) + 128, theirs.compute_codes(x))
        assert np.abs(ours.decode(codes, 32) - theirs.decode(theirs.compute_codes(x))).max() < 1e-6


def test_int8_equals_sentence_transformers_but_at_the_edges_of_steps(rows):
    quantize = pytest.importorskip("sentence_transformers.util.quantization").quantize_embeddings
    ours = codec("int8[column]").fit(rows)
    theirs = quantize(rows, "int8", ranges=np.stack([rows.min(0), rows.max(0)]))
    codes = ours.encode(rows)
    # the extremes of each column are at edges
    steps = (rows.astype(np.float64) - rows.min(0)) / (rows.max(0).astype(np.float64) - rows.min(0)) * 255
    inside = np.abs(steps - steps.round()) > 1e-4
    assert inside.mean() > 0.997 and np.array_equal(codes[inside], theirs[inside])
    assert np.abs(codes.astype(int) - theirs).max() <= 1


def test_binary_equals_sentence_transformers(rows):
    quantize = pytest.importorskip("sentence_transformers.util.quantization").quantize_embeddings
    assert np.array_equal(codec("binary").encode(rows), quantize(rows, "ubinary"))


def test_binary_scores_are_hamming_distances(rows):
    binary = codec("binary")
    x = binary.decode(binary.encode(rows), 32)
    hamming = np.unpackbits(np.bitwise_xor(binary.encode(rows)[:1], binary.encode(rows)), axis=1).sum(1)
    assert np.array_equal(binary.queries(rows[:1]) @ x.T, 32 - 2 * hamming[None].astype(np.float32))


def test_pq_decodes_as_faiss(rows):
    faiss = pytest.importorskip("faiss")
    ours = codec("pq").fit(rows)
    theirs = faiss.ProductQuantizer(32, 8, 4)
    faiss.copy_array_to_vector(ours.learned["centroids"], theirs.centroids)
    assert np.array_equal(ours.decode(ours.encode(rows), 32), theirs.decode(theirs.compute_codes(rows)))


@pytest.mark.parametrize("name", CODECS)
def test_bytes_are_those_of_the_codes(rows, name):
    if name == "pq":
        pytest.importorskip("faiss")
    assert codec(name).fit(rows).encode(rows).nbytes == 1000 * CODECS[name].bytes(32)


def test_more_bits_are_nearer(rows):
    def error(name):
        fitted = codec(name).fit(rows)
        return np.square(fitted.decode(fitted.encode(rows), 32) - rows).mean()

    assert error("float16") < error("int8[column]") <= error("int8") < error("binary[centered]") < error("binary")


def test_a_constant_column_stays_constant(rows):
    rows[:, 3] = 0.25
    fitted = codec("int8[column]").fit(rows)
    assert (fitted.decode(fitted.encode(rows), 32)[:, 3] == np.float32(0.25)).all()


def test_unknown_type_is_a_sentence():
    with pytest.raises(InputError, match="dtype 'int7' is unknown; did you mean 'int8'"):
        codec("int7")

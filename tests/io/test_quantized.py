"""Quantized rows are read as the numbers that they stand for, as FAISS and sentence-transformers write them."""

import json

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.io.quantized import dequantized


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)


def ranges(rows):
    return np.stack([rows.min(0), rows.max(0)])


@pytest.mark.parametrize("precision", ["int8", "uint8"])
def test_rows_of_sentence_transformers_are_within_half_a_step(rows, tmp_path, precision):
    quantize = pytest.importorskip("sentence_transformers.util.quantization").quantize_embeddings
    codes = quantize(rows, precision, ranges=ranges(rows))
    np.savez(tmp_path / "a.npz", image=codes, image_ranges=ranges(rows), text=rows)
    np.save(tmp_path / "image.npy", codes)
    (tmp_path / "image.npy.json").write_text(json.dumps({"ranges": ranges(rows).tolist()}))
    step = np.diff(ranges(rows), axis=0)[0] / 255
    for path in ("a.npz", "image.npy"):
        read = cg.read(tmp_path / path)["image"].vectors
        assert read.dtype == np.float32 and (np.abs(np.asarray(read) - rows) <= 0.501 * step).all()
    assert cg.measure(tmp_path / "image.npy", measures=["isoscore"])


def test_codes_of_faiss_are_decoded_as_faiss_does(rows):
    faiss = pytest.importorskip("faiss")
    quantizer = faiss.ScalarQuantizer(16, faiss.ScalarQuantizer.QT_8bit)
    quantizer.train(rows)
    codes = quantizer.compute_codes(rows)
    assert np.allclose(dequantized(codes, ranges(rows), "codes"), quantizer.decode(codes), atol=1e-6)


@pytest.mark.parametrize("precision", ["binary", "ubinary"])
def test_packed_signs(rows, tmp_path, precision):
    quantize = pytest.importorskip("sentence_transformers.util.quantization").quantize_embeddings
    codes = quantize(rows, precision)
    np.savez(tmp_path / "a.npz", image_bits=codes)
    np.save(tmp_path / "image.npy", codes)
    (tmp_path / "image.npy.json").write_text('{"bits": true}')
    for path in ("a.npz", "image.npy"):
        assert np.array_equal(np.asarray(cg.read(tmp_path / path)["image"].vectors), np.where(rows > 0, 1, -1))


def test_large_files_are_decoded_when_they_are_read(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("clip_geometry.embeddings.LARGE", 1)
    np.save(tmp_path / "image.npy", (rows * 10).astype(np.int8))
    (tmp_path / "image.npy.json").write_text(json.dumps({"ranges": [[-1], [1]]}))
    vectors = cg.read(tmp_path / "image.npy")["image"].vectors
    whole = dequantized((rows * 10).astype(np.int8), [[-1], [1]], "codes")
    assert not isinstance(vectors, np.ndarray) and np.array_equal(vectors[3:7], whole[3:7])
    assert np.array_equal(vectors[np.array([5, 1])], whole[[5, 1]])


@pytest.mark.parametrize("wrong", [[[0.0] * 16], [[1.0] * 16, [0.0] * 16], [[0.0] * 3, [1.0] * 3], [[0.0], [1.0] * 16]])
def test_wrong_ranges_are_a_sentence(rows, tmp_path, wrong):
    np.save(tmp_path / "image.npy", rows.astype(np.int8))
    with pytest.raises(cg.InputError, match=r"write the lowest and the highest value of each column to image.npy.json"):
        cg.read(tmp_path / "image.npy")
    (tmp_path / "image.npy.json").write_text(json.dumps({"ranges": wrong}))
    with pytest.raises(cg.InputError, match="expected the lowest and the highest value of each of its 16 columns"):
        cg.read(tmp_path / "image.npy")


def test_other_integers_are_no_codes(rows, tmp_path):
    np.savez(tmp_path / "a.npz", image=rows.astype(np.int32), image_ranges=ranges(rows))
    with pytest.raises(cg.InputError, match=r"int32; expected .* int8 or uint8"):
        cg.read(tmp_path / "a.npz")

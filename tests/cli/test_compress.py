"""`compress`: the table, its files, what `ship` makes of them, and errors of one sentence."""

import json
import runpy

import numpy as np
import pytest

import clip_geometry as cg


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    item = rng.normal(size=(240, 32))
    for name in ("image", "text"):
        np.save(tmp_path / f"{name}.npy", (item + 0.3 * rng.normal(size=(240, 32))).astype(np.float32))
    return tmp_path


def test_everything_is_printed_and_written(cli, folder):
    files = ("--json", "c.json", "--figure", "c.svg", "--write", "c.safetensors")
    done = cli("compress", "image.npy", "text.npy", "--lose", 0.05, *files)
    assert done.status == 0, done.err
    words = " ".join(done.out.split())
    assert words.startswith("The smallest vectors that lose at most 5.0% of the ten nearest take")
    assert "compressor: " in words and "rescored" in words and "int8[column] loses" not in words.split("lost")[1]
    lines = json.loads((folder / "c.json").read_text())
    assert {"cut", "columns", "dtype", "rescored", "bytes", "kept_at_10", "recall_at_1", "loss"} <= lines[0].keys()
    assert "<svg" in (folder / "c.svg").read_text()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int8[column]", "binary", "binary[centered]", "pq"])
@pytest.mark.parametrize("cut", ["all", "first", "pca[each]"])
def test_the_script_finds_what_the_compressor_finds(cli, folder, dtype, cut):
    if dtype == "pq":
        pytest.importorskip("faiss")
    image, text = (np.load(folder / f"{name}.npy") for name in ("image", "text"))
    compressor = _compression(image, text).fit(cut, 32 if cut == "all" else 16, dtype)
    compressor.save(folder / "c.safetensors")
    done = cli("ship", "c.safetensors", "image.npy", "text.npy", "-o", "index", "--to", "numpy")
    assert done.status == 0, done.err
    search = runpy.run_path(str(folder / "index" / "search.py"))["search"]
    scores, rows = search("image", text[:20], 5)
    expected = compressor.scores(text[:20], compressor.encode(image, "image"), "image")
    assert np.allclose(scores, -np.sort(-expected, axis=1)[:, :5], atol=1e-4)
    assert np.load(folder / "index" / "image.npy").nbytes == 240 * _bytes(dtype, compressor.columns)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (image, text)]
    full, rows = search("image", text[:20], 5, full=image)
    assert np.allclose(full, np.take_along_axis(unit[1][:20] @ unit[0].T, rows, axis=1), atol=1e-6)
    assert (np.diff(full, axis=1) <= 0).all()


_KEPT: dict = {}


def _compression(image, text):
    if "result" not in _KEPT:
        pool = np.random.default_rng(1).normal(size=(4, 300, 32))  # enough rows for product quantization
        _KEPT["result"] = cg.compress(np.concatenate([image, *pool]), np.concatenate([text, *pool]))
    return _KEPT["result"]


def _bytes(dtype, columns):
    from clip_geometry.search.compression.codecs import CODECS

    return CODECS[dtype].bytes(columns)


def test_errors_are_one_sentence(refused, folder):
    cg.compress(np.load(folder / "image.npy")).fit(dtype="int8").save(folder / "c.safetensors")
    for command, sentence in (
        ("compress image.npy text.npy --lose 1.5", "Invalid value for '--lose'"),
        ("compress image.npy text.npy --dtype int8", "give a file for it with --write"),
        ("compress image.npy text.npy --write c.json", "is not a .safetensors file"),
        ("compress image.npy --figure c.jpeg", "is not a .png or .svg or .pdf file"),
        ("compress image.npy --write d.safetensors --dtype int9", "dtype 'int9' is unknown"),
        ("compress image.npy --types int8,halfvec", "types 'halfvec' is unknown"),
        ("compress nowhere.npy", "nowhere.npy does not exist"),
        ("ship c.safetensors image.npy -o out --to faiss", "a compressor needs the rows of the index and --to numpy"),
        ("ship c.safetensors -o out --to numpy", "a compressor needs the rows"),
        ("ship c.safetensors text.npy -o out --to numpy", "but text were given"),
    ):
        assert sentence in refused(*command.split()), command
    assert not (folder / "d.safetensors").exists() and not (folder / "out").exists()


def test_tokens_are_compressed_but_not_shipped(cli, tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"image": rng.normal(size=(64, 6, 4)).astype(np.float32), "image_lengths": rng.integers(2, 7, size=64)}
    np.savez(tmp_path / "a.npz", **arrays)
    done = cli("compress", "a.npz", "--write", "c.safetensors")
    assert done.status == 0, done.err
    assert "twice the tokens" in " ".join(done.out.split()) and "ship" not in done.out
    done = cli("ship", "c.safetensors", "a.npz", "-o", "index", "--to", "numpy")
    assert done.status == 2 and "which only compress takes" in done.err and not (tmp_path / "index").exists()
    done = cli("measure", "a.npz")
    assert done.status == 2 and "which only compress takes" in done.err

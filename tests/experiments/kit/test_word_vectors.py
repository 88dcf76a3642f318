"""Word vectors from every kind of file, made here by the format's own definition; one real set; and refusals."""

import json
import struct

import numpy as np
import pytest

from clip_geometry.encoders import encoder_revision, load_encoder, resolve_encoder
from clip_geometry.registry import InputError

WORDS = ["cat", "Кот", "new york", "Cat", "naïve", "bus"]
VECTORS = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
VECTORS[0, 0] = 10  # 0x41200000: bytes 00 00 20 41, one of them a space


def load(path, **options):
    return load_encoder(f"words:{path}", device="cpu", **options)


def rows_of(path, words, **options):
    encoder = load(path, **options)
    return encoder.text_features(encoder.tokenize(words)).numpy()


def binary(words, vectors, newline=b""):
    lines = [
        word.encode() + b" " + struct.pack(f"<{len(v)}f", *v) + newline for word, v in zip(words, vectors, strict=True)
    ]
    return f"{len(words)} {vectors.shape[1]}\n".encode() + b"".join(lines)


def text(words, vectors, end="\n"):
    lines = [" ".join([word, *(repr(float(x)) for x in v)]) + end for word, v in zip(words, vectors, strict=True)]
    return "".join(lines).encode()


def write(folder, kind, words=WORDS):
    """The six words in one of the formats: (path, the words as they are in the file)."""
    if kind.startswith("npy"):
        np.save(folder / "v.npy", VECTORS if kind == "npy" else VECTORS.astype(np.float64))
        (folder / "v.json").write_text(json.dumps(words), encoding="utf-8")
        return folder / "v.npy", words
    header = f"{len(words)} 5\n".encode()
    single = [word.replace(" ", "_") for word in words]  # word2vec's tool ends a word at its first space
    content = {
        "binary": binary(single, VECTORS),
        "binary with newlines": binary(single, VECTORS, b"\n"),
        "word2vec text": header + text(words, VECTORS),
        "glove": text(words, VECTORS),
        "fasttext": header + text(words, VECTORS, end=" \r\n"),
    }[kind]
    path = folder / ("v.bin" if "binary" in kind else "v.txt")
    path.write_bytes(content)
    return path, single if "binary" in kind else words


KINDS = ["binary", "binary with newlines", "word2vec text", "glove", "fasttext", "npy", "npy, float64"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_rows(tmp_path, kind):
    path, words = write(tmp_path, kind)
    assert np.array_equal(rows_of(path, words), VECTORS)
    assert np.array_equal(rows_of(path, [words[4], words[0], words[4]]), VECTORS[[4, 0, 4]])
    assert rows_of(path, []).shape == (0, 5)
    facts = load(path).describe()
    assert facts["dim"] == {"text": 5} and facts["parameters"] == 30 and facts["weights"]["name"] == path.name


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_words_are_named_and_counted(tmp_path, kind):
    encoder = load(write(tmp_path, kind)[0])
    with pytest.raises(InputError, match=r"^2 of 4 words have no vector in v\.\w+: 'CAT', 'dog'; .* including case"):
        encoder.tokenize(["cat", "CAT", "bus", "dog"])
    with pytest.raises(InputError, match=r"^7 of 7 words .*: 'a0', 'a1', 'a2', 'a3', 'a4', …; "):
        encoder.tokenize([f"a{k}" for k in range(7)])


@pytest.mark.parametrize("kind", ["binary", "glove", "npy"])
def test_a_word_that_comes_twice_is_the_first_as_in_gensim(tmp_path, kind):
    path, _ = write(tmp_path, kind, ["a", "b", "a", "c", "b", "d"])
    assert np.array_equal(rows_of(path, ["a", "b", "c"]), VECTORS[[0, 1, 3]])


def test_the_revision_is_that_of_vectors_and_words(tmp_path):
    path, _ = write(tmp_path, "npy")
    config = resolve_encoder(f"words:{path}")
    before = encoder_revision(config)
    (tmp_path / "v.json").write_text(json.dumps([*WORDS[1:], WORDS[0]]))
    assert encoder_revision(config) != before


# --- refusals


def expect(path, sentence, words=("cat",)):
    with pytest.raises(InputError, match=sentence):
        rows_of(path, list(words))


def test_arrays_that_do_not_fit_their_words(tmp_path):
    path = tmp_path / "v.npy"
    expect(path, r"v\.npy does not exist; a file of word vectors was expected")
    np.save(path, VECTORS)
    expect(path, r"v\.json does not exist; a list of its words was expected")
    (tmp_path / "v.json").write_text(json.dumps(WORDS[1:]))
    expect(path, r"float32 of shape \(6, 5\); expected one row .* for each of the 5 words in v\.json")
    (tmp_path / "v.json").write_text('{"cat": 0}')
    expect(path, "input should be a valid list")
    (tmp_path / "v.json").write_text("[")
    expect(path, "is not readable JSON")
    (tmp_path / "v.json").write_bytes(b"\xff\xfe")
    expect(path, "is not a text file in UTF-8; a list of words was expected")
    (tmp_path / "v.json").write_text(json.dumps(WORDS))
    np.save(path, VECTORS.astype(int))
    expect(path, "holds int64 of shape")
    np.save(path, np.array([{"a": 1}]), allow_pickle=True)
    expect(path, "holds pickled Python objects, which can run code")
    path.write_bytes(b"nonsense")
    expect(path, r"is not a \.npy file")


def test_binary_files_that_are_damaged(tmp_path):
    path = tmp_path / "v.bin"
    whole = binary(["cat", "bus"], VECTORS[:2])
    path.write_bytes(whole[:-1])
    expect(path, "ends after 1 of the 2 words that it announces")
    path.write_bytes(b"\x80\x04nonsense")
    expect(path, r"does not begin with the number of its words and columns; expected a word2vec \.bin file")
    path.write_bytes(b"cat 1 2 3\n")
    expect(path, "does not begin with the number of its words and columns")
    path.write_bytes(b"999999999999999 300\ncat ")
    expect(path, "ends after 0 of the 999999999999999 words")
    path.write_bytes(b"1" * 5000 + b" 3\ncat ")
    expect(path, "does not begin with the number of its words and columns")


def test_texts_that_are_damaged(tmp_path):
    path = tmp_path / "v.txt"
    path.write_bytes(b"cat 1 2 3\nbus 1 2\n")
    expect(path, "line 2, is not a word and 3 numbers")
    path.write_bytes(b"2 3\ncat 1 2 3\n\nbus 1 2\n")
    expect(path, "line 3, is not a word and 3 numbers")
    path.write_bytes(b"3 3\ncat 1 2 3\nbus 1 2 3\n")
    expect(path, "announces 3 words, but holds 2")
    path.write_bytes(b"cat 1 2 three\n")
    expect(path, "1 2 three … are not 3 numbers")
    path.write_bytes(b"cat 1 2 3_0\n")
    expect(path, "1 2 3_0 … are not 3 numbers")
    path.write_bytes(b"cat 1 2 3\nbus 1  2\n")
    assert rows_of(path, ["cat"]).shape == (1, 3)
    expect(path, "1 2 … are not 3 numbers", ["bus"])
    path.write_bytes(b"cat\nbus\n")
    expect(path, "is not a text of word vectors: its first line is 'cat")
    path.write_bytes(b"")
    expect(path, r"is empty \(0 bytes\)")
    (tmp_path / "v.gz").write_bytes(b"x")
    expect(tmp_path / "v.gz", "is compressed; unpack it")
    expect(tmp_path, "is a directory; a file of word vectors was expected")
    path.write_bytes(b"2 5\n" + binary(["cat", "bus"], VECTORS[:2]))
    expect(path, r"is not a word and 5 numbers \(binary files end in \.bin\)")


# --- the real thing

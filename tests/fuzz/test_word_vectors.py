"""Files of word vectors that were valid once, damaged."""

import numpy as np
import pytest
from hypothesis import strategies as st

from fuzz.outcome import fuzzed, outcome, sandbox
from fuzz.strategies import altered_file

pytestmark = pytest.mark.experiments
word_vectors = pytest.importorskip("clip_geometry_experiments.kit.word_vectors")

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
FILES = {
    "w.txt": b"2 3\nred 1 2 3\nblue 4 5 6\n",
    "g.vec": b"red 1 2 3\nblue 4 5 6\n",
    "w.bin": b"2 3\nred " + X[0].tobytes() + b"\nblue " + X[1].tobytes() + b"\n",
}


@fuzzed(15, name=st.sampled_from(sorted(FILES)), data=st.data())
def test_files(name, data):
    with sandbox({name: data.draw(altered_file(name, FILES[name]))}) as folder:
        outcome(lambda path: word_vectors.read_words(word_vectors.find_files(path)), folder / name)

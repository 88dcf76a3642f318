import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def write_table(tmp_path):
    """Writes columns as parquet under tmp_path and gives the path."""

    def write(name, **columns):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
        return path

    return write


@pytest.fixture
def write_json(tmp_path):
    def write(name, values):
        path = tmp_path / name
        path.write_text(json.dumps(values))
        return path

    return write


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """An empty folder CLIP_GEOMETRY_DATA, which write_table writes to."""
    monkeypatch.setenv("CLIP_GEOMETRY_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def vectors(tmp_path):
    """A file of word vectors of a few words."""

    def write(words):
        np.save(tmp_path / "vectors.npy", np.random.default_rng(0).normal(size=(len(words), 4)).astype(np.float32))
        (tmp_path / "vectors.json").write_text(json.dumps(words))
        return tmp_path / "vectors.npy"

    return write

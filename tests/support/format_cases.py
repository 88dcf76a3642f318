"""Small files of embeddings in every format."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

DTYPES = [np.float16, np.float32, np.float64]


def cloud(n=7, d=4, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def vector_column(vectors, kind="fixed"):
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    offsets = np.arange(0, flat.__len__() + 1, vectors.shape[1])
    if kind == "large":
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def write(path, vectors):
    """`vectors` in the format of the path's extension."""
    match path.suffix:
        case ".npy":
            np.save(path, vectors)
        case ".npz":
            np.savez(path, vectors)
        case ".safetensors":
            save_file({"anything": torch.from_numpy(vectors)}, path)
        case ".pt":
            torch.save(torch.from_numpy(vectors), path)
        case ".parquet":
            pq.write_table(pa.table({"anything": vector_column(vectors)}), path)
    return path


FORMATS = [".npy", ".npz", ".safetensors", ".pt", ".parquet"]


def assert_same_bits(read, written):
    assert read.dtype == written.dtype and read.shape == written.shape
    assert np.ascontiguousarray(read).tobytes() == written.tobytes()

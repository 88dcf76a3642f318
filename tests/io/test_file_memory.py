"""Files as large as a quarter of the memory are read in blocks, whatever program wrote them."""

import subprocess
import sys

import numpy as np
import pytest

LIMITED = """
import sys
from pathlib import Path

import h5py, pyarrow.ipc, torch, zarr
from clip_geometry import embeddings, memory, read
from clip_geometry.measuring.sets import stream

size = int(sys.argv[2])
memory.memory = lambda: 4 * size
embeddings.LARGE = memory.memory() // 12

def peak():
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])

Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what is held now
before = peak()
rows = stream(read(sys.argv[1]))["image"]
chosen = rows[torch.arange(0, len(rows), 9973)].double().sum().item()
total = sum(block.double().sum().item() for block in rows.split(4096))
print(peak() - before, total, chosen)
"""
N, D = 200_000, 256  # 205 MB


def large_hdf5(folder, **storage):
    import h5py

    with h5py.File(folder / "image.h5", "w") as file:
        file.create_dataset("image", data=large(), **storage)
    return folder / "image.h5"


def large_chunked(folder):
    return large_hdf5(folder, chunks=(1000, D))


def large_zarr(folder):
    import zarr

    zarr.create_array(folder / "image.zarr", data=large(), chunks=(1000, D))
    return folder / "image.zarr"


def large_faiss(folder):
    import faiss

    index = faiss.IndexFlatIP(D)
    index.add(large())
    faiss.write_index(index, str(folder / "image.faiss"))
    return folder / "image.faiss"


def large_datasets(folder):
    import datasets
    import pyarrow as pa

    datasets.disable_progress_bars()
    column = pa.FixedSizeListArray.from_arrays(pa.array(large().reshape(-1)), D)
    datasets.Dataset(pa.table({"image": column})).save_to_disk(folder / "image")
    return folder / "image"


def large():
    return np.random.default_rng(0).random((N, D), np.float32)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says so")
@pytest.mark.parametrize("write", [large_hdf5, large_chunked, large_zarr, large_faiss, large_datasets])
def test_a_file_of_a_quarter_of_the_memory_is_never_held_as_a_whole(tmp_path, write):
    path, rows = write(tmp_path), large()
    size = rows.nbytes
    command = [sys.executable, "-c", LIMITED, str(path), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peak, total, chosen = map(float, done.stdout.split())
    assert total == pytest.approx(rows.astype(np.float64).sum(), rel=1e-12)
    assert chosen == pytest.approx(rows[::9973].astype(np.float64).sum(), rel=1e-12)
    assert peak < 0.5 * size  # 0.15 to 0.43

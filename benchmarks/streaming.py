"""Streaming a folder of float16 shards, 4 GB: Moments against the float32 products they consist of, and sums and class
sums against reading and summing in numpy. The first ratio is the share of the machine's matrix rate.

"cached": the shards are in the system's page cache. "disk": they were dropped from it first. The folder is written to
the temporary directory (TMPDIR) and deleted at the end.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from contest import Contest, main

SHARDS, CLASSES, PART = 4, 1000, 100_000
FOLDER = "CLIP_GEOMETRY_BENCHMARK"  # the folder with the shards of all sizes


def shards(n, d, cold=0):
    """Memory maps of n rows in total, with a common offset and a spectrum that decays by a factor of ten."""
    folder = Path(os.environ[FOLDER]) / f"{n}-{d}"
    paths = [folder / f"img_emb_{k}.npy" for k in range(SHARDS)]
    if not folder.exists():
        folder.mkdir()
        rng = np.random.default_rng(0)
        spectrum, offset = np.geomspace(1, 0.1, d, dtype="float32"), rng.normal(size=d).astype("float32")
        for path in paths:
            rows = np.lib.format.open_memmap(path, "w+", "float16", (n // SHARDS, d))
            for start in range(0, len(rows), 2**16):
                block = rng.standard_normal(rows[start : start + 2**16].shape, dtype="float32")
                rows[start : start + 2**16] = block * spectrum + offset
            rows.flush()
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            if cold:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return [np.load(path, mmap_mode="r") for path in paths]


def streamed(parts):
    from clip_geometry.rows.streamed import StreamedRows, cat

    return cat([StreamedRows.of(part) for part in parts])


def setup_moments(n, d, cold=0):
    from clip_geometry import Moments

    maps = shards(n, d)
    part = np.asarray(maps[0][:PART])
    return shards(n, d, cold), part, Moments.of(part)  # in float64


def our_moments(maps, part, expected):
    """Compute the moments of all rows, then return the largest relative error of the moments of a sample."""
    from clip_geometry import Moments

    Moments.of(streamed(maps))
    found = Moments.of(streamed([part]))
    scale = {"T": float(expected.Q) ** 0.75 * expected.n**0.25}  # a sum of odd powers, which nearly cancels
    names = ("mean", "M2", "T", "Q")
    differences = {name: float((getattr(found, name) - getattr(expected, name)).norm()) for name in names}
    return max(differences[name] / scale.get(name, float(getattr(expected, name).norm())) for name in names)


def products(maps, part, expected):
    """The number of float32 operations of Σ c cᵀ, in products of large matrices."""
    import torch

    n, d = sum(map(len, maps)), maps[0].shape[1]
    size = 4096 if n > 2**20 else 512
    a, out = torch.randn(size, size), torch.empty(size, size)
    for _ in range(max(1, round(n * d**2 / size**3))):
        torch.mm(a, a, out=out)
    return 0.0


def setup_sums(n, d):
    return (shards(n, d),)


def our_sums(maps):
    from clip_geometry.rows.matrix import mean_row

    return mean_row(streamed(maps))


def numpy_sums(maps):
    blocks = (rows[start : start + 4096] for rows in maps for start in range(0, len(rows), 4096))
    return sum(block.sum(0, dtype=np.float64) for block in blocks) / sum(map(len, maps))


def setup_classes(n, d):
    return shards(n, d), np.random.default_rng(0).integers(0, CLASSES, n // SHARDS * SHARDS)


def our_classes(maps, codes):
    """Counts, means and the scatter of each class: two passes over the rows."""
    import torch

    from clip_geometry.geometry.statistics.class_sums import class_sums

    found = class_sums(streamed(maps), torch.from_numpy(codes), CLASSES)
    return (found.sums + found.counts[:, None] * found.mean)[:, 0]


def numpy_classes(maps, codes):
    """Sums of each class: one pass over the rows."""
    sums, first = np.zeros((CLASSES, maps[0].shape[1])), 0
    for rows in maps:
        for start in range(0, len(rows), 4096):
            block = rows[start : start + 4096].astype(np.float64)
            np.add.at(sums, codes[first : first + len(block)], block)
            first += len(block)
    return sums[:, 0]


QUICK = {"n": 4000, "d": 512}


def contest(name, setup, ours, peer, package, faster, tolerance, quick=None, **size):
    return Contest(name, setup, ours, peer, package, [size], quick or QUICK, tolerance, faster=faster)


if __name__ == "__main__":
    size = {"n": 2**22, "d": 512}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault(FOLDER, folder)
        main(
            [
                contest("moments, cached", setup_moments, our_moments, products, "torch", 0.5, 1e-6, **size),
                contest("moments, disk", setup_moments, our_moments, products, "torch", 0.5, 1e-6, cold=1, **size),
                contest("sums", setup_sums, our_sums, numpy_sums, "numpy", 1 / 1.5, 1e-9, **size),
                contest("class sums", setup_classes, our_classes, numpy_classes, "numpy", 1 / 1.5, 1e-4, **size),
            ]
        )

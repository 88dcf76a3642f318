"""The Ray engine with one process per processor of this machine, against one process: embedding, and passes over rows
on disk. The cost of a million rows is the slope between two sizes; docs/howto/cluster.md derives it.

The clock starts when the cluster runs and its processes have already made the same passes. Starting actors, their
libraries and the model is included; the two sizes separate that cost.
"""

import os
import tempfile

from contest import Contest, main
from streaming import FOLDER, QUICK, shards, streamed

CLASSES = 1000
TRAVEL = 1e-9  # float64 sums in a different order


def cluster():
    import ray

    if not ray.is_initialized():
        ray.init(include_dashboard=False, logging_level="ERROR")


def setup_embed(n, wide=1):
    from clip_geometry.data import Dataset, load_dataset
    from clip_geometry.encoders import resolve_encoder

    whole = load_dataset("scenes", size=max(n, 8))
    images = Dataset(whole.config, whole.revision, whole.image)
    return resolve_encoder("open_clip:ViT-B-32/fresh" if wide else "scenes-clip/fresh"), images, n


def embedded(engine):
    def rows(config, images, n):
        from clip_geometry import embed
        from clip_geometry.embedding.store import read_store
        from clip_geometry.progress import quiet

        if engine == "ray":
            cluster()
        with tempfile.TemporaryDirectory() as folder:
            embed(config, images, folder, limit=n, batch_size=32, shard_size=32, engine=engine, progress=quiet)
            return read_store(folder)["image"].vectors[: 2 * n : n].copy()

    return rows


def setup_rows(n, d):
    import torch

    return shards(n, d), torch.arange(n) % CLASSES


def passed(function, engine):
    def values(maps, codes):
        from clip_geometry.embedding.engines import open_engine

        if engine == "ray":
            cluster()
        with open_engine(engine) as workers:
            return function(workers.stream(streamed(maps)), codes)

    return values


def moments(rows, _):
    from clip_geometry import Moments

    return Moments.of(rows).mean


def class_sums(rows, codes):
    from clip_geometry.geometry.statistics.class_sums import class_sums

    found = class_sums(rows, codes, CLASSES)
    return (found.sums + found.counts[:, None] * found.mean)[:, 0]


def contest(name, setup, make, sizes, quick, tolerance):
    return Contest(name, setup, make("ray"), make("local"), "clip-geometry", sizes, quick, tolerance)


if __name__ == "__main__":
    wide, rows = [{"n": 64}, {"n": 640}], [{"n": 2**18, "d": 512}, {"n": 2**21, "d": 512}]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault(FOLDER, folder)
        main(
            [
                # a model's rows with one and with several threads
                contest("embed ViT-B-32", setup_embed, embedded, wide, {"n": 8, "wide": 0}, 1e-5),
                contest("moments", setup_rows, lambda engine: passed(moments, engine), rows, QUICK, TRAVEL),
                contest("class sums", setup_rows, lambda engine: passed(class_sums, engine), rows, QUICK, TRAVEL),
            ]
        )

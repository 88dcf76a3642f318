"""Run as a script: what the tests of the Ray engine look at, made on two worker processes and in this one.

A process of its own, since Ray pickles functions of geometry, which the tests' own process has wrapped by type checks.
"""

import json
import os
import sys
from contextlib import chdir
from pathlib import Path
from threading import Lock

import numpy as np
import ray
import torch

import clip_geometry.encoders
from clip_geometry import Moments
from clip_geometry.cli import app
from clip_geometry.data.base import Dataset, Side
from clip_geometry.embedding import engines
from clip_geometry.embedding.engines import open_engine
from clip_geometry.embedding.loop import embed
from clip_geometry.encoders.base import EncoderEntry, Tokens
from clip_geometry.encoders.base import encoders as families
from clip_geometry.geometry import average_cosine, inter_type_cosine, modality_gap
from clip_geometry.geometry.statistics.moments import moments_of_groups
from clip_geometry.progress import quiet
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import StreamedRows, cat
from support.embed_fakes import FakeConfig, FakeDatasetConfig, FakeEncoder, fake_dataset
from support.engine_fakes import Always, Fatal, Loading, Refuses, die_once

CLASSES = 5
engines.MIN_BYTES = 1  # as many spans as there are blocks, where there are few rows


def embedded(folder, data, on_batch=None, **options):
    clip_geometry.encoders.load_encoder = Loading(on_batch)
    clip_geometry.encoders.encoder_revision = lambda config: "w1"
    options = {"batch_size": 4, "shard_size": 16, "progress": quiet, "device": "cpu", "max_corrupt": 0.1} | options
    return embed(FakeConfig(), data, folder, **options)


def continued(folder):
    """A store begun in this process, continued by workers of whom one is killed, finished in this process; and one
    that is made in this process alone."""
    data = fake_dataset(100, captions=2, corrupt={3})
    embedded(folder / "whole", data)
    embedded(folder / "store", data, limit=20)
    run = embedded(folder / "store", data, Fatal(folder), limit=80, engine="ray")["run"]
    embedded(folder / "store", data)
    return {"run": run}


def refused(folder):
    return embedded(folder / "refused", fake_dataset(), Refuses(), limit=4, engine="ray")


def dying(folder):  # and what comes after it has no retries
    engines.RETRIES = 0
    return embedded(folder / "dying", fake_dataset(), Always(), limit=4, engine="ray")


def unsendable(folder):
    lock = Lock()
    side = Side("text", ["a"], lambda k: str(lock))
    return embedded(folder / "unsendable", Dataset(FakeDatasetConfig(), "r1", None, side), engine="ray")


def unsendable_rows(folder):
    lock = Lock()
    with open_engine("ray") as engine:
        x = StreamedRows.of(np.ones((3000, 2)), name="image").map(lambda block, _: (lock, block)[1], 2)
        Moments.of(engine.stream(x))


def gone(folder):
    np.save(folder / "gone.npy", np.ones((3000, 2)))
    with open_engine("ray") as engine:
        rows = engine.stream(StreamedRows.of(np.load(folder / "gone.npy", mmap_mode="r"), name="image"))
        (folder / "gone.npy").unlink()
        rows.aggregate(int, lambda found, block, along: found, int.__add__, 1000)


class OwnConfig(FakeConfig):
    pass


class OwnEncoder(FakeEncoder):
    def text_features(self, tokens):
        return tokens.inputs

    def tokenize(self, texts):
        return Tokens(torch.tensor([[float(len(text))] for text in texts]), 0)


def elsewhere(folder):
    (folder / "elsewhere").mkdir()
    clip_geometry.encoders.encoder_revision = lambda config: "w1"
    families.add("own", EncoderEntry(OwnConfig, lambda config, device: OwnEncoder(config), str))
    with chdir(folder / "elsewhere"):
        Path("text").write_text("relative")
        side = Side("text", [str(k) for k in range(12)], lambda k: f"{Path('text').read_text()} {k}")
        data, config = Dataset(FakeDatasetConfig(), "r1", None, side), OwnConfig(model="own:mine")
        return embed(config, data, "store", engine="ray", progress=quiet)["sides"]["text"]["n"]


def three_files(folder, n=3000, d=256):
    """Memory maps, the last one a part of its file; classes that are apart, far from the origin."""
    generator, parts = np.random.default_rng(0), []
    for k in range(3):
        rows = generator.normal(size=(n, d)) * np.linspace(0.1, 2, d) + 3 * np.eye(CLASSES, d)[np.arange(n) % CLASSES]
        np.save(folder / f"{k}.npy", (rows + 1).astype(np.float16))
        parts.append(np.load(folder / f"{k}.npy", mmap_mode="r"))
    return [*parts[:2], parts[2][11:-100]]


def streamed(parts):
    return cat([StreamedRows.of(part, name="image") for part in parts])


def numbers(rows):
    codes = torch.arange(len(rows)) % CLASSES
    moments = Moments.of(rows)
    found = {name: getattr(moments, name) for name in ("mean", "M2", "T", "Q")}
    found |= {f"group {k}": part.M2 for k, part in enumerate(moments_of_groups(rows, codes, CLASSES))}
    found["inter_type_cosine"] = inter_type_cosine(rows, codes)
    found["average_cosine"] = average_cosine(rows)
    return found | {"gap": modality_gap(rows, rows.map(lambda block, _: block.double() * 2, rows.shape[1]))}


def statistics(folder):
    parts = three_files(folder)
    with open_engine("ray") as engine:
        np.savez(folder / "ray.npz", **numbers(engine.stream(streamed(parts))))
    np.savez(folder / "local.npz", **numbers(streamed(parts)))
    np.savez(folder / "rows.npz", rows=np.concatenate(parts))


def killed_in_a_pass(folder):
    flag = folder / "killed-in-a-pass"

    def add(found, block, along):
        die_once(flag)
        return found + block.double().sum(0)

    with open_engine("ray") as engine:
        rows = engine.stream(streamed(three_files(folder)))
        return rows.aggregate(lambda: torch.zeros(256, dtype=torch.float64), add, torch.add, 1000).tolist()


def dying_in_a_pass(folder):
    with open_engine("ray") as engine:
        rows = engine.stream(StreamedRows.of(np.ones((3000, 2)), name="image"))
        rows.aggregate(int, lambda found, block, along: Always()(), int.__add__, 1000)


def bad_row(folder):
    rows = np.ones((9000, 3))
    rows[8500, 1] = np.nan
    with open_engine("ray") as engine:
        Moments.of(engine.stream(StreamedRows.of(rows, name="image")))


def measured(folder):
    generator, sets = np.random.default_rng(0), folder / "sets"
    sets.mkdir()
    for modality in ("image", "text"):
        np.save(sets / f"{modality}.npy", generator.normal(size=(500, 6)).astype(np.float32))
    np.save(folder / "labels.npy", np.arange(500) % 3)
    names = "isoscore,isoscore[unbiased],modality_gap,inter_type_cosine,coordinate_spread,average_cosine"
    asked = ["measure", str(sets), "--labels", str(folder / "labels.npy"), "--measures", names, "--blocks", "4"]
    asked += ["--pipeline", "normalize,center[pooled]"]
    for engine in ("local", "ray"):
        out = str(folder / f"{engine}.jsonl")
        app([*asked, "--engine", engine, "--json", out], standalone_mode=False)


def begin() -> None:
    # what workers import, and what conftest.py and its type checks are kept out of
    path = filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", object_store_memory=100 * 2**20)


def outcome(job, folder):
    try:
        return {"result": job(folder)}
    except InputError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    begin()
    jobs = [elsewhere]  # before load_encoder is a fake's
    jobs += [continued, refused, unsendable, statistics, killed_in_a_pass, bad_row, unsendable_rows, gone, measured]
    jobs += [dying, dying_in_a_pass]  # without retries
    found = {job.__name__: outcome(job, folder) for job in jobs}
    found["still there"] = ray.is_initialized()
    found["pid"] = os.getpid()
    (folder / "found.json").write_text(json.dumps(found, default=str))
    ray.shutdown()

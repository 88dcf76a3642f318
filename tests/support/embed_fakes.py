"""A tiny deterministic encoder and data set; and, run as a script, a process whose forked children embed.

Forking from a process that has imported everything makes a child cheap, so that every instant can be tried.
"""

import hashlib
import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import clip_geometry.encoders
from clip_geometry.data.base import Dataset, DatasetConfig, Side
from clip_geometry.embedding.loop import embed
from clip_geometry.embedding.store import read_store
from clip_geometry.encoders.base import Encoder, EncoderConfig, Tokens
from clip_geometry.progress import quiet
from support.forks import serve

DIM = 5
CONTEXT = 12  # characters a text may have


class FakeConfig(EncoderConfig):
    model: str = "fake:linear"
    seed: int = 0
    batch_statistics: bool = False

    @property
    def depends_on_batch(self):
        return self.batch_statistics


class FakeDatasetConfig(DatasetConfig):
    name: str = "fake"
    source: Path | None = None


class FakeEncoder(Encoder):
    """Linear maps of mean pixels and of letter counts, and the mean row of the batch where asked for."""

    def __init__(self, config, *, modalities=("image", "text"), fits=None, on_batch=None, bad=None):
        self.config = config
        self.device = torch.device("cpu")
        self.modalities = frozenset(modalities)
        self.fits = fits
        self.on_batch = on_batch
        self.bad = bad or {}  # modality → (number of the batch, row, value), what damaged weights give
        self.batches = []  # (modality, rows) of every batch that was embedded
        generator = torch.Generator().manual_seed(config.seed)
        self.weights = {
            "image": torch.randn(3, DIM, generator=generator),
            "text": torch.randn(26, DIM, generator=generator),
        }

    def describe(self):
        return {"weights": "fake", "dim": DIM, "logit_scale": 14.28}

    def preprocess(self, image):
        return torch.from_numpy(np.asarray(image, dtype=np.float32) / 255)

    def tokenize(self, texts):
        counts = [[text[:CONTEXT].count(chr(97 + k)) for k in range(26)] for text in texts]
        return Tokens(torch.tensor(counts, dtype=torch.float32), sum(len(text) > CONTEXT for text in texts))

    def image_features(self, pixels):
        return self._features("image", pixels.mean(dim=(1, 2)))

    def text_features(self, tokens):
        return self._features("text", tokens.inputs)

    def _features(self, modality, inputs):
        if self.fits is not None and len(inputs) > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        self.batches.append((modality, len(inputs)))
        if self.on_batch:
            self.on_batch()
        rows = inputs @ self.weights[modality]
        batch, row, value = self.bad.get(modality, (None, 0, 0.0))
        if [name for name, _ in self.batches].count(modality) == batch:
            rows[row, 1] = value
        return rows + rows.mean(0) if self.config.batch_statistics else rows


def picture(k: int) -> Image.Image:
    noise = np.random.default_rng(k).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def caption(k: int) -> str:
    return hashlib.sha256(str(k).encode()).hexdigest()[: 8 + k % 8]


def fake_dataset(size=40, *, corrupt=(), captions=1, config=None, revision="r1", text=True, image=True):
    """`size` labeled images, each with so many captions; decoding the images in `corrupt` fails."""

    def load(k):
        if k in corrupt:
            raise OSError("image file is truncated")
        return picture(k)

    ids = [f"img-{k}" for k in range(size)]
    labels = np.arange(size, dtype=np.int64) % 3
    image_side = Side("image", ids, load, labels=labels)
    text_side = Side("text", [i for i in ids for _ in range(captions)], caption, language="en")
    return Dataset(
        config or FakeDatasetConfig(),
        revision,
        image_side if image else None,
        text_side if text else None,
        class_names=("ape", "bee", "cat"),
    )


class Loader:
    """Stands in for clip_geometry.encoders; `encoders` are those that were built."""

    def __init__(self, **options):
        self.options = options
        self.encoders = []

    def load_encoder(self, config, device="auto"):
        self.encoders.append(FakeEncoder(config, **self.options))
        return self.encoders[-1]

    def encoder_revision(self, config):
        return "w1"

    @property
    def batches(self):
        return [batch for encoder in self.encoders for batch in encoder.batches]


def installer(monkeypatch):
    """A function that takes options of FakeEncoder; from then on embed() builds such encoders, and it returns them."""

    def install(**options):
        loader = Loader(**options)
        for name in ("load_encoder", "encoder_revision"):
            monkeypatch.setattr(clip_geometry.encoders, name, getattr(loader, name))
        return loader

    return install


def run(folder, dataset=None, config=None, **options):
    """embed() with small batches and shards."""
    options = {"batch_size": 4, "shard_size": 16, "progress": quiet} | options
    return embed(config or FakeConfig(), dataset or fake_dataset(), folder, **options)


def vectors_of(folder, **options):
    return {modality: np.array(side.vectors) for modality, side in read_store(folder, **options).items()}


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_at_rename(number, when):
    """SIGKILL just before or just after the number-th rename of this process."""
    rename, renames = os.replace, []

    def replace(*args, **kwargs):
        renames.append(args)
        if len(renames) == number and when == "before":
            kill_self()
        rename(*args, **kwargs)
        if len(renames) == number and when == "after":
            kill_self()

    os.replace = replace


def _embed_in_child(job):
    batches = []

    def on_batch():
        batches.append(1)
        time.sleep(job.get("delay", 0))
        if len(batches) == job.get("kill_at_batch"):
            kill_self()

    if "kill_at_rename" in job:
        _kill_at_rename(*job["kill_at_rename"])
    loader = Loader(on_batch=on_batch)
    clip_geometry.encoders.load_encoder = loader.load_encoder
    clip_geometry.encoders.encoder_revision = loader.encoder_revision
    embed(FakeConfig(), fake_dataset(), job["folder"], progress=quiet, **job["options"])
    if "report" in job:
        Path(job["report"]).write_text(json.dumps(loader.batches))


if __name__ == "__main__":
    import pandas  # noqa: F401 (so that the children need not)
    import pyarrow.parquet  # noqa: F401

    serve(_embed_in_child)

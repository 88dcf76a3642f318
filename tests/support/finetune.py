"""A fine-tuning of a tiny BERT on made-up sentences."""

import numpy as np

from clip_geometry.config import validate
from clip_geometry_experiments.rudman2024.finetune.model import (
    FineTuned,
    FinetuneOptimizerConfig,
    parse_method,
    tiny_bert,
)
from clip_geometry_experiments.rudman2024.finetune.training import Examples, FineTuningTrainer, encode

WORDS = ("red", "blue", "green", "circle", "star", "ring", "left", "right")


def sentences(n=48, seed=0, kind="class"):
    """The class is whether the first word is red."""
    rng = np.random.default_rng(seed)
    texts = tuple((" ".join(rng.choice(WORDS, size=rng.integers(3, 8))),) for _ in range(n))
    labels = np.array([text[0].startswith("red") for text in texts], dtype=np.int64)
    if kind == "span":
        texts = tuple((f"which word {k % 3}", text) for k, (text,) in enumerate(texts))
        first = tuple((passage.split()[0],) for _, passage in texts)
        return Examples("t", "span", texts, np.zeros(n, dtype=np.int64), (), "r", "train", first)
    targets = labels if kind == "class" else labels * 2.5 + 1.0
    return Examples("t", kind, texts, targets, ("no", "yes") if kind == "class" else (), "r", "train")


def prepared(kind="class", seed=0, pooling="cls"):
    """(the model before training, its inputs)."""
    examples = sentences(kind=kind)
    transformer, tokenizer = tiny_bert(examples.texts, width=16, layers=2, seed=3)
    inputs = encode(examples, tokenizer, transformer, name="tiny", max_length=64, overlap=8)
    return FineTuned(transformer, outputs=examples.outputs, spans=kind == "span", pooling=pooling, seed=seed), inputs


def trainer(method="none", kind="class", seed=0, pooling="cls", **changes):
    """Three steps an epoch, the last of 8 examples."""
    model, inputs = prepared(kind, seed, pooling)
    values = {"epochs": 2, "batch_size": 20, "lr": 1e-3, "refresh_sample": 100, **changes}
    return FineTuningTrainer(
        model, inputs, validate(FinetuneOptimizerConfig, values, "test"), parse_method(method), seed=seed
    )

"""What fuzzing has found, each as small as it can be; in every run."""

import io

import numpy as np
import pytest
import torch

import clip_geometry as cg
from clip_geometry.files import read_json
from clip_geometry.geometry import measures
from clip_geometry.io.reading import parse_json, read_checkpoint
from fuzz.outcome import outcome, require_finite, sandbox
from fuzz.strategies import LONG

X = np.random.default_rng(0).normal(size=(8, 3))
CALLS = {
    "a value of an object": lambda: cg.training.CosReg(object()),
    "a value of 999 characters": lambda: cg.training.CosReg(LONG),
    "no hidden states": lambda: cg.training.CosReg(0.5)(None),
    "a mask that is none": lambda: cg.training.CosReg(0.5)(torch.ones(2, 2), True),
    "no steps": lambda: cg.Pipeline(None),
    "a list without steps": lambda: cg.Pipeline([]).fit({"image": X.tolist()}),
    "nothing without steps": lambda: cg.Pipeline([]).fit({"image": []}),
    "a step of 999 characters": lambda: cg.Pipeline(f"whiten(,{LONG}"),
    "embeddings that are none": lambda: cg.Embeddings([], None),
    "a model's name of 999 characters": lambda: cg.encoders.resolve_encoder(LONG),
    "classifiers that do not converge": lambda: cg.evaluate.modality_separability(
        6e4 * np.eye(6), 1e2 * np.outer(X[:6, 0], X[0, [0] * 6])
    ),
    "moments beyond float64": lambda: cg.Moments.of(1e80 * X),
    "a top 5 of two classes": lambda: measures["zero_shot.top_5"](X, np.arange(8) % 2, X[:2]),
    "text that is not Unicode": lambda: parse_json(r'{"a": "\ud800"}', "it"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    require_finite(outcome(CALLS[name]))


@pytest.mark.parametrize("length", [20, 40, 100, 200])
def test_checkpoints_of_old_that_are_cut_short(length):
    torch.save({"w": torch.ones(2, 2)}, buffer := io.BytesIO(), _use_new_zipfile_serialization=False)
    with sandbox({"old.pt": buffer.getvalue()[:length]}):
        outcome(read_checkpoint, "old.pt")


def test_json_that_is_not_unicode_is_damaged():
    with sandbox({"manifest.json": b'{"a": "\\ud800", "checksum": "x"}'}) as folder:
        assert read_json(folder / "manifest.json") is None

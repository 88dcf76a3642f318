import math
from importlib import import_module

import numpy as np
import pytest
import torch

from clip_geometry.evaluate.contrastive_loss import contrastive_loss
from clip_geometry.registry import InputError
from support import oracles_evaluators as oracles

module = import_module("clip_geometry.evaluate.contrastive_loss")  # the package has the function of this name


def pairs(n=50, d=8, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) + 1
    return x, x + rng.normal(size=(n, d))


@pytest.mark.parametrize(
    ("batch_size", "scale", "block_size", "kind"),
    [(None, 100, 6, "float64"), (16, 100, 1, "float16"), (7, 3.5, 50, "float32"), (49, 20.0, 64, "float64")],
)
def test_agrees_with_the_definition(batch_size, scale, block_size, kind, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block_size)
    image, text = (rows.astype(kind) for rows in pairs())
    result = contrastive_loss(image, text, logit_scale=scale, batch_size=batch_size)
    expected = oracles.contrastive_loss(image.astype(float), text.astype(float), scale, batch_size or 50)
    assert float(result["image_to_text"]) == pytest.approx(expected[0], rel=1e-12)
    assert float(result["text_to_image"]) == pytest.approx(expected[1], rel=1e-12)
    assert float(result["loss"]) == pytest.approx(np.mean(expected), rel=1e-12)
    assert result["batch_size"] == (batch_size or 50)
    assert list(result) == ["loss", "image_to_text", "text_to_image", "batch_size"]


def test_rows_that_coincide_have_the_logarithm_of_the_batch_and_a_pair_alone_has_nothing():
    rows = np.ones((10, 3))
    assert float(contrastive_loss(rows, rows)["loss"]) == pytest.approx(math.log(10), rel=1e-14)
    assert float(contrastive_loss(rows, rows, batch_size=5)["loss"]) == pytest.approx(math.log(5), rel=1e-14)
    alone = contrastive_loss(rows, rows, batch_size=9)["loss"]  # nine pairs of log 9, one of 0
    assert float(alone) == pytest.approx(0.9 * math.log(9), rel=1e-14)


def test_pairs_that_win_by_far_keep_their_digits():
    """Orthogonal pairs: log(1 + (n − 1) e^−s), which is 1e-42 and would be 0 after a subtraction."""
    result = contrastive_loss(np.eye(6), np.eye(6))["loss"]
    assert float(result) == pytest.approx(5 * math.exp(-100), rel=1e-12)


@pytest.mark.parametrize("batch_size", [None, 4])  # 9 = 4 + 4 + 1: a pair alone has a gradient of 0, not NaN
def test_gradients(batch_size, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 2)
    image, text = (torch.tensor(rows, requires_grad=True) for rows in pairs(n=9, d=4))

    def loss(x, y):
        return contrastive_loss(x, y, logit_scale=5.0, batch_size=batch_size)["loss"]

    assert torch.autograd.gradcheck(loss, (image, text))
    loss(image, text).backward()
    for rows in (image, text):
        assert rows.grad is not None and torch.isfinite(rows.grad).all() and (rows.grad != 0).any()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"logit_scale": 0}, "logit_scale = 0; expected a positive, finite number"),
        ({"batch_size": 1}, "batch_size = 1; expected a whole number from 2 to 50, .* or None for one batch of all 50"),
        ({"image": np.ones((49, 8))}, "image has 49 rows and text has 50; expected pairs"),
        ({"text": np.zeros((50, 8))}, "text has a zero row"),
    ],
)
def test_errors(change, sentence):
    with pytest.raises(InputError, match=sentence):
        contrastive_loss(**dict(zip(("image", "text"), pairs(), strict=True)) | change)

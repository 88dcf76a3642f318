"""What comes out of an evaluator has the kind of what went in."""

import numpy as np
import pytest
import torch

import clip_geometry as cg
from clip_geometry.geometry import measures
from support.clouds import cone

RNG = np.random.default_rng(0)
X, Y = cone(60, 6, RNG), cone(60, 6, RNG)
LABELS = np.arange(60) % 4
CALLS = {
    "contrastive_loss": cg.contrastive_loss,
    "cosine_distributions": cg.cosine_distributions,
    "linear_probe": lambda x, y: cg.linear_probe(x, LABELS, y, LABELS),
    "modality_separability": cg.modality_separability,
    "retrieval": cg.retrieval,
    "two_sided_retrieval": cg.two_sided_retrieval,
    "zero_shot": lambda x, y: cg.zero_shot(x, LABELS, y[:4]),
    "isoscore[package]": lambda x, y: measures["isoscore[package]"].function(x),
}


def test_every_evaluator_is_here():
    assert set(CALLS) >= {each.evaluator.partition("[")[0] for each in measures.values() if each.evaluator}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_arrays_and_lists_give_floats_and_tensors_0d_tensors(call):
    def numbers(kind):
        found = call(kind(X), kind(Y))
        return found if isinstance(found, dict) else {"": found}

    of_arrays, of_tensors = numbers(np.asarray), numbers(torch.from_numpy)
    assert {*map(type, of_arrays.values())} == {float}
    assert numbers(np.ndarray.tolist) == of_arrays
    for name, value in of_arrays.items():
        assert of_tensors[name].shape == () and of_tensors[name].dtype == torch.float64
        assert float(of_tensors[name]) == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_the_loss_is_differentiable():
    """The other evaluators rank, fit or count."""
    x = torch.from_numpy(X).requires_grad_()
    loss = cg.contrastive_loss(x, torch.from_numpy(Y))["loss"]
    assert torch.autograd.grad(loss, x)[0].abs().max() > 1e-4

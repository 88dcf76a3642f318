"""What is traced is what the tower computes: every operation follows from those it is said to follow from."""

import copy

import pytest
import torch

from clip_geometry.encoders import load_encoder
from clip_geometry.registry import InputError
from clip_geometry_experiments.tyshchuk2023.initialization.fresh_tower import trace
from support.encoder_files import *  # noqa: F403
from support.encoding import pixels_of

PRE_NORM = ["attention normalisation", "attention", "attention residual",
            "mlp normalisation", "mlp", "mlp residual"]  # fmt: skip


def load(name, **options):
    encoder = load_encoder(name, device="cpu", **options)
    with torch.no_grad():  # gains of 1 and biases of 0 would hide a mistake
        generator = torch.Generator().manual_seed(1)
        for key, parameter in encoder.model.named_parameters():
            if not key.startswith("logit"):
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return encoder


def batches_of(encoder, modality, images, captions, size=2):
    if modality == "image":
        return list(pixels_of(encoder, images).split(size))
    return [encoder.tokenize(captions[k : k + size]) for k in range(0, len(captions), size)]


def embedded(encoder, modality, batches):
    embed = encoder.image_features if modality == "image" else encoder.text_features
    return torch.cat([embed(batch) for batch in batches])


@pytest.fixture(scope="module")
def towers():
    """name → (encoder, modality)."""
    vit = load("open_clip:tiny-vit/fresh")
    return {
        "open_clip image": (vit, "image"),
        "open_clip text": (vit, "text"),
        "open_clip quick gelu": (load("open_clip:tiny-vit-quickgelu/fresh"), "image"),
    }


@pytest.fixture(params=["open_clip image", "open_clip text", "open_clip quick gelu"])
def tower(request, towers):
    return towers[request.param]


# --- transformers


def test_every_operation_follows_from_those_before_it(tower, images, captions):
    """With the modules' own weights: sums, layer norms and MLPs of the rows give the rows. To float32's 1e-5."""
    encoder, modality = tower
    found = trace(encoder, modality, batches_of(encoder, modality, images, captions))
    rows = {(o.layer, o.name): row for o, row in zip(found.operations, found.rows, strict=True)}
    modules = {(o.layer, o.name): o.module for o in found.operations}
    stream = rows.get((0, "normalisation"), rows[0, "embedding"])
    for layer in (1, 2):
        for branch in ("attention", "mlp"):
            norm = modules[layer, f"{branch} normalisation"]
            expected = {f"{branch} normalisation": norm(stream), f"{branch} residual": stream + rows[layer, branch]}
            if branch == "mlp":
                expected["mlp"] = mlp_of(encoder, modality, layer)(rows[layer, "mlp normalisation"])
            for name, value in expected.items():
                torch.testing.assert_close(rows[layer, name], value.detach(), atol=1e-5, rtol=1e-5)
            stream = rows[layer, f"{branch} residual"]


def mlp_of(encoder, modality, layer):
    """The MLP of a block, as its library computes it."""
    model = encoder.model
    owner = model.visual if modality == "image" else getattr(model, "text", model)
    return owner.transformer.resblocks[layer - 1].mlp


def test_the_last_rows_are_the_embeddings_and_hooks_are_gone(tower, images, captions):
    encoder, modality = tower
    batches = batches_of(encoder, modality, images, captions)
    found = trace(encoder, modality, batches)
    assert torch.equal(found.rows[-1], embedded(encoder, modality, batches))
    for module in encoder.model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks


def test_operations_are_named_by_layer(tower, images, captions):
    encoder, modality = tower
    found = trace(encoder, modality, batches_of(encoder, modality, images, captions))
    names = {}
    for operation in found.operations:
        names.setdefault(operation.layer, []).append(operation.name)
    assert names[1] == names[2] == PRE_NORM
    assert names[0] in (["embedding"], ["embedding", "normalisation"])
    assert names[3] == ["normalisation", "projection"]


# --- rows that are means


@pytest.mark.parametrize("mode", ["eval", "batch"])
def test_a_resnet_is_followed_by_the_means_of_its_maps(images, mode):
    """Sums and shortcuts are linear, so they hold for means; ReLUs do not."""
    encoder = load("open_clip:tiny-resnet/fresh", batch_norm=mode)
    pixels = pixels_of(encoder, images)
    found = trace(encoder, "image", [pixels])
    assert torch.equal(found.rows[-1], encoder.image_features(pixels))
    rows = {(o.layer, o.name): r for o, r in zip(found.operations, found.rows, strict=True)}
    for layer in (1, 2, 3, 4):
        before = rows[layer, "shortcut"]
        torch.testing.assert_close(rows[layer, "residual"], before + rows[layer, "normalisation"], atol=1e-5, rtol=1e-4)
        assert bool((rows[layer, "activation"] >= rows[layer, "residual"] - 1e-6).all())
    if mode == "batch":  # batch norm centres every channel, by its bias
        bias = encoder.model.visual.layer1[0].bn3.bias.detach()
        torch.testing.assert_close(rows[1, "normalisation"].mean(0), bias, atol=1e-4, rtol=0)
    names = [operation.name for operation in found.operations if operation.layer == 0]
    assert names == [f"stem {what} {k}" for k in (1, 2, 3) for what in ("convolution", "normalisation", "activation")]
    assert (found.operations[-1].layer, found.operations[-1].name) == (5, "attention pooling")


# --- refusals


@pytest.mark.parametrize("name", ["tiny-timm", "tiny-coca"])
def test_other_towers_are_refused(name, images):
    encoder = load_encoder(f"open_clip:{name}/fresh", device="cpu")
    with pytest.raises(InputError, match=f"the image tower of open_clip:{name}/fresh cannot be followed layer by"):
        trace(encoder, "image", [])


def test_hooks_are_gone_after_an_error(images):
    encoder = copy.copy(load("open_clip:tiny-vit/fresh"))
    with pytest.raises(RuntimeError):
        trace(encoder, "image", [torch.zeros(1, 3, 5, 5)])
    assert not any(module._forward_hooks for module in encoder.model.modules())

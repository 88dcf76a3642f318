"""Modality inversion against the paper's forward passes, written out, and on every kind of image tower."""

import json
import shutil

import pytest
import torch
from open_clip.transformer import text_global_pool
from torch import nn
from torch.nn import functional

from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.hub import folder_of
from clip_geometry.registry import InputError
from clip_geometry_experiments.studies.intra_modal.inversion import Inversion, invert

TOWERS = {
    "byobnet": {"timm_model_name": "test_byobnet", "timm_pool": "avg", "timm_proj": "linear"},
    "timm ViT": {"timm_model_name": "test_vit", "timm_pool": "", "timm_proj": "linear"},
    "ModifiedResNet": {"layers": [1, 1, 1, 1], "width": 8, "head_width": 32},
    "ViT": {"patch_size": 16, "layers": 1, "width": 32, "head_width": 16},
}


def loaded(model, **options):
    return load_encoder(model, "cpu", **options)


@pytest.fixture(scope="module")
def encoder():
    return loaded("scenes-clip/fresh")  # a ViT and a transformer


def targets(encoder, n=3):
    d = encoder.architecture["embed_dim"]
    return torch.randn(n, d, generator=torch.Generator().manual_seed(1))


def paper(forward, rows, tokens, steps):
    """Adam with decoupled weight decay on a cosine embedding loss, as the authors' code has it."""
    tokens = nn.Parameter(tokens)
    optimizer, loss = torch.optim.AdamW([tokens], lr=0.02, weight_decay=0.01), nn.CosineEmbeddingLoss()
    for _ in range(steps):
        optimizer.zero_grad()
        features = functional.normalize(forward(tokens), dim=-1)
        loss(features, functional.normalize(rows, dim=-1), torch.ones(len(rows))).backward()
        optimizer.step()
    return forward(tokens).detach()


@pytest.mark.parametrize("count", [1, 3])
def test_pseudo_words_are_those_of_the_paper(encoder, count):
    model, rows = encoder.model, targets(encoder)
    ids = encoder.tokenize(["a photo of " + "tree " * count] * 3).inputs
    first = encoder.tokenize(["a photo of"]).inputs[0].argmax()  # the place of the end token

    def forward(tokens):
        x = model.token_embedding(ids).clone()
        x[:, first : first + count] = tokens
        x = model.transformer(x + model.positional_embedding, attn_mask=model.attn_mask)
        return text_global_pool(model.ln_final(x), ids, "argmax") @ model.text_projection

    start = 0.02 * torch.randn(3, count, 128, generator=torch.Generator().manual_seed(5))
    found = invert(encoder, rows, "text", Inversion(pseudo_tokens=count, steps=4), seed=5)
    expected = paper(forward, rows, start, 4)
    assert float((found.rows - expected).norm() / expected.norm()) < 1e-3  # the sum of the losses, not their mean
    assert found.cosines.tolist() == pytest.approx(functional.cosine_similarity(found.rows, rows).tolist(), abs=1e-6)


@pytest.mark.parametrize("count", [1, 4, 5])
def test_pseudo_patches_are_those_of_the_paper(encoder, count):
    tower, rows = encoder.model.visual, targets(encoder)

    def forward(tokens):
        patches = functional.interpolate(tokens[:, None], size=(64, 192), mode="nearest")[:, 0]
        x = torch.cat([tower.class_embedding.expand(3, 1, -1), patches], dim=1)
        x = tower.transformer(tower.ln_pre(x + tower.positional_embedding))
        return tower.ln_post(x)[:, 0] @ tower.proj

    start = 0.02 * torch.randn(3, count, 192, generator=torch.Generator().manual_seed(5))
    found = invert(encoder, rows, "image", Inversion(pseudo_tokens=count, steps=4), seed=5)
    expected = paper(forward, rows, start, 4)
    assert float((found.rows - expected).norm() / expected.norm()) < 1e-3


@pytest.mark.parametrize("vision", TOWERS)
def test_every_image_tower_with_a_stem_is_inverted(vision, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(folder_of("scenes-clip"), folder)
    config = json.loads((folder / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"] = {"image_size": 64, **TOWERS[vision]}
    config["model_cfg"]["embed_dim"] = 16
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    encoder = loaded(f"local-dir:{folder}", fresh=True)
    rows = targets(encoder)
    before, after = (invert(encoder, rows, "image", Inversion(pseudo_tokens=2, steps=k)) for k in (1, 15))
    assert (after.cosines > before.cosines).all()
    assert all(each.grad is None for each in encoder.model.parameters())


def test_a_row_depends_on_the_seed_and_not_on_its_batch(encoder):
    rows = targets(encoder, 5)
    found = {size: invert(encoder, rows, "text", Inversion(steps=3, batch_size=size)).rows for size in (2, 5)}
    assert torch.allclose(found[2], found[5], atol=1e-4)
    other = invert(encoder, rows, "text", Inversion(steps=3), seed=1).rows
    assert not torch.allclose(found[5], other, atol=1e-3)
    texts = encoder.text_features(encoder.tokenize(["a photo of the moon"]))
    assert torch.equal(texts, encoder.text_features(encoder.tokenize(["a photo of the moon"])))  # no hook is left


def test_what_cannot_be_inverted(encoder):
    with pytest.raises(InputError, match=r"no single token for each of 1 pseudo-words in 'the photo of \{\}'"):
        invert(encoder, targets(encoder), "text", Inversion(template="the photo of {}"))
    with pytest.raises(InputError, match="no single token for each of 50 pseudo-words"):
        invert(encoder, targets(encoder), "text", Inversion(pseudo_tokens=50))
    pooled = loaded("scenes-clip/fresh", features="pooled")
    with pytest.raises(InputError, match="cannot be inverted; expected a model of open_clip with features=projected"):
        invert(pooled, targets(encoder), "text", Inversion())

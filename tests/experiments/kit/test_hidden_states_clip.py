"""Tokens and patches of CLIP's towers: what the model pools can be made of their rows again."""

import numpy as np
import pytest
import torch

from clip_geometry.encoders import encoder_revision, load_encoder, resolve_encoder
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.corpora import Sentence
from clip_geometry_experiments.kit.hidden_states.rows import SPECIAL
from support.encoding import load, pixels_of

TEXTS = [
    "a photo of a cat",
    "Two dogs, on a red sofa.",
    Sentence(["the", "dog", "'s", "bus"], ["DT", "NN", "POS", "NN"]),
]


@pytest.fixture(scope="module", params=["scenes-clip/fresh", "open_clip:tiny-vit/fresh", "open_clip:tiny-biased/fresh"])
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(name):
    return load(name)


def states(name, **options):
    return load(f"hidden-states:{name}", **options)


def text_end(model, rows):
    """The model's own way from the last block to its features."""
    text = getattr(model.model, "text", model.model)
    normal = text.ln_final(rows)
    projection = text.text_projection
    return projection(normal) if isinstance(projection, torch.nn.Module) else normal @ projection


def image_end(model, rows):
    return model.model.visual.ln_post(rows) @ model.model.visual.proj


def test_the_last_layers_end_of_text_becomes_the_models_text_features(name, model):
    encoder = states(name, layers=[-1], special_tokens=True, words="none")
    rows = encoder.text_rows(encoder.tokenize(TEXTS))
    special = np.flatnonzero(rows.columns["position"] == SPECIAL)
    assert list(rows.item[special]) == [0, 0, 1, 1, 2, 2]  # start and end of each
    with torch.no_grad():
        found = text_end(model, rows.vectors[special[1::2]])
    # the same operations on other batches: some hundred times float32's rounding
    torch.testing.assert_close(found, model.text_features(model.tokenize(TEXTS)), rtol=1e-4, atol=1e-5)


def test_the_last_layers_class_token_becomes_the_models_image_features(name, model, images):
    encoder = states(name, layers=[-1], special_tokens=True)
    pixels = pixels_of(encoder, images)
    rows = encoder.image_rows(pixels)
    with torch.no_grad():
        found = image_end(model, rows.vectors[rows.columns["token"] == "class"])
    torch.testing.assert_close(found, model.image_features(pixels), rtol=1e-4, atol=1e-5)


def test_patches_are_in_their_places(name, images):
    """Layer 0 of a patch depends on its own pixels alone, before anything is mixed."""
    encoder = states(name, layers=[0], special_tokens=True)
    pixels = pixels_of(encoder, images[:2])
    before = encoder.image_rows(pixels)
    side = int(before.columns["row"].max()) + 1
    size = pixels.shape[-1] // side
    changed = pixels.clone()
    changed[1, :, 2 * size : 3 * size, size : 2 * size] += 1.0
    after = encoder.image_rows(changed)
    moved = np.flatnonzero((before.vectors - after.vectors).abs().amax(dim=1) > 1e-4)
    assert len(before.vectors) == 2 * (side * side + 1)
    assert [(before.item[k], before.columns["row"][k], before.columns["column"][k]) for k in moved] == [(1, 2, 1)]
    assert before.columns["position"][moved[0]] == 2 * side + 1
    assert list(before.columns["position"][:3]) == [SPECIAL, 0, 1]


def test_layers_are_the_blocks_and_what_enters_them(name):
    encoder = states(name)
    layers = encoder.describe()["layers"]
    rows = encoder.text_rows(encoder.tokenize(TEXTS[:1]))
    assert sorted(set(rows.columns["layer"].tolist())) == layers["text"] == list(range(len(layers["text"])))
    with pytest.raises(InputError, match=r"the image tower of .* has layers 0 to"):
        states(name, layers=[99])


def test_options_of_the_model_itself():
    one, other = (resolve_encoder("hidden-states:scenes-clip/fresh", seed=seed) for seed in (0, 1))
    assert one.is_fresh and one != other and encoder_revision(one)
    rows = [load_encoder(c, device="cpu") for c in (one, other)]
    first, second = (each.text_rows(each.tokenize(TEXTS[:1])).vectors for each in rows)
    assert first.shape == second.shape and not torch.allclose(first, second)
    with pytest.raises(InputError, match="unknown key 'fresh'"):
        resolve_encoder("hidden-states:scenes-clip/fresh", fresh=True)
    with pytest.raises(InputError, match="quick_gelu is for open_clip:NAME@PATH"):
        resolve_encoder("hidden-states:open_clip:tiny-vit/fresh", quick_gelu=True)
    with pytest.raises(InputError, match="tiny-vitt"):
        resolve_encoder("hidden-states:open_clip:tiny-vitt/fresh")


def test_a_resnet_has_words_only_and_a_tower_that_is_not_known_says_so():
    encoder = states("open_clip:tiny-resnet/fresh")
    assert encoder.modalities == {"text"}
    with pytest.raises(InputError, match="embeds text only: its image tower is a ResNet, which has no patches of one"):
        encoder.require("image")
    encoder.require("text")
    unknown = states("open_clip:tiny-timm/fresh")
    assert unknown.modalities == {"text"}
    with pytest.raises(InputError, match=r"embeds text only: the image tower of .* cannot be followed layer by layer"):
        unknown.require("image")


def test_a_tokenizer_with_tokens_of_its_own_is_refused(monkeypatch):
    encoder = states("scenes-clip/fresh")
    own = encoder.inner.tokenize
    monkeypatch.setattr(encoder.inner, "tokenize", lambda texts: type(own(texts))(own(texts).inputs + 1, 0))
    with pytest.raises(InputError, match="changes its tokens in a way of its own"):
        encoder.tokenize(["a cat"])

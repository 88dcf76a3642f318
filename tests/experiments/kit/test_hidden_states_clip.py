"""Tokens of CLIP's text tower: what the model pools can be made of their rows again."""

import pytest
import torch

from clip_geometry.encoders import encoder_revision, load_encoder, resolve_encoder
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.corpora import Sentence
from support.encoding import load

TEXTS = [
    "a photo of a cat",
    "Two dogs, on a red sofa.",
    Sentence(["the", "dog", "'s", "bus"], ["DT", "NN", "POS", "NN"]),
]


NAME = "scenes-clip/fresh"


def states(name=NAME, **options):
    return load(f"hidden-states:{name}", **options)


def test_the_last_layers_end_of_text_becomes_the_models_text_features():
    encoder, model = states(layers=[-1]), load(NAME)
    tokens = encoder.tokenize(TEXTS)
    with torch.inference_mode():
        (hidden,) = encoder.hidden(tokens.inputs)
        ends = [text.length - 1 for text in tokens.inputs]
        text = getattr(model.model, "text", model.model)
        normal = text.ln_final(hidden[range(len(TEXTS)), ends])
        projection = text.text_projection
        found = projection(normal) if isinstance(projection, torch.nn.Module) else normal @ projection
    # the same operations on other batches: some hundred times float32's rounding
    torch.testing.assert_close(found, model.text_features(model.tokenize(TEXTS)), rtol=1e-4, atol=1e-5)


def test_layers_are_the_blocks_and_what_enters_them():
    encoder = states()
    layers = encoder.describe()["layers"]
    rows = encoder.text_rows(encoder.tokenize(TEXTS[:1]))
    assert sorted(set(rows.columns["layer"].tolist())) == layers["text"] == list(range(len(layers["text"])))
    with pytest.raises(InputError, match=r"the text tower of .* has layers 0 to"):
        states(layers=[99])


def test_options_of_the_model_itself():
    one, other = (resolve_encoder("hidden-states:scenes-clip/fresh", seed=seed) for seed in (0, 1))
    assert one.is_fresh and one != other and encoder_revision(one)
    rows = [load_encoder(c, device="cpu") for c in (one, other)]
    first, second = (each.text_rows(each.tokenize(TEXTS[:1])).vectors for each in rows)
    assert first.shape == second.shape and not torch.allclose(first, second)
    with pytest.raises(InputError, match="unknown key 'fresh'"):
        resolve_encoder("hidden-states:scenes-clip/fresh", fresh=True)
    with pytest.raises(InputError, match="of open_clip with a tokenizer of transformers"):
        states("open_clip:tiny-vit/fresh")
    with pytest.raises(InputError, match="tiny-vitt"):
        resolve_encoder("hidden-states:open_clip:tiny-vitt/fresh")


def test_a_tokenizer_with_tokens_of_its_own_is_refused(monkeypatch):
    encoder = states()
    own = encoder.inner.tokenize
    monkeypatch.setattr(encoder.inner, "tokenize", lambda texts: type(own(texts))(own(texts).inputs + 1, 0))
    with pytest.raises(InputError, match="changes its tokens in a way of its own"):
        encoder.tokenize(["a cat"])

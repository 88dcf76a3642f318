"""What every encoder keeps: over the whole registry, each family in a tiny form."""

import json
import re
import shutil

import huggingface_hub
import pytest
import torch
from PIL import Image

from clip_geometry.encoders import config_class, encoder_revision, load_encoder, models, resolve_encoder
from clip_geometry.encoders.base import EncoderConfig, encoders
from clip_geometry.registry import InputError

FACTS = {
    "weights",
    "dim",
    "parameters",
    "activation",
    "preprocessing",
    "tokenizer",
    "context_length",
    "logit_scale",
    "logit_bias",
}
MORE_FACTS = {"mclip": {"image_model"}, "sentence": {"modules", "prompt"}}  # what a family says besides


@pytest.fixture(scope="module")
def with_weights(tmp_path_factory, open_clip_folder):
    """A folder in open_clip's layout, complete."""
    folder = tmp_path_factory.mktemp("contract") / "model"
    shutil.copytree(open_clip_folder, folder)
    fresh = load_encoder(resolve_encoder(f"local-dir:{folder}", fresh=True, seed=4), device="cpu")
    torch.save(fresh.model.state_dict(), folder / "open_clip_pytorch_model.bin")  # pyright: ignore
    return folder


@pytest.fixture(scope="module")
def hub_model(with_weights):
    """A model of the hub, which is that folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub, "snapshot_download", lambda name, allow_patterns: str(with_weights))
        yield "org/tiny"


# a new family needs a row here: the name of a tiny model of it
MINIMAL = {
    "hf-clip": lambda fixture: f"hf-clip:{fixture('hf_clip_folder')}",
    "hf-hub": lambda fixture: f"hf-hub:{fixture('hub_model')}",
    "hf-text": lambda fixture: f"hf-text:{fixture('bert_folder')}",
    "local-dir": lambda fixture: f"local-dir:{fixture('with_weights')}",
    "mclip": lambda fixture: f"mclip:{fixture('mclip_folder')}",
    "open_clip": lambda fixture: "open_clip:tiny-vit/fresh",
    "scenes-clip": lambda fixture: "scenes-clip/fresh",
    "sentence": lambda fixture: f"sentence:{fixture('sentence_folder')}",
    "words": lambda fixture: f"words:{fixture('words_file')}",
}


@pytest.fixture(scope="module", params=MINIMAL)
def config(request):
    return resolve_encoder(MINIMAL[request.param](request.getfixturevalue))


@pytest.fixture(scope="module")
def encoder(config):
    return load_encoder(config, device="cpu")


@pytest.fixture(scope="module")
def texts(config, captions):
    """What the family takes for a text: captions, or single words."""
    return ["cat", "bus", "red"] if config.model.startswith("words:") else captions


def rows_of(encoder, images, texts):
    """Modality → features of these items."""
    rows = {}
    if "image" in encoder.modalities:
        rows["image"] = encoder.image_features(torch.stack([encoder.preprocess(image) for image in images]))
    if "text" in encoder.modalities:
        rows["text"] = encoder.text_features(encoder.tokenize(texts))
    return rows


def test_every_family_has_a_tiny_form_here():
    several_rows = {"hidden-states"}  # an input: tests/encoders/test_hidden_states*.py
    assert MINIMAL.keys() == encoders.keys() - several_rows


def test_a_modality_that_is_lacking_is_one_sentence(encoder):
    for modality in {"image", "text"} - encoder.modalities:
        with pytest.raises(InputError, match=f"embeds text only, it has no {modality} tower$"):
            encoder.require(modality)
    for modality in encoder.modalities:
        encoder.require(modality)


def test_preprocess_gives_images_of_one_size(encoder, images):
    if "image" not in encoder.modalities:
        return
    others = [Image.new("L", (90, 20), 30), images[0].convert("P"), images[1].resize((7, 80))]
    pixels = [encoder.preprocess(image) for image in (*images, *others)]
    assert {each.shape for each in pixels} == {pixels[0].shape}
    assert pixels[0].ndim == 3 and pixels[0].shape[0] == 3
    assert {(each.dtype, each.device.type) for each in pixels} == {(torch.float32, "cpu")}


def test_tokenize_counts_what_does_not_fit(encoder, texts, captions):
    assert encoder.tokenize(texts).truncated == 0
    if encoder.describe()["context_length"] is None:  # nothing is ever cut
        return
    assert encoder.tokenize([*captions, "cat " * 200, "a red bus " * 100]).truncated == 2


@pytest.mark.parametrize("options", [{}, {"features": "pooled"}, {"precision": "bf16"}])
def test_features_are_finite_float32_rows_on_the_cpu(config, images, texts, options):
    encoder = load_encoder(resolve_encoder(config.model, **options), device="cpu")
    dim = encoder.describe()["dim"]
    assert dim.keys() == encoder.modalities <= {"image", "text"}
    for modality, rows in rows_of(encoder, images, texts).items():
        assert rows.shape == ({"image": len(images), "text": len(texts)}[modality], dim[modality])
        assert (rows.dtype, rows.device.type, rows.requires_grad) == (torch.float32, "cpu", False)
        assert rows.isfinite().all()
        assert (rows.norm(dim=1) - 1).abs().min() > 1e-3  # never normalised
        assert torch.unique(rows, dim=0).shape == rows.shape


def test_rows_are_the_same_again_and_whatever_the_batch(encoder, config, images, texts):
    first = rows_of(encoder, images, texts)
    again = rows_of(load_encoder(config, device="cpu"), images, texts)
    single = rows_of(encoder, images[1:2], texts[1:2])
    for modality, rows in first.items():
        assert torch.equal(rows, again[modality])
        torch.testing.assert_close(rows[1:2], single[modality])


def test_the_description_is_json_with_the_promised_keys(encoder):
    facts = encoder.describe()
    assert json.loads(json.dumps(facts)) == facts
    assert facts.keys() == FACTS | MORE_FACTS.get(encoder.config.model.partition(":")[0], set())
    assert facts["parameters"] > 0 and facts["weights"]["name"]


def test_the_revision_is_stable(encoder, config, images, texts):
    before = encoder_revision(config)
    rows_of(encoder, images, texts)
    assert isinstance(before, str) and before
    assert encoder_revision(resolve_encoder(config.model)) == before


def test_the_config_is_the_familys_and_survives_json(encoder, config):
    assert encoder.config == config
    assert resolve_encoder(**json.loads(config.model_dump_json())) == config
    assert type(config) is config_class(config.model)


@pytest.mark.parametrize("name", MINIMAL)
def test_every_family_and_option_is_explained(name):
    entry = encoders[name]
    assert re.match(rf"{name}[:/]", entry.pattern)
    assert (entry.pattern, entry.summary) in models().families and "\n" not in entry.summary
    classes = [kind for kind in entry.config.__mro__ if issubclass(kind, EncoderConfig)]
    explained = " ".join(kind.__doc__ or "" for kind in classes)
    for option in entry.config.model_fields:
        assert re.search(rf"\b{option}\b", explained), option

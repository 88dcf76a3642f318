"""transformers' CLIP from a folder made here: its own features, its own preprocessing, and refusals."""

import json
import shutil

import pytest
import torch

from clip_geometry.encoders import encoder_revision, load_encoder, resolve_encoder
from clip_geometry.registry import InputError


@pytest.fixture
def folder(hf_clip_folder, tmp_path):
    return shutil.copytree(hf_clip_folder, tmp_path / "clip")


def load(folder, **options):
    return load_encoder(resolve_encoder(f"hf-clip:{folder}", **options), device="cpu")


def rows_of(features):
    return features if isinstance(features, torch.Tensor) else features.pooler_output


def test_features_are_those_of_transformers(hf_clip_folder, images, captions):
    from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel

    model = CLIPModel.from_pretrained(hf_clip_folder).eval()
    pixels = AutoImageProcessor.from_pretrained(hf_clip_folder)(images=images, return_tensors="pt")
    inputs = AutoTokenizer.from_pretrained(hf_clip_folder)(captions, padding=True, return_tensors="pt")
    ids = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        image, text = rows_of(model.get_image_features(**pixels)), rows_of(model.get_text_features(**ids))
        pooled = [model.vision_model(**pixels).pooler_output, model.text_model(**ids).pooler_output]

    encoder = load(hf_clip_folder)
    own_pixels = torch.stack([encoder.preprocess(image) for image in images])
    torch.testing.assert_close(encoder.image_features(own_pixels), image)
    torch.testing.assert_close(encoder.text_features(encoder.tokenize(captions)), text)
    assert image.shape == (4, 20) and text.shape == (3, 20)

    before = load(hf_clip_folder, features="pooled")
    own = [before.image_features(own_pixels), before.text_features(before.tokenize(captions))]
    torch.testing.assert_close(own, pooled)
    with torch.no_grad():
        torch.testing.assert_close(model.visual_projection(own[0]), image)
        torch.testing.assert_close(model.text_projection(own[1]), text)


def test_truncated_texts_are_counted(hf_clip_folder):
    encoder = load(hf_clip_folder)
    lengths = [0, 1, 11, 12, 13, 30]  # words; start and end are two more, 14 fit
    texts = [" ".join(["cat"] * length) for length in lengths]
    assert encoder.tokenize(texts).truncated == 2
    assert [encoder.tokenize([text]).truncated for text in texts] == [0, 0, 0, 0, 1, 1]


def test_the_description_is_json_and_says_what_the_model_is(hf_clip_folder):
    facts = json.loads(json.dumps(load(hf_clip_folder, features="pooled").describe()))
    assert facts["dim"] == {"image": 36, "text": 24}
    assert facts["weights"]["name"] == "model.safetensors" and len(facts["weights"]["sha256"]) == 64
    assert facts["logit_scale"] == pytest.approx(20.0855, rel=1e-4)
    assert facts["logit_bias"] is None
    assert facts["activation"] == "quick_gelu" and facts["context_length"] == 14
    assert "shortest_edge" in facts["preprocessing"] and "0.48145466" in facts["preprocessing"]
    assert str(hf_clip_folder) not in json.dumps(facts)


def test_half_precision_weights_are_computed_in_float32(folder, images):
    from transformers import CLIPModel

    CLIPModel.from_pretrained(folder).half().save_pretrained(folder)
    encoder = load(folder)
    assert {parameter.dtype for parameter in encoder.model.parameters()} == {torch.float32}
    rough = load(folder, precision="bf16")
    pixels = torch.stack([encoder.preprocess(image) for image in images])
    x, y = encoder.image_features(pixels), rough.image_features(pixels)
    assert y.dtype == torch.float32
    assert 0 < (x - y).abs().max() < 0.05 * x.abs().max()


def test_the_revision_is_that_of_the_files(folder):
    config = resolve_encoder(f"hf-clip:{folder}")
    before = encoder_revision(config)
    assert before == encoder_revision(config)
    path = folder / "preprocessor_config.json"
    path.write_text(path.read_text().replace("0.48145466", "0.5"))
    assert encoder_revision(config) != before


class _Malice:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (type(self.target).write_text, (self.target, "executed"))


def test_pickled_weights_load_and_pickled_code_does_not(folder, images, tmp_path):
    pixels = torch.stack([load(folder).preprocess(image) for image in images])
    expected = load(folder).image_features(pixels)
    state = load(folder).model.state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    assert torch.equal(load(folder).image_features(pixels), expected)
    target = tmp_path / "executed"
    torch.save({**state, "logit_scale": _Malice(target)}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="cannot be loaded") as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    assert not target.exists()


def test_weights_that_do_not_fit_are_one_sentence(folder):
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "model.safetensors")
    whole = dict(state)
    del state["visual_projection.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="lack 1 parameters of the architecture, 'visual_projection"):
        load(folder)
    whole["visual_projection.weight"] = torch.ones(20, 35)
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_folders_that_hold_no_clip(folder, tmp_path, tokenizer_folder):
    with pytest.raises(InputError, match=r"has no config\.json"):
        resolve_encoder(f"hf-clip:{tokenizer_folder}")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"has no weights: none of the files model\.safetensors, pytorch_model\.bin"):
        resolve_encoder(f"hf-clip:{folder}")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match="holds a model of type 'bert'; hf-clip: loads models of type 'clip'"):
        resolve_encoder(f"hf-clip:{folder}")
    (folder / "config.json").write_text("[]")
    with pytest.raises(InputError, match="is no JSON object with the key 'model_type'"):
        resolve_encoder(f"hf-clip:{folder}")


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("preprocessor_config.json", "does not exist; the config of an image processor was expected"),
        ("tokenizer.json", "holds no tokenizer that transformers can load"),
    ],
)
def test_a_folder_without_its_processor_is_one_sentence(folder, missing, said):
    (folder / missing).unlink()
    with pytest.raises(InputError, match=said) as caught:
        load(folder)
    assert "\n" not in str(caught.value)

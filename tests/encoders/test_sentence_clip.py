"""sentence-transformers' CLIP models: its own rows of images and texts in both layouts, and what is refused."""

import json
import shutil

import pytest
import torch
from transformers import CLIPImageProcessor, CLIPModel, CLIPProcessor, PreTrainedTokenizerFast

from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.registry import InputError
from support.encoding import load, pixels_of

sentence_transformers = pytest.importorskip("sentence_transformers", exc_type=ImportError)
from sentence_transformers.base.modules.transformer import Transformer  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Dense, Normalize  # noqa: E402
from sentence_transformers.sentence_transformer.modules.clip_model import CLIPModel as LegacyClip  # noqa: E402

TEXTS = ["a photo of a cat", "red bus", "dog " * 30, ""]
# float32 in one order of summation or another: texts are padded to 14 tokens here and to the longest there
EXACT = 1e-6


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory, hf_clip_folder):
    """The tiny CLIPModel as transformers 5 saves it with its processor, and a tokenizer that says its limit."""
    folder = tmp_path_factory.mktemp("clip") / "model"
    CLIPModel.from_pretrained(hf_clip_folder).save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(hf_clip_folder, model_max_length=14)
    CLIPProcessor(CLIPImageProcessor.from_pretrained(hf_clip_folder), tokenizer).save_pretrained(folder)
    return folder


def modules_of(kind, folder):
    torch.manual_seed(1)
    first = LegacyClip(str(folder)) if kind == "legacy" else Transformer(str(folder))
    return [first, Dense(20, 12), Normalize()] if kind == "whole" else [first]


@pytest.fixture(scope="module", params=["legacy", "transformer", "whole"])
def saved(request, clip_folder, tmp_path_factory):
    """A folder that sentence-transformers wrote."""
    folder = tmp_path_factory.mktemp("saved") / request.param
    model = sentence_transformers.SentenceTransformer(modules=modules_of(request.param, clip_folder), device="cpu")
    model.save(str(folder))
    return folder


def both(encoder, images, texts=TEXTS):
    return encoder.image_features(pixels_of(encoder, images)), encoder.text_features(encoder.tokenize(texts))


def oracle(folder, images, texts=TEXTS):
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    return tuple(model.encode(each, convert_to_tensor=True, show_progress_bar=False) for each in (images, texts))


def test_rows_are_sentence_transformers_own(saved, images):
    encoder = load(f"sentence:{saved}")
    assert encoder.modalities == {"image", "text"}
    for ours, theirs in zip(both(encoder, images), oracle(saved, images), strict=True):
        assert ours.shape == theirs.shape and (ours - theirs).abs().max() < EXACT
    assert encoder.tokenize(TEXTS).truncated == 1
    assert encoder.describe()["dim"] == dict.fromkeys(("image", "text"), 12 if saved.name == "whole" else 20)


def test_the_older_layout_in_a_subfolder(sentence_clip_folder, tmp_path, images):
    folder = shutil.copytree(sentence_clip_folder, tmp_path / "model")
    settings = folder / "0_CLIPModel" / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "model_max_length": 12}))
    encoder = load(f"sentence:{folder}")
    assert encoder.describe()["context_length"] == 12
    for ours, theirs in zip(both(encoder, images), oracle(folder, images), strict=True):
        assert (ours - theirs).abs().max() < EXACT * theirs.abs().max()


def test_pooled_rows_are_hf_clips(sentence_clip_folder, images):
    pooled = both(load(f"sentence:{sentence_clip_folder}", features="pooled"), images, TEXTS[:3])
    clip = both(load(f"hf-clip:{sentence_clip_folder / '0_CLIPModel'}", features="pooled"), images, TEXTS[:3])
    for ours, theirs in zip(pooled, clip, strict=True):
        assert torch.equal(ours, theirs)


def test_hf_clip_reads_the_processor_that_transformers_saves_today(clip_folder, hf_clip_folder, images):
    assert not (clip_folder / "preprocessor_config.json").exists()
    for ours, theirs in zip(
        both(load(f"hf-clip:{clip_folder}"), images), both(load(f"hf-clip:{hf_clip_folder}"), images), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_prompt_and_length_are_sentence_transformers_own(saved, tmp_path, images):
    folder = shutil.copytree(saved, tmp_path / "model")
    settings = {"prompts": {"query": "a red "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    path = folder / "sentence_bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_seq_length": 6}))
    encoder = load(f"sentence:{folder}")
    assert (encoder.describe()["prompt"], encoder.describe()["context_length"]) == ("a red ", 6)
    for ours, theirs in zip(both(encoder, images), oracle(folder, images), strict=True):
        assert (ours - theirs).abs().max() < EXACT


def change(folder, tmp_path, edit, name="sentence_bert_config.json"):
    """A copy of the folder with one of its JSON files changed by `edit`, and the error that loading it raises."""
    copy = shutil.copytree(folder, tmp_path / "model", dirs_exist_ok=True)
    values = json.loads((copy / name).read_text())
    edit(values)
    (copy / name).write_text(json.dumps(values))
    with pytest.raises(InputError) as caught:
        load_encoder(resolve_encoder(f"sentence:{copy}"), device="cpu")
    return str(caught.value)


@pytest.mark.parametrize("saved", ["transformer"], indirect=True)
def test_other_multimodal_models_are_one_sentence(saved, sentence_folder, tmp_path):
    forward = {"method": "forward", "method_output_name": "last_hidden_state"}
    error = change(saved, tmp_path, lambda each: each["modality_config"].update(audio=forward))
    assert error.endswith("its Transformer takes 'audio' by 'forward', which is not supported")
    error = change(saved, tmp_path, lambda each: each.update(module_output_name="token_embeddings"))
    assert error.endswith("its Transformer has settings that are not supported here: module_output_name")
    error = change(saved, tmp_path, lambda each: each.update(model_type="siglip"), "config.json")
    assert "embeds images and texts by a 'siglip'; supported is 'clip' only; give cg.embed" in error
    for modality in ("image", "message"):  # as of a Qwen-VL with Pooling, which also encodes texts by its chat template
        modalities = {"text": forward, modality: forward}
        error = change(sentence_folder, tmp_path / modality, lambda each: each.update(modality_config=modalities))  # noqa: B023
        assert error.endswith(f"its Transformer takes {modality!r} by 'forward', which is not supported")


@pytest.mark.parametrize("saved", ["transformer"], indirect=True)
def test_a_pooling_after_a_clip_is_refused(saved, tmp_path):
    pooling = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    error = change(saved, tmp_path, lambda each: each.append(pooling), "modules.json")
    assert error.endswith("has the modules Transformer, Pooling; expected a CLIP, then ('Dense', 'Normalize')")

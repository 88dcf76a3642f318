"""A model's folder with one file damaged, or one value: a sentence, at once, and never the memory that it declares."""

import json
import os
import shutil

import numpy as np
import pytest
import torch

from clip_geometry.encoders import encoder_revision, load_encoder, resolve_encoder
from clip_geometry.registry import InputError
from support.encoding import pixels_of

FAMILIES = {
    "local-dir": "with_weights",
    "hf-clip": "hf_clip_folder",
    "ruclip": "ruclip_folder",
    "hf-text": "bert_folder",
    "hidden-states": "bert_folder",
    "mclip": "mclip_folder",
    "mclip, legacy": "legacy_mclip_folder",
    "sentence": "sentence_folder",
}
DAMAGES = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "random": lambda content: np.random.default_rng(0).bytes(len(content)),
}
DAMAGES_OF_JSON = {
    "list": lambda content: b"[]",
    "deep": lambda content: b"[" * 100_000,
    "closed": lambda content: b'{"a":' * 3000 + b"1" + b"}" * 3000,
    "digits": lambda content: b'{"model_type": ' + b"1" * 5000 + b"}",
}
OPTIONAL = {"1_Pooling/config.json", "sentence_bert_config.json"}  # all at their defaults without


@pytest.fixture(scope="module")
def folders(request):
    """The folder of each family, with weights."""
    return {family: request.getfixturevalue(name) for family, name in FAMILIES.items()}


def embed(family, folder, captions, images):
    config = resolve_encoder(f"{family.partition(',')[0]}:{folder}")
    encoder_revision(config)
    encoder = load_encoder(config, device="cpu")
    json.dumps(dict(encoder.describe()), allow_nan=False)
    encoder.text_rows(encoder.tokenize(captions))
    if "image" in encoder.modalities:
        encoder.image_rows(pixels_of(encoder, images))


def sentence_of(family, folder, captions, images):
    """The one that it is refused with."""
    with pytest.raises(InputError) as caught:
        embed(family, folder, captions, images)
    sentence = str(caught.value)
    assert len(sentence) <= 400 and sentence.isprintable(), sentence
    return sentence


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_file_that_is_damaged(family, folders, tmp_path, captions, images):
    embed(family, folders[family], captions, images)
    for path in sorted(path for path in folders[family].rglob("*") if path.is_file()):
        file = str(path.relative_to(folders[family]))
        for name, damage in (DAMAGES | (DAMAGES_OF_JSON if path.suffix == ".json" else {})).items():
            if name == "missing" and file in OPTIONAL:
                continue
            folder = shutil.copytree(folders[family], tmp_path / f"{file.replace('/', ' ')} {name}")
            content = damage(path.read_bytes())
            (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
            sentence_of(family, folder, captions, images)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_pipe_among_the_files_is_not_waited_for(file, folders, tmp_path, captions, images):
    folder = shutil.copytree(folders["hf-text"], tmp_path / "folder")
    (folder / file).unlink()
    os.mkfifo(folder / file)
    assert "is a device or a pipe" in sentence_of("hf-text", folder, captions, images)


OPEN_CLIP, CLIP = "open_clip_config.json", "preprocessor_config.json"
BERT, MODULES = "sentence_bert_config.json", "modules.json"
POOLING, DENSE = "1_Pooling/config.json", "2_Dense/config.json"
OTHER = '[{"path": "", "type": "custom_st.Transformer"}]'
OUTSIDE = """[{"path": "../a", "type": "sentence_transformers.models.Transformer"},
 {"path": "../b", "type": "sentence_transformers.models.Pooling"}]"""
MISSPELT = '{"model_cfg": {"embed_dim": 4, "vision_cfg": {"widht": 8}, "text_cfg": {}}}'
ENCODER = "a text encoder in transformers' layout"
DOUBLING = "2 60 9601 4 97 5 " + " ".join(f"{k} {k} {k + 1}" for k in range(5, 65)) + " 1 0 2 3"
NO_WEIGHTS = "has no weights: none of the files model.safetensors, pytorch_model.bin"


@pytest.mark.parametrize(
    ("family", "file", "content", "said"),
    [
        ("local-dir", OPEN_CLIP, None, "has no open_clip_config.json"),
        ("local-dir", OPEN_CLIP, "{}", "open_clip_config.json lacks model_cfg"),
        ("local-dir", OPEN_CLIP, '{"model_cfg": {"embed_dim": 4}}', "open_clip_config.json lacks model_cfg.vision_cfg"),
        ("local-dir", OPEN_CLIP, MISSPELT, "'widht'"),
        ("local-dir", "tokenizer.json", None, "holds no tokenizer that transformers can load"),
        ("local-dir", "open_clip_pytorch_model.bin", None, "has no weights; add fresh=true"),
        (
            "hf-clip",
            "config.json",
            '{"model_type": "bert"}',
            "holds a model of type 'bert'; hf-clip: loads 'clip' models",
        ),
        ("hf-clip", "config.json", "[]", "config.json is []: input should be a valid object; a CLIP model in"),
        ("hf-clip", "config.json", None, "has no config.json; a CLIP model in transformers' layout was expected"),
        ("hf-clip", "model.safetensors", None, NO_WEIGHTS),
        ("hf-clip", "preprocessor_config.json", None, "does not exist; the config of an image processor was expected"),
        ("hf-clip", "tokenizer.json", None, "holds no tokenizer that transformers can load"),
        ("ruclip", "config.json", None, "config.json does not exist; the config of a ruCLIP model was expected"),
        ("ruclip", "config.json", '{"model_type": "clip"}', "config.json lacks embed_dim; the config of a ruCLIP"),
        ("ruclip", "bpe.model", None, "bpe.model does not exist; a tokenizer file of YouTokenToMe was expected"),
        ("ruclip", "bpe.model", "1 1 9601 4 1 0 2 3", "cut short (6 numbers for 1 characters and 1 rules)"),
        (
            "ruclip",
            "bpe.model",
            "1 1 9601 4 4 5 6 1 0 2 3",
            "no readable YouTokenToMe file, damaged or cut short (no token 5)",
        ),
        ("ruclip", "bpe.model", "2 0 9601 4 97 4 1 0 2 3", "two tokens have the same number or the same text"),
        ("ruclip", "bpe.model", "2 0 9601 4 97 3 1 0 2 3", "two tokens have the same number or the same text"),
        ("ruclip", "bpe.model", "1 0 97 4 1 0 2 3", "it has no token for ▁, the start of a word"),
        ("ruclip", "bpe.model", "1 0 9601 400 1 0 2 3", "gives the token 400, but the model has"),
        ("ruclip", "bpe.model", DOUBLING, "token 15 has more than 1000 characters"),
        ("ruclip", "pytorch_model.bin", None, NO_WEIGHTS),
        ("hf-text", "config.json", '{"model_type": "clip"}', "holds a model of type 'clip'; load it by hf-clip:"),
        ("hf-text", "config.json", '{"model_type": "M-CLIP"}', "holds a model of type 'M-CLIP'; load it by mclip:"),
        ("hf-text", "config.json", '{"model_type": "t5", "is_encoder_decoder": true}', f"of type 't5', not {ENCODER}"),
        ("hf-text", "config.json", '{"model_type": "siglip", "vision_config": {}}', f"type 'siglip', not {ENCODER}"),
        ("hf-text", "config.json", "{}", f"holds a model of type 'None', not {ENCODER}"),
        ("hf-text", "config.json", '{"model_type": "no such thing"}', "holds no config of a transformer"),
        ("hf-text", "config.json", None, f"has no config.json; {ENCODER} was expected"),
        ("hf-text", "model.safetensors", None, NO_WEIGHTS),
        ("hf-text", "tokenizer.json", None, "holds no tokenizer that transformers can load"),
        ("hidden-states", "config.json", '{"model_type": "clip"}', "of type 'clip'; load it by hidden-states:hf-clip:"),
        (
            "hidden-states",
            "config.json",
            '{"model_type": "t5", "vision_config": {}}',
            "'t5', not an encoder or decoder",
        ),
        ("mclip", "config.json", "[]", "config.json is []: input should be a valid object; a text tower of Multi"),
        ("mclip", "config.json", "{", "config.json is no readable JSON"),
        ("mclip", "config.json", None, "has no config.json; a text tower of Multilingual-CLIP was expected"),
        ("mclip", "base/config.json", '{"model_type": "no such thing"}', "base holds no config of a transformer"),
        ("mclip", "base/config.json", None, "config.json does not exist; the config of the base transformer was"),
        ("mclip", "base/tokenizer.json", None, "base holds no tokenizer that transformers can load"),
        ("mclip", "model.safetensors", None, NO_WEIGHTS),
        (
            "sentence",
            MODULES,
            OTHER,
            "has the modules custom_st.Transformer; expected Transformer, Pooling",
        ),
        ("sentence", MODULES, OUTSIDE, "names files outside of its own folder"),
        ("sentence", MODULES, '[{"path": ""}]', "modules.json lacks 0.type"),
        ("sentence", MODULES, "{}", "modules.json is {}: input should be a valid list"),
        ("sentence", MODULES, "[", "modules.json is no readable JSON"),
        ("sentence", MODULES, None, "a plain transformers encoder is loaded by hf-text:, with pooling=mean"),
        ("sentence", POOLING, "[]", "1_Pooling/config.json is []: input should be a valid"),
        ("sentence", "2_Dense/model.safetensors", None, "none of the files 2_Dense/model.safetensors, 2_Dense/pytorch"),
    ],
)
def test_a_file_of_another_kind_or_none(family, file, content, said, folders, tmp_path, captions, images):
    folder = shutil.copytree(folders[family], tmp_path / "folder")
    (folder / file).unlink() if content is None else (folder / file).write_text(content)
    assert said in sentence_of(family, folder, captions, images)


MEMORY = "declares a model of at least"


@pytest.mark.parametrize(
    ("family", "file", "place", "value", "said"),
    [
        ("local-dir", OPEN_CLIP, "model_cfg.text_cfg.context_length", 10**9, "less than or equal to 131072"),
        ("local-dir", OPEN_CLIP, "model_cfg.text_cfg.width", 10**7, "less than or equal to 1048576"),
        ("local-dir", OPEN_CLIP, "model_cfg.text_cfg.width", 10**6, MEMORY),
        ("local-dir", OPEN_CLIP, "model_cfg.text_cfg.layers", 10**9, "or equal to 1000"),
        ("local-dir", OPEN_CLIP, "model_cfg.text_cfg.vocab_size", "many", "valid integer"),
        ("local-dir", OPEN_CLIP, "model_cfg.vision_cfg.width", 960_000, MEMORY),
        ("local-dir", OPEN_CLIP, "model_cfg.vision_cfg.image_size", 10**9, "sides of 1 to 16384 pixels"),
        ("local-dir", OPEN_CLIP, "model_cfg.vision_cfg.image_size", [32, 10**9], "sides of 1 to 16384 pixels"),
        ("local-dir", OPEN_CLIP, "model_cfg.vision_cfg.patch_size", 0, "cannot build the 'model_cfg'"),
        ("local-dir", OPEN_CLIP, "model_cfg.vision_cfg.head_width", "x", "cannot build the 'model_cfg'"),
        ("local-dir", OPEN_CLIP, "model_cfg.vision_cfg.timm_model_name", "hf-hub:org/name", "should match pattern"),
        ("local-dir", OPEN_CLIP, "model_cfg.vision_cfg.timm_model_name", "local-dir:/tmp", "should match pattern"),
        ("local-dir", OPEN_CLIP, "model_cfg.vision_cfg.timm_model_name", "none", "cannot build the 'model_cfg'"),
        ("local-dir", OPEN_CLIP, "model_cfg.vision_cfg.norm_kwargs", {"device": "cuda"}, "norm_kwargs.device"),
        (
            "local-dir",
            OPEN_CLIP,
            "model_cfg.text_cfg.tokenizer_kwargs",
            {"trust_remote_code": True},
            "trust_remote_code",
        ),
        (
            "local-dir",
            OPEN_CLIP,
            "model_cfg.text_cfg.tokenizer_kwargs",
            {"cache_dir": "/"},
            "tokenizer_kwargs.cache_dir",
        ),
        (
            "local-dir",
            OPEN_CLIP,
            "model_cfg.text_cfg.hf_model_name",
            "../none",
            "neither an existing folder nor a name",
        ),
        ("local-dir", OPEN_CLIP, "model_cfg.embed_dim", -1, "greater than or equal to 1"),
        ("local-dir", OPEN_CLIP, "preprocess_cfg.std", [0, 1, 1], "greater than or equal to 0.000001"),
        ("local-dir", OPEN_CLIP, "preprocess_cfg.mean", [0.5], "at least 3 items"),
        ("hf-clip", "config.json", "projection_dim", 10**9, MEMORY),
        ("hf-clip", "config.json", "text_config.num_hidden_layers", 10**9, "1 to 1000 were expected"),
        ("hf-clip", "config.json", "text_config.layer_norm_eps", None, "does not fit its model"),
        ("hf-clip", CLIP, "size.shortest_edge", 10**9, "sides of 1 to 16384 pixels"),
        ("hf-clip", CLIP, "crop_size.width", 16, "gives pixels of shape (3, 32, 16), but the model takes (3, 32, 32)"),
        ("hf-clip", CLIP, "image_std", [0, 0, 0], "greater than or equal to 0.000001"),
        ("ruclip", "config.json", "vision_width", 10**9, "vision_width of"),
        ("ruclip", "config.json", "vocab_size", 2**20, "does not fit the architecture: 'token_embedding.weight'"),
        ("ruclip", "config.json", "transformer_heads", 5, "describes no model that can be built"),
        ("ruclip", "config.json", "transformer_width", 2**20, MEMORY),
        ("ruclip", "config.json", "std", [0, 1, 1], "greater than or equal to 0.000001"),
        ("hf-text", "config.json", "hidden_size", 10**7, "1 to 131072 were expected"),
        ("hf-text", "config.json", "num_hidden_layers", 10**9, "1 to 1000 were expected"),
        ("hf-text", "config.json", "max_position_embeddings", 10**12, MEMORY),
        ("hf-text", "config.json", "num_attention_heads", "four", "num_attention_heads"),
        ("hf-text", "config.json", "attn_implementation", "own/kernel", "names code of the hub"),
        ("hf-text", "tokenizer_config.json", "model_max_length", "12", "may have '12' tokens, which is no number"),
        ("hidden-states", "config.json", "vocab_size", 10**12, MEMORY),
        ("mclip", "config.json", "numDims", 10**9, "less than or equal to 65536"),
        ("mclip", "base/config.json", "intermediate_size", 10**12, MEMORY),
        ("mclip", "config.json", "numDims", "ten", "numDims of the config.json of a text tower of Multilingual"),
        ("sentence", BERT, "transformer_task", "fill-mask", "is 'fill-mask': input should be 'feature-extraction'"),
        ("sentence", BERT, "processing_kwargs", {"text": {"x": 1}}, "processing_kwargs of"),
        ("sentence", BERT, "modality_config", {"image": {}}, "is 'image': input should be 'text'"),
        (
            "sentence",
            POOLING,
            "pooling_mode_lasttoken",
            True,
            "its Dense takes 24 columns, but what is before it gives 48",
        ),
        ("sentence", POOLING, "pooling_mode", ["median"], "Invalid pooling mode: 'median'"),
        ("sentence", DENSE, "use_residual", True, 'Missing key(s) in state_dict: "residual.weight"'),
        ("sentence", DENSE, "module_input_name", "token_embeddings", "input should be 'sentence_embedding'"),
        ("sentence", DENSE, "in_features", 7, "its Dense takes 7 columns, but what is before it gives 24"),
        ("sentence", POOLING, "word_embedding_dimension", 7, "its Pooling takes 7 columns"),
        ("sentence", DENSE, "activation_function", "torch.nn.modules.Linear.x", "cannot load the Dense"),
        ("sentence", DENSE, "bias", False, 'Unexpected key(s) in state_dict: "linear.bias"'),
        (
            "sentence",
            DENSE,
            "activation_function",
            "os.abort",
            "config.json is 'os.abort': string should match pattern",
        ),
        ("sentence", DENSE, "activation_function", "torch.nn.functional.relu", "string should match pattern"),
        ("sentence", BERT, "max_seq_length", "twelve", "valid integer"),
        ("sentence", BERT, "do_lower_case", "false", "valid boolean"),
        ("sentence", DENSE, "out_features", 10**9, "less than or equal to 65536"),
    ],
)
def test_a_value_that_is_wrong(family, file, place, value, said, folders, tmp_path, captions, images):
    folder = shutil.copytree(folders[family], tmp_path / "folder")
    values = json.loads((folder / file).read_text())
    *parents, last = place.split(".")
    inner = values
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    (folder / file).write_text(json.dumps(values))
    assert said in sentence_of(family, folder, captions, images)


def test_a_tokenizer_of_another_model(folders, tmp_path, captions, images):
    folder = shutil.copytree(folders["hf-text"], tmp_path / "folder")
    values = json.loads((folder / "tokenizer.json").read_text())
    values["model"]["vocab"]["cat"] = 1000
    (folder / "tokenizer.json").write_text(json.dumps(values))
    assert "gives the token 1000, but the model has 18 tokens" in sentence_of("hf-text", folder, captions, images)


@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants:UserWarning")
def test_weights_of_another_kind(folders, tmp_path, captions, images):
    folder = shutil.copytree(folders["local-dir"], tmp_path / "folder")
    path = folder / "open_clip_pytorch_model.bin"
    state = torch.load(path, weights_only=True)
    for change in (torch.Tensor.int, torch.Tensor.cfloat, torch.Tensor.to_sparse, lambda tensor: tensor.to("meta")):
        torch.save({**state, "visual.proj": change(state["visual.proj"])}, path)
        assert "does not fit the architecture" in sentence_of("local-dir", folder, captions, images)
    torch.save({**state, 7: torch.ones(1)}, path)
    assert "holds no state dict" in sentence_of("local-dir", folder, captions, images)

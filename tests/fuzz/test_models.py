"""Model folders that were valid once, or are traps: loaded, and asked for the embedding of a text."""

import json
from functools import cache

import pytest
import torch
import transformers
from hypothesis import strategies as st
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import clip_geometry as cg
from fuzz.outcome import contents, fuzzed, outcome, sandbox
from fuzz.strategies import one_damaged

WORDS = ["[PAD]", "[UNK]", "red", "circle", "[BOS]", "[EOS]"]
SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 8}
TEXT = {
    "context_length": 8,
    "vocab_size": len(WORDS),
    "width": 8,
    "heads": 2,
    "layers": 1,
    "hf_tokenizer_name": "words",
}
VISION = {"image_size": 16, "patch_size": 8, "layers": 1, "width": 8, "head_width": 4}
TRAP = b"open('canary', 'w').close()\n"  # whoever imports it runs it
AUTO_MAP = {"AutoTokenizer": ["caveat.Trap", "caveat.Trap"], "AutoConfig": "caveat.Trap", "AutoModel": "caveat.Trap"}
AUTO_MAP |= {"AutoImageProcessor": "caveat.Trap", "AutoProcessor": "caveat.Trap"}


def save_tokenizer(folder):
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(word, WORDS.index(word)) for word in WORDS[-2:]]
    tokenizer.post_processor = processors.TemplateProcessing(single="[BOS] $A [EOS]", special_tokens=ends)
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "bos_token": "[BOS]", "eos_token": "[EOS]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


def save_open_clip(folder):
    save_tokenizer(folder)
    config = {"model_cfg": {"embed_dim": 4, "vision_cfg": VISION, "text_cfg": TEXT}, "preprocess_cfg": {"size": 16}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    encoder = cg.encoders.load_encoder(f"local-dir:{folder}", "cpu", fresh=True)
    save_file(encoder.model.state_dict(), folder / "open_clip_model.safetensors")


def save_clip(folder):
    save_tokenizer(folder)
    text = {**SMALL, "vocab_size": len(WORDS), "max_position_embeddings": 8}
    vision = {**SMALL, "image_size": 16, "patch_size": 8}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=4)
    transformers.CLIPModel(config).save_pretrained(folder)
    transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=16).save_pretrained(folder)


def save_bert(folder):
    save_tokenizer(folder)
    config = transformers.BertConfig(**SMALL, vocab_size=len(WORDS), max_position_embeddings=8)
    transformers.BertModel(config).save_pretrained(folder)


SAVE = {"local-dir": save_open_clip, "hf-clip": save_clip, "hf-text": save_bert, "hidden-states": save_bert}


@cache
def folder_of(kind):
    with sandbox({}, "model") as here:
        (here / "model").mkdir()
        SAVE[kind](here / "model")
        return contents(here / "model")


def trapped(files):
    """The same folder, whose JSON asks for the code beside it wherever a library may look for that."""
    files = files | {"caveat.py": TRAP}
    for name, content in files.items():
        if name.endswith("config.json"):
            values = json.loads(content) | {"auto_map": AUTO_MAP, "trust_remote_code": True}
            if "model_cfg" in values:
                values["model_cfg"]["text_cfg"]["tokenizer_kwargs"] = {"trust_remote_code": True}
            files[name] = json.dumps(values).encode()
    return files


@pytest.mark.parametrize("kind", SAVE)
def test_model_folders(kind):
    files = folder_of(kind)

    @fuzzed(7, files=st.sampled_from([files, trapped(files)]).flatmap(one_damaged), fresh=st.booleans())
    def holds(files, fresh):
        with sandbox(files) as folder, torch.random.fork_rng():
            config = outcome(cg.encoders.resolve_encoder, f"{kind}:{folder}", **({"fresh": True} if fresh else {}))
            encoder = config and outcome(cg.encoders.load_encoder, config, "cpu")
            if encoder:
                outcome(lambda: encoder.text_rows(encoder.tokenize(["red circle"])))

    holds()

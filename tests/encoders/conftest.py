"""Tiny architectures under names of their own, images, captions and a small tokenizer, all made on the spot."""

import json
import shutil

import numpy as np
import open_clip
import pytest
from PIL import Image

TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
VIT = {"image_size": 32, "patch_size": 8, "layers": 2, "width": 48, "head_width": 16}
RESNET = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 32}
TIMM = {"timm_model_name": "test_vit", "timm_pool": "", "image_size": 160}
COCA = {**VIT, "attentional_pool": True, "attn_pooler_heads": 2, "attn_pooler_queries": 5, "output_tokens": True}
COCA_TEXT = {**TEXT, "embed_cls": True, "output_tokens": True}

ARCHITECTURES = {
    "tiny-vit": {"vision_cfg": VIT, "text_cfg": TEXT},
    "tiny-vit-quickgelu": {"vision_cfg": VIT, "text_cfg": TEXT, "quick_gelu": True},
    "tiny-vit-wide": {"vision_cfg": {**VIT, "width": 64}, "text_cfg": TEXT},
    "tiny-vit-larger": {"vision_cfg": {**VIT, "image_size": 64}, "text_cfg": TEXT},
    "tiny-vit-deep": {"vision_cfg": {**VIT, "layers": 3}, "text_cfg": TEXT},
    "tiny-resnet": {"vision_cfg": RESNET, "text_cfg": TEXT},
    "tiny-biased": {"vision_cfg": VIT, "text_cfg": {**TEXT, "proj_bias": True}, "init_logit_bias": -7.5},
    "tiny-timm": {"vision_cfg": {**TIMM, "timm_proj": "linear"}, "text_cfg": TEXT},
    "tiny-timm-mlp": {"vision_cfg": {**TIMM, "timm_proj": "mlp"}, "text_cfg": TEXT},
    "tiny-timm-classifier": {"vision_cfg": {**TIMM, "timm_proj": None, "timm_pool": "token"}, "text_cfg": TEXT},
    "tiny-timm-bare": {"vision_cfg": {**TIMM, "timm_proj": "none", "timm_pool": "token"}, "text_cfg": TEXT},
    "tiny-coca": {
        "vision_cfg": COCA,
        "text_cfg": COCA_TEXT,
        "multimodal_cfg": {**TEXT, "attn_pooler_heads": 2},
        "custom_text": True,
    },
}
ARCHITECTURES["tiny-biased"]["custom_text"] = True
CAPTIONS = ["a photo of a cat", "two dogs on a red sofa", "a bus"]
WORDS = ["a", "photo", "of", "the", "cat", "dog", "bus", "red", "blue", "small", "large", "circle", "on", "left"]


@pytest.fixture(scope="session", autouse=True)
def _architectures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("architectures")
    for name, architecture in ARCHITECTURES.items():
        (folder / f"{name}.json").write_text(json.dumps({"embed_dim": 24, **architecture}))
    open_clip.add_model_config(folder)


@pytest.fixture(scope="session")
def images():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 40, 50, 3), dtype=np.uint8)
    return [Image.fromarray(p) for p in pixels]


@pytest.fixture(scope="session")
def captions():
    return CAPTIONS


@pytest.fixture(scope="session")
def vision_config():
    return VIT


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory):
    """A Hugging Face tokenizer of one token per known word, with start and end token, padding with 0."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS, "[BOS]", "[EOS]"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[BOS] $A [EOS]",
        special_tokens=[("[BOS]", vocabulary["[BOS]"]), ("[EOS]", vocabulary["[EOS]"])],
    )
    folder = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        bos_token="[BOS]",
        eos_token="[EOS]",
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def open_clip_folder(tmp_path_factory, tokenizer_folder):
    """A folder in open_clip's layout with the small tokenizer and no weights."""
    folder = tmp_path_factory.mktemp("open_clip") / "model"
    shutil.copytree(tokenizer_folder, folder)
    text = {**TEXT, "vocab_size": len(WORDS) + 4, "hf_tokenizer_name": "small-words"}
    preprocess = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2], "interpolation": "bilinear"}
    config = {"model_cfg": {"embed_dim": 24, "vision_cfg": VIT, "text_cfg": text}, "preprocess_cfg": preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def model_folder(tmp_path, open_clip_folder):
    """A copy of it that a test may change."""
    return shutil.copytree(open_clip_folder, tmp_path / "model")


@pytest.fixture(scope="session")
def hf_clip_folder(tmp_path_factory, tokenizer_folder):
    """A tiny CLIPModel saved with its processor: 32-pixel images, 14 tokens, 20 dimensions."""
    import torch
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    folder = tmp_path_factory.mktemp("hf") / "clip"
    shutil.copytree(tokenizer_folder, folder)
    tower = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40, "hidden_act": "quick_gelu"}
    last = len(WORDS) + 3
    special = {"bos_token_id": last - 1, "eos_token_id": last, "pad_token_id": 0}
    text = {**tower, **special, "hidden_size": 24, "vocab_size": last + 1, "max_position_embeddings": 14}
    vision = {**tower, "hidden_size": 36, "image_size": 32, "patch_size": 8}
    torch.manual_seed(0)
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=20))
    with torch.no_grad():
        model.logit_scale.fill_(3.0)
    model.save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder

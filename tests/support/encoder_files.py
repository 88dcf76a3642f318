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
def architectures(tmp_path_factory):
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


@pytest.fixture(scope="session")
def with_weights(tmp_path_factory, open_clip_folder):
    """A folder in open_clip's layout, with weights."""
    import torch

    from clip_geometry.encoders import load_encoder

    folder = shutil.copytree(open_clip_folder, tmp_path_factory.mktemp("weights") / "model")
    fresh = load_encoder(f"local-dir:{folder}", device="cpu", fresh=True, seed=4)
    torch.save(fresh.model.state_dict(), folder / "open_clip_pytorch_model.bin")  # pyright: ignore
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


SMALL = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 24, "intermediate_size": 40}
VOCABULARY = len(WORDS) + 4


def scattered(build):
    """What `build` makes, with noise on all its parameters: fresh ones have biases of zero and weights so small that
    texts hardly differ, so that a forgotten bias or a wrong mask would not show."""
    import torch

    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(5)
        model = build()
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture(scope="session")
def ruclip_folder(tmp_path_factory):
    """A tiny model in ruCLIP's layout: 32-pixel images, 14 tokens, one per known word, 20 dimensions."""
    import open_clip
    import torch

    folder = tmp_path_factory.mktemp("ruclip") / "model"
    folder.mkdir()
    tokens = {char: 4 + k for k, char in enumerate("▁" + "".join(sorted(set("".join(WORDS)))))}
    lines, rules = [f"{ord(char)} {token}" for char, token in tokens.items()], []
    for word in WORDS:
        for end in range(1, len(word) + 1):
            text = "▁" + word[:end]
            if text not in tokens:
                tokens[text] = 4 + len(tokens)
                rules.append(f"{tokens[text[:-1]]} {tokens[text[-1]]} {tokens[text]}")
    content = [f"{len(lines)} {len(rules)}", *lines, *rules, "1 0 2 3"]
    (folder / "bpe.model").write_text("\n".join(content) + "\n")
    config = {
        "embed_dim": 20,
        "image_resolution": 32,
        "vision_layers": 2,
        "vision_width": 128,
        "vision_patch_size": 8,
        "context_length": 14,
        "vocab_size": 4 + len(tokens),
        "transformer_width": 24,
        "transformer_heads": 2,
        "transformer_layers": 2,
        "mean": [0.5, 0.4, 0.3],
        "std": [0.2, 0.25, 0.3],
    }
    (folder / "config.json").write_text(json.dumps(config))
    text = {"context_length": 14, "vocab_size": config["vocab_size"], "width": 24, "heads": 2, "layers": 2}
    vision = {"image_size": 32, "patch_size": 8, "layers": 2, "width": 128}
    model = scattered(lambda: open_clip.CLIP(20, vision, text))  # pyright: ignore[reportArgumentType]
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory, tokenizer_folder):
    """A tiny BertModel in transformers' layout: 24 dimensions, 14 tokens."""
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("hf_text") / "bert"
    shutil.copytree(tokenizer_folder, folder)
    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=14, **SMALL)
    scattered(lambda: BertModel(config)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def mclip_folder(tmp_path_factory, tokenizer_folder):
    """A tower in Multilingual-CLIP's current layout: 10 dimensions, base/ an XLM-RoBERTa of 24, 12 tokens."""
    from safetensors.torch import save_file
    from torch import nn
    from transformers import XLMRobertaConfig, XLMRobertaModel

    folder = tmp_path_factory.mktemp("mclip") / "tower"
    shutil.copytree(tokenizer_folder, folder / "base")
    # positions are counted from 2
    config = XLMRobertaConfig(vocab_size=VOCABULARY, max_position_embeddings=14, type_vocab_size=1, **SMALL)
    config.save_pretrained(folder / "base")

    def tower():
        return nn.ModuleDict({"transformer": XLMRobertaModel(config), "LinearTransformation": nn.Linear(24, 10)})

    save_file(scattered(tower).state_dict(), folder / "model.safetensors")
    settings = {"modelBase": "org/base", "transformerDimensions": 24, "numDims": 10, "model_type": "M-CLIP"}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def legacy_mclip_folder(tmp_path_factory, tokenizer_folder):
    """A tower in the legacy layout: a DistilBERT of 24 dimensions, and a pickled linear layer to 10."""
    import pickle

    from transformers import DistilBertConfig, DistilBertModel

    folder = tmp_path_factory.mktemp("mclip") / "legacy"
    shutil.copytree(tokenizer_folder, folder)
    config = DistilBertConfig(
        vocab_size=VOCABULARY, max_position_embeddings=14, dim=24, hidden_dim=40, n_layers=2, n_heads=2
    )
    scattered(lambda: DistilBertModel(config)).save_pretrained(folder)
    rng = np.random.default_rng(6)
    weights = [(0.2 * rng.normal(size=shape)).astype(np.float32) for shape in ((24, 10), (10,))]
    (folder / "M-BERT Distil 40 Linear Weights.pkl").write_bytes(pickle.dumps(weights))
    return folder


@pytest.fixture(scope="session")
def sentence_folder(tmp_path_factory, bert_folder):
    """A model in sentence-transformers' layout: BERT, mean, Dense to 10 with tanh; 12 tokens."""
    from safetensors.torch import save_file
    from torch import nn

    folder = tmp_path_factory.mktemp("sentence") / "model"
    shutil.copytree(bert_folder, folder)
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
    modules = [
        {"idx": k, "name": str(k), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for k, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": false}')
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 24, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "2_Dense").mkdir()
    dense = {"in_features": 24, "out_features": 10, "bias": True}
    dense["activation_function"] = "torch.nn.modules.activation.Tanh"
    (folder / "2_Dense" / "config.json").write_text(json.dumps(dense))
    save_file(
        scattered(lambda: nn.ModuleDict({"linear": nn.Linear(24, 10)})).state_dict(),
        folder / "2_Dense/model.safetensors",
    )
    return folder


@pytest.fixture(scope="session")
def words_file(tmp_path_factory):
    """Vectors of the small vocabulary, 6 columns, with the list of words beside them."""
    folder = tmp_path_factory.mktemp("words")
    np.save(folder / "vectors.npy", np.random.default_rng(7).normal(size=(len(WORDS), 6)).astype(np.float32))
    (folder / "vectors.json").write_text(json.dumps(WORDS))
    return folder / "vectors.npy"

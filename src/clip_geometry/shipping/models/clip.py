"""open_clip's models as CLIPModel of transformers, or VisionTextDualEncoderModel where timm has the image tower.

What decides is arithmetic, not the config: the converted model must give the source's rows of random pixels and of
texts, so that an option of open_clip that transformers cannot express is refused, whatever its name.
"""

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from clip_geometry.encoders.checkpoint import load_state_dict
from clip_geometry.encoders.hf import one_sentence, quiet
from clip_geometry.encoders.open_clip.encoder import OpenClipEncoder
from clip_geometry.encoders.runtime import inference
from clip_geometry.registry import InputError
from clip_geometry.shipping.models.layout import (
    TEXTS,
    Exported,
    difference,
    require_same,
    save_modules,
    save_tokenizer,
    tidy,
)

# the names of open_clip's parameters → those of transformers, in order; a matrix that is applied from the right turns
BLOCK = {
    r"transformer\.resblocks\.(\d+)\.": r"encoder.layers.\1.",
    r"\.ln_([12])\.": r".layer_norm\1.",
    r"\.mlp\.c_fc\.": ".mlp.fc1.",
    r"\.mlp\.c_proj\.": ".mlp.fc2.",
    r"\.attn\.": ".self_attn.",
}
TEXT = BLOCK | {
    r"^positional_embedding$": "text_model.embeddings.position_embedding.weight",
    r"^token_embedding\.": "text_model.embeddings.token_embedding.",
    r"^ln_final\.": "text_model.final_layer_norm.",
    r"^text_projection(\.weight)?$": r"text_projection.weight",
    r"^encoder\.": "text_model.encoder.",
}
IMAGE = BLOCK | {
    r"^positional_embedding$": "vision_model.embeddings.position_embedding.weight",
    r"^class_embedding$": "vision_model.embeddings.class_embedding",
    r"^conv1\.": "vision_model.embeddings.patch_embedding.",
    r"^ln_pre\.": "vision_model.pre_layrnorm.",  # transformers' own spelling
    r"^ln_post\.": "vision_model.post_layernorm.",
    r"^proj$": "visual_projection.weight",
    r"^encoder\.": "vision_model.encoder.",
}
TIMM = {r"^trunk\.": "vision_model.timm_model.", r"^head\.proj\.": "visual_projection."}
TURNED = ("text_projection", "proj")
MODALITIES = {
    name: {"method": f"get_{name}_features", "method_output_name": "pooler_output"} for name in ("text", "image")
}
ANY_CASE_ARGMAX = 2  # eos_token_id by which transformers takes the place of the highest id, as open_clip does


def export_clip(encoder: OpenClipEncoder, folder: Path) -> Exported:
    """Write the model, its processor and the files of sentence-transformers."""
    name, length, tokenizer = encoder.config.model, encoder.tokenizer.context_length, _tokenizer_of(encoder)
    model, processor = _converted(encoder, tokenizer), _image_processor(encoder)
    image_size = encoder.pixels.size  # pyright: ignore[reportOptionalMemberAccess]: the processor was made of them
    pixels = torch.randn(4, 3, *image_size, generator=torch.Generator().manual_seed(0))
    tokens = tokenizer(list(TEXTS), padding=True, truncation=True, max_length=length, return_tensors="pt")
    with inference():
        images = model.get_image_features(pixel_values=pixels).pooler_output
        texts = model.get_text_features(tokens["input_ids"], tokens["attention_mask"]).pooler_output
    found = {
        "texts": difference(encoder.text_features(encoder.tokenize(TEXTS)), texts),
        "images": difference(encoder.image_features(pixels), images),
    }
    require_same(found, name, type(model).__name__)
    with quiet():
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    save_tokenizer(tokenizer, folder, length)
    settings = {"transformer_task": "feature-extraction", "modality_config": MODALITIES}
    settings |= {"module_output_name": "sentence_embedding", "max_seq_length": length}
    save_modules(folder, {"Transformer": settings})
    bias = encoder.model.logit_bias
    return Exported(type(model).__name__, found, ("image", "text"), None if bias is None else bias.item())


def _converted(encoder: OpenClipEncoder, tokenizer: Any) -> Any:
    """The model as one of transformers."""
    from transformers import CLIPConfig, CLIPModel, VisionTextDualEncoderConfig, VisionTextDualEncoderModel

    model, name = encoder.model, encoder.config.model
    text, image = getattr(model, "text", model), model.visual
    if not hasattr(text, "ln_final"):
        raise InputError(f"{name} has a text tower of transformers inside open_clip; expected open_clip's own")
    if hasattr(image, "attnpool"):
        raise InputError(
            f"{name} has open_clip's ResNet as its image tower, which transformers does not have; expected a vision "
            "transformer or a model of timm"
        )
    d = encoder.architecture["embed_dim"]
    settings = {"projection_dim": d, "logit_scale_init_value": model.logit_scale.item()}
    settings["text_config"], state = _text_config(text, tokenizer, d), _renamed(_own(text, model), TEXT)
    kind: Any = CLIPModel
    if hasattr(image, "trunk"):
        kind = VisionTextDualEncoderModel
        config: Any = VisionTextDualEncoderConfig(vision_config=_timm_config(image, encoder), **settings)
    else:
        (side, other), (patch, _) = image.image_size, image.patch_size
        if side != other:
            raise InputError(
                f"the images are {side} × {other} pixels; CLIPModel of transformers takes square ones only"
            )
        vision = _tower(image) | {"image_size": side, "patch_size": patch, "projection_dim": d}
        config = CLIPConfig(vision_config=vision, **settings)
    state |= _renamed(image.state_dict(), TIMM if hasattr(image, "trunk") else IMAGE)
    state["logit_scale"] = model.logit_scale.reshape(())
    with quiet(), one_sentence(f"transformers cannot build what {name} is"):
        found = kind(config).eval()
    for odd in sorted(state.keys() ^ found.state_dict().keys()):
        has, lacks = (name, kind.__name__) if odd in state else (kind.__name__, name)
        raise InputError(f"{has} has {odd}, for which {lacks} has no place, so that it cannot be exported to it")
    load_state_dict(found, state, name)
    return found


def _own(text: nn.Module, model: nn.Module) -> dict[str, Tensor]:
    """The parameters of the text tower, which are the model's own where it has no module for them."""
    state = text.state_dict()
    return {n: v for n, v in state.items() if not n.startswith(("visual.", "logit_"))} if text is model else state


def _renamed(state: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        value = value.t() if name in TURNED else value
        for pattern, new in names.items():
            name = re.sub(pattern, new, name)
        stem, joint, kind = name.partition("in_proj_")
        if joint:
            found |= {f"{stem}{part}_proj.{kind}": rows for part, rows in zip("qkv", value.chunk(3), strict=True)}
        else:
            found[name] = value
    return found


def _tower(tower: Any) -> dict[str, Any]:
    """What both towers of CLIPModel have in their config."""
    blocks = tower.transformer.resblocks
    first = blocks[0]
    activation = next(module for name, module in first.mlp.named_children() if name == "gelu")
    approximate = getattr(activation, "approximate", "none") == "tanh"
    names = {"QuickGELU": "quick_gelu", "GELU": "gelu_pytorch_tanh" if approximate else "gelu"}
    return {
        "hidden_size": first.ln_1.normalized_shape[0],
        "intermediate_size": first.mlp.c_fc.out_features,
        "num_hidden_layers": len(blocks),
        "num_attention_heads": first.attn.num_heads,
        "hidden_act": names[type(activation).__name__],
        "layer_norm_eps": first.ln_1.eps,
    }


def _text_config(text: Any, tokenizer: Any, dimension: int) -> dict[str, Any]:
    positions, vocabulary = len(text.positional_embedding), text.token_embedding.num_embeddings
    end = tokenizer.eos_token_id
    pooled_at_end = getattr(text, "pool_type", getattr(text, "text_pool_type", "")) == "eos"
    return _tower(text) | {
        "model_type": "clip_text_model",
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        "projection_dim": dimension,
        "bos_token_id": tokenizer.bos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": end if pooled_at_end or end == vocabulary - 1 else ANY_CASE_ARGMAX,
    }


def _timm_config(image: Any, encoder: OpenClipEncoder) -> dict[str, Any]:
    vision = encoder.architecture["vision_cfg"]
    if [name for name, _ in image.head.named_children() if name != "drop"] != ["proj"]:
        raise InputError(
            f"{encoder.config.model} pools or projects the image of timm's {vision['timm_model_name']} by more than a "
            "linear layer, which transformers cannot express; expected timm_proj: linear without its own pooling"
        )
    pool = vision.get("timm_pool", "avg")
    return {
        "model_type": "timm_wrapper",
        "architecture": vision["timm_model_name"],
        "model_args": {"global_pool": pool} if pool else {},
        "hidden_size": image.trunk.num_features,
        "num_features": image.trunk.num_features,
        "num_labels": 0,
    }


def _tokenizer_of(encoder: OpenClipEncoder) -> Any:
    """transformers' tokenizer with the tokens of open_clip's, whose SimpleTokenizer is CLIP's."""
    from transformers import CLIPTokenizer

    own, name = encoder.tokenizer, encoder.config.model
    found: Any = copy.deepcopy(getattr(own, "tokenizer", None))
    if not found:
        if type(own).__name__ != "SimpleTokenizer":
            raise InputError(f"{name} has the tokenizer {type(own).__name__} of open_clip, which transformers lacks")
        called = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
        vocabulary: Any = {called.get(token, token): number for token, number in own.encoder.items()}
        found = CLIPTokenizer(vocab=vocabulary, merges=sorted(own.bpe_ranks, key=own.bpe_ranks.__getitem__))
    tidy(found)
    for text, tokens in zip(TEXTS, encoder.tokenize(TEXTS).inputs.tolist(), strict=True):
        ids = found(text, truncation=True, max_length=own.context_length)["input_ids"]
        if tokens[: len(ids)] != ids:
            raise InputError(
                f"the tokenizer of {name} does more than that of transformers can, for example with "
                f"{text.strip()[:40]!r}; its folder would give other tokens"
            )
    return found


def _image_processor(encoder: OpenClipEncoder) -> Any:
    """transformers' processor with the steps of open_clip's transform."""
    from transformers import CLIPImageProcessor

    pixels = encoder.pixels
    names = [type(step).__name__ for step in pixels.steps] if pixels else []
    if pixels is None or names not in (["Resize", "CenterCrop"], ["Resize"]):
        given = ", ".join(names) or "steps of its own"
        raise InputError(
            f"{encoder.config.model} prepares images by {given}, which CLIPImageProcessor cannot do; expected a resize "
            "of the shortest side and a crop, or to a square"
        )
    resize, (height, width) = pixels.steps[0], pixels.size
    target = resize.size if isinstance(resize.size, int) else resize.size[0] if len(resize.size) == 1 else None
    filters = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
    return CLIPImageProcessor(
        size={"height": height, "width": width} if target is None else {"shortest_edge": target},
        crop_size={"height": height, "width": width},
        do_center_crop="CenterCrop" in names,
        resample=int(filters[resize.interpolation.value]),
        image_mean=list(np.array(pixels.mean)),
        image_std=list(np.array(pixels.std)),
    )

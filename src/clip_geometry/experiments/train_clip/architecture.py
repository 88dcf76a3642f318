"""The architecture that is trained: one of those below, or open_clip's own `model_cfg` in a config."""

from collections.abc import Mapping
from typing import Any

from clip_geometry.registry import InputError, did_you_mean

SECTIONS = ("embed_dim", "vision_cfg", "text_cfg")
TEXT = {
    "context_length": 32,  # the longest English caption of scenes has 32 tokens
    "vocab_size": 4000,
    "hf_tokenizer_name": "scenes-clip",
    "width": 128,
    "heads": 4,
    "layers": 1,  # as accurate as two, for half the time of the tower that takes most of it
    "pad_id": 0,
    "eos_id": 3999,
    "pool_type": "argmax",
}
VISION: dict[str, dict[str, Any]] = {
    # open_clip's own, one block a stage; it learns these pictures several times faster than a transformer does
    "resnet": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 16, "head_width": 64},
    "resnet-wide": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 24, "head_width": 64},
    # timm's small test network: .27 million parameters, a third of the time of resnet for a step, and more accurate
    "byobnet": {"image_size": 64, "timm_model_name": "test_byobnet", "timm_pool": "avg", "timm_proj": "linear"},
    "vit": {"image_size": 64, "patch_size": 8, "layers": 4, "width": 128, "head_width": 32},
    # for the smoke section: seconds
    "tiny": {"image_size": 64, "patch_size": 32, "layers": 1, "width": 16, "head_width": 8},
}
SMALL_TEXT = {"width": 16, "heads": 2}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    name: {
        "embed_dim": 16 if name == "tiny" else 256,
        "vision_cfg": vision,
        "text_cfg": {**TEXT, **(SMALL_TEXT if name == "tiny" else {})},
    }
    for name, vision in VISION.items()
}


def architecture(given: Any) -> dict[str, Any]:
    """open_clip's `model_cfg` of a name, or of a mapping with some of its keys, whose text tower is by default that of
    the small model. Raises InputError for an unknown name or key."""
    if isinstance(given, str):
        if given not in ARCHITECTURES:
            hint = did_you_mean(given, ARCHITECTURES) or f"; known are {', '.join(ARCHITECTURES)}"
            raise InputError(f"unknown architecture {given!r}{hint}, or a mapping with {', '.join(SECTIONS)}")
        return ARCHITECTURES[given]
    if not isinstance(given, Mapping):
        raise InputError(f"architecture is {given!r}; expected one of {', '.join(ARCHITECTURES)} or a mapping")
    if unknown := [key for key in given if key not in SECTIONS]:
        raise InputError(f"architecture has the key {unknown[0]!r}; known are {', '.join(SECTIONS)}")
    vision, text = (given.get(name, {}) for name in ("vision_cfg", "text_cfg"))
    if not isinstance(vision, Mapping) or not isinstance(vision.get("image_size"), int):
        raise InputError("architecture needs vision_cfg with image_size, one number, as open_clip's model_cfg has it")
    return {"embed_dim": given.get("embed_dim", 256), "vision_cfg": dict(vision), "text_cfg": _text(text)}


def _text(given: Any) -> dict[str, Any]:
    """Of the keys that are not given the small model's; its tokenizer is the one there is."""
    if not isinstance(given, Mapping):
        raise InputError(f"text_cfg is {given!r}; expected a mapping, as open_clip's model_cfg has it")
    text = {**TEXT, **given}
    if text["hf_tokenizer_name"] != TEXT["hf_tokenizer_name"]:
        raise InputError(
            f"hf_tokenizer_name is {text['hf_tokenizer_name']!r}; captions are tokenized by {TEXT['hf_tokenizer_name']}"
        )
    if text["vocab_size"] < TEXT["vocab_size"]:
        raise InputError(
            f"vocab_size is {text['vocab_size']}; expected at least the {TEXT['vocab_size']} tokens that "
            f"{TEXT['hf_tokenizer_name']} has"
        )
    return text

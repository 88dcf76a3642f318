"""A training in words, for the head of the report, captions and labels."""

from collections.abc import Mapping
from typing import Any

from clip_geometry.experiments.train_clip.config import CLASSES, CLIP, ISTAR, PENALTIES, SIGLIP, TrainClipConfig


def arm_words(config: TrainClipConfig) -> str:
    """`ClipLoss`; `ClipLoss + I-STAR, λ = 1, both towers`."""
    if config.arm in PENALTIES:
        towers = "both towers" if config.tower == "both" else f"{config.tower} tower"
        weight = f"{config.penalty:g}".replace("-", "−")
        return f"ClipLoss + {'I-STAR' if config.arm == ISTAR else 'CosReg'}, λ = {weight}, {towers}"
    named = {CLIP: "ClipLoss", SIGLIP: "SigLIP loss", CLASSES: "class labels"}
    return named.get(config.arm, f"temperature fixed at {config.temperature:g}")


def architecture_words(architecture: Mapping[str, Any]) -> str:
    """`ResNet 1-1-1-1 of width 16; text: 1 layer of width 128; 256 columns`."""
    vision, text = architecture["vision_cfg"], architecture["text_cfg"]
    layers = vision.get("layers")
    if "timm_model_name" in vision:
        tower = vision["timm_model_name"]
    elif isinstance(layers, list):
        tower = f"ResNet {'-'.join(map(str, layers))} of width {vision.get('width', 64)}"
    else:
        tower = f"ViT/{vision.get('patch_size', 16)} of {layers} layers of width {vision.get('width', 768)}"
    depth = "1 layer" if text["layers"] == 1 else f"{text['layers']} layers"
    return f"{tower}; text: {depth} of width {text['width']}; {architecture['embed_dim']} columns"

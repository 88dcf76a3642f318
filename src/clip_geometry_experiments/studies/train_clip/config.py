"""The config of the training of a CLIP, and the architectures that have a name."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from clip_geometry.config import Config
from clip_geometry.registry import InputError, did_you_mean
from clip_geometry_experiments.kit.base import Data, RunConfig
from clip_geometry_experiments.kit.clip_training import LR, OptimizerConfig, with_a_place

Arm = Literal["clip", "siglip", "fixed_temperature", "istar", "cosreg", "sigreg", "classes"]
CLIP, SIGLIP, FIXED, ISTAR, COSREG, SIGREG, CLASSES = ARMS = get_args(Arm)
PENALTIES = {ISTAR: "I-STAR", COSREG: "CosReg", SIGREG: "SIGReg"}  # their names
SIGLIP_LR = 2e-3  # 1000 steps of siglip on scenes with 8e-3 end at an accuracy of 0.12, with 2e-3 at 0.95
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
    # open_clip's own, one block a stage; it learns these images several times faster than a transformer does
    "resnet": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 16, "head_width": 64},
    "resnet-wide": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 24, "head_width": 64},
    # timm's small test network: 0.27 million parameters, a third of the time of resnet for a step, and more accurate
    "byobnet": {"image_size": 64, "timm_model_name": "test_byobnet", "timm_pool": "avg", "timm_proj": "linear"},
    "vit": {"image_size": 64, "patch_size": 8, "layers": 4, "width": 128, "head_width": 32},
    # for the smoke section: seconds
    "tiny": {"image_size": 64, "patch_size": 32, "layers": 1, "width": 16, "head_width": 8},
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    name: {
        "embed_dim": 16 if name == "tiny" else 256,
        "vision_cfg": vision,
        "text_cfg": {**TEXT, **({"width": 16, "heads": 2} if name == "tiny" else {})},
    }
    for name, vision in VISION.items()
}


def architecture(given: Any) -> dict[str, Any]:
    """open_clip's `model_cfg` of a name, or of a mapping with some of its keys; those of the text tower that are not
    given are the small model's. Raises InputError for an unknown name or key."""
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
    if not isinstance(text, Mapping):
        raise InputError(f"text_cfg is {text!r}; expected a mapping, as open_clip's model_cfg has it")
    text, tokenizer = {**TEXT, **text}, TEXT["hf_tokenizer_name"]
    if text["hf_tokenizer_name"] != tokenizer:
        raise InputError(f"hf_tokenizer_name is {text['hf_tokenizer_name']!r}; captions are tokenized by {tokenizer}")
    if text["vocab_size"] < TEXT["vocab_size"]:
        needed = f"expected at least the {TEXT['vocab_size']} tokens that {tokenizer} has"
        raise InputError(f"vocab_size is {text['vocab_size']}; {needed}")
    return {"embed_dim": given.get("embed_dim", 256), "vision_cfg": dict(vision), "text_cfg": text}


_OF_ARMS = {
    "penalty": (tuple(PENALTIES), "the weight of the penalty of istar, cosreg and sigreg"),
    "tower": (tuple(PENALTIES), "where the penalty of istar, cosreg and sigreg is taken"),
    "zeta": ((ISTAR,), "the shrinkage of istar"),
    "temperature": ((CLIP, FIXED, *PENALTIES), "that of ClipLoss at the start"),
}


class ObjectiveConfig(Config):
    """What is minimized.

    Args:
        arm: the objective. clip: open_clip's ClipLoss; siglip: its SigLipLoss; fixed_temperature: ClipLoss whose
            temperature is not trained; istar, cosreg, sigreg: ClipLoss plus `penalty` times 1 − IsoScore* (C_0 averaged
            over batches), the average cosine, or the Epps-Pulley statistic along random directions (LeJEPA weighs it by
            0.02 to 0.05) of the unit rows of `tower`, for sigreg times √d; classes: cross-entropy of one linear layer
            on the embeddings of images and of captions, whose target is the class of the image.
        temperature: of ClipLoss at the start, within the bounds of training. SigLipLoss starts at its paper's
            temperature of 0.1 and bias of −10.
        penalty: weight of the penalty.
        zeta: shrinkage of IsoScore*.
        tower: where the penalty is computed.
    """

    arm: Arm = "clip"
    temperature: float = Field(default=0.07, ge=0.01, le=1)
    penalty: float = 1.0
    zeta: float = Field(default=0.2, ge=0, le=1)
    tower: Literal["image", "text", "both"] = "both"


class TrainClipConfig(RunConfig, OptimizerConfig, ObjectiveConfig):
    """Keys of the experiment.

    Args:
        architecture: a name (resnet, resnet-wide, byobnet, vit, tiny) or open_clip's own model_cfg.
        data: images with captions (or, with a prompt, class captions) and labels.
        measured: other images, of all classes, on which the geometry of the states is measured.
        tested: images for zero-shot accuracy at the end; null for none.
        lr: default 8e-3, for siglip 2e-3.
        prompts: of zero-shot, an ensemble if there are several; candidates are all classes.
        training_prompts: of the captions in training that name the class only; null for those of `prompts`. A wording
            that does not occur among them is read worse.
        measured_pictures: use only the first N images of `measured`, null for all.
        caption_noise: share of the training images whose caption is that of another image, the same one in every epoch.
        measures: of the states, null for those of the figures.
        tasks: also score retrieval, a linear probe and zero-shot accuracy on `tested` at the end, as the rows are and
            centered with the means of `measured`, on whose labels the probe is fitted.
        measurements: measure about this many states, the first of them in powers of two, the rest evenly spaced.
        recorded: the records of a training by these settings, to be shown in place of a new one: a results.jsonl, or
            `shipped/NAME/training.jsonl` of a shipped model; null to train.
        batch_norm: of measured states. eval: the running statistics, which are the identity at first and lag for some
            steps; batch: those of the measured images. The saved model is always tested with its running ones.
        seed: of first weights, batches and captions.
    """

    architecture: Annotated[dict[str, Any], BeforeValidator(architecture)]
    data: Data
    measured: Data
    tested: Data | None = None
    lr: float = Field(default_factory=lambda values: SIGLIP_LR if values["arm"] == SIGLIP else LR, gt=0)
    prompts: tuple[str, ...] = Field(default=("a picture of a {}.",), min_length=1)
    training_prompts: tuple[str, ...] | None = Field(default=None, min_length=1)
    caption_noise: float = Field(default=0.0, ge=0, le=1)
    measures: tuple[str, ...] | None = Field(default=None, min_length=1)
    tasks: bool = False
    measured_pictures: int | None = Field(default=512, ge=2)
    measurements: int = Field(default=40, ge=2)
    recorded: str | None = Field(default=None, min_length=1)
    batch_norm: Literal["eval", "batch"] = "eval"

    @field_validator("prompts", "training_prompts")
    @classmethod
    def _with_a_place(cls, prompts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return prompts if prompts is None else with_a_place(prompts)

    @model_validator(mode="after")
    def _of_use(self) -> Self:
        for name, (arms, what) in _OF_ARMS.items():
            if self.arm not in arms and getattr(self, name) != ObjectiveConfig.model_fields[name].default:
                raise InputError(f"{name} is {what}; the arm {self.arm} has none")
        if self.tasks and self.tested is None:
            raise InputError("tasks are scored on `tested`, which this config lacks")
        return self


# --- names in the report


def arm_words(config: TrainClipConfig) -> str:
    """`ClipLoss`; `ClipLoss + I-STAR, λ = 1, both towers`."""
    if config.arm in PENALTIES:
        towers = "both towers" if config.tower == "both" else f"{config.tower} tower"
        weight = f"{config.penalty:g}".replace("-", "−")
        return f"ClipLoss + {PENALTIES[config.arm]}, λ = {weight}, {towers}"
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

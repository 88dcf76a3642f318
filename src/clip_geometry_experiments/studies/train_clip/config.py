"""The config of the training of a CLIP, and the architectures that have a name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from clip_geometry.config import Config, read_yaml
from clip_geometry.registry import InputError, did_you_mean
from clip_geometry_experiments.kit.base import Data, RunConfig
from clip_geometry_experiments.kit.clip_training import LR, OptimizerConfig, with_a_place

PENALTIES = {"istar": "I-STAR", "cosreg": "CosReg"}  # their names
SIGLIP_LR = 2e-3  # 1000 steps of siglip on scenes with 8e-3 end at an accuracy of 0.12, with 2e-3 at 0.95
ARCHITECTURES = read_yaml(Path(__file__).with_name("architectures.yaml"))


class ArchitectureConfig(Config):
    """open_clip's `model_cfg`.

    Args:
        embed_dim: columns of the embeddings.
        vision_cfg: of the image tower.
        text_cfg: of the text tower, where it differs from architectures.yaml; its tokenizer is that of scenes-clip.
    """

    embed_dim: int = 256
    vision_cfg: dict[str, Any]
    text_cfg: dict[str, Any] = Field(default_factory=dict, validate_default=True)

    @field_validator("text_cfg")
    @classmethod
    def _complete(cls, given: dict[str, Any]) -> dict[str, Any]:
        own = ARCHITECTURES["text"]
        text = {**own, **given}
        if text["hf_tokenizer_name"] != own["hf_tokenizer_name"] or text["vocab_size"] < own["vocab_size"]:
            expected = f"{own['hf_tokenizer_name']} and at least its {own['vocab_size']} tokens"
            raise InputError(
                f"tokenizer {text['hf_tokenizer_name']}, vocab_size {text['vocab_size']}; expected {expected}"
            )
        return text

    def __str__(self) -> str:
        """`test_byobnet; text: 1 layer of width 128; 256 columns`."""
        text, layers = self.text_cfg, self.vision_cfg.get("layers")
        kind = "ResNet" if isinstance(layers, list) else "ViT"
        tower = self.vision_cfg.get("timm_model_name") or f"{kind}, layers {layers}"
        depth = "1 layer" if text["layers"] == 1 else f"{text['layers']} layers"
        return f"{tower}; text: {depth} of width {text['width']}; {self.embed_dim} columns"


def _named(given: Any) -> Any:
    named = ARCHITECTURES["named"]
    if isinstance(given, str) and given not in named:
        hint = did_you_mean(given, named) or f"; known are {', '.join(named)}"
        raise InputError(f"unknown architecture {given!r}{hint}, or a section with open_clip's model_cfg")
    return named[given] if isinstance(given, str) else given


class ObjectiveConfig(Config):
    """What is minimized.

    Args:
        arm: the objective. clip: open_clip's ClipLoss; siglip: its SigLipLoss; fixed_temperature: ClipLoss whose
            temperature is not trained; istar, cosreg: ClipLoss plus `penalty` times 1 − IsoScore* (C_0 averaged over
            batches) or the average cosine of the unit rows of each tower; classes: cross-entropy of one linear layer on
            the embeddings of images and of captions, whose target is the class of the image.
        temperature: of ClipLoss at the start, within the bounds of training. SigLipLoss starts at its paper's
            temperature of 0.1 and bias of −10.
        penalty: weight of the penalty.
    """

    arm: Literal["clip", "siglip", "fixed_temperature", "istar", "cosreg", "classes"] = "clip"
    temperature: float = Field(default=0.07, ge=0.01, le=1)
    penalty: float = 1.0


class TrainClipConfig(RunConfig, OptimizerConfig, ObjectiveConfig):
    """Keys of the experiment.

    Args:
        architecture: a name (byobnet, tiny) or open_clip's own model_cfg.
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

    architecture: Annotated[ArchitectureConfig, BeforeValidator(_named)]
    data: Data
    measured: Data
    tested: Data | None = None
    lr: float = Field(default_factory=lambda values: SIGLIP_LR if values["arm"] == "siglip" else LR, gt=0)
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
        for name, arms in (("penalty", (*PENALTIES,)), ("temperature", ("clip", "fixed_temperature", *PENALTIES))):
            if self.arm not in arms and getattr(self, name) != type(self).model_fields[name].default:
                raise InputError(f"{name} has no effect on the arm {self.arm}; leave it out")
        if self.tasks and self.tested is None:
            raise InputError("tasks are scored on `tested`, which this config lacks")
        return self

    def at(self) -> dict[str, Any]:
        """For the `at` of records: the arm, the weight of its penalty, and what else differs from the default."""
        penalty = {"penalty": self.penalty, "tower": "both"} if self.arm in PENALTIES else {}
        named = ("temperature", "caption_noise", *(["class_captions"] if self.tasks else []))
        values: Mapping[str, Any] = {name: getattr(self, name) for name in named}
        fields = type(self).model_fields
        return {"arm": self.arm, **penalty} | {k: value for k, value in values.items() if value != fields[k].default}

    def label(self) -> str:
        """`ClipLoss`; `ClipLoss + I-STAR, λ = 1, both towers`."""
        if self.arm in PENALTIES:
            weight = f"{self.penalty:g}".replace("-", "−")
            return f"ClipLoss + {PENALTIES[self.arm]}, λ = {weight}, both towers"
        named = {"clip": "ClipLoss", "siglip": "SigLIP loss", "classes": "class labels"}
        return named.get(self.arm, f"temperature fixed at {self.temperature:g}")

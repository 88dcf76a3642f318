"""The config of the training of a CLIP, and the named architectures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from clip_geometry.config import Config, read_yaml
from clip_geometry.registry import InputError, did_you_mean
from clip_geometry_experiments.kit.base import Data, RunConfig
from clip_geometry_experiments.kit.clip_training import LR, OptimizerConfig, with_a_place

PENALTIES = {"istar": "I-STAR", "cosreg": "CosReg"}  # display names of the penalties
SIGLIP_LR = 2e-3  # 1000 steps of siglip on scenes with 8e-3 end at an accuracy of 0.12, with 2e-3 at 0.95
ARCHITECTURES = read_yaml(Path(__file__).with_name("architectures.yaml"))


class ArchitectureConfig(Config):
    """An architecture in the form of open_clip's `model_cfg`.

    Args:
        embed_dim: Number of columns of the embeddings.
        vision_cfg: Config of the image tower.
        text_cfg: Settings of the text tower that differ from architectures.yaml; its tokenizer is that of scenes-clip.
    """

    embed_dim: int = 256
    vision_cfg: dict[str, Any]
    text_cfg: dict[str, Any] = Field(default_factory=dict, validate_default=True)

    @field_validator("text_cfg")
    @classmethod
    def _complete(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Add the default settings of the text tower, and check its tokenizer."""
        defaults = ARCHITECTURES["text"]
        text = {**defaults, **given}
        if text["hf_tokenizer_name"] != defaults["hf_tokenizer_name"] or text["vocab_size"] < defaults["vocab_size"]:
            expected = f"{defaults['hf_tokenizer_name']} and at least its {defaults['vocab_size']} tokens"
            raise InputError(
                f"tokenizer is {text['hf_tokenizer_name']} with vocab_size {text['vocab_size']}; expected {expected}"
            )
        return text

    def __str__(self) -> str:
        """Return a description such as `test_byobnet; text: 1 layer of width 128; 256 columns`."""
        text = self.text_cfg
        layers = self.vision_cfg.get("layers")
        kind = "ResNet" if isinstance(layers, list) else "ViT"
        tower = self.vision_cfg.get("timm_model_name") or f"{kind}, layers {layers}"
        depth = "1 layer" if text["layers"] == 1 else f"{text['layers']} layers"
        return f"{tower}; text: {depth} of width {text['width']}; {self.embed_dim} columns"


def _named(given: Any) -> Any:
    """Return the architecture with a name, or the given section."""
    named = ARCHITECTURES["named"]
    if isinstance(given, str) and given not in named:
        hint = did_you_mean(given, named) or f"; known are {', '.join(named)}"
        raise InputError(f"unknown architecture {given!r}{hint}, or a section with open_clip's model_cfg")
    return named[given] if isinstance(given, str) else given


class ObjectiveConfig(Config):
    """Config of the objective that is minimized.

    Args:
        arm: The objective. clip: open_clip's ClipLoss. siglip: open_clip's SigLipLoss. fixed_temperature: ClipLoss with
            a temperature that is not trained. istar, cosreg: ClipLoss plus `penalty` times 1 − IsoScore* (C_0 averaged
            over batches) or times the average cosine of the unit rows of each tower. classes: cross-entropy of one
            linear layer on the embeddings of images and of captions, whose target is the class of the image.
        temperature: Initial temperature of ClipLoss, within the bounds of training, from 0.01 to 1. SigLipLoss starts
            at its paper's temperature of 0.1 and bias of −10.
        penalty: Weight of the penalty.
    """

    arm: Literal["clip", "siglip", "fixed_temperature", "istar", "cosreg", "classes"] = "clip"
    temperature: float = Field(default=0.07, ge=0.01, le=1)
    penalty: float = 1.0


class TrainClipConfig(RunConfig, OptimizerConfig, ObjectiveConfig):
    """Config of the experiment `train_clip`.

    Args:
        architecture: A name (byobnet, tiny), or open_clip's own model_cfg.
        data: Images with captions (or, with a prompt, class captions) and labels.
        measured: Other images, of all classes, on which the geometry of the states is measured.
        tested: Images for zero-shot accuracy at the end; null for none.
        lr: Learning rate; the default is 8e-3, or 2e-3 for siglip.
        prompts: Templates of zero-shot prompts, an ensemble if there are several; the candidates are all classes.
        training_prompts: Templates of the training captions that name only the class; null uses `prompts`. The model
            understands a wording that is not among them less well.
        measured_pictures: Use only the first N images of `measured`; null uses all.
        caption_noise: Share of the training images that get the caption of another image, the same one in every epoch.
        measures: Measures of the states; null uses the measures of the figures.
        tasks: Whether to also score retrieval, a linear probe and zero-shot accuracy on `tested` at the end, both with
            the original rows and with rows centered by the means of `measured`. The probe is fitted on the labels of
            `measured`.
        measurements: Approximate number of states to measure: the first ones at powers of two, the rest evenly spaced.
        recorded: Records of a training with these settings to show instead of training: a results.jsonl, or
            `shipped/NAME/training.jsonl` of a shipped model; null trains.
        batch_norm: Statistics of batch norm in measured states. eval: the running statistics, which are the identity at
            first and lag for some steps. batch: the statistics of the measured images. The saved model is always tested
            with its running statistics.
        seed: Seed of the initial weights, the batches and the captions.
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
        """Check that every option has an effect on the chosen objective."""
        for name, arms in (("penalty", (*PENALTIES,)), ("temperature", ("clip", "fixed_temperature", *PENALTIES))):
            if self.arm not in arms and getattr(self, name) != type(self).model_fields[name].default:
                raise InputError(f"{name} has no effect on the arm {self.arm}; leave it out")
        if self.tasks and self.tested is None:
            raise InputError("tasks are scored on `tested`, which is missing; set tested, or tasks to false")
        return self

    def at(self) -> dict[str, Any]:
        """Return the arm, its penalty weight and other settings that are not defaults, for the `at` of records."""
        penalty = {"penalty": self.penalty, "tower": "both"} if self.arm in PENALTIES else {}
        named = ("temperature", "caption_noise", *(["class_captions"] if self.tasks else []))
        values: Mapping[str, Any] = {name: getattr(self, name) for name in named}
        fields = type(self).model_fields
        return {"arm": self.arm, **penalty} | {
            name: value for name, value in values.items() if value != fields[name].default
        }

    def label(self) -> str:
        """Return the label of the arm, such as `ClipLoss` or `ClipLoss + I-STAR, λ = 1, both towers`."""
        if self.arm in PENALTIES:
            weight = f"{self.penalty:g}".replace("-", "−")
            return f"ClipLoss + {PENALTIES[self.arm]}, λ = {weight}, both towers"
        named = {"clip": "ClipLoss", "siglip": "SigLIP loss", "classes": "class labels"}
        return named.get(self.arm, f"temperature fixed at {self.temperature:g}")

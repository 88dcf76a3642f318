"""The config of the training of a CLIP."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from clip_geometry.config import Config, validate
from clip_geometry.experiments.kit.base import Data, RunConfig
from clip_geometry.experiments.train_clip.architecture import architecture
from clip_geometry.registry import InputError

CLIP, SIGLIP, FIXED, ISTAR, COSREG, CLASSES = ARMS = (
    "clip", "siglip", "fixed_temperature", "istar", "cosreg", "classes",
)  # fmt: skip
PENALTIES = (ISTAR, COSREG)
LR, SIGLIP_LR = 8e-3, 2e-3  # 1000 steps of siglip on scenes with 8e-3 end at an accuracy of .12, with 2e-3 at .95
Arm = Literal["clip", "siglip", "fixed_temperature", "istar", "cosreg", "classes"]


class OptimizerConfig(Config):
    """AdamW with betas .9 and `beta2`; vectors (biases, norms) and the temperature do not decay. lr rises from 0 over
    the first share `warmup` of the steps and falls to 0 along a cosine. clip: the largest norm of a gradient, null for
    any. precision: of the products on the way to the loss; auto: bf16 on a GPU, fp32 on a CPU.
    class_captions: the share of captions that name the class only, by one of the prompts, so that shapes are learnt
    before all else is told by place, size and background.
    """

    steps: int = Field(default=1000, ge=1)
    batch_size: int = Field(default=256, ge=2)
    lr: float = Field(default=LR, gt=0)
    warmup: float = Field(default=0.05, ge=0, lt=1)
    weight_decay: float = Field(default=0.1, ge=0)
    beta2: float = Field(default=0.98, gt=0, lt=1)
    clip: float | None = Field(default=1.0, gt=0)
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    class_captions: float = Field(default=0.0, ge=0, le=1)


_OF_ARMS = {
    "penalty": (PENALTIES, "the weight of the penalty of istar and cosreg"),
    "tower": (PENALTIES, "where the penalty of istar and cosreg is taken"),
    "zeta": ((ISTAR,), "the shrinkage of istar"),
    "temperature": ((CLIP, FIXED, *PENALTIES), "that of ClipLoss at the start"),
}


class ObjectiveConfig(Config):
    """arm: what is minimised. clip: open_clip's ClipLoss; siglip: its SigLipLoss; fixed_temperature: ClipLoss whose
    temperature is not trained; istar, cosreg: ClipLoss plus `penalty` times 1 − IsoScore* (ζ = zeta, its C_0 averaged
    over batches) or the average cosine of the unit rows of `tower`; classes: cross-entropy of one linear layer on the
    embeddings of images and of captions, with the class of the picture as target of both.

    temperature: at the start, of ClipLoss, between the bounds that training keeps it in; SigLipLoss starts at its
    paper's, .1 with a bias of −10.
    """

    arm: Arm = "clip"
    temperature: float = Field(default=0.07, ge=0.01, le=1)
    penalty: float = 1.0
    zeta: float = Field(default=0.2, ge=0, le=1)
    tower: Literal["image", "text", "both"] = "both"


class TrainClipConfig(RunConfig, OptimizerConfig, ObjectiveConfig):
    """architecture: a name (resnet, resnet-wide, byobnet, vit, tiny) or open_clip's own model_cfg. data: pictures with
    captions (or, with a prompt, class captions) and labels. measured: other pictures, of all classes, on the first
    measured_pictures of which, null for all, the geometry is watched. tested: on which zero-shot accuracy is taken
    once, at the end; null: none. lr: the default is 2e-3 for siglip. prompts: of zero-shot, an ensemble where there are
    several; candidates are all classes. measurements: about so many states are measured, the first of them in powers of
    two, the rest evenly. batch_norm: of measured states, eval: the running statistics, which are the identity at first
    and lag for some steps; batch: those of the measured pictures. The saved model is always tested by its running ones.
    seed: of first weights, batches and captions.
    """

    architecture: Annotated[dict[str, Any], BeforeValidator(architecture)]
    data: Data
    measured: Data
    tested: Data | None = None
    lr: float = Field(default_factory=lambda said: SIGLIP_LR if said["arm"] == SIGLIP else LR, gt=0)
    prompts: tuple[str, ...] = Field(default=("a picture of a {}.",), min_length=1)
    measured_pictures: int | None = Field(default=512, ge=2)
    measurements: int = Field(default=40, ge=2)
    batch_norm: Literal["eval", "batch"] = "eval"

    @field_validator("prompts")
    @classmethod
    def _with_a_place(cls, prompts: tuple[str, ...]) -> tuple[str, ...]:
        for prompt in prompts:
            if prompt.count("{}") != 1:
                raise InputError(f"prompt {prompt!r} contains {{}} {prompt.count('{}')} times; expected once")
        return prompts

    @model_validator(mode="after")
    def _of_use(self) -> Self:
        for name, (arms, what) in _OF_ARMS.items():
            if self.arm not in arms and getattr(self, name) != ObjectiveConfig.model_fields[name].default:
                raise InputError(f"{name} is {what}; the arm {self.arm} has none")
        return self

    @property
    def optimizer(self) -> OptimizerConfig:
        return _part(self, OptimizerConfig)

    @property
    def objective(self) -> ObjectiveConfig:
        return _part(self, ObjectiveConfig)


def _part(config: TrainClipConfig, kind: Any) -> Any:
    return validate(kind, config.model_dump(mode="json", include=set(kind.model_fields)), "training")


def measured_steps(steps: int, measurements: int) -> list[int]:
    """0, 1, 2, 4, 8, … as long as these are closer than the even steps, then even ones, and the last: about so many."""
    best: list[int] = []
    for even in range(1, measurements):
        width = max(1, steps // even)
        powers = [0, *(2**k for k in range(width.bit_length()) if 2**k <= min(width, steps))]
        found = sorted({*powers, *range(width, steps + 1, width), steps})
        if len(found) > measurements and best:
            return best
        best = found
    return best

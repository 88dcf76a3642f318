"""The config of the fine-tuning experiment."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from clip_geometry.config import Config, validate
from clip_geometry.experiments.kit.base import RunConfig, Seeds
from clip_geometry.experiments.rudman2024.finetune.method import NONE, Method, parse_method
from clip_geometry.experiments.rudman2024.finetune.model import TransformerConfig
from clip_geometry.registry import InputError
from clip_geometry.tasks import TaskConfig
from clip_geometry.tasks.targets import resolve_any_task

VALIDATION = {"mnli": "validation_matched"}  # else: validation


def _transformer(value: Any) -> Any:
    """A name as a section of its own."""
    return {"model": value} if isinstance(value, str) else value


def _task(value: Any) -> TaskConfig:
    return resolve_any_task(value)


AnyTask = Annotated[SerializeAsAny[TaskConfig], BeforeValidator(_task)]


class OptimizerConfig(Config):
    """AdamW; biases and the weights of layer norms do not decay. lr rises from 0 over the first share `warmup` of the
    steps and then falls to 0 (linear) or stays (constant). clip: the largest norm of a gradient, null for any. head_lr:
    of the steps in which all_but_the_top trains the head alone.
    """

    epochs: int = Field(default=3, ge=1)
    batch_size: int = Field(default=32, ge=1)
    lr: float = Field(default=2e-5, gt=0)
    head_lr: float = Field(default=1e-3, gt=0)
    schedule: Literal["linear", "constant"] = "linear"
    warmup: float = Field(default=0.1, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float | None = Field(default=1.0, gt=0)
    zeta: float = Field(default=0.2, ge=0, le=1)
    refresh_sample: int = Field(default=10_000, ge=2)
    precision: Literal["fp32", "bf16"] = "fp32"


class FinetuneConfig(RunConfig, OptimizerConfig):
    """model: a transformer and how it is used. task: what it is trained for; its validation: the task of another
    section, by default its split "validation", all of it whatever the limit of `task` is; or held_out: a share of the
    examples of `task` that are validated on instead, none of whose sentences is trained on.

    methods: none, i_star(λ), cosreg(λ), all_but_the_top(k), which is fitted on all that is trained on, of spans on some
    20 000 tokens of it. seeds: of the head, the batches and the dropout; `seed` is that of samples and of what is held
    out. zeta: of IsoScore*, whose C_0 comes anew before every epoch from training sentences with refresh_sample tokens.
    max_length: tokens of an input, more are cut, null: 128; of questions with their passages tokens of a window, null:
    384, the next of which begins so that `overlap` tokens are in both. max_answer: tokens of an answer.
    measure_tokens: what is measured of tokens is of validation sentences with about so many, null: of all. precision:
    of the products on the way to the loss; parameters are float32, and what is added to the loss is.
    """

    model: Annotated[TransformerConfig, BeforeValidator(_transformer)]
    task: AnyTask
    validation: AnyTask | None = None
    held_out: float = Field(default=0.0, ge=0, lt=1)
    methods: tuple[str, ...] = Field(default=(NONE, "i_star(-1)", "i_star(1)"), min_length=1)
    seeds: Seeds = (0, 1, 2, 3, 4)
    max_length: int | None = Field(default=None, ge=8)
    overlap: int = Field(default=64, ge=0)
    max_answer: int = Field(default=30, ge=1)
    measure_tokens: int | None = Field(default=50_000, ge=2)

    @field_validator("methods", mode="before")
    @classmethod
    def _several(cls, methods: Any) -> Any:
        if isinstance(methods, str):
            raise InputError(f"{methods!r} is no list of methods; write methods=[{methods}]")
        return tuple(methods) if isinstance(methods, list) else methods

    @field_validator("methods")
    @classmethod
    def _known_methods(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(parse_method(text)) for text in methods))

    @model_validator(mode="after")
    def _something_to_validate_on(self) -> Self:
        if self.held_out and self.validation is not None:
            raise InputError("validation and held_out are two ways to say what to validate on; set one of them")
        self.validation_task()
        return self

    @property
    def optimizer(self) -> OptimizerConfig:
        values = self.model_dump(mode="json", include=set(OptimizerConfig.model_fields))
        return validate(OptimizerConfig, values, "training")

    @property
    def each_method(self) -> tuple[Method, ...]:
        return tuple(parse_method(text) for text in self.methods)

    def validation_task(self) -> TaskConfig | None:
        """None where a share of `task` is held out. Raises InputError where the task has no other split."""
        if self.held_out or self.validation is not None:
            return self.validation
        split = VALIDATION.get(self.task.name, "validation")
        path = getattr(self.task, "path", None)
        if split not in self.task.SPLITS or split == self.task.split or (path is not None and path.is_file()):
            raise InputError(
                f"the task {self.task.name} has one set of examples here; set validation to another section, or "
                "held_out to the share of examples to validate on"
            )
        # a limit makes trainings short; of the validation split it would only make numbers less sure
        values: Mapping[str, Any] = self.task.model_dump(mode="json", serialize_as_any=True, exclude={"limit"})
        return resolve_any_task({**values, "split": split})

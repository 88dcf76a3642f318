"""The config of the fine-tuning experiment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, model_validator

from clip_geometry.config import Config
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.base import RunConfig, Seeds
from clip_geometry_experiments.rudman2024.finetune.model import TransformerConfig
from clip_geometry_experiments.tasks import TaskConfig, resolve_task

NONE, I_STAR, COSREG, TOP = "none", "i_star", "cosreg", "all_but_the_top"
FORMS = f"{I_STAR}(λ), {COSREG}(λ), {TOP}(k), {NONE}"
AnyTask = Annotated[SerializeAsAny[TaskConfig], BeforeValidator(resolve_task)]
Transformer = Annotated[
    TransformerConfig, BeforeValidator(lambda value: {"model": value} if isinstance(value, str) else value)
]


@dataclass(frozen=True)
class Method:
    """A method, written in a config as none, i_star(-1), cosreg(1) or all_but_the_top(3).

    Args:
        name: "none", "i_star", "cosreg" or "all_but_the_top".
        value: λ of the penalty; for all_but_the_top, the number of components removed; for none, 0.
    """

    name: str
    value: float = 0.0

    def __str__(self) -> str:
        return self.name if self.name == NONE else f"{self.name}({self.value:g})"

    def at(self) -> dict[str, object]:
        """Return the method for the `at` of records."""
        if self.name == TOP:
            return {"method": self.name, "components": int(self.value)}
        return {"method": self.name, "lambda": self.value}


def parse_method(text: str) -> Method:
    """Parse a method written as `name(value)`.

    With λ = 0 a penalty adds nothing, so i_star(0) and cosreg(0) become none. Raises InputError for any text that is
    not in FORMS.
    """
    pattern = rf"{NONE}|({I_STAR}|{COSREG})\((-?[\d.]+)\)|({TOP})\(([1-9]\d*)\)"
    match = re.fullmatch(pattern, text.strip())
    if match is None:
        raise InputError(f"unknown method {text!r}; expected one of {FORMS}")
    value = float(match[2] or match[4] or 0)
    return Method(match[1] or match[3], value) if value else Method(NONE)


MethodText = Annotated[str, AfterValidator(lambda text: str(parse_method(text)))]


class FinetuneOptimizerConfig(Config):
    """Config of the optimizer and the penalty.

    Args:
        epochs: Passes over the training examples, at least 1.
        batch_size: Windows per step, at least 1.
        lr: Learning rate of AdamW, > 0.
        warmup: Share of the steps in which the rate rises from 0, in [0, 1); afterwards it falls to 0.
        weight_decay: Weight decay of matrices; biases and the weights of layer norms do not decay.
        clip: Maximum gradient norm, > 0; null does not clip.
        zeta: Shrinkage of IsoScore*, in [0, 1].
        refresh_sample: Number of training tokens from which C_0 of IsoScore* is recomputed before every epoch.
        precision: Precision of the forward pass, "fp32" or "bf16"; parameters and penalties are float32.
    """

    epochs: int = Field(default=3, ge=1)
    batch_size: int = Field(default=32, ge=1)
    lr: float = Field(default=2e-5, gt=0)
    warmup: float = Field(default=0.1, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float | None = Field(default=1.0, gt=0)
    zeta: float = Field(default=0.2, ge=0, le=1)
    refresh_sample: int = Field(default=10_000, ge=2)
    precision: Literal["fp32", "bf16"] = "fp32"


class FinetuneConfig(RunConfig, FinetuneOptimizerConfig):
    """Config of the experiment `finetune`.

    Args:
        model: A transformer and its settings: a name, or a section of `TransformerConfig`.
        task: The task to fine-tune on.
        held_out: Share of the examples of `task` to validate on, in [0, 1); no sentence occurs in both sets. 0 uses the
            entire split "validation" of `task`, regardless of the limit of `task`.
        methods: Methods to compare: none, i_star(λ), cosreg(λ), all_but_the_top(k). The last is fitted on all training
            examples or, for spans, on about 20,000 of their tokens.
        seeds: Seeds of the head, the batches and the dropout; `seed` is the seed of the samples and the held-out split.
        max_length: Maximum number of tokens per input (default 128); longer inputs are truncated. For questions with
            passages, the number of tokens per window (default 384).
        overlap: Number of tokens that consecutive windows share.
    """

    model: Transformer
    task: AnyTask
    held_out: float = Field(default=0.0, ge=0, lt=1)
    methods: tuple[MethodText, ...] = Field(default=(NONE, "i_star(-1)", "i_star(1)"), min_length=1)
    seeds: Seeds = (0, 1, 2, 3, 4)
    max_length: int | None = Field(default=None, ge=8)
    overlap: int = Field(default=64, ge=0)

    @model_validator(mode="after")
    def _something_to_validate_on(self) -> Self:
        if not self.held_out:
            self.validation_task()
        return self

    @property
    def each_method(self) -> tuple[Method, ...]:
        return tuple(map(parse_method, self.methods))

    def validation_task(self) -> TaskConfig:
        """Return the split "validation" of the task. Raises InputError if the task has no other split."""
        task = self.task
        path = getattr(task, "path", None)
        if "validation" not in task.SPLITS or task.split == "validation" or (path is not None and path.is_file()):
            raise InputError(
                f"the task {task.name} has only one set of examples here; set held_out to the share of examples to "
                "validate on"
            )
        # a limit keeps trainings short; on the validation split it would only make the numbers less certain
        values: Mapping[str, Any] = task.model_dump(mode="json", serialize_as_any=True, exclude={"limit"})
        return resolve_task({**values, "split": "validation"})

"""The config of the distillation: a student learns to map texts in several languages to the rows of a text tower."""

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from clip_geometry.config import Config
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.base import Data, Model, RunConfig
from clip_geometry_experiments.kit.clip_training import OptimizerConfig, with_a_place


class StudentConfig(Config):
    """Config of a BERT without dropout.

    Args:
        width: Width of its rows, a multiple of `heads`.
        layers: Number of layers.
        heads: Number of attention heads.
        hidden: Width of the feed-forward layers.
    """

    width: int = Field(default=128, ge=1)
    layers: int = Field(default=2, ge=1)
    heads: int = Field(default=4, ge=1)
    hidden: int = Field(default=256, ge=1)

    @model_validator(mode="after")
    def _divides(self) -> Self:
        """Check that the number of heads divides the width."""
        if self.width % self.heads:
            raise InputError(
                f"width is {self.width} with {self.heads} heads; expected a multiple of the number of heads"
            )
        return self


class DistillationConfig(RunConfig, OptimizerConfig):
    """Config of the experiment `distillation`.

    Args:
        teacher: An encoder with a text tower and an image tower.
        data: Training captions in several languages, with classes; its own `language` is ignored.
        measured: Other images and captions, on which the states are measured.
        tested: Images for zero-shot accuracy at the end.
        languages: At least two languages; the first is the teacher's, and the student learns it too.
        prompts: Mapping from language to templates of class prompts, for zero-shot classification (an ensemble if there
            are several) and for the share `class_captions` of the training texts.
        training_prompts: Templates for the share `class_captions` alone; null uses `prompts`.
        student: Architecture of the student.
        batch_size: Texts per step, the same number in each language.
        measurements: Approximate number of states to measure.
        seed: Seed of the initial weights and the batches.
    """

    teacher: Model
    data: Data
    measured: Data
    tested: Data
    languages: tuple[str, ...] = Field(min_length=2)
    prompts: Mapping[str, tuple[str, ...]]
    training_prompts: Mapping[str, tuple[str, ...]] | None = None
    student: StudentConfig = StudentConfig()
    measurements: int = Field(default=16, ge=2)

    @model_validator(mode="after")
    def _in_each_language(self) -> Self:
        """Check batch size, data and prompts against the languages."""
        if self.batch_size % len(self.languages):
            raise InputError(
                f"batch_size is {self.batch_size} for {len(self.languages)} languages; expected a multiple of the "
                "number of languages, because each has the same number of texts"
            )
        for name in ("measured", "tested"):
            if getattr(self, name) == self.data:
                raise InputError(f"{name} is the training data; expected other items, such as another split")
        for prompts in (self.prompts, self.training_prompts or self.prompts):
            for language in self.languages:
                if not with_a_place(prompts.get(language, ())):
                    raise InputError(f"there are no prompts in {language!r}; expected templates such as 'Bild: {{}}.'")
        return self

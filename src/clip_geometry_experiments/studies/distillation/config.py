"""The config of the distillation: a student learns in several languages the rows that a text tower gives in one."""

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from clip_geometry.config import Config
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.base import Data, Model, RunConfig
from clip_geometry_experiments.kit.clip_training import OptimizerConfig, with_a_place
from clip_geometry_experiments.kit.languages import parallel


class StudentConfig(Config):
    """A BERT without dropout.

    Args:
        width: of its rows.
        layers: how many.
        heads: of attention.
        hidden: width of the layers between.
    """

    width: int = Field(default=128, ge=1)
    layers: int = Field(default=2, ge=1)
    heads: int = Field(default=4, ge=1)
    hidden: int = Field(default=256, ge=1)

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.width % self.heads:
            raise InputError(f"width is {self.width} and heads are {self.heads}; expected a width that they divide")
        return self


class DistillationConfig(RunConfig, OptimizerConfig):
    """Keys of the experiment.

    Args:
        teacher: an encoder with a text tower (and, for zero-shot, an image tower).
        data: training captions in several languages; its own `language` is not used.
        measured: other captions, on which states are measured, and zero-shot too if it has images and labels.
        tested: images for zero-shot accuracy at the end; null for none.
        languages: the first is the teacher's, and the student learns it too.
        prompts: language → templates of class prompts, for zero-shot (an ensemble if there are several) and for the
            share `class_captions` of the training texts.
        training_prompts: the same for that share alone; null for `prompts`.
        student: its architecture.
        batch_size: texts of a step, the same number in each language.
        measurements: measure about this many states.
        seed: of first weights and batches.
    """

    teacher: Model
    data: Data
    measured: Data
    tested: Data | None = None
    languages: tuple[str, ...] = Field(min_length=2)
    prompts: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    training_prompts: Mapping[str, tuple[str, ...]] | None = None
    student: StudentConfig = StudentConfig()
    measurements: int = Field(default=16, ge=2)

    @model_validator(mode="after")
    def _of_use(self) -> Self:
        languages = self.languages
        if len(set(languages)) < len(languages):
            raise InputError(f"{', '.join(languages)} has a language twice")
        if self.batch_size % len(languages):
            raise InputError(
                f"batch_size is {self.batch_size} for {len(languages)} languages; expected a multiple, each has as many"
            )
        needed = bool(self.prompts or self.class_captions or self.tested is not None)
        for prompts in (self.prompts, *filter(None, [self.training_prompts])):
            missing = [language for language in languages if not prompts.get(language)]
            if missing and needed:
                raise InputError(
                    f"prompts have none in {missing[0]!r}; expected templates such as 'Bild: {{}}.' in each language, "
                    "or class_captions=0, tested=null and no prompts at all"
                )
            for language in languages:
                with_a_place(prompts.get(language, ()))
        for name in ("measured", "tested"):
            if getattr(self, name) == self.data:
                raise InputError(f"{name} is the data that is trained on; expected other items, another split")
        for data in (self.data, self.measured):  # they have these languages
            for language in languages:
                parallel(data, languages, language)
        return self

"""Zero-shot classification by prompts in several languages: images and prompts by different models."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from clip_geometry.config import validate
from clip_geometry.data import load_dataset
from clip_geometry.data.base import DatasetConfig
from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry.uncertainty import BLOCKS
from clip_geometry.measuring.sets import MeasuredSets, named
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.transforms import parse_pipeline
from clip_geometry_experiments.kit.base import Cell, Data, Experiment, Model, RunConfig, experiments

if TYPE_CHECKING:
    from clip_geometry_experiments.report.gallery import FigureEntry

ZERO_SHOT = "zero_shot.top_1"


class LanguageZeroShotConfig(RunConfig):
    """Config of the experiment `language_zero_shot`.

    Args:
        model: Encoder of the images.
        text: Encoder of the prompts, null for the same.
        probe: Labeled images whose classes have names in every language.
        prompts: Language → prompt.
        trained: Images whose classes count as seen, null for no such distinction.
        batch_size: Batch size of the encoders.
        blocks: Blocks of the jackknife over images.
    """

    model: Model
    text: Model | None = None
    probe: Data
    prompts: dict[str, str] = Field(min_length=1)
    trained: Data | None = None
    batch_size: int = Field(default=64, ge=1)
    blocks: int = Field(default=BLOCKS, ge=0)

    @model_validator(mode="after")
    def _known_languages(self) -> Self:
        _ = [self.prompted(language) for language in self.prompts]
        return self

    def prompted(self, language: str) -> DatasetConfig:
        """The images with a prompt per class in that language."""
        values = self.probe.model_dump(mode="json") | {"language": language, "prompt": self.prompts[language]}
        return validate(type(self.probe), values, f"probe {self.probe.name} in {language!r}")


class LanguageZeroShot(Experiment):
    Config = LanguageZeroShotConfig
    summary = "zero-shot accuracy by prompts in several languages, through a text tower of another model"

    def cells(self) -> Iterator[Cell]:
        config, revisions = self.config, self.workspace.revisions
        words = {"name", "title", "description", "prompts"}
        settings = config.model_dump(mode="json", serialize_as_any=True, exclude=words)
        shared = settings | {"pictures": revisions(config.model, config.probe)}
        for language, prompt in config.prompts.items():
            texts = revisions(self._text_model, config.prompted(language))
            define = {"language": language, "prompt": prompt, "texts": texts, **shared}
            yield Cell(define, partial(self._rows, language), language)

    @property
    def _text_model(self) -> Any:
        return self.config.text or self.config.model

    @cached_property
    def _images(self) -> Embeddings:
        config = self.config
        found = self.workspace.embeddings(config.model, config.probe, limit=None, batch_size=config.batch_size)
        if "image" not in found or found["image"].labels is None:
            raise InputError(
                f"the probe {config.probe.name} has to have labeled images, and {config.model.model} an image tower"
            )
        return found["image"]

    def _rows(self, language: str) -> list[Row]:
        config, rows = self.config, []
        texts = self.workspace.embeddings(
            self._text_model, config.prompted(language), limit=None, batch_size=config.batch_size, only="text"
        )["text"]
        (measure,) = named([ZERO_SHOT])
        for classes, chosen in self._kinds:
            sets = {"image": self._images.take(chosen), "text": texts}
            measured = MeasuredSets(sets, parse_pipeline(("normalize",)), seed=config.seed, blocks=config.blocks)
            at = {"language": language} | ({"classes": classes} if classes else {})
            row = {**measured.context(), **measured.row(measure, "both")}
            # the language is in `at`, not among the options of the data
            options = {key: value for key, value in row["data_options"].items() if key not in ("image", "text")}
            row |= {"null_value": 1 / len(np.unique(np.asarray(texts.labels))), "at": {"modality": "both", **at}}
            rows.append(row | {"data_options": options or self._own_options})
        return rows

    @property
    def _own_options(self) -> dict[str, Any]:
        return self.config.probe.model_dump(mode="json", exclude_defaults=True, exclude={"name", "split"})

    @cached_property
    def _kinds(self) -> list[tuple[str, np.ndarray]]:
        """(seen or held out, mask of the images); all images where that is not known."""
        labels = np.asarray(self._images.labels)
        if self.config.trained is None:
            return [("", np.ones(len(labels), bool))]
        side = load_dataset(self.config.trained).image
        if side is None or side.labels is None:
            raise InputError(f"trained is {self.config.trained.name}, which has no labeled images")
        known = np.isin(labels, side.labels)
        kinds = [("seen", known), ("held out", ~known)]
        return [(name, chosen) for name, chosen in kinds if chosen.sum() > 1]

    # --- the report

    def facts(self) -> Mapping[str, Any]:
        from clip_geometry.display.origin import with_options

        config = self.config
        return {
            "image model": config.model.model,
            "prompt model": self._text_model.model,
            "images": f"{with_options(config.probe.name, self._own_options)}, {config.probe.split}",
            "prompts": {language: f"“{prompt}”" for language, prompt in config.prompts.items()},
            "seed": config.seed,
        }

    @classmethod
    def sentences(cls, planned: "Sequence[LanguageZeroShot]") -> list[str]:
        from clip_geometry_experiments.studies.language_zero_shot.figures import tell

        return tell(planned[0].finished_rows()) if len(planned) == 1 else []

    def figures(self, folder: Path, *, prefix: str = "", group: str = "") -> "list[FigureEntry]":
        from clip_geometry_experiments.studies.language_zero_shot.figures import draw_language_zero_shot

        facts = self.facts()
        prompts = ", ".join(f"{language} {prompt}" for language, prompt in facts["prompts"].items())
        models = f"{facts['images']} by {facts['image model']}, prompts by {facts['prompt model']}"
        origin = f"{models}; {prompts}; seed {facts['seed']}."
        return draw_language_zero_shot(self.finished_rows(), folder=folder, origin=origin, prefix=prefix, group=group)

    def fresh_models(self) -> list[str]:
        return [each.model for each in (self.config.model, self.config.text) if each is not None and each.is_fresh]


experiments.add("language_zero_shot", LanguageZeroShot)

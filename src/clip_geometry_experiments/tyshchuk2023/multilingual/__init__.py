"""Captions in several languages: distances between translations, clusters, and zero-shot accuracy by language."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from clip_geometry.config import Config
from clip_geometry.data import load_dataset
from clip_geometry.data.base import DatasetConfig
from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry.uncertainty import BLOCKS
from clip_geometry.measuring.records import named
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.steps import parse_pipeline
from clip_geometry_experiments.kit import base
from clip_geometry_experiments.kit.languages import EXPLANATIONS, LanguageSets, parallel
from clip_geometry_experiments.kit.maps import seen_and_held_out
from clip_geometry_experiments.tyshchuk2023.multilingual.figures import draw_map, draw_ratios, tell


class PromptsConfig(Config):
    """Config of zero-shot classification with prompts in several languages.

    Args:
        model: Encoder of the images; its text tower encodes the prompts.
        probe: Labeled images whose classes have names in every language.
        trained: Images whose classes count as seen.
        prompts: Mapping from language to prompt, at least one.
    """

    model: base.Model
    probe: base.Data
    trained: base.Data
    prompts: dict[str, str] = Field(min_length=1)

    @model_validator(mode="after")
    def _known_languages(self) -> Self:
        for language in self.prompts:
            self.prompted(language)
        return self

    def prompted(self, language: str) -> DatasetConfig:
        """Return the images with one prompt per class in this language."""
        return base.changed(self.probe, language=language, prompt=self.prompts[language])


class MultilingualConfig(base.RunConfig):
    """Config of the experiment `multilingual`.

    Args:
        model: An encoder with a text tower.
        captions: A data set in several languages; its own `language` is ignored.
        languages: At least two languages; each of the others is compared with the first.
        pipeline: Steps applied before measuring, fitted on all languages; empty uses the raw rows of the model.
        limit: Use only the first N items; null uses all.
        batch_size: Batch size of the encoder.
        blocks: Number of blocks in the jackknife over captions; 0 computes no standard errors.
        zero_shot: Images to classify with prompts in each language; null skips this.
        figures: Figures to draw: "map" shows every pair of languages by UMAP, "ratios" the ratios of distances.
    """

    model: base.Model
    captions: base.Data
    languages: Annotated[tuple[str, ...], Field(min_length=2), base.distinct("languages")]
    pipeline: base.Steps = ()
    limit: int | None = Field(default=None, ge=2)
    batch_size: int = Field(default=64, ge=1)
    blocks: int = Field(default=BLOCKS, ge=0)
    zero_shot: PromptsConfig | None = None
    figures: tuple[Literal["map", "ratios"], ...] = ("map", "ratios")

    @property
    def pairs(self) -> dict[str, tuple[DatasetConfig, DatasetConfig]]:
        """Mapping from language to the captions of the first language and of this language."""
        return {target: parallel(self.captions, self.languages, target) for target in self.languages[1:]}


class Multilingual(base.Experiment):
    Config = MultilingualConfig
    explanations = EXPLANATIONS

    @cached_property
    def sets(self) -> LanguageSets:
        config = self.config
        embeddings: dict[str, Embeddings] = {}
        sources: dict[str, str] = {}
        names: dict[DatasetConfig, str] = {}
        for language, (source, target) in config.pairs.items():
            if source not in names:
                names[source] = f"{source.language} beside {language}" if names else source.language
                embeddings[names[source]] = self._embedded(source, config.limit)
            sources[language] = names[source]
            embeddings[language] = self._embedded(target, config.limit)
        steps = parse_pipeline(config.pipeline)
        return LanguageSets(embeddings, steps, sources, seed=config.seed, blocks=config.blocks)

    def _embedded(self, data: DatasetConfig, limit: int | None) -> Embeddings:
        """Embed the captions of a data set; raise InputError if there are none."""
        config = self.config
        sets = self.workspace.embeddings(config.model, data, limit=limit, batch_size=config.batch_size, only="text")
        if "text" not in sets:
            raise InputError(
                f"{config.model.model} gives no text embeddings of {data.name}; expected a model with a text tower and "
                "a data set with captions, on which languages are compared"
            )
        return sets["text"]

    def cells(self) -> Iterator[base.Cell]:
        config = self.config
        datasets = dict.fromkeys(data for pair in config.pairs.values() for data in pair)
        revisions = [self.workspace.revisions(config.model, data) for data in datasets]
        shared = config.settings("zero_shot", "figures") | {"revisions": revisions}
        all_together = [None] if len(config.pairs) > 1 else []
        for kind, languages in (("distance", config.pairs), ("silhouette", (*config.pairs, *all_together))):
            for language in languages:
                define = {"measure": kind, "of": language, **shared}
                what = f"{kind} of {language or 'all together'}"
                yield base.Cell(define, partial(self._language_rows, kind, language), what)
        if config.zero_shot is not None:
            define = {"measure": "zero_shot", "of": config.zero_shot.model_dump(mode="json"), **shared}
            define["images"] = self.workspace.revisions(config.zero_shot.model, config.zero_shot.probe)
            for language in config.zero_shot.prompts:
                rows = partial(self._accuracies, config.zero_shot, language)
                yield base.Cell({"language": language, **define}, rows, f"zero-shot accuracy in {language}")

    def _accuracies(self, config: PromptsConfig, language: str) -> list[Row]:
        """Return the accuracy among all classes with a language's prompts, on images of seen and of other classes."""
        sets = self.workspace.embeddings(config.model, config.probe, limit=None, batch_size=self.config.batch_size)
        trained = load_dataset(config.trained).image
        if "image" not in sets or sets["image"].labels is None or trained is None or trained.labels is None:
            raise InputError(f"zero_shot needs labeled images in both {config.probe.name} and {config.trained.name}")
        image = sets["image"]
        prompts = self._embedded(config.prompted(language), limit=None)
        (measure,) = named(["zero_shot.top_1"])
        rows = []
        for classes, chosen in seen_and_held_out(image.labels, trained.labels).items():
            part = {"image": image.take(chosen), "text": prompts}
            measured = MeasuredSets(
                part, parse_pipeline(("normalize",)), seed=self.config.seed, blocks=self.config.blocks
            )
            row = {**measured.context(), **measured.row(measure, "both")}
            row |= {"null_value": 1 / len(np.unique(np.asarray(prompts.labels)))}
            rows.append(row | {"at": {"modality": "both", "language": language, "classes": classes}})
        return rows

    def _language_rows(self, kind: str, language: str | None) -> list[Row]:
        """Return the rows of kind "distance" or "silhouette" for a language, or for all languages together if None."""
        return [{**self.sets.context(), **row} for row in getattr(self.sets, f"{kind}_rows")(language)]

    @classmethod
    def sentences(cls, planned: "Sequence[Multilingual]") -> list[str]:
        labels = base.distinct_labels([run.label() for run in planned]) if len(planned) > 1 else [""]
        by_run = [tell(run.finished_rows(), label) for run, label in zip(planned, labels, strict=True)]
        return [sentence for of_kind in zip(*by_run, strict=False) for sentence in of_kind]

    def drawings(self) -> Mapping[str, Any]:
        config = self.config
        source = self.config.languages[0]
        rows = self.finished_rows()
        ratios = {row["at"]["language"]: row for row in rows if row["measure"] == "language_distance.ratio"}
        drawn = {}
        if "map" in config.figures:
            pairs = {name: self.sets.aligned(name) for name in config.pairs}
            drawn["languages_umap"] = draw_map(pairs, source, config.seed)
        if "ratios" in config.figures:
            drawn["language_ratio"] = draw_ratios(ratios, source)
        return drawn

    def origin(self) -> str:
        return f"{'; '.join(base.origin_words(self.sets.context()))}; seed {self.config.seed}."


base.experiments.add("multilingual", Multilingual)

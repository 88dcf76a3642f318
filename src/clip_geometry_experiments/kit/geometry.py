"""The measures and standard figures of one model on one set of pairs; the experiments geometry and isotropy use it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from clip_geometry.display.numbers import fixed, plus_minus
from clip_geometry.display.origin import pipeline_words
from clip_geometry.embeddings import Embeddings, pair_of
from clip_geometry.geometry import Measure, by_group
from clip_geometry.geometry.uncertainty import BLOCKS
from clip_geometry.measuring.records import named, rows_or_notes
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.measuring.views import origin_of
from clip_geometry.progress import note
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.steps import parse_pipeline
from clip_geometry.transforms.pipeline import Pipeline
from clip_geometry_experiments.kit.base import Cell, Experiment, Model, RunConfig, Source, Steps
from clip_geometry_experiments.kit.maps import moved
from clip_geometry_experiments.kit.stored import SplitConfig, check_sources, part_of
from clip_geometry_experiments.report.figures import Drawing, draw_figures

StandardFigure = Literal["singular_directions", "cosine_distributions"]
FIGURES: tuple[StandardFigure, ...] = get_args(StandardFigure)
PARTS = {"rest": "held-out pairs", "first": "pairs that maps were fitted on"}
COSINES = ("matching_cosine", "random_cosine")
# measures that training changes, in the order in which the sentences state them
CHANGES = {
    "modality_gap": "The distance between the mean image and the mean text",
    "matching_cosine": "The mean cosine of matching pairs",
    "random_cosine": "The mean cosine of random pairs",
}


class GeometryConfig(RunConfig):
    """Config of the experiment `geometry`.

    Args:
        model: An encoder; null for stored embeddings.
        pairs: A data set, or stored embeddings as {embeddings: PATH}.
        pipeline: Steps that are applied before measuring.
        measures: Names of measures; null for all.
        limit: Use only the first N items.
        batch_size: Batch size of the encoder.
        blocks: Number of jackknife blocks; 0 for no standard errors.
        figures: The standard figures to draw.
        split: Fit the pipeline on the first part of a random split of the images and their captions, and measure the
            part named `part`: "rest" is the held-out pairs, "first" is the pairs of the fit. null: fit on and measure
            all pairs.
    """

    model: Model | None = None
    pairs: Source
    pipeline: Steps = ("normalize",)
    measures: tuple[str, ...] | None = Field(default=None, min_length=1)
    limit: int | None = Field(default=None, ge=2)
    batch_size: int = Field(default=64, ge=1)
    blocks: int = Field(default=BLOCKS, ge=0)
    figures: tuple[StandardFigure, ...] = FIGURES
    split: SplitConfig | None = None

    @model_validator(mode="after")
    def _sources(self) -> Self:
        check_sources(self.model, pairs=self.pairs)
        return self

    @field_validator("measures")
    @classmethod
    def _known_measures(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return names and tuple(measure.name for measure in named(names))


class HeldOutSets(MeasuredSets):
    """Held-out sets after a pipeline that was fitted on other pairs and is held fixed in standard errors.

    Null values are measured on isotropic Gaussian rows, which replace the transformed rows and have the same mean
    squared length.
    """

    def __init__(self, sets: Mapping[str, Embeddings], fitted: Pipeline, **options: Any):
        super().__init__(moved(fitted, sets), (), **options)
        self.steps, self.fitted_on = fitted.steps, fitted.fitted_on

    def _with(self, sets: Mapping[str, Embeddings], **changes: Any) -> MeasuredSets:
        options: Any = {"seed": self.seed, "blocks": self.blocks, "in_memory": self.in_memory}
        return MeasuredSets(sets, (), **options | changes)


class GeometryExperiment(Experiment):
    """Measures one model on one set of pairs. A cell is one measure."""

    Config = GeometryConfig

    @cached_property
    def sets(self) -> MeasuredSets:
        config, split = self.config, self.config.split
        sets = self.workspace.embeddings(config.model, config.pairs, limit=config.limit, batch_size=config.batch_size)
        options: Any = {"seed": config.seed, "blocks": config.blocks}
        if split is None:
            return MeasuredSets(sets, parse_pipeline(config.pipeline), **options)
        fitting, part = (part_of(sets, split, name) for name in ("first", split.part))
        if split.part == "first":
            return MeasuredSets(fitting, parse_pipeline(config.pipeline), **options)
        rows = {modality: side.vectors for modality, side in fitting.items()}
        fitted = Pipeline(config.pipeline).fit(rows, pair_of(fitting), origin=origin_of(fitting))
        return HeldOutSets(part, fitted, **options)

    def cells(self) -> Iterator[Cell]:
        config = self.config
        shared = self.settings()
        asked = config.measures is not None
        for measure in named(config.measures) if asked else by_group():
            yield Cell({"measure": measure.name, **shared}, partial(self._rows, measure, asked), measure.name)

    def settings(self) -> dict[str, Any]:
        """Return the values that the numbers of every cell depend on."""
        config = self.config
        return config.settings("measures", "figures") | self.workspace.revisions(config.model, config.pairs)

    def _rows(self, measure: Measure, asked: bool) -> list[Row]:
        shared = self.sets.context()
        return [{**shared, **row} for row in rows_or_notes(self.sets, measure, named=asked)]

    def drawings(self) -> Mapping[str, Drawing]:
        return self.draw(self.sets, self.config.figures)

    def draw(self, sets: MeasuredSets, names: Sequence[str], *, only: str | None = None) -> dict[str, Drawing]:
        """Draw standard figures.

        Args:
            sets: The measured sets. Streamed sets are not drawn.
            names: Names of the figures.
            only: The modality to draw; None for all.

        Returns:
            File name → drawing.
        """
        if sets.streamed:
            note(
                "figures are skipped, because these rows do not fit into memory; limit=5000 draws the first 5000 items"
            )
            return {}
        rows = {modality: rows for modality, rows in sets.rows.items() if only in (None, modality)}
        pairs = None
        with suppress(InputError):  # no row has a pair
            pairs = sets.pairs if len(rows) == 2 else None
        return draw_figures(rows.get("image"), rows.get("text"), pairs, sets.context(), names)

    def origin(self) -> str:
        split = self.config.split
        return "" if split is None else f"Drawn are {PARTS[split.part]}, the {split}."

    @classmethod
    def sentences(cls, planned: Sequence[Any]) -> list[str]:
        """Return sentences on splits, or on a model before and after training.

        For splits, they state the cosines of matching and of random pairs. For a model before and after its training,
        they state what the training changed. Otherwise there are none, and the report has the verdict on each run.
        """
        runs = [{row["measure"]: row for row in run.finished_rows()} for run in planned]
        split = None not in [run.config.split for run in planned]
        if split and all(rows.keys() >= set(COSINES) for rows in runs):
            return _of_splits([run.config for run in planned], runs)
        models = [run.config.model for run in planned]
        if len(models) != 2 or None in models or models[0].model != models[1].model:
            return []
        if not models[0].is_fresh or models[1].is_fresh:
            return []
        changes = []
        for measure, what in CHANGES.items():
            if all(rows.get(measure, {}).get("value") is not None for rows in runs):
                texts = (plus_minus(rows[measure]["value"], rows[measure].get("standard_error")) for rows in runs)
                changes.append(f"{what} is {' before training and '.join(texts)} after it.")
        return changes


def _of_splits(configs: Sequence[GeometryConfig], runs: Sequence[Mapping[str, Row]]) -> list[str]:
    """Return sentences on the cosines of matching and of random pairs, for each measured part of the split."""
    by_pipeline: dict[str, list[str]] = {}
    for config, rows in zip(configs, runs, strict=True):
        assert config.split is not None
        matching, random = (plus_minus(rows[name]["value"], rows[name].get("standard_error")) for name in COSINES)
        part = f"{rows[COSINES[0]]['n']} {PARTS[config.split.part]}"
        null = fixed(rows[COSINES[0]]["null_value"], 2)  # null value of noise after the same fitted pipeline
        sentence = f"the {part} have a cosine of {matching} (null value {null}), random pairs of them {random}"
        by_pipeline.setdefault(pipeline_words(config.pipeline), []).append(sentence)
    return [f"After {steps}, {'; '.join(parts)}." for steps, parts in by_pipeline.items()]

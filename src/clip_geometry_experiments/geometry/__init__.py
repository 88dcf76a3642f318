"""The geometry of one model on one set of pairs: the registered measures and the standard figures."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from clip_geometry.display.numbers import fixed, plus_minus
from clip_geometry.display.origin import pipeline_words
from clip_geometry.embeddings import Embeddings, pair_of
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.measuring.views import origin_of
from clip_geometry.steps import parse_pipeline
from clip_geometry.transforms import Pipeline
from clip_geometry_experiments.kit.base import experiments
from clip_geometry_experiments.kit.geometry import GeometryConfig, GeometryExperiment
from clip_geometry_experiments.kit.maps import moved
from clip_geometry_experiments.kit.stored import SplitConfig, part_of

PARTS = {"rest": "held-out pairs", "first": "pairs that maps were fitted on"}
COSINES = ("matching_cosine", "random_cosine")


class PartConfig(GeometryConfig):
    """Config of the experiment `geometry`, beside the keys of `GeometryConfig`.

    Args:
        split: Fit the pipeline on the first part of a random split of the images and their captions, and measure
            `part` of it: "rest" are held-out pairs, "first" those of the fit. null: fit and measure all pairs.
    """

    split: SplitConfig | None = None


class HeldOutSets(MeasuredSets):
    """Held-out sets after a pipeline that was fitted on others and is held fixed in standard errors.

    Null values are those of isotropic Gaussian rows in place of the mapped ones, of equal mean squared length.
    """

    def __init__(self, sets: Mapping[str, Embeddings], fitted: Pipeline, **options: Any):
        super().__init__(moved(fitted, sets), (), **options)
        self.steps, self.fitted_on = fitted.steps, fitted.fitted_on

    def _with(self, sets: Mapping[str, Embeddings], **changes: Any) -> MeasuredSets:
        options: Any = {"seed": self.seed, "blocks": self.blocks, "in_memory": self.in_memory}
        return MeasuredSets(sets, (), **options | changes)


class Geometry(GeometryExperiment):
    Config = PartConfig

    @cached_property
    def sets(self) -> MeasuredSets:
        config, split = self.config, self.config.split
        if split is None:
            return super().sets
        found = self.workspace.embeddings(config.model, config.pairs, limit=config.limit, batch_size=config.batch_size)
        options: Any = {"seed": config.seed, "blocks": config.blocks}
        fitting, part = (part_of(found, split, name) for name in ("first", split.part))
        if split.part == "first":
            return MeasuredSets(fitting, parse_pipeline(config.pipeline), **options)
        rows = {modality: each.vectors for modality, each in fitting.items()}
        fitted = Pipeline(config.pipeline).fit(rows, pair_of(fitting), origin=origin_of(fitting))
        return HeldOutSets(part, fitted, **options)

    def origin(self) -> str:
        split = self.config.split
        return "" if split is None else f"Drawn are {PARTS[split.part]}, the {split}."

    @classmethod
    def sentences(cls, planned: Sequence[Any]) -> list[str]:
        """Of a split, the cosines of matching and of random pairs, of both parts where both are measured."""
        found: dict[str, list[str]] = {}
        for each in planned:
            rows = {row["measure"]: row for row in each.finished_rows() if row["measure"] in COSINES}
            if each.config.split is None or len(rows) < len(COSINES):
                return super().sentences(planned)
            told = [plus_minus(rows[name]["value"], rows[name].get("standard_error")) for name in COSINES]
            part = f"{rows[COSINES[0]]['n']} {PARTS[each.config.split.part]}"
            null = fixed(rows[COSINES[0]]["null_value"], 2)  # of noise through the same fit
            said = f"the {part} have a cosine of {told[0]} (null value {null}), random pairs of them {told[1]}"
            found.setdefault(pipeline_words(each.config.pipeline), []).append(said)
        return [f"After {steps}, {'; '.join(parts)}." for steps, parts in found.items()]


experiments.add("geometry", Geometry)

"""Maps that are fitted on one named set and applied to other sets, including labeled data sets."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from clip_geometry.config import Config
from clip_geometry.data.base import DatasetConfig
from clip_geometry.display.origin import model_words
from clip_geometry.embeddings import Embeddings, pair_of
from clip_geometry.geometry import Measure
from clip_geometry.geometry.uncertainty import BLOCKS
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.measuring.views import context, origin_of
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry.steps import ANY, parse_pipeline, transforms
from clip_geometry.transforms.pipeline import Pipeline
from clip_geometry_experiments.kit.base import (
    Cell,
    Experiment,
    Model,
    Probe,
    RunConfig,
    Source,
    Steps,
    changed,
    distinct,
)
from clip_geometry_experiments.kit.figures import draw_maps, map_sentences
from clip_geometry_experiments.kit.stored import StoredConfig, StoredProbe, check_sources, class_prompts

Sets = Mapping[str, Embeddings]


class MapConfig(Config):
    """Options of one map.

    Args:
        row: Name of the map in the table.
        pipeline: Steps of the map.
        fit_on: The role of the data that the map is fitted on; null if no step is fitted.
    """

    row: str
    pipeline: Steps = ("normalize",)
    fit_on: str | None = None

    @model_validator(mode="after")
    def _fitted_somewhere(self) -> Self:
        """Check that a map that learns names the data on which it is fitted, and that no other map does."""
        if self.learns and self.fit_on is None:
            raise InputError(f"the map {self.row!r} has steps that learn; set fit_on to the data that they learn from")
        if self.fit_on is not None and not self.learns:
            raise InputError(f"the map {self.row!r} learns nothing, so fit_on = {self.fit_on!r} means nothing")
        return self

    @property
    def learns(self) -> bool:
        """Whether a step of the map is fitted on data."""
        return any(transforms[step.name].fits for step in parse_pipeline(self.pipeline))


class MapsConfig(RunConfig):
    """Keys that every experiment on maps has.

    Args:
        model: An encoder; null for stored embeddings.
        maps: The maps. Each is one line of the table.
        limit: Use only the first N items of every set.
        batch_size: Batch size of the encoder.
        blocks: Number of jackknife blocks over the scored items, with the fitted map held fixed; 0 for no standard
            errors.
    """

    ROLES: ClassVar[tuple[str, ...]]  # roles that maps can be fitted on
    SCORED: ClassVar[tuple[str, ...]]  # roles that every map is scored on, or that the score needs

    model: Model | None = None
    maps: Annotated[tuple[MapConfig, ...], Field(min_length=1), distinct("maps", "row")]
    limit: int | None = Field(default=None, ge=2)
    batch_size: int = Field(default=64, ge=1)
    blocks: int = Field(default=BLOCKS, ge=0)

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, DatasetConfig | StoredConfig]:
        """The data by role."""

    @property
    def used(self) -> frozenset[str]:
        """The roles that maps are fitted on or scored on."""
        return frozenset(config.fit_on for config in self.maps if config.fit_on is not None).union(self.SCORED)

    @classmethod
    @abstractmethod
    def data_fields(cls) -> set[str]:
        """Return the names of the fields that choose the data of the roles."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Check that the data on which maps are fitted are set."""
        for config in self.maps:
            if config.fit_on is not None and config.fit_on not in self.sources:
                known = ", ".join(self.ROLES)
                raise InputError(
                    f"the map {config.row!r} is fitted on {config.fit_on!r}, which is not set; expected one of {known}"
                )
        check_sources(self.model, **self.sources)
        return self


class MapsExperiment(Experiment):
    """A table with one line per map. A cell is one map, so adding a map computes only the new one.

    Attributes:
        drawn: Measure → its name in the legends of the figures.
        in_brief: Measure → its name in the report's summary, the most important first.
        series_by: If only one measure is drawn, the key of `at` whose values are the series.
    """

    drawn: ClassVar[Mapping[str, str]]
    in_brief: ClassVar[Mapping[str, str]] = {}
    series_by: ClassVar[str | None] = None

    def sets(self, role: str) -> Sets:
        """Return the rows of a role before any map."""
        return self.embeddings(self.config.model, self.config.sources[role])

    def embeddings(self, model: Any, data: DatasetConfig | StoredConfig, only: str | None = None) -> Sets:
        """Return the rows of a model and data before any map, up to the config's limit.

        Args:
            model: An encoder; None for stored embeddings.
            data: A data set or stored embeddings.
            only: The modality that is needed. Default: all.
        """
        limit, batch_size = self.config.limit, self.config.batch_size
        return self.workspace.embeddings(model, data, limit=limit, batch_size=batch_size, only=only)

    def fitted(self, map_config: MapConfig) -> Pipeline:
        """Return a map fitted on its data. Only the last fitted map is kept."""
        if self._last is None or self._last[0] != map_config:
            with self.naming(map_config):
                self._last = (
                    map_config,
                    fit(map_config, self.sets(map_config.fit_on or next(iter(self.config.sources)))),
                )
        return self._last[1]

    _last: tuple[MapConfig, Pipeline] | None = None

    @contextmanager
    def naming(self, map_config: MapConfig) -> Iterator[None]:
        """Prefix InputErrors raised in this context with the name of the map."""
        try:
            yield
        except InputError as error:
            raise InputError(f"the map {map_config.row!r}: {error}") from None

    def cells(self) -> Iterator[Cell]:
        config = self.config
        settings = config.settings("maps", *config.data_fields())
        for map_config in config.maps:
            roles = dict.fromkeys((*config.SCORED, *filter(None, [map_config.fit_on])))
            sources = {role: config.sources[role] for role in roles if role in config.sources}
            data = {
                role: source.model_dump(mode="json") | self.workspace.revisions(config.model, source)
                for role, source in sources.items()
            }
            define = {"map": map_config.model_dump(mode="json"), "data": data, **settings}
            yield Cell(define, partial(self.rows, map_config), map_config.row)

    @abstractmethod
    def rows(self, map_config: MapConfig) -> list[Row]:
        """Return the result rows of one map."""

    def scored(self, map_config: MapConfig, role: str, measures: Sequence[Measure], **at: Any) -> list[Row]:
        """Return measures of the rows of a role after the map, with standard errors over the items and null values.

        Args:
            map_config: The map.
            role: The role.
            measures: The measures.
            **at: More keys of `at`.
        """
        fitted = self.fitted(map_config)
        sets = self.sets(role)
        with self.naming(map_config):
            measured = self.measured(moved(fitted, sets))
            rows = [measured.row(measure, place) for measure in measures for place in measured.places(measure)]
        shared = {**measured.context(), "pipeline": list(map_config.pipeline), "fitted_on": fitted.fitted_on}
        return [{**shared, **row, "at": {"row": map_config.row, **at}} for row in rows]

    def measured(self, sets: Sets) -> MeasuredSets:
        """Return sets that a map was already applied to, ready for measuring."""
        return MeasuredSets(sets, (), seed=self.config.seed, blocks=self.config.blocks)

    def share_rows(
        self,
        map_config: MapConfig,
        name: str,
        scores: Mapping[str, float],
        scored: Sets,
        fitted_on: str | None,
        **own: Any,
    ) -> list[Row]:
        """Return result rows of scores that are shares of the scored images, with binomial standard errors.

        Args:
            map_config: The map.
            name: Prefix of the measure names, such as the name of the evaluator.
            scores: Name of a score → share in [0, 1].
            scored: The sets that were scored.
            fitted_on: What the map was fitted on, None if it has no fitted step.
            **own: More fields of the rows.
        """
        shared = {
            **context(scored, seed=self.config.seed),
            "pipeline": list(map_config.pipeline),
            "fitted_on": fitted_on,
        }
        n, d = scored["image"].vectors.shape
        return [
            shared
            | Record(
                f"{name}.{key}",
                value,
                math.sqrt(value * (1 - value) / n),
                **{"n": n, "d": d, "at": {"row": map_config.row, "split": "test"}, **own},
            )
            for key, value in scores.items()
        ]

    @classmethod
    def sentences(cls, planned: Sequence[Any]) -> list[str]:
        """Return sentences on each measure of `in_brief`.

        They state its value without a map, and the maps that improve and worsen it most.
        """
        sentences = []
        for run in planned:
            label = run.label() if len(planned) > 1 else ""
            sentences += map_sentences(run.finished_rows(), cls.in_brief, key=cls.series_by, label=label)
        return sentences

    def label(self) -> str:
        model = self.config.model
        return ", ".join(filter(None, (self.config.name, model and model.model)))

    def drawings(self) -> Mapping[str, Any]:
        return draw_maps(self.finished_rows(), self.drawn, key=self.series_by)

    def origin(self) -> str:
        """Return the model, the data of every role, the dimension and the seed."""
        config = self.config
        roles = {role: self.sets(role) for role in config.sources if role in config.used}
        first = next(iter(roles.values()))
        parts = [model_words(context(first, seed=config.seed)) or "stored embeddings"]
        for role, sets in roles.items():
            sizes = ", ".join(f"{len(side)} {modality}s" for modality, side in sets.items())
            parts.append(f"{role}: {origin_of(sets)}, {sizes}")
        return f"{'; '.join(parts)}; d = {next(iter(first.values())).dim}; seed {config.seed}."


class ProbeConfig(MapsConfig):
    """Keys of a probe.

    The `fit_on` of a map is "pairs"; "train" or "test", which are the images of the probe with the prompts of their
    classes; or "prompts", which are the prompts alone.

    Args:
        pairs: Images and captions that maps can be fitted on; null for none.
        probe: Labeled images with the splits "train" and "test" and a prompt, or stored embeddings of both splits as
            {train: {image: …, labels: …, text: …}, test: …}.
    """

    ROLES: ClassVar = ("pairs", "train", "test", "prompts")
    SCORED: ClassVar = ("test",)

    pairs: Source | None = None
    probe: Probe

    @property
    def sources(self) -> Mapping[str, DatasetConfig | StoredConfig]:
        splits = {split: self._split(split) for split in ("test", "train") if split in self.used}
        pairs = {} if self.pairs is None else {"pairs": self.pairs}
        prompts = {"prompts": self._split("test")} if "prompts" in self.used else {}
        return splits | pairs | prompts

    @classmethod
    def data_fields(cls) -> set[str]:
        return {"pairs", "probe"}

    def _split(self, split: str) -> DatasetConfig | StoredConfig:
        """Return the config of one split of the probe's data, "train" or "test"."""
        if isinstance(self.probe, StoredProbe):
            if (stored := getattr(self.probe, split)) is None:
                raise InputError(f"the probe {self.probe.name} has no {split} embeddings; set probe.{split}")
            return stored
        return changed(self.probe, split=split)


class PromptedConfig(ProbeConfig):
    """Keys of a probe whose classes have prompts."""

    @model_validator(mode="after")
    def _prompted(self) -> Self:
        if not isinstance(self.probe, StoredProbe) and self.probe.prompt is None:
            raise InputError(f'the probe {self.probe.name} needs a prompt: set probe.prompt, as in "a photo of a {{}}"')
        return self


class ProbeExperiment(MapsExperiment):
    """Applies maps to a probe of labeled images."""

    def sets(self, role: str) -> Sets:
        sets = self._probe(role)
        return {"text": sets["text"]} if role == "prompts" else sets

    def _probe(self, role: str) -> Sets:
        sets = super().sets(role)
        stored = isinstance(self.config.probe, StoredProbe) and role != "pairs"
        return class_prompts(sets) if stored and "text" in sets else sets

    def labeled(self, role: str) -> tuple[Embeddings, Embeddings]:
        """Return the labeled images of a role and their class prompts.

        Raises:
            InputError: If the images have no labels or there are no class prompts.
        """
        sets = self._probe(role)
        if len(sets) < 2 or sets["image"].labels is None or sets["text"].pair_on != "label":
            raise InputError(
                f"the probe {self.config.probe.name} has to be labeled images with class prompts; set probe.prompt, "
                'as in "a photo of a {}"'
            )
        return sets["image"], sets["text"]


def fit(map_config: MapConfig, sets: Sets) -> Pipeline:
    """Fit a map.

    Args:
        map_config: The map. Steps that learn from pairs use all pairs of the sets.
        sets: The rows before any map. A map that is fitted on a single set applies to every modality.

    Raises:
        InputError: If a step is for a modality that is not in the sets.
    """
    steps = parse_pipeline(map_config.pipeline)
    rows = {name: side.vectors for name, side in sets.items()}
    pairs = None
    origin = origin_of(sets)
    if len(sets) == 1:
        ((modality, alone),) = rows.items()
        for step in steps:
            if step.scope not in (None, modality):
                raise InputError(f"it has {step}, but {map_config.fit_on} has {modality} rows only")
        steps = tuple(replace(step, scope=None) for step in steps)
        rows = {ANY: alone}
        origin += f":{modality}"
    else:
        pairs = pair_of(sets)
    return Pipeline(steps).fit(rows, pairs, origin=origin)


def seen_and_held_out(labels: Any, seen: Any) -> dict[str, np.ndarray]:
    """Return the masks of the images of "seen" and of "held out" classes. A mask of fewer than two images is left out.

    Args:
        labels: (n,) labels of the images.
        seen: Labels of the seen classes.
    """
    known = np.isin(np.asarray(labels), np.unique(np.asarray(seen)))
    return {name: mask for name, mask in (("seen", known), ("held out", ~known)) if mask.sum() > 1}


def moved(fitted: Pipeline, sets: Sets) -> dict[str, Embeddings]:
    """Return the sets after a fitted map.

    Args:
        fitted: The fitted map.
        sets: Modality → embeddings.

    Raises:
        InputError: If the map cannot be applied to them.
    """
    if fitted.refusal:
        raise InputError(fitted.refusal)
    after = fitted.transform({modality: side.vectors for modality, side in sets.items()})
    return {modality: replace(side, vectors=after[modality]) for modality, side in sets.items()}

"""The same pairs before and after maps and repairs: their geometry, retrieval and zero-shot accuracy."""

import math
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from clip_geometry.config import validate
from clip_geometry.data.base import DatasetConfig
from clip_geometry.measuring.provenance import origin_of
from clip_geometry.measuring.sets import named
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit.base import Cell, Model, Source, experiments
from clip_geometry_experiments.kit.maps import MapConfig, MapsConfig, MapsExperiment, Sets, moved
from clip_geometry_experiments.kit.stored import StoredConfig

if TYPE_CHECKING:
    from clip_geometry.repairs import Repair
    from clip_geometry_experiments.report.gallery import FigureEntry

ZERO_SHOT = "zero_shot.top_1"
MEASURES = (
    "modality_gap", "average_cosine", "isoscore[unbiased]", "modality_silhouette", "matching_cosine", "random_cosine",
    "retrieval.image_to_text.r_at_1", "retrieval.text_to_image.r_at_1",
    "retrieval[mixed].image.same_modality_at_10", "retrieval[mixed].text.same_modality_at_10",
    "retrieval[mixed].image_to_text.r_at_1", "retrieval[mixed].text_to_image.r_at_1",
)  # fmt: skip
SEARCHED = {  # the same numbers where scores are searched
    f"retrieval{index}": number
    for query, item in (("image", "text"), ("text", "image"))
    for index, number in (
        (f".{query}_to_{item}.r_at_1", f"cross_r_at_1.{query}"),
        (f"[mixed].{query}_to_{item}.r_at_1", f"r_at_1.{query}"),
        (f"[mixed].{query}.same_modality_at_10", f"own_share.{query}"),
    )
}


class Line(MapConfig):
    """A line of the table: a map, or a repair of the scores that rows have after a map.

    Args:
        repair: One of `list repairs`, fitted on the data of `fit_on`. It changes scores, so that searches and
            classification are measured, and the rows have no geometry of their own.
    """

    repair: str | None = None

    @field_validator("repair")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        from clip_geometry.repairs import repairs

        return name and repairs[name].name

    @property
    def learns(self) -> bool:
        return self.repair is not None or super().learns


class BeforeAfterConfig(MapsConfig):
    """Config of the experiment `before_after`, beside the keys of `MapsConfig`.

    Args:
        maps: The lines of the table, which may also be repairs.
        scored: Pairs that are measured after each map.
        pairs: Other pairs, which the maps are fitted on; their classes count as seen.
        prompt: Prompt of a zero-shot classification of the scored images among all classes; null for none.
        measures: Measures of the scored pairs.
        twins: Name of a line of the table → another model, whose embeddings of the scored pairs go through the first
            map only.
    """

    ROLES: ClassVar = ("pairs", "scored")
    SCORED: ClassVar = ("scored",)

    maps: tuple[Line, ...] = Field(min_length=1)  # pyright: ignore[reportIncompatibleVariableOverride]
    scored: Source
    pairs: Source
    prompt: str | None = None
    measures: tuple[str, ...] = Field(default=MEASURES, min_length=1)
    twins: dict[str, Model] = Field(default={})

    @field_validator("measures")
    @classmethod
    def _known_measures(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(measure.name for measure in named(names))

    @model_validator(mode="after")
    def _of_use(self) -> Self:
        if self.prompt is not None and isinstance(self.scored, StoredConfig):
            raise InputError("a prompt needs a model and scored as a data set with classes; set prompt to null")
        if self.twins and self.maps[0].learns:
            raise InputError(f"twins go through the first map as they come, but {self.maps[0].row!r} learns something")
        rows = [each.row for each in self.maps]
        if twice := next((name for name in self.twins if name in rows), None):
            raise InputError(f"a twin and a map are called {twice!r}; give every row its own name")
        return self

    @property
    def sources(self) -> Mapping[str, DatasetConfig | StoredConfig]:
        return {"scored": self.scored, "pairs": self.pairs}

    @property
    def prompted(self) -> DatasetConfig:
        """The scored images with a prompt per class in place of captions."""
        assert not isinstance(self.scored, StoredConfig)
        values = self.scored.model_dump(mode="json") | {"prompt": self.prompt}
        return validate(type(self.scored), values, f"scored {self.scored.name}")

    @classmethod
    def data_fields(cls) -> set[str]:
        return {"scored", "pairs"}


class BeforeAfter(MapsExperiment):
    """A cell is one line of the table: a map, a repair, or another model."""

    Config = BeforeAfterConfig
    summary = "the same pairs before and after maps and repairs: geometry, mixed retrieval, zero-shot accuracy"

    def cells(self) -> Iterator[Cell]:
        config = self.config
        words = {"name", "title", "description", "maps", "twins", "model", *config.data_fields()}
        settings = config.model_dump(mode="json", serialize_as_any=True, exclude=words)
        first = config.maps[0]
        twins = [(first.model_copy(update={"row": row}), model) for row, model in config.twins.items()]
        for each, model in [*twins, *((each, config.model) for each in config.maps)]:
            roles = dict.fromkeys(("scored", *filter(None, [each.fit_on]), *(("pairs",) if config.prompt else ())))
            data = {
                role: config.sources[role].model_dump(mode="json")
                | self.workspace.revisions(model, config.sources[role])
                for role in roles
            }
            of = model and model.model_dump(mode="json")
            define = {"map": each.model_dump(mode="json"), "model": of, "data": data, **settings}
            yield Cell(define, partial(self._rows_of, each, model), each.row)

    def rows(self, each: MapConfig) -> list[Row]:
        assert isinstance(each, Line)
        return self._rows_of(each, self.config.model)

    def _rows_of(self, each: Line, model: Any) -> list[Row]:
        from clip_geometry.diagnosis.index import MixedIndex
        from clip_geometry.diagnosis.search import search_index

        config = self.config
        with self.naming(each):
            fitted, repair = self.fitted(each), self._repair(each)
            sets = moved(fitted, self.embeddings(model, config.scored))
            measured, rows = self.measured(sets), list[Row]()
            if repair is None:
                for measure in named(config.measures):
                    for place in measured.places(measure):
                        at = {"row": each.row, "modality": place}
                        rows.append({**measured.row(measure, place), "at": at})
            else:
                found = search_index(MixedIndex.of(sets, "pairs"), repair)
                for name, number in SEARCHED.items():
                    if name in config.measures:
                        n, error = len(sets[number.partition(".")[2]]), found[number].error if config.blocks else None
                        at = {"row": each.row, "modality": "both"}
                        rows.append(Record(name, found[number].value, error, n=n, at=at))
            if config.prompt is not None:  # accuracy among all classes, on images of seen classes and of others
                prompts = moved(fitted, {"text": self.embeddings(model, config.prompted, only="text")["text"]})["text"]
                known, (measure,) = np.isin(np.asarray(sets["image"].labels), self._seen), named([ZERO_SHOT])
                for classes, chosen in (("seen", known), ("held out", ~known)):
                    if chosen.sum() > 1:
                        part = {"image": sets["image"].take(chosen), "text": prompts}
                        if repair is None:
                            row = self.measured(part).row(measure, "both")
                        else:
                            row = Record(ZERO_SHOT, accuracy(repair, part), n=len(part["image"]))
                        p, chance = row["value"], 1 / len(np.unique(np.asarray(prompts.labels)))
                        error = row.get("standard_error") or math.sqrt(p * (1 - p) / row["n"])
                        at = {"row": each.row, "modality": "both", "classes": classes}
                        rows.append({**row, "standard_error": error, "null_value": chance, "at": at})
        pipeline, fitted_on = list(each.pipeline), fitted.fitted_on
        if repair is not None:
            pipeline, fitted_on = [*pipeline, repair.name], origin_of(self.sets("pairs"))
        shared = {**measured.context(), "pipeline": pipeline, "fitted_on": fitted_on}
        return [{**shared, **row} for row in rows]

    def _repair(self, each: Line) -> "Repair | None":
        """The repair of a line, fitted on the pairs after the map of the line."""
        from clip_geometry.diagnosis.index import MixedIndex
        from clip_geometry.repairs import make_repair

        if each.repair is None:
            return None
        sets = moved(self.fitted(each), self.sets("pairs"))
        return make_repair(each.repair).fit(MixedIndex.of(sets, "pairs").known())

    @cached_property
    def _seen(self) -> np.ndarray:
        labels = self.sets("pairs")["image"].labels
        if labels is None:
            raise InputError("the labels of pairs say which classes are seen, but pairs has none; set prompt to null")
        return np.unique(np.asarray(labels))

    # --- the report

    def facts(self) -> Mapping[str, Any]:
        from clip_geometry.display.origin import with_options

        twins = {
            row: with_options(model.model, model.model_dump(mode="json", exclude_defaults=True, exclude={"model"}))
            for row, model in self.config.twins.items()
        }
        facts = dict(super().facts())
        return {
            "model": facts.pop("model"),
            **twins,
            "measured": facts.pop("scored"),
            "maps are fitted on": facts.pop("pairs", None),
            "prompt": self.config.prompt,
            **{key: value for key, value in facts.items() if key != "maps"},
        }

    @classmethod
    def sentences(cls, planned: Any) -> list[str]:
        from clip_geometry_experiments.studies.before_after.sentences import tell

        config = planned[0].config
        return tell(planned[0].finished_rows(), config.maps[0].row, list(config.twins)) if len(planned) == 1 else []

    def figures(self, folder: Path, *, prefix: str = "", group: str = "") -> "list[FigureEntry]":
        from clip_geometry_experiments.studies.before_after.figures import draw_before_after

        facts, prompt = self.facts(), self.config.prompt
        parts = [
            facts["model"] or "Stored embeddings",
            facts["measured"],
            facts["maps are fitted on"] and f"maps fitted on {facts['maps are fitted on']}",
            prompt and f"prompt “{prompt}”",
            f"seed {self.config.seed}.",
        ]
        return draw_before_after(
            self.finished_rows(),
            first=self.config.maps[0].row,
            folder=folder,
            origin="; ".join(filter(None, parts)),
            prefix=prefix,
            group=group,
        )

    def fresh_models(self) -> list[str]:
        return []  # the names of the table's lines say which model is untrained


def accuracy(repair: "Repair", sets: Sets) -> float:
    """The share of images whose class has the prompt of highest score."""
    image, text = sets["image"], sets["text"]
    scores = repair.scores("image", np.asarray(image.vectors, float), "text", np.asarray(text.vectors, float))
    return float((np.asarray(text.labels)[scores.argmax(1)] == np.asarray(image.labels)).mean())


experiments.add("before_after", BeforeAfter)

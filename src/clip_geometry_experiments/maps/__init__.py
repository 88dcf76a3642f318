"""The experiment `maps`: how maps and repairs change geometry, retrieval and zero-shot accuracy of the same pairs."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from clip_geometry.data.base import DatasetConfig
from clip_geometry.measuring.records import named
from clip_geometry.measuring.views import origin_of
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry.search.held_out import search_index
from clip_geometry.search.mixed_index import MixedIndex
from clip_geometry.search.repairs import Repair, make_repair, repairs
from clip_geometry_experiments.kit.base import Source, changed, distinct, experiments
from clip_geometry_experiments.kit.maps import MapConfig, MapsConfig, MapsExperiment, Sets, moved, seen_and_held_out
from clip_geometry_experiments.kit.stored import StoredConfig
from clip_geometry_experiments.maps.figures import draw, sentences, share_error

ZERO_SHOT = "zero_shot.top_1"
MEASURES = ("modality_gap", "average_cosine", "isoscore[unbiased]", "modality_silhouette", "matching_cosine",
            "random_cosine")  # fmt: skip
SEARCHES = {  # measure of the rows → the corresponding number of a search by scores
    "retrieval.image_to_text.r_at_1": "cross_r_at_1.image",
    "retrieval.text_to_image.r_at_1": "cross_r_at_1.text",
    "retrieval[mixed].image.same_modality_at_10": "own_share.image",
    "retrieval[mixed].text.same_modality_at_10": "own_share.text",
    "retrieval[mixed].image_to_text.r_at_1": "r_at_1.image",
    "retrieval[mixed].text_to_image.r_at_1": "r_at_1.text",
}


class MapLine(MapConfig):
    """Options of a line of the table: a map, or a repair of the scores of the rows after a map.

    Args:
        repair: One of `list repairs`, fitted on the data of `fit_on`; null for a map alone. A repair changes scores, so
            searches and classification are measured, but the rows have no geometry of their own.
    """

    repair: str | None = None

    @field_validator("repair")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        return name and repairs[name].name

    @property
    def learns(self) -> bool:
        return self.repair is not None or super().learns


class HeldOutMapsConfig(MapsConfig):
    """Config of the experiment `maps`, in addition to the keys of `MapsConfig`.

    Args:
        maps: The lines of the table, which may also be repairs.
        scored: The pairs that are measured after each map.
        pairs: Other pairs, on which the maps are fitted; their classes count as seen.
        prompt: Prompt for zero-shot classification of the scored images among all classes; null for none.
    """

    ROLES: ClassVar = ("pairs", "scored")
    SCORED: ClassVar = ("scored", "pairs")

    maps: Annotated[tuple[MapLine, ...], Field(min_length=1), distinct("maps", "row")]  # pyright: ignore
    scored: Source
    pairs: Source
    prompt: str | None = None

    @model_validator(mode="after")
    def _has_classes(self) -> Self:
        if self.prompt is not None and isinstance(self.scored, StoredConfig):
            raise InputError("a prompt needs a data set with classes as `scored`, and a model; set prompt to null")
        return self

    @property
    def sources(self) -> Mapping[str, DatasetConfig | StoredConfig]:
        return {"scored": self.scored, "pairs": self.pairs}

    @property
    def prompted(self) -> DatasetConfig:
        """The scored data set with one prompt per class instead of captions."""
        assert not isinstance(self.scored, StoredConfig)
        return changed(self.scored, prompt=self.prompt)

    @classmethod
    def data_fields(cls) -> set[str]:
        return {"scored", "pairs"}


class Maps(MapsExperiment):
    """Measures the same pairs after maps and repairs. A cell is one line of the table."""

    Config = HeldOutMapsConfig

    def rows(self, map_config: MapConfig) -> list[Row]:
        assert isinstance(map_config, MapLine)
        with self.naming(map_config):
            fitted = self.fitted(map_config)
            repair = self._repair(map_config)
            sets = moved(fitted, self.sets("scored"))
            rows = self._of_pairs(sets, repair)
            if self.config.prompt is not None:
                prompts = self.embeddings(self.config.model, self.config.prompted, only="text")
                rows += self._of_classes(sets["image"], moved(fitted, prompts)["text"], repair)
        shared = self.measured(sets).context()
        shared |= {"pipeline": list(map_config.pipeline), "fitted_on": fitted.fitted_on}
        if repair is not None:
            shared |= {"pipeline": [*map_config.pipeline, repair.name], "fitted_on": origin_of(self.sets("pairs"))}
        return [{**shared, **row, "at": {"row": map_config.row, **row["at"]}} for row in rows]

    def _repair(self, map_config: MapLine) -> Repair | None:
        """Return the repair that a config of a map names, fitted on the pairs after the map; None if it names none."""
        if map_config.repair is None:
            return None
        sets = moved(self.fitted(map_config), self.sets("pairs"))
        return make_repair(map_config.repair).fit(MixedIndex.of(sets, "pairs").known())

    def _of_pairs(self, sets: Sets, repair: Repair | None) -> list[Row]:
        """Return the geometry and searches of the rows, or for a repair the searches by its scores."""
        if repair is None:
            measured = self.measured(sets)
            return [
                {**measured.row(measure, place), "at": {"modality": place}}
                for measure in named((*MEASURES, *SEARCHES))
                for place in measured.places(measure)
            ]
        scores = search_index(MixedIndex.of(sets, "pairs"), repair)
        rows: list[Row] = []
        for measure, number in SEARCHES.items():
            error = scores[number].error if self.config.blocks else None
            n = len(sets[number.partition(".")[2]])
            rows.append(Record(measure, scores[number].value, error, n=n, at={"modality": "both"}))
        return rows

    def _of_classes(self, image: Any, prompts: Any, repair: Repair | None) -> list[Row]:
        """Return accuracy among all classes, on images of seen classes and of held-out classes."""
        (measure,) = named([ZERO_SHOT])
        chance = 1 / len(np.unique(np.asarray(prompts.labels)))
        rows: list[Row] = []
        for classes, mask in seen_and_held_out(image.labels, self._seen).items():
            part = {"image": image.take(mask), "text": prompts}
            if repair is None:
                row = self.measured(part).row(measure, "both")
            else:
                row = Record(ZERO_SHOT, accuracy(repair, part), n=len(part["image"]))
            at = {"modality": "both", "classes": classes}
            rows.append({**row, "standard_error": share_error(row), "null_value": chance, "at": at})
        return rows

    @cached_property
    def _seen(self) -> Any:
        """Return the labels of the pairs on which maps are fitted: their classes are the seen ones."""
        labels = self.sets("pairs")["image"].labels
        if labels is None:
            raise InputError("pairs has no labels, which say which classes are seen; set prompt to null")
        return labels

    # --- the report

    @classmethod
    def sentences(cls, planned: Sequence[Any]) -> list[str]:
        return sentences(planned[0].finished_rows()) if len(planned) == 1 else []

    def drawings(self) -> Mapping[str, Any]:
        return draw(self.finished_rows())


def accuracy(repair: Repair, sets: Sets) -> float:
    """Return the fraction of images whose class has the prompt with the highest score.

    Args:
        repair: The fitted repair.
        sets: "image" and "text" → embeddings with labels.
    """
    image, text = sets["image"], sets["text"]
    scores = repair.scores("image", np.asarray(image.vectors, float), "text", np.asarray(text.vectors, float))
    return float((np.asarray(text.labels)[scores.argmax(1)] == np.asarray(image.labels)).mean())


experiments.add("maps", Maps)

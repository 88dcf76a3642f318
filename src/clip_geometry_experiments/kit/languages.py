"""The same captions in several languages: aligned rows after a pipeline, and measures with standard errors."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.config import validate
from clip_geometry.data.base import DatasetConfig
from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry import silhouette
from clip_geometry.geometry.uncertainty import BLOCKS, deal, jackknife
from clip_geometry.measuring.provenance import context, origin_of
from clip_geometry.measuring.sets import KEPT_BYTES, QUADRATIC_ROWS
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry.rows.matrix import as_rows
from clip_geometry.transforms import Pipeline, Step
from clip_geometry_experiments.kit.base import read_explanations
from clip_geometry_experiments.kit.language_distance import language_distance

SPOKEN = {"en": "English", "de": "German", "fr": "French", "ru": "Russian"}
EXPLANATIONS = read_explanations(Path(__file__).with_name("language_distance.yaml"))
METRICS = {"language_silhouette": "euclidean", "language_silhouette[cosine]": "cosine"}


class LanguageSets:
    """Text embeddings in several languages after a pipeline that is fitted on all of them.

    Args:
        embeddings: Name of a set → its rows; the name of a target is its language.
        steps: The pipeline.
        sources: Language → name of the set that its captions translate; several languages may share one.
        seed: Of the assignment to blocks.
        blocks: Blocks of the jackknife over captions, 0 for no standard errors.

    Raises:
        InputError: If the sets cannot be compared.
    """

    def __init__(
        self,
        embeddings: Mapping[str, Embeddings],
        steps: Sequence[Step],
        sources: Mapping[str, str],
        *,
        seed: int = 0,
        blocks: int = BLOCKS,
    ):
        self.embeddings = dict(embeddings)
        self.steps = tuple(steps)
        self.sources = dict(sources)
        self.seed = seed
        self.blocks = blocks
        vectors = {name: each.vectors for name, each in self.embeddings.items()}
        for name, rows in vectors.items():
            as_rows(rows, name=name)
        fitted, self.rows = Pipeline(self.steps).fit_transform(vectors, origin=origin_of(self.embeddings))
        if fitted.refusal:
            raise InputError(f"languages are compared with each other, but {fitted.refusal}")
        self.fitted_on = fitted.fitted_on
        self._outside: dict[int, LanguageSets] = {}

    def aligned(self, language: str) -> tuple[np.ndarray, np.ndarray]:
        """(n, d) rows of the source and of the language; row k of both is one caption."""
        i, j = self.pairs(language)
        return self.rows[self.sources[language]][i], self.rows[language][j]

    def pairs(self, language: str) -> tuple[np.ndarray, np.ndarray]:
        """Row indices (i, j) of source and language. The k-th caption of an item translates its k-th caption."""
        source, target = self.embeddings[self.sources[language]], self.embeddings[language]
        row_of = {key: row for row, key in enumerate(_caption_keys(source))}
        found = [(row_of[key], row) for row, key in enumerate(_caption_keys(target)) if key in row_of]
        if len(found) < 2:
            raise InputError(
                f"{self.sources[language]} and {language} have {len(found)} captions in common, by their item ids; "
                "at least two are needed"
            )
        i, j = np.array(found).T
        texts = [each.metadata.get("text") for each in (source, target)]
        if texts[0] is not None and texts[1] is not None and np.array_equal(texts[0][i], texts[1][j]):
            raise InputError(f"the captions in {source.language} and {language} are the same texts, not translations")
        return i, j

    def distance_rows(self, language: str) -> list[Row]:
        """language_distance of the source and the language, by distances and by their squares."""

        def distances(sets: LanguageSets) -> dict[str, float]:
            source, target = sets.aligned(language)
            plain, squares = (language_distance(source, target, squared=each) for each in (False, True))
            found = {f"language_distance.{name}": value for name, value in plain.items()}
            return found | {f"language_distance[squared].{name}": value for name, value in squares.items()}

        n = len(self.pairs(language)[0])
        return self._rows(distances, n, at=self._place(language), costly=n > QUADRATIC_ROWS)

    def silhouette_rows(self, language: str | None = None) -> list[Row]:
        """Silhouette with the language as label: of the source and the language, or of all rows of all languages."""
        n = len(self._labeled(language)[0])
        at = {"language": "all"} if language is None else self._place(language)
        rows = []
        for name, metric in METRICS.items():

            def value(sets: LanguageSets, name: str = name, metric: Any = metric) -> dict[str, float]:
                return {name: silhouette(*sets._labeled(language), metric=metric)}

            rows += self._rows(value, n, at=at, costly=metric == "euclidean" and n > QUADRATIC_ROWS)
        return rows

    def context(self) -> Row:
        """What every row has in common. The language is in its `at`, not among the options of the data."""
        first = next(iter(self.embeddings.values()))
        options = dict(first.provenance.get("data_options") or {})
        shared = context(
            self.embeddings, steps=self.steps, fitted_on=self.fitted_on, seed=self.seed, blocks=self.blocks
        )
        return {**shared, "data_options": {k: v for k, v in options.items() if k not in ("language", "pair")}}

    def _place(self, language: str) -> dict[str, Any]:
        return {"source": self.embeddings[self.sources[language]].language, "language": language}

    def _labeled(self, language: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Rows and the language of each."""
        if language is None:
            parts = {name: (each.language, self.rows[name]) for name, each in self.embeddings.items()}
            labels = [np.full(len(rows), language) for language, rows in parts.values()]
            return np.concatenate([rows for _, rows in parts.values()]), np.concatenate(labels)
        source, target = self.aligned(language)
        return np.concatenate([source, target]), np.repeat(["source", "target"], len(source))

    def _rows(
        self, function: Callable[["LanguageSets"], Mapping[str, float]], n: int, *, at: Row, costly: bool
    ) -> list[Row]:
        """A row for each number of `function`, with its standard error unless `blocks` rounds would take long."""
        errors: dict[str, float] = {}
        if not costly and 2 <= self.blocks <= len(self._items):
            with suppress(InputError):  # too small without a block
                without = [function(self._without(block)) for block in range(self.blocks)]
                errors = {name: jackknife(each[name] for each in without) for name in without[0]}
        d = next(iter(self.rows.values())).shape[1]
        return [Record(name, value, errors.get(name), n=n, d=d, at=at) for name, value in function(self).items()]

    def _without(self, block: int) -> "LanguageSets":
        """The captions outside of the block in every language, by the pipeline that is fitted on them."""
        if block in self._outside:
            return self._outside[block]
        kept = {name: each.take(self._blocks[name] != block) for name, each in self.embeddings.items()}
        outside = LanguageSets(kept, self.steps, self.sources, seed=self.seed, blocks=0)
        if self.blocks * sum(rows.nbytes for rows in outside.rows.values()) < KEPT_BYTES:
            self._outside[block] = outside
        return outside

    @cached_property
    def _items(self) -> dict[Any, int]:
        """Every item, numbered: its captions in all languages are one, and lie in one block."""
        keys = dict.fromkeys(key for each in self.embeddings.values() for key in _item_keys(each))
        return {key: number for number, key in enumerate(keys)}

    @cached_property
    def _blocks(self) -> dict[str, np.ndarray]:
        """The block of each row of a set."""
        dealt = deal(len(self._items), self.blocks, self.seed).long().numpy()
        return {name: dealt[[self._items[key] for key in _item_keys(e)]] for name, e in self.embeddings.items()}


def parallel(data: DatasetConfig, languages: tuple[str, ...], language: str) -> tuple[DatasetConfig, DatasetConfig]:
    """Captions in the first language, and in `language`. WikiCaps has other items for each pair of languages."""
    source, first_target, *_ = languages
    target = first_target if language == source else language
    pair = {"pair": f"{target}-{source}"} if "pair" in type(data).model_fields else {}
    return changed(data, language=source, **pair), changed(data, language=language, **pair)


def changed(data: DatasetConfig, **values: Any) -> DatasetConfig:
    settings = data.model_dump(mode="json") | values
    return validate(type(data), settings, f"{data.name} in {settings['language']!r}")


def spoken(language: str) -> str:
    """The name of a language, the code of one that is not in SPOKEN."""
    return SPOKEN.get(language, language)


def _item_keys(embeddings: Embeddings) -> list[Any]:
    return list(range(len(embeddings))) if embeddings.item_id is None else embeddings.item_id.tolist()


def _caption_keys(embeddings: Embeddings) -> list[tuple[Any, int]]:
    """(item, how many captions of it came before) of each row."""
    counts: dict[Any, int] = {}
    keys = []
    for item in _item_keys(embeddings):
        counts[item] = counts.get(item, -1) + 1
        keys.append((item, counts[item]))
    return keys

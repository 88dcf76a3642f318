"""Captions in several languages: aligned rows after a pipeline, and measures with standard errors."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from clip_geometry.data.base import DatasetConfig
from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry import silhouette
from clip_geometry.geometry.distances.pairwise import distances, squared_distances
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.uncertainty import BLOCKS, jackknife
from clip_geometry.measuring.sets import QUADRATIC_ROWS, MeasuredSets
from clip_geometry.measuring.views import View
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry.rows.arguments import flag
from clip_geometry.rows.matrix import Rows, about, as_aligned, mean_row, total
from clip_geometry.steps import Step
from clip_geometry_experiments.kit.base import changed, read_explanations

BLOCK = 1024  # rows and columns of the distances in one block


@in_kind
@torch.no_grad()
def language_distance(source: Rows, target: Rows, *, squared: bool = False) -> dict[str, float]:
    """Return mean Euclidean distances between the same captions in two languages.

    Distances are exact and computed in blocks, in O(n²d). Rows are used as given, without normalization.

    Source: Tyshchuk et al. 2023, Table 6. The notebook behind its numbers squares the distances and also counts the
    pairs i = j among the global ones, which changes these by less than 1/n.

    Args:
        source: (n, d) rows, n ≥ 2.
        target: (n, d) rows, aligned with the source.
        squared: Whether to take the mean of the squared distances.

    Returns:
        A dictionary with these keys:

        - pair_distance = mean_i ‖x_i − y_i‖.
        - global_distance = mean_{i≠j} ‖x_i − y_j‖.
        - ratio = pair_distance / global_distance ≥ 0. A ratio of 0 means that translations coincide; a ratio of 1 means
          that a caption is no nearer to its translation than to any other caption.
        - within_source and within_target = mean_{i<j} within one language. If the global distance exceeds both, the
          languages are apart.

    Raises:
        InputError: If the sets differ in length, or if all rows coincide (0/0).

    Example:
        >>> import numpy as np
        >>> from clip_geometry_experiments.kit.languages import language_distance
        >>> rng = np.random.default_rng(0)
        >>> english = rng.normal(size=(6, 4))
        >>> german = english + 0.3 * rng.normal(size=(6, 4))
        >>> {name: round(value, 2) for name, value in language_distance(english, german).items()}
        {'pair_distance': 0.51, 'global_distance': 2.24, 'ratio': 0.23, 'within_source': 2.28, 'within_target': 2.21}
    """
    source, target = as_aligned(source, target, ("source", "target"))
    measured = squared_distances if flag(squared, "squared") else distances
    middle = (mean_row(source) + mean_row(target)) / 2  # with a center near both sets, the products do not cancel
    x, y = about(source, middle), about(target, middle)
    norms = (x - y).double().norm(dim=1)
    pairs = float((norms.square() if squared else norms).sum())

    def mean_of_others(a: Tensor, b: Tensor, same: float) -> float:
        """Return the mean over i ≠ j; `same` is the sum over i = j."""
        every = total(measured(p, q).sum() for p in a.split(BLOCK) for q in b.split(BLOCK))
        return (float(every) - same) / (len(a) * (len(a) - 1))

    across = mean_of_others(x, y, pairs)
    if across == 0:
        raise InputError(f"all {len(x)} rows of source and target coincide; the ratio of their distances is 0/0")
    return {
        "pair_distance": pairs / len(x),
        "global_distance": across,
        "ratio": pairs / len(x) / across,
        "within_source": mean_of_others(x, x, 0),
        "within_target": mean_of_others(y, y, 0),
    }


SPOKEN = {"en": "English", "de": "German", "fr": "French", "ru": "Russian"}
EXPLANATIONS = read_explanations(Path(__file__).with_name("language_distance.yaml"))
METRICS = {"language_silhouette": "euclidean", "language_silhouette[cosine]": "cosine"}


class LanguageSets(MeasuredSets):
    """Text embeddings in several languages after a pipeline that is fitted on all of them.

    Args:
        embeddings: Name of a set → its rows. The name of a target set is its language.
        steps: The pipeline.
        sources: Language → name of the set whose captions the language translates. Several languages may share a set.
        seed: Seed of the assignment of captions to blocks.
        blocks: Number of jackknife blocks over captions; 0 for no standard errors.

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
        super().__init__(embeddings, steps, seed=seed, blocks=blocks, in_memory=True)
        self.sources = dict(sources)
        if self.fitted is not None and self.fitted.refusal:
            raise InputError(f"languages are compared with each other, but {self.fitted.refusal}")

    def aligned(self, language: str, view: View | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the aligned rows of the source and the language, where row k of both is the same caption.

        Args:
            language: The language.
            view: Use the rows of this view. Default: all rows.

        Returns:
            (n, d) rows of the source, and (n, d) rows of the language.

        Raises:
            InputError: If the captions in both languages are the same texts.
        """
        view = view or self
        name = self.sources[language]
        source, target = view.embeddings[name], view.embeddings[language]
        i, j = aligned(_item_keys(source), _item_keys(target))
        texts = [side.metadata.get("text") for side in (source, target)]
        if texts[0] is not None and texts[1] is not None and np.array_equal(texts[0][i], texts[1][j]):
            raise InputError(f"the captions in {source.language} and {language} are the same texts, not translations")
        return view.rows[name][i], view.rows[language][j]

    def distance_rows(self, language: str) -> list[Row]:
        """Return rows of `language_distance` of the source and the language, for distances and their squares."""

        def numbers(view: View) -> dict[str, float]:
            source, target = self.aligned(language, view)
            plain = language_distance(source, target)
            squares = language_distance(source, target, squared=True)
            return {
                **{f"language_distance.{name}": value for name, value in plain.items()},
                **{f"language_distance[squared].{name}": value for name, value in squares.items()},
            }

        n = len(self.aligned(language)[0])
        return self._rows(numbers, n, at=self._place(language), costly=n > QUADRATIC_ROWS)

    def silhouette_rows(self, language: str | None = None) -> list[Row]:
        """Return rows of the silhouette with the language as label.

        Args:
            language: Compare the source with this language. Default: compare all rows of all languages.
        """
        n = len(self._labeled(language, self)[0])
        at = {"language": "all"} if language is None else self._place(language)
        rows = []
        for name, metric in METRICS.items():

            def numbers(view: View, name: str = name, metric: Any = metric) -> dict[str, float]:
                return {name: silhouette(*self._labeled(language, view), metric=metric)}

            rows += self._rows(numbers, n, at=at, costly=metric == "euclidean" and n > QUADRATIC_ROWS)
        return rows

    def context(self) -> Row:
        """Return the fields that all rows share. The language is in `at`, not among the options of the data."""
        options = next(iter(self.embeddings.values())).provenance.get("data_options") or {}
        shared = {name: value for name, value in options.items() if name not in ("language", "pair")}
        return {**super().context(), "data_options": shared}

    def _place(self, language: str) -> dict[str, Any]:
        return {"source": self.embeddings[self.sources[language]].language, "language": language}

    def _labeled(self, language: str | None, view: View) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows and the language of each row."""
        if language is None:
            labels = [np.full(len(side), side.language) for side in view.embeddings.values()]
            return np.concatenate(list(view.rows.values())), np.concatenate(labels)
        source, target = self.aligned(language, view)
        return np.concatenate([source, target]), np.repeat(["source", "target"], len(source))

    def _rows(self, numbers: Callable[[View], Mapping[str, float]], n: int, *, at: Row, costly: bool) -> list[Row]:
        """Return one row per number, with a standard error unless repeating the measure per block is too slow."""
        errors: dict[str, float] = {}
        if not costly and self.items.has_blocks:
            with suppress(InputError):  # too few rows are left without the block
                without = [numbers(self._without_block(block)) for block in range(self.blocks)]
                errors = {name: jackknife(values[name] for values in without) for name in without[0]}
        d = next(iter(self.rows.values())).shape[1]
        return [Record(name, value, errors.get(name), n=n, d=d, at=at) for name, value in numbers(self).items()]


def aligned(source: Sequence[Any], target: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return indices (i, j) of captions that translate each other.

    The k-th caption of an item in one language translates the k-th caption of that item in the other.

    Args:
        source: Item ids of the source captions.
        target: Item ids of the target captions.

    Returns:
        i, indices into the source, and j, indices into the target, in the order of the target.

    Raises:
        InputError: If no item is in both languages.
    """

    def numbered(items: Sequence[Any]) -> pd.DataFrame:
        captions = pd.DataFrame({"item": pd.Series(items, dtype=object), "row": range(len(items))})
        return captions.assign(number=captions.groupby("item").cumcount())

    matches = numbered(target).merge(numbered(source), on=["item", "number"])  # keeps the order of the target
    if matches.empty:
        raise InputError("source and target have no captions in common, by their item ids; expected parallel captions")
    return matches["row_y"].to_numpy(), matches["row_x"].to_numpy()


def parallel(data: DatasetConfig, languages: tuple[str, ...], language: str) -> tuple[DatasetConfig, DatasetConfig]:
    """Return the data set with captions in the first language, and the data set with captions in `language`.

    WikiCaps has different items for each pair of languages, so the pair of its captions is set too.

    Args:
        data: The data set.
        languages: The languages; the first is the source, and at least one other follows.
        language: The language of the second data set. It may be the first language.
    """
    source, first_target, *_ = languages
    target = first_target if language == source else language
    pair = {"pair": f"{target}-{source}"} if "pair" in type(data).model_fields else {}
    return changed(data, language=source, **pair), changed(data, language=language, **pair)


def spoken(language: str) -> str:
    """Return the name of a language, or its code if it is not in SPOKEN."""
    return SPOKEN.get(language, language)


def _item_keys(embeddings: Embeddings) -> list[Any]:
    return list(range(len(embeddings))) if embeddings.item_id is None else embeddings.item_id.tolist()

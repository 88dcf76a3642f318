"""Which rows are shown, as unit rows, with what is known of them: items, labels, which are held out from the fits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from clip_geometry.embeddings import Embeddings, pair_of
from clip_geometry.io.reading import require_memory
from clip_geometry.modalities import plural
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import in_one_piece
from clip_geometry.search.mixed_index import MixedIndex, RowNumbers, logit_scale_of, require_one_space
from clip_geometry.transforms import Normalize, Pipeline

MOST_FIT = 2000  # items that repairs are fitted on
BLOCK = 4096
ROW = "row of the set"  # a column of the metadata: the number that a shown row had before sampling


@dataclass(frozen=True, eq=False)
class Points:
    """The points of the page, those of one modality after those of another.

    Attributes:
        index: The shown rows after the pipeline, at unit length, in float32, and what is relevant to what.
        fit: Modality → numbers of the rows that repairs are fitted on.
        held_out: (n,) mask of the points that no repair is fitted on, so that numbers can be read off them.
        given: Modality → number of rows before sampling.
        notes: What was left out, in sentences.
    """

    index: MixedIndex
    fit: Mapping[str, np.ndarray]
    held_out: np.ndarray
    given: Mapping[str, int]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return sum(map(len, self.sets.values()))

    @property
    def sets(self) -> Mapping[str, Embeddings]:
        return self.index.sets

    @property
    def rows(self) -> dict[str, np.ndarray]:
        return {name: each.vectors for name, each in self.sets.items()}

    @cached_property
    def starts(self) -> dict[str, int]:
        """Modality → the number of its first point."""
        sizes = [len(each) for each in self.sets.values()]
        return dict(zip(self.sets, np.cumsum([0, *sizes]).tolist(), strict=False))

    @cached_property
    def modality(self) -> np.ndarray:
        """(n,) the modality of each point, as its place among the modalities."""
        return np.repeat(np.arange(len(self.sets)), [len(each) for each in self.sets.values()])

    @cached_property
    def keys(self) -> np.ndarray:
        """(n,) equal for points that belong together, of one item or else of one label; −1 for those of none."""
        groups = [group for group in self.index.groups.values() if group is not None]
        if len(groups) == len(self.sets):
            return np.concatenate(groups)
        return np.concatenate(list(self.index.codes.values())) if self.index.codes else np.full(len(self), -1)

    @property
    def keyed_by(self) -> str | None:
        """What `keys` are: "pairs", "labels" or None."""
        if len(self.sets) < 2 or not (self.keys >= 0).any():
            return None
        return "labels" if any(group is None for group in self.index.groups.values()) else "pairs"

    @cached_property
    def has_partner(self) -> np.ndarray:
        """(n,) mask of the points that a point of another modality belongs to."""
        found = np.zeros(len(self), dtype=bool)
        for place in range(len(self.sets)):
            own = self.modality == place
            found[own] = np.isin(self.keys[own], self.keys[~own])
        return found & (self.keys >= 0)

    def sample(self, most: int, seed: int) -> np.ndarray:
        """Numbers of at most `most` points, ascending, whole items where possible."""
        if len(self) <= most:
            return np.arange(len(self))
        rows = sampled_rows(self.index, most, seed)
        return np.concatenate([self.starts[name] + numbers for name, numbers in rows.items()])


def sampled_rows(index: MixedIndex, most: int, seed: int) -> RowNumbers:
    """Numbers of about `most` rows and no more, at least 2 of each modality, whole items where possible."""
    total = sum(map(len, index.sets.values()))
    if total <= most:
        return index.all_rows
    rows = index.sampled(max(2, most * len(index.items) // total), seed)
    share, generator = most / sum(map(len, rows.values())), np.random.default_rng(seed)
    if share >= 1:
        return rows
    return {
        name: np.sort(generator.choice(numbers, max(2, int(share * len(numbers))), replace=False))
        for name, numbers in rows.items()
    }


def choose_points(sets: Mapping[str, Embeddings], *, pipeline: str, limit: int, seed: int) -> Points:
    """Choose at most `limit` rows at random, whole items where possible, without rows that have no direction.

    Raises:
        InputError: Modalities differ in their dimension, or have fewer than 2 rows with a direction.
    """
    require_one_space(sets, "one plane")
    if all(each.item_id is None for each in sets.values()) and len({len(each) for each in sets.values()}) == 1:
        sets = {name: replace(each, item_id=np.arange(len(each))) for name, each in sets.items()}
    whole, notes = _index(sets), []
    rows, total = sampled_rows(whole, limit, seed), sum(map(len, sets.values()))
    dim = next(iter(sets.values())).dim
    require_memory(3 * 8 * dim * sum(map(len, rows.values())), "the points, with their rows before and after a repair,")
    numbers, shown = {}, {}
    for name, chosen in rows.items():
        vectors = np.asarray(sets[name].vectors[chosen], dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            fine = np.isfinite(vectors).all(1) & (np.abs(vectors).max(1) > 0)
        numbers[name] = chosen[fine]
        if not fine.all():
            lost = len(chosen) - len(numbers[name])
            notes.append(f"{lost:,} {plural(name)} have zeros only, NaN or infinity, and are left out.")
        if len(numbers[name]) < 2:
            raise InputError(f"fewer than 2 of the {name} rows have a direction; nothing can be shown")
        kept = whole.sets[name].take(numbers[name], vectors=vectors[fine])
        shown[name] = replace(kept, metadata={**kept.metadata, ROW: numbers[name]})
    if total > limit:
        sizes = (f"{len(chosen):,} of {len(sets[name]):,} {plural(name)}" for name, chosen in numbers.items())
        notes.insert(0, f"A random sample is shown, {' and '.join(sizes)} (seed {seed}).")
    prepared = {name: each.vectors for name, each in shown.items()}
    prepared = Pipeline(pipeline).fit_transform(prepared, pair_of(shown))[1]
    unit = {name: in_blocks(lambda rows: Normalize().apply(np.asarray(rows)), x) for name, x in prepared.items()}
    index = MixedIndex(
        {name: replace(each, vectors=unit[name]) for name, each in shown.items()},
        whole.by,
        {name: None if group is None else group[numbers[name]] for name, group in whole.groups.items()},
        {name: codes[numbers[name]] for name, codes in whole.codes.items()},
        whole.logit_scale,
    )
    split = next(index.splits(1, seed=seed, most_fit=MOST_FIT, most_searched=total, most_queries=1))
    fitted = {name: () if index.groups[name] is None else rows for name, rows in split.fit.items()}
    held_out = np.concatenate([~np.isin(np.arange(len(each)), fitted[name]) for name, each in index.sets.items()])
    return Points(index, split.fit, held_out, {name: len(each) for name, each in whole.sets.items()}, tuple(notes))


def _index(sets: Mapping[str, Embeddings]) -> MixedIndex:
    scale = logit_scale_of(sets)
    try:
        return MixedIndex.of(sets, logit_scale=scale)
    except InputError:  # labels that the modalities do not share are still colors
        plain = {name: replace(each, labels=None) for name, each in sets.items()}
        return replace(MixedIndex.of(plain, logit_scale=scale), sets={name: sets[name] for name in sorted(sets)})


def in_blocks(function: Callable[[Any], np.ndarray], rows: Any) -> np.ndarray:
    """What a function of the rows gives for some of them at a time, in float32."""
    parts = (function(rows[start : start + BLOCK]) for start in range(0, len(rows), BLOCK))
    return in_one_piece((torch.from_numpy(part.astype(np.float32)) for part in parts), len(rows)).numpy()

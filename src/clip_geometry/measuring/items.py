"""Items: which rows belong together, and which block of the jackknife they are dealt into."""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from clip_geometry.config import digest
from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry.uncertainty import deal


class Items:
    """The items of several sets: an image and all its captions are one item, and lie in one block.

    Class prompts are not a sample. They belong to no item, and stay where a block is left out.

    Args:
        sets: Modality → `Embeddings`. Rows without ids are items by position.
        blocks: Number of blocks that the items are dealt into.
        seed: Seed of the dealing.
    """

    def __init__(self, sets: Mapping[str, Embeddings], *, blocks: int, seed: int):
        self.sets = {name: sets[name] for name in sorted(sets)}  # the order in which sets are given changes no number
        self.blocks, self.seed = blocks, seed

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def can_be_dealt(self) -> bool:
        """Whether there are blocks, and an item for each."""
        return 2 <= self.blocks <= len(self)

    @cached_property
    def of_rows(self) -> dict[str, np.ndarray]:
        """The number of the item of each row, from 0; -1 of class prompts."""
        numbers, found = self._numbers, {}
        for name, each in self.sets.items():
            if is_prompts(each):
                found[name] = np.full(len(each), -1)
            elif isinstance(numbers, range):
                found[name] = np.arange(len(each))
            else:
                found[name] = np.array([numbers[key] for key in self._keys(name)])
        return found

    @cached_property
    def block_of(self) -> dict[str, np.ndarray]:
        """The block of each row; -1 of class prompts."""
        dealt = deal(len(self), self.blocks, self.seed).numpy()
        return {name: np.where(items < 0, -1, dealt[items]) for name, items in self.of_rows.items()}

    @cached_property
    def dealing(self) -> str:
        """Equal for sets that have the same items in the same blocks, whose errors can be paired."""
        numbers = self._numbers
        items = f"{len(numbers)} rows" if isinstance(numbers, range) else [str(key) for key in numbers]
        return digest([items, self.blocks, self.seed])

    @cached_property
    def origin(self) -> str:
        """ "ids", or without ids a digest of the first and last rows: equal rows are surely the same items."""
        if not isinstance(self._numbers, range):
            return "ids"
        rows = hashlib.blake2b(digest_size=16)
        for each in self.sets.values():
            for part in (each.vectors[:4096], each.vectors[-4096:]):
                rows.update(np.ascontiguousarray(part).tobytes())
        return rows.hexdigest()

    @cached_property
    def _numbers(self) -> Mapping[Any, int] | range:
        """Every item, numbered."""
        if all(each.item_id is None and not is_prompts(each) for each in self.sets.values()):
            return range(max(map(len, self.sets.values())))
        keys = (key for name, each in self.sets.items() if not is_prompts(each) for key in self._keys(name))
        return {key: number for number, key in enumerate(dict.fromkeys(keys))}

    def _keys(self, modality: str) -> list:
        """The items of the rows: their ids; without ids those of the rows that they pair with, by position."""
        own = self.sets[modality]
        alike = (own, *(each for each in self.sets.values() if len(each) == len(own) and not is_prompts(each)))
        ids = next((each.item_id for each in alike if each.item_id is not None), None)
        return list(range(len(own))) if ids is None else ids.tolist()


def is_prompts(embeddings: Embeddings) -> bool:
    """Whether the rows are class prompts."""
    return embeddings.pair_on == "label"

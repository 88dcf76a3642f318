"""A pipeline after fitting: one chain of transforms for each modality."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.transforms.affine import Affine, affine_chain
from clip_geometry.transforms.base import Rows, Transform, as_learnable
from clip_geometry.transforms.step import Step

ANY = "any"  # the name of a set that is not told apart by modality: its chain serves every modality


@dataclass(frozen=True, eq=False)
class FittedPipeline:
    """What `Pipeline.fit` learned, to be applied to the same or to other sets.

    steps: as written. chains: modality → the fitted transforms in order, or {"any": …} for all modalities.
    dimensions: modality → (d_in, d_out). fitted_on: in words, `coco/train:pooled`; None where nothing learns.
    refusal: why measures across the sets may not be taken, if so.
    """

    steps: tuple[Step, ...]
    chains: Mapping[str, tuple[Transform, ...]]
    dimensions: Mapping[str, tuple[int, int]]
    fitted_on: str | None
    refusal: str | None

    def transform(self, sets: Mapping[str, Rows]) -> dict[str, Any]:
        """The sets after the pipeline, float64 (as given where it has no steps). Raises InputError for a modality
        that it was not fitted for, and for rows of another dimension."""
        return {modality: self._moved(x, modality) for modality, x in as_sets(sets).items()}

    def affine(self, modality: str) -> Affine:
        """The chain of the modality as (W, b, renormalise); InputError where it is no affine map."""
        key = self.key(modality)
        return affine_chain(self.chains[key], self.dimensions[key][0])

    def key(self, modality: str) -> str:
        """The name of the chain for the modality: its own, or "any"."""
        if modality in self.chains:
            return modality
        if ANY in self.chains:
            return ANY
        known = " and ".join(self.chains)
        raise InputError(f"the pipeline was fitted for {known} rows, but {modality} rows were given")

    def save(self, path: str | Path) -> None:
        """Writes the map as .safetensors (see `map_file`), whole or not at all."""
        from clip_geometry.transforms.map_file import write_map

        write_map(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> "FittedPipeline":
        """What `save` wrote. Raises InputError for damaged and for foreign files."""
        from clip_geometry.transforms.map_file import read_map

        return read_map(Path(path))

    def _moved(self, x: Rows, modality: str) -> Rows:
        key = self.key(modality)
        expected = self.dimensions[key][0]
        if len(shape := np.shape(x)) == 2 and shape[1] != expected:
            raise InputError(
                f"{modality} rows have dimension {shape[1]}, but the pipeline was fitted on dimension {expected}"
            )
        for transform in self.chains[key]:
            x = transform.transform(x)
        return x


def as_sets(sets: Mapping[str, Rows]) -> Mapping[str, Rows]:
    """The sets, lists as arrays; an InputError for what is no matrix, and for rows without saying what they are."""
    if not isinstance(sets, Mapping):
        raise InputError(
            f"a pipeline takes sets by name, not a {type(sets).__name__}: "
            'give {"image": rows, "text": rows}, or {"any": rows} for one map of every modality'
        )
    return {
        name: x if len(getattr(x, "shape", ())) == 2 else as_learnable(x, name=str(name)) for name, x in sets.items()
    }

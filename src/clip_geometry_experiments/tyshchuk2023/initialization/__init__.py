"""The cone of fresh models, with and without biases, operation by operation (Tyshchuk et al. 2023)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from clip_geometry.config import digest, validate
from clip_geometry.data import load_dataset
from clip_geometry.data.base import Dataset
from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.open_clip import FreshConfig
from clip_geometry.files import npy_bytes, write_atomically
from clip_geometry.io.reading import read_npy
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry_experiments.kit.base import Cell, Data, Experiment, Model, RunConfig, Seeds, experiments
from clip_geometry_experiments.tyshchuk2023.initialization.figures import draw_initialization, tell
from clip_geometry_experiments.tyshchuk2023.initialization.fresh_tower import run_tower

DATA = {"image": "images", "text": "captions"}  # modality → its key in the config


class InitializationConfig(RunConfig):
    """Config of the experiment `initialization`.

    Args:
        models: Fresh models of open_clip.
        images: Data set of the image towers.
        captions: Data set of the text towers.
        seeds: Seeds of the models; `seed` is that of the null values.
        biases: As initialized, or all set to zero.
        batch_norm: Mode of the batch norm of ResNets; "batch": the statistics of one batch of all images.
        limit: Use only the first N items.
        batch_size: Batch size of the encoders.
        layers: Follow the rows through the tower, and compare with theory.
    """

    models: tuple[Model, ...] = Field(min_length=1)
    images: Data
    captions: Data
    seeds: Seeds = (0, 1, 2, 3, 4)
    biases: tuple[Literal["initial", "zero"], ...] = Field(default=("initial", "zero"), min_length=1)
    batch_norm: tuple[Literal["eval", "batch"], ...] = Field(default=("eval", "batch"), min_length=1)
    limit: int | None = Field(default=None, ge=2)
    batch_size: int = Field(default=32, ge=1)
    layers: bool = True

    @model_validator(mode="after")
    def _fresh_models(self) -> Self:
        for model in self.models:
            if not (model.is_fresh and isinstance(model, FreshConfig)):
                raise InputError(
                    f"{model.model} is not freshly initialised; expected open_clip:NAME/fresh, scenes-clip/fresh, or a "
                    "folder with fresh: true"
                )
            if given := model.model_fields_set & {"seed", "zero_bias", "batch_norm"}:
                raise InputError(f"{model.model} has its own {min(given)}; set seeds, biases and batch_norm instead")
        return self


class Initialization(Experiment):
    """A cell is a tower with one seed, with or without biases, and one mode of batch norm."""

    Config = InitializationConfig
    _loaded: tuple[str, Encoder] | None = None

    def cells(self) -> Iterator[Cell]:
        config = self.config
        for model in config.models:
            # a list of layers is a ModifiedResNet
            has_batch_norm = isinstance(model.source().architecture["vision_cfg"].get("layers"), list)
            image_options = [{"batch_norm": mode} for mode in config.batch_norm] if has_batch_norm else [{}]
            for seed in config.seeds:
                for bias in config.biases:
                    built = {"seed": seed, "zero_bias": bias == "zero"}
                    for options in image_options:
                        yield self._cell(model, built | options, "image")
                    yield self._cell(model, built, "text")

    def _cell(self, model: FreshConfig, options: Mapping[str, Any], modality: str) -> Cell:
        config = self.config
        built = validate(type(model), model.model_dump(mode="json") | dict(options), model.model)
        data = getattr(config, DATA[modality])
        define = {
            "model": built.model_dump(mode="json", serialize_as_any=True),
            "modality": modality,
            "data": data.model_dump(mode="json", serialize_as_any=True),
            **{key: getattr(config, key) for key in ("experiment", "seed", "limit", "batch_size", "layers")},
            **self.workspace.revisions(built, data),
        }
        own = model.model_dump(mode="json", exclude_defaults=True, exclude={"model", "fresh"})

        def rows() -> list[Row]:
            encoder, dataset = self._encoder(built), self._dataset(data)
            how = {key: getattr(config, key) for key in ("limit", "batch_size", "layers", "seed")}
            embeddings, found = run_tower(encoder, own | dict(options), dataset, modality, **how)
            file = self._rows_file(cell.key)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, npy_bytes(embeddings.vectors))
            return found

        what = ", ".join([f"{model.model} ({modality})", *(f"{key} {value}" for key, value in options.items())])
        cell = Cell(define, rows, what)
        return cell

    def _rows_file(self, key: str) -> Path:
        """The embeddings of a cell, which the figures draw."""
        return self.workspace.folder / "embeddings" / f"{key}.npy"

    @cached_property
    def _dataset(self) -> Callable[[Any], Dataset]:
        return cache(load_dataset)

    def _encoder(self, model: FreshConfig) -> Encoder:
        """The model. Both towers follow one another, so the last one is kept."""
        key = digest(model)
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = key, load_encoder(model, device=self.workspace.device)
        return self._loaded[1]

    def tabled(self, row: Row) -> bool:
        return "layer" not in row["at"]  # there are thousands, which the figures show

    def drawings(self) -> Mapping[str, Any]:
        def embeddings(row: Mapping[str, Any]) -> np.ndarray | None:
            file = self._rows_file(row["cell"])
            return read_npy(file, mmap=False) if file.exists() else None

        return draw_initialization(self.finished_rows(), embeddings)

    @classmethod
    def sentences(cls, planned: "Sequence[Initialization]") -> list[str]:
        return tell([row for each in planned for row in each.finished_rows()])

    def fresh_models(self) -> list[str]:
        return [model.model for model in self.config.models]


experiments.add("initialization", Initialization)

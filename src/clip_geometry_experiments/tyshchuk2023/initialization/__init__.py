"""The cone of freshly initialized models, with and without biases, by operation (Tyshchuk et al. 2023)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from clip_geometry.config import digest, validate
from clip_geometry.display.origin import option_words
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


class InitializationConfig(RunConfig):
    """Config of the experiment `initialization`.

    Args:
        models: Freshly initialized open_clip models, at least one.
        images: Data set for the image towers.
        captions: Data set for the text towers.
        seeds: Seeds of the models; `seed` is the seed of the null values.
        limit: Use only the first N items; null uses all.
        batch_size: Batch size of the encoders.
    """

    models: tuple[Model, ...] = Field(min_length=1)
    images: Data
    captions: Data
    seeds: Seeds = (0, 1, 2, 3, 4)
    limit: int | None = Field(default=None, ge=2)
    batch_size: int = Field(default=32, ge=1)

    @model_validator(mode="after")
    def _fresh_models(self) -> Self:
        """Check that every model is freshly initialized."""
        for model in self.models:
            if not (model.is_fresh and isinstance(model, FreshConfig)):
                raise InputError(
                    f"{model.model} is not freshly initialized; expected open_clip:NAME/fresh, scenes-clip/fresh, or a "
                    "folder with fresh: true"
                )
        return self


class Initialization(Experiment):
    """The experiment `initialization`.

    A cell is one tower with one seed, with or without biases, in one batch norm mode: "eval" (without data statistics)
    or "batch" (with the statistics of one batch that contains all images).
    """

    Config = InitializationConfig

    def cells(self) -> Iterator[Cell]:
        config = self.config
        for model in config.models:
            # in a ModifiedResNet, `layers` is a list
            has_batch_norm = isinstance(model.source().architecture["vision_cfg"].get("layers"), list)
            image_options = [{"batch_norm": "eval"}, {"batch_norm": "batch"}] if has_batch_norm else [{}]
            for seed in config.seeds:
                for zero_bias in (False, True):
                    built = {"seed": seed, "zero_bias": zero_bias}
                    for options in image_options:
                        yield self._cell(model, built | options, "image")
                    yield self._cell(model, built, "text")

    def _cell(self, model: FreshConfig, options: Mapping[str, Any], modality: str) -> Cell:
        """Return the unit of work that runs one tower of one initialized model."""
        config = self.config
        built = validate(type(model), model.model_dump(mode="json") | dict(options), model.model)
        data = config.images if modality == "image" else config.captions
        define = {
            "model": built.model_dump(mode="json", serialize_as_any=True),
            "modality": modality,
            "data": data.model_dump(mode="json", serialize_as_any=True),
            **{key: getattr(config, key) for key in ("experiment", "seed", "limit", "batch_size")},
            **self.workspace.revisions(built, data),
        }
        own = model.model_dump(mode="json", exclude_defaults=True, exclude={"model", "fresh"})

        def compute() -> list[Row]:
            settings = {key: getattr(config, key) for key in ("limit", "batch_size", "seed")}
            dataset = self.workspace.dataset(data)
            embeddings, rows = run_tower(self._encoder(built), own | dict(options), dataset, modality, **settings)
            file = self._rows_file(digest(define))
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, npy_bytes(embeddings.vectors))
            return rows

        return Cell(define, compute, f"{model.model} ({modality}), {option_words(options)}")

    def _rows_file(self, key: str) -> Path:
        """Return the file with the embeddings of a cell, which the figures draw."""
        return self.workspace.folder / "embeddings" / f"{key}.npy"

    @cached_property
    def _encoder(self) -> Callable[[Any], Encoder]:
        """Load a model and keep only the last one; the cells of its two towers follow each other."""
        return lru_cache(maxsize=1)(partial(load_encoder, device=self.workspace.device))

    def tabled(self, row: Row) -> bool:
        return "layer" not in row["at"]  # there are thousands of such rows, and the figures show them

    def drawings(self) -> Mapping[str, Any]:
        return draw_initialization(self.finished_rows(), lambda row: read_npy(self._rows_file(row["cell"]), mmap=False))

    @classmethod
    def sentences(cls, planned: "Sequence[Initialization]") -> list[str]:
        return tell([row for each in planned for row in each.finished_rows()])

    def fresh_models(self) -> list[str]:
        return [model.model for model in self.config.models]


experiments.add("initialization", Initialization)

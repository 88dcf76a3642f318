"""The cone of fresh models, with and without biases, operation by operation (Tyshchuk et al. 2023)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from clip_geometry.config import digest, validate
from clip_geometry.data import load_dataset
from clip_geometry.data.base import Dataset, DatasetConfig
from clip_geometry.display.origin import with_options
from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.base import Encoder, EncoderConfig
from clip_geometry.files import npy_bytes, write_atomically
from clip_geometry.io.reading import read_npy
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry_experiments.kit.base import Cell, Data, Experiment, Model, RunConfig, Seeds, experiments
from clip_geometry_experiments.tyshchuk2023.initialization import fresh_tower
from clip_geometry_experiments.tyshchuk2023.initialization.figures import draw_initialization, tell

DATA = {"image": "images", "text": "captions"}  # modality → its key in the config


class InitializationConfig(RunConfig):
    """Config of the experiment `initialization`.

    Args:
        models: Fresh models.
        images: Data set of the image towers.
        captions: Data set of the text towers.
        seeds: Seeds of the models; `seed` is that of the null values.
        biases: As initialized, or all set to zero.
        batch_norm: Mode of models with batch norm; "batch": the statistics of one batch of all images.
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
            if not (model.is_fresh and "zero_bias" in type(model).model_fields):
                raise InputError(
                    f"{model.model} is not freshly initialised; expected open_clip:NAME/fresh, scenes-clip/fresh, or a "
                    "folder with fresh: true"
                )
            if given := model.model_fields_set & {"seed", "zero_bias", "batch_norm"}:
                raise InputError(f"{model.model} has its own {min(given)}; set seeds, biases and batch_norm instead")
        names = [model.model for model in self.models]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"{twice[0]} is there twice under 'models'; run its variants one by one")
        return self


class Initialization(Experiment):
    Config = InitializationConfig

    def cells(self) -> Iterator[Cell]:
        config = self.config
        for model in config.models:
            modes = [{"batch_norm": mode} for mode in config.batch_norm] if fresh_tower.has_batch_norm(model) else [{}]
            for seed in config.seeds:
                for bias in config.biases:
                    built = {"seed": seed, "zero_bias": bias == "zero"}
                    for modality in fresh_tower.modalities(model):
                        for mode in modes if modality == "image" else [{}]:
                            yield self._cell(model, built | mode, modality)

    def _cell(self, model: EncoderConfig, options: Mapping[str, Any], modality: str) -> Cell:
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
        # the file of its embeddings has the name of the cell
        what = ", ".join([f"{model.model} ({modality})", *(f"{key} {value}" for key, value in options.items())])
        cell = Cell(define, lambda: self._rows(cell.key, built, own | dict(options), modality, data), what)
        return cell

    def _rows(
        self, key: str, model: EncoderConfig, options: Mapping[str, Any], modality: str, data: DatasetConfig
    ) -> list[Row]:
        config = self.config
        dataset = self._dataset(data)
        tower = fresh_tower.FreshTower(
            self._encoder(model),
            options,
            dataset,
            fresh_tower.side_of(dataset, modality),
            limit=config.limit,
            batch_size=config.batch_size,
            layers=config.layers,
            seed=config.seed,
        )
        embeddings, rows = tower.run()
        self._rows_file(key).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._rows_file(key), npy_bytes(embeddings.vectors))
        if model.model not in self._with_biases:  # which does not depend on the seed
            plain = validate(type(model), model.model_dump(mode="json") | {"zero_bias": False}, model.model)
            self._with_biases[model.model] = fresh_tower.has_biases(self._encoder(plain).model)  # pyright: ignore[reportAttributeAccessIssue]
        return rows if self._with_biases[model.model] else fresh_tower.with_note(rows, fresh_tower.UNCHANGED)

    def _rows_file(self, key: str) -> Path:
        return self.workspace.folder / "embeddings" / f"{key}.npy"

    @cached_property
    def _dataset(self) -> Callable[[Any], Dataset]:
        return cache(load_dataset)

    def _encoder(self, model: EncoderConfig) -> Encoder:
        """The model. Both towers and the check of its biases follow one another, so the last one is kept."""
        key = digest(model)
        if key not in self._built:
            self._built.clear()
            self._built[key] = load_encoder(model, device=self.workspace.device)
        return self._built[key]

    @cached_property
    def _built(self) -> dict[str, Encoder]:
        return {}

    @cached_property
    def _with_biases(self) -> dict[str, bool]:
        return {}

    def tabled(self, row: Row) -> bool:
        return "layer" not in row["at"]  # there are thousands, which the figures show

    def facts(self) -> Mapping[str, Any]:
        config = self.config
        rows = self.finished_rows()
        modes = any("batch_norm" in row["model_options"] for row in rows)
        towers = {modality: [row for row in rows if row["at"]["modality"] == modality] for modality in DATA}
        facts: dict[str, Any] = {"models": [model.model for model in config.models]}
        for modality, found in towers.items():
            data = [f"{row['n']} of {with_options(row['dataset'], row['data_options'])}" for row in found[:1]]
            facts[f"{modality}s"] = " ".join(data)  # none of a model without such a tower
        return {
            **facts,
            "seeds of the models": list(config.seeds),
            "biases": list(config.biases),
            "batch norm": list(config.batch_norm) if modes else None,
            "seed of null values": config.seed,
            "time of all forward passes": f"{sum({row['cell']: row['seconds'] for row in rows}.values()):.0f} s",
        }

    def drawings(self) -> Mapping[str, Any]:
        def embeddings(row: Mapping[str, Any]) -> np.ndarray | None:
            file = self._rows_file(row["cell"])
            return read_npy(file, mmap=False) if file.exists() else None

        return draw_initialization(self.finished_rows(), embeddings)

    @classmethod
    def sentences(cls, planned: "Sequence[Initialization]") -> list[str]:
        return tell([row for each in planned for row in each.finished_rows()])

    def label(self) -> str:
        return ", ".join(self.fresh_models())

    def fresh_models(self) -> list[str]:
        return [model.model for model in self.config.models]


experiments.add("initialization", Initialization)

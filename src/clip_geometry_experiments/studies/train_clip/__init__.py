"""Training of a small CLIP from scratch, with its geometry measured from the state before the first step."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clip_geometry.data import load_dataset
from clip_geometry.data.base import Dataset, DatasetConfig
from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.hub import load_state_dict, model_path, read_state_dict
from clip_geometry.encoders.runtime import resolve_device
from clip_geometry.files import sha256_of
from clip_geometry.progress import note
from clip_geometry.registry import InputError, library_versions
from clip_geometry.results import Row, read_rows
from clip_geometry_experiments.kit.base import Cell, dataset_words, experiments, numbered_labels, read_explanations
from clip_geometry_experiments.kit.clip_training import TrainingStudy, loss_record, share_record, state_record
from clip_geometry_experiments.kit.training import FULL, Checkpoint, curves_of, resolve_precision
from clip_geometry_experiments.report.figures import Drawing, FigureEntry, save_drawings
from clip_geometry_experiments.studies.train_clip import training
from clip_geometry_experiments.studies.train_clip.data import (
    CaptionedImages,
    ClassPrompts,
    TrainClipConfig,
    channel_statistics,
    load_pairs,
    prompt_tokens,
    require_apart,
)
from clip_geometry_experiments.studies.train_clip.figures import arms_sentences, draw_train_clip, training_sentences

CELL = ("cell", "cell_row", "cell_rows")  # keys that identify the cell of a recorded row


class TrainClip(TrainingStudy):
    """Trains a CLIP and saves it in the format that `local-dir:` reads."""

    Config = TrainClipConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))

    @cached_property
    def _datasets(self) -> dict[str, Dataset]:
        """Load the data sets, and check that training and test data have no items in common."""
        config = self.config
        configs = {"data": config.data, "measured": config.measured, "tested": config.tested}
        datasets = {name: load_dataset(data) for name, data in configs.items() if data is not None}
        require_apart(datasets)
        return datasets

    @cached_property
    def cell(self) -> Cell:
        if self.config.recorded is not None:
            return Cell({"recorded": sha256_of(self._recorded_file)}, self._recorded_rows, "recorded states")
        define = self.config.settings()
        define |= {f"{name}_revision": dataset.revision for name, dataset in self._datasets.items()}
        versions = library_versions()
        define |= {"versions": {name: versions[name] for name in ("clip-geometry", "torch", "open_clip_torch")}}
        define["precision"] = self._precision  # "auto" depends on the device
        return Cell(define, self._rows, f"training {self.config.arm}")

    @cached_property
    def _recorded_file(self) -> Path:
        """Return the file of a recorded training; raise InputError if it does not exist."""
        path = model_path(self.config.recorded or "")
        if not path.is_file():
            raise InputError(f"recorded is {self.config.recorded!r}, but the file {path} does not exist")
        return path

    def _recorded_rows(self) -> list[Row]:
        """Return the result rows of a recorded training, which must have the configured number of steps."""
        recorded = read_rows(self._recorded_file)
        rows: list[Row] = [{key: value for key, value in row.items() if key not in CELL} for row in recorded]
        if {row["steps"][-1] for row in rows if "trajectory" in row} != {self.config.steps}:
            raise InputError(f"{self._recorded_file} is not the record of a training with steps = {self.config.steps}")
        return rows

    @cached_property
    def _device(self) -> torch.device:
        return resolve_device(self.workspace.device)

    @property
    def _precision(self) -> str:
        return resolve_precision(self.config.precision, self._device)

    # --- the training

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder with its initial weights, from the folder that the trained weights are saved to."""
        training.make_folder(self.model_folder, self.config, *channel_statistics(self.config.data))
        return training.fresh_encoder(self.model_folder, self.config.seed)

    def pairs(self, name: str) -> CaptionedImages:
        """Return the pairs of "data", "measured" or "tested"."""
        encoder: Any = self.encoder
        steps = encoder.transform.transforms
        before = next(k for k, step in enumerate(steps) if type(step).__name__ == "MaybeToTensor")  # bytes until then

        def image_bytes(image: Any) -> Any:
            for step in steps[:before]:
                image = step(image)
            return image

        architecture = self.config.architecture
        key = {"image_size": architecture.vision_cfg["image_size"], "text_cfg": architecture.text_cfg}
        key |= {"tokenizer": encoder.describe()["tokenizer"]}
        pairs = load_pairs(self._datasets[name], image_bytes, encoder.tokenize, key)
        return pairs.head(self.config.measured_pictures) if name == "measured" else pairs

    @cached_property
    def _trained(self) -> CaptionedImages:
        return self.pairs("data")

    def trainer(self) -> training.ClipTrainer:
        pairs = self._trained
        prompts = self._prompts(self.config.training_prompts or self.config.prompts)
        fresh = training.fresh_encoder(self.model_folder, self.config.seed)
        return training.ClipTrainer(fresh, pairs, prompts, self.config, device=self._device)

    @cached_property
    def prompts(self) -> ClassPrompts:
        """Texts for each class, and the classes seen in training."""
        return self._prompts(self.config.prompts)

    def _prompts(self, templates: Sequence[str]) -> ClassPrompts:
        names = self._trained.class_names
        seen = np.unique(self._trained.labels)
        return prompt_tokens(templates, names, self.encoder.tokenize, seen)

    def _rows(self) -> list[Row]:
        """Train a CLIP, save it, and return its result rows."""
        config = self.config
        measured = self.pairs("measured")
        seen = self.prompts.seen
        names = config.measures or training.NAMES
        callback = training.ClipCallback(measured, self.prompts, names, batch_norm=config.batch_norm)
        trainer = self.trained(callback, Checkpoint.of(self.workspace.folder, self.cell.key))
        note(f"measuring took {trainer.measuring_share:.1%} of the training's time")
        rows: list[Row] = [
            state_record(place, values, self.steps, **training.fields_of(config, place, measured, seen))
            for place, values in trainer.trajectory.items()
        ]
        rows += [
            loss_record("train_clip.training_loss", trainer.losses, self.steps, config.at(), pipeline=[]),
            *training.change_rows(config, curves_of(rows)[0]),
        ]
        batch_norm = {} if config.batch_norm == "eval" else {"batch_norm": config.batch_norm}
        origin = self._origin(config.measured, batch_norm)
        weights = training.save_weights(trainer.model, self.model_folder)
        load_state_dict(trainer.model, read_state_dict(weights), str(weights))
        return [{**origin, **row} for row in rows] + self._tested_rows(trainer)

    def _origin(self, data: DatasetConfig, options: Mapping[str, Any]) -> Row:
        """Return the fields that all records of these images share; `options` are options of the model."""
        options = {**options} if self._precision == FULL else {**options, "trained_in": self._precision}
        return self.context(data, model_options=options, pipeline=list(training.PIPELINE))

    def _tested_rows(self, trainer: training.ClipTrainer) -> list[Row]:
        """Test the zero-shot accuracy of the saved model, in float16, with the running statistics of batch norm."""
        config, data = self.config, self.config.tested
        if data is None:
            return []
        tested = self.pairs("tested")
        seen = self.prompts.seen
        origin = self._origin(data, {})

        def share(place: training.Place, value: float, **more: Any) -> Row:
            fields = training.fields_of(config, place, tested, seen)
            fields["at"]["pictures"] = "tested"
            return {**origin, **share_record(place.measure, value, **fields, **more)}

        image, text, classes = training.encode(trainer, tested, self.prompts)
        zero_shot = training.zero_shot_values(image, classes, tested.labels, seen)
        rows = [share(place, value) for place, value in zero_shot.items()]
        if config.tasks:
            measured = self.pairs("measured")
            fit = (*training.encode(trainer, measured, self.prompts)[:2], measured.labels)
            for pipeline, place, value in training.task_values(fit, (image, text, tested.labels), classes, seen):
                fitted = None if pipeline == training.PIPELINE and "probe" not in place.measure else "measured"
                rows.append(share(place, value, pipeline=list(pipeline), fitted_on=fitted))
        return rows

    # --- the report

    def tabled(self, row: Row) -> bool:
        """Show all numbers in the table except the correlations, which the sentences report."""
        return row["measure"] not in ("train_clip.pearson", "train_clip.spearman")

    def facts(self) -> Mapping[str, Any]:
        return {**super().facts(), "model": self.config.recorded or f"local-dir:{self.model_folder}"}

    @classmethod
    def sentences(cls, planned: "Sequence[TrainClip]") -> list[str]:
        rows = [run.finished_rows() for run in planned]
        if all(run.config.tasks for run in planned):
            from clip_geometry_experiments.studies.train_clip.interventions import summary

            return summary(chain.from_iterable(rows))
        if len(planned) == 1:
            return training_sentences(rows[0])
        return arms_sentences(list(zip([run.label() for run in planned], rows, strict=True)))

    def figures(self, folder: Path, *, prefix: str = "", group: str = "") -> list[FigureEntry]:
        """Return the figures of one training; the figures of a sweep are drawn side by side by `together`."""
        return [] if group else super().figures(folder, prefix=prefix)

    def drawings(self) -> dict[str, Drawing]:
        return draw_train_clip({self.label(): curves_of(self.finished_rows())})

    @classmethod
    def together(cls, planned: "Sequence[TrainClip]", folder: Path) -> list[FigureEntry]:
        """Draw all trainings side by side; the trainings of a grid with tasks are compared by claims instead."""
        if all(run.config.tasks for run in planned):
            return []
        labels = numbered_labels([run.label() for run in planned])
        arms = {label: curves_of(run.finished_rows()) for label, run in zip(labels, planned, strict=True)}
        return save_drawings(draw_train_clip(arms), folder, origin=planned[0].origin(), prefix="arms_")

    def origin(self) -> str:
        config = self.config
        names = load_dataset(self.config.measured).class_names or ()
        chance = f"zero-shot among {len(names)} classes, chance {1 / len(names):.4f}; " if names else ""
        if config.class_captions:
            chance += f"{config.class_captions:.0%} of the training captions name the class only; "
        return (
            f"{dataset_words(config.measured)}; {chance}{config.architecture}, pipeline: normalize, "
            f"batch norm: {config.batch_norm}; seed {config.seed}."
        )

    def label(self) -> str:
        return self.config.label()


experiments.add("train_clip", TrainClip)

"""A small CLIP trained from scratch, with its geometry measured from the state before the first step."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
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
from clip_geometry_experiments.kit.base import Cell, Experiment, experiments, numbered_labels, read_explanations
from clip_geometry_experiments.kit.clip_training import data_words, measured_steps, optimizer_words
from clip_geometry_experiments.kit.training import FULL, Checkpoint, remove_finished, resolve_precision
from clip_geometry_experiments.kit.trajectories import curves_of
from clip_geometry_experiments.report.gallery import Drawing, FigureEntry, save_drawings
from clip_geometry_experiments.studies.train_clip import measuring, training
from clip_geometry_experiments.studies.train_clip.config import TrainClipConfig, architecture_words, arm_words
from clip_geometry_experiments.studies.train_clip.data import (
    CaptionedImages,
    ClassPrompts,
    channel_statistics,
    load_pairs,
    prompt_tokens,
    require_apart,
)
from clip_geometry_experiments.studies.train_clip.figures import arms_sentences, draw_train_clip, training_sentences

CELL = ("cell", "cell_row", "cell_rows")  # keys of the cell that a recorded row is of


class TrainClip(Experiment):
    """One cell: the training with all its states. The model is saved to `model_folder`, as `local-dir:` reads it."""

    Config = TrainClipConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))

    @cached_property
    def _datasets(self) -> dict[str, Dataset]:
        configs: dict[str, DatasetConfig | None] = {
            name: getattr(self.config, name) for name in ("data", "measured", "tested")
        }
        found = {name: load_dataset(config) for name, config in configs.items() if config is not None}
        require_apart(found)
        return found

    def cells(self) -> Iterator[Cell]:
        yield self._cell

    @cached_property
    def _cell(self) -> Cell:
        if self.config.recorded is not None:
            return Cell({"recorded": sha256_of(self._recorded_file)}, self._recorded_rows, "recorded states")
        define = self.config.model_dump(mode="json", serialize_as_any=True, exclude={"name", "title", "description"})
        define |= {f"{name}_revision": dataset.revision for name, dataset in self._datasets.items()}
        versions = library_versions()
        define |= {"versions": {name: versions[name] for name in ("clip-geometry", "torch", "open_clip_torch")}}
        if self._precision != FULL:  # auto depends on the device
            define["precision"] = self._precision
        return Cell(define, self._rows, f"training {self.config.arm}")

    @cached_property
    def _recorded_file(self) -> Path:
        path = model_path(self.config.recorded or "")
        if not path.is_file():
            raise InputError(f"recorded is {self.config.recorded!r}, but there is no file {path}")
        return path

    def _recorded_rows(self) -> list[Row]:
        recorded = read_rows(self._recorded_file)
        rows: list[Row] = [{key: value for key, value in row.items() if key not in CELL} for row in recorded]
        if {row["steps"][-1] for row in rows if "trajectory" in row} != {self.config.steps}:
            raise InputError(f"{self._recorded_file} is not the record of a training with steps = {self.config.steps}")
        return rows

    @cached_property
    def _device(self) -> torch.device:
        return resolve_device(getattr(self.workspace, "device", "auto"))

    @property
    def _precision(self) -> str:
        return resolve_precision(self.config.precision, self._device)

    @property
    def model_folder(self) -> Path:
        """Where the trained model is saved; `local-dir:` reads it."""
        return self.workspace.folder / "models" / f"{self.config.arm}-{self._cell.key[:8]}"

    # --- the training

    @cached_property
    def encoder(self) -> Encoder:
        """With its first weights, from the folder that the trained ones are saved to."""
        config, mean_and_std = self.config, channel_statistics(self._datasets["data"])
        training.make_folder(self.model_folder, config.architecture, config, *mean_and_std)
        return training.fresh_encoder(self.model_folder, config.seed)

    def pairs(self, name: str) -> CaptionedImages:
        """data, measured or tested."""
        encoder: Any = self.encoder
        steps = encoder.transform.transforms
        before = next(k for k, step in enumerate(steps) if type(step).__name__ == "MaybeToTensor")  # bytes until then

        def image_bytes(image: Any) -> Any:
            for step in steps[:before]:
                image = step(image)
            return image

        architecture = self.config.architecture
        key = {"image_size": architecture["vision_cfg"]["image_size"], "text_cfg": architecture["text_cfg"]}
        key |= {"tokenizer": encoder.describe()["tokenizer"]}
        folder = self.workspace.folder.parent / "pictures"
        found = load_pairs(self._datasets[name], folder, image_bytes, encoder.tokenize, key)
        return found.head(self.config.measured_pictures) if name == "measured" else found

    @cached_property
    def _trained(self) -> CaptionedImages:
        return self.pairs("data")

    def trainer(self) -> training.ClipTrainer:
        """Before its first step."""
        config, pairs = self.config, self._trained
        model: Any = training.fresh_encoder(self.model_folder, config.seed).model  # pyright: ignore[reportAttributeAccessIssue]
        width, classes = config.architecture["embed_dim"], len(pairs.class_names)
        preprocess = model.visual.preprocess_cfg
        return training.ClipTrainer(
            model,
            training.ClipObjective(config, width=width, classes=classes, seed=config.seed),
            pairs,
            config,
            mean=torch.tensor(preprocess["mean"]),
            std=torch.tensor(preprocess["std"]),
            seed=config.seed,
            device=self._device,
            prompts=self.training_prompts,
            caption_noise=config.caption_noise,
        )

    def trained(self, callback: measuring.ClipCallback, checkpoint: Checkpoint | None = None) -> training.ClipTrainer:
        """After its last step, resumed from the checkpoint if there is one."""
        trainer = self.trainer()
        trainer.run(self.steps, callback, checkpoint=checkpoint, name=f"training {self.config.arm}")
        note(f"measuring took {trainer.measuring_share:.1%} of the training's time")
        return trainer

    @property
    def steps(self) -> list[int]:
        """Steps after which a state is measured; 0 is before the first."""
        return measured_steps(self.config.steps, self.config.measurements)

    @cached_property
    def prompts(self) -> ClassPrompts:
        """Texts for each class, and the classes seen in training."""
        return self._prompts(self.config.prompts)

    @cached_property
    def training_prompts(self) -> ClassPrompts:
        """Captions in training that name the class only."""
        return self._prompts(self.config.training_prompts or self.config.prompts)

    def _prompts(self, templates: Sequence[str]) -> ClassPrompts:
        names, seen = self._trained.class_names, np.unique(self._trained.labels)
        return prompt_tokens(templates, names, self.encoder.tokenize, seen)

    def _rows(self) -> list[Row]:
        config, measured = self.config, self.pairs("measured")
        checkpoint = Checkpoint.of(self.workspace.folder, self._cell.key)
        names = config.measures or measuring.NAMES
        callback = measuring.ClipCallback(measured, self.prompts, names, batch_norm=config.batch_norm)
        trainer = self.trained(callback, checkpoint)
        rows = list(measuring.state_rows(config, measured, self.prompts.seen, trainer.trajectory, self.steps))
        rows += [
            measuring.loss_row(config, trainer.losses, self.steps),
            *measuring.change_rows(config, curves_of(rows)[0]),
        ]
        rows = [{**self._context(config.measured, measured), **row} for row in rows]
        weights = training.save_weights(trainer.model, self.model_folder)
        load_state_dict(trainer.model, read_state_dict(weights), str(weights))
        return rows + self._tested_rows(trainer)

    def _context(self, data: DatasetConfig, pairs: CaptionedImages) -> Row:
        """What all records of these images have in common."""
        cut = {"trained": self._trained.truncated, "measured": pairs.truncated}
        return measuring.context(self.config, data, self._precision) | ({"truncated": cut} if any(cut.values()) else {})

    def _tested_rows(self, trainer: training.ClipTrainer) -> list[Row]:
        """Zero-shot accuracy of the model as it is saved, in float16."""
        config, data = self.config, self.config.tested
        if data is None:
            return []
        tested = self.pairs("tested")
        image, text, classes = measuring.encode(trainer, tested, self.prompts)
        seen = self.prompts.seen
        rows = list(
            measuring.tested_rows(config, tested, seen, measuring.zero_shot_values(image, classes, tested.labels, seen))
        )
        if config.tasks:
            measured = self.pairs("measured")
            fit = (*measuring.encode(trainer, measured, self.prompts)[:2], measured.labels)
            for pipeline, place, value in measuring.task_values(fit, (image, text, tested.labels), classes, seen):
                fitted = None if pipeline == measuring.PIPELINE and "probe" not in place.measure else "measured"
                rows += measuring.tested_rows(
                    config, tested, seen, {place: value}, pipeline=list(pipeline), fitted_on=fitted
                )
        origin = self._context(data, tested)
        origin["model_options"].pop("batch_norm", None)  # it is as users load it
        return [{**origin, **row} for row in rows]

    # --- the report

    def tabled(self, row: Row) -> bool:
        """All but the correlations, which are in the sentences."""
        return row["measure"] not in ("train_clip.pearson", "train_clip.spearman")

    def facts(self) -> Mapping[str, Any]:
        config, cut = self.config, [row["truncated"] for row in self.finished_rows() if "truncated" in row]
        return {
            "architecture": architecture_words(config.architecture),
            "arm": arm_words(config),
            "trained on": data_words(config.data),
            "measured on": data_words(config.measured),
            "tested on": None if config.tested is None else data_words(config.tested),
            "prompts": " | ".join(config.prompts),
            "class prompts among training captions": f"{config.class_captions:.0%}",
            "images with the caption of another": f"{config.caption_noise:.0%}" if config.caption_noise else None,
            "these prompts": " | ".join(config.training_prompts or config.prompts) if config.class_captions else None,
            "AdamW": optimizer_words(config, f"batches of {config.batch_size}"),
            "trained in": self._precision,
            "states measured": len(self.steps),
            "batch norm in these": config.batch_norm,
            "seed": config.seed,
            "captions that are cut": cut[0] if cut else None,
            "model": self.config.recorded or f"local-dir:{self.model_folder}",
        }

    @classmethod
    def sentences(cls, planned: "Sequence[TrainClip]") -> list[str]:
        rows = [each.finished_rows() for each in planned]
        if all(each.config.tasks for each in planned):
            from clip_geometry_experiments.studies.train_clip.interventions import summary

            return summary(row for of in rows for row in of)
        if len(planned) == 1:
            return training_sentences(rows[0])
        return arms_sentences([(each.label(), of) for each, of in zip(planned, rows, strict=True)])

    def figures(self, folder: Path, *, prefix: str = "", group: str = "") -> list[FigureEntry]:
        """Figures of one training; those of a sweep are side by side in the figures of `together`."""
        remove_finished(self.workspace.folder)
        if group:
            return []
        return super().figures(folder, prefix=prefix)

    def drawings(self) -> dict[str, Drawing]:
        drawn = _drawings({self.label(): self.finished_rows()})
        return drawn if self.config.recorded is None else dict([*drawn.items()][:1])  # the main one

    @classmethod
    def together(cls, planned: "Sequence[TrainClip]", folder: Path) -> list[FigureEntry]:
        """All trainings side by side; those of a grid with tasks are compared by the claims about them."""
        if all(each.config.tasks for each in planned):
            return []
        labels = numbered_labels([each.label() for each in planned])
        rows = {label: each.finished_rows() for label, each in zip(labels, planned, strict=True)}
        return save_drawings(_drawings(rows), folder, origin=planned[0].origin(), prefix="arms_")

    def origin(self) -> str:
        config, names = self.config, load_dataset(self.config.measured).class_names or ()
        chance = f"zero-shot among {len(names)} classes, chance {1 / len(names):.4f}; " if names else ""
        if config.class_captions:
            chance += f"{config.class_captions:.0%} of the training captions name the class only; "
        return (
            f"{data_words(config.measured)}; {chance}{architecture_words(config.architecture)}, pipeline: normalize, "
            f"batch norm: {config.batch_norm}; seed {config.seed}."
        )

    def label(self) -> str:
        return arm_words(self.config)

    def fresh_models(self) -> list[str]:
        return []


def _drawings(rows: Mapping[str, Sequence[Row]]) -> dict[str, Drawing]:
    """Figures of the records of one or several objectives, by label."""
    return draw_train_clip({label: curves_of(each) for label, each in rows.items()})


experiments.add("train_clip", TrainClip)

"""A text tower for several languages, distilled from an encoder that knows one (Carlsson et al. 2022)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from clip_geometry.data.base import DatasetConfig
from clip_geometry.display.origin import with_options
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.encoders.hf import load_tokenizer
from clip_geometry.encoders.hub import load_state_dict, read_state_dict
from clip_geometry.encoders.open_clip import scenes_folder
from clip_geometry.encoders.runtime import resolve_device
from clip_geometry.registry import library_versions
from clip_geometry.results import Row
from clip_geometry_experiments.kit.base import Cell, Experiment, experiments, read_explanations
from clip_geometry_experiments.kit.clip_training import ZERO_SHOT, data_words, measured_steps, optimizer_words
from clip_geometry_experiments.kit.languages import EXPLANATIONS, parallel
from clip_geometry_experiments.kit.training import Checkpoint, context, remove_finished
from clip_geometry_experiments.studies.distillation import measuring, training
from clip_geometry_experiments.studies.distillation.config import DistillationConfig
from clip_geometry_experiments.studies.distillation.data import LabeledImages, Sources, Texts
from clip_geometry_experiments.studies.distillation.figures import draw_distillation, sentences


class Distillation(Experiment):
    """One cell: the training with all its states. The student is saved to `model_folder`, as `mclip:` reads it."""

    Config = DistillationConfig
    explanations = EXPLANATIONS | read_explanations(Path(__file__).with_name("numbers.yaml"))

    def cells(self) -> Iterator[Cell]:
        yield self._cell

    @cached_property
    def _cell(self) -> Cell:
        config = self.config
        define = config.model_dump(mode="json", serialize_as_any=True, exclude={"name", "title", "description"})
        sets = []
        for data in (config.data, config.measured):  # each in the language of the teacher and in its own
            sets += dict.fromkeys(each for name in config.languages for each in parallel(data, config.languages, name))
        sets += [] if config.tested is None else [config.tested]
        define |= {"revisions": [self.workspace.revisions(config.teacher, data) for data in sets]}
        versions = library_versions()
        define |= {"versions": {name: versions[name] for name in ("clip-geometry", "torch", "transformers")}}
        return Cell(define, self._rows, "training")

    @property
    def model_folder(self) -> Path:
        """Where the student is saved; `mclip:` reads it."""
        return self.workspace.folder / "models" / f"student-{self._cell.key[:8]}"

    # --- the training

    @cached_property
    def sources(self) -> Sources:
        return Sources(self.config, self.workspace, load_tokenizer(scenes_folder()))

    @cached_property
    def captions(self) -> dict[str, Texts]:
        """Language → training texts."""
        return self.sources.texts(self.config.data)

    def trainer(self) -> training.DistillationTrainer:
        """Before its first step."""
        config, sources, captions = self.config, self.sources, self.captions
        numbers = next(iter(captions.values())).rows.shape[1]
        folder = training.make_folder(self.model_folder, config.student, numbers, config.teacher.model)
        prompts = {}
        if config.class_captions:
            seen, class_texts = sources.seen(), sources.class_texts(config.data, config.training_prompts)
            prompts = {name: each.of(seen) for name, each in class_texts.items()}
        device = resolve_device(getattr(self.workspace, "device", "auto"))
        student = training.fresh_student(folder, numbers, config.seed)
        return training.DistillationTrainer(student, captions, prompts, config, seed=config.seed, device=device)

    def callback(self) -> measuring.StudentCallback:
        """Measures states on the captions in `measured`, and zero-shot on its images, if any."""
        sources, data = self.sources, self.config.measured
        images = sources.images(data) if sources.has_images(data) else None
        return measuring.StudentCallback(
            sources.texts(data), {} if images is None else sources.class_texts(data), images
        )

    def trained(
        self, callback: measuring.StudentCallback, checkpoint: Checkpoint | None = None
    ) -> training.DistillationTrainer:
        """After its last step, resumed from the checkpoint if there is one."""
        trainer = self.trainer()
        trainer.run(self.steps, callback, checkpoint=checkpoint, name="distillation")
        return trainer

    @property
    def steps(self) -> list[int]:
        """Steps after which a state is measured; 0 is before the first."""
        return measured_steps(self.config.steps, self.config.measurements)

    # --- rows

    def _rows(self) -> list[Row]:
        config = self.config
        # before the training, so that missing images are reported at once
        tested = None if config.tested is None else self.sources.images(config.tested)
        callback = self.callback()
        trainer = self.trained(callback, Checkpoint.of(self.workspace.folder, self._cell.key))
        rows: list[Row] = [*measuring.state_rows(trainer.trajectory, self.steps, callback.captions, callback.images)]
        rows.append(measuring.loss_row(trainer.losses, self.steps, self.captions))
        weights = training.save_student(trainer.student, self.model_folder)
        load_state_dict(trainer.student, read_state_dict(weights), str(weights))  # in float16, as users load it
        rows += measuring.caption_rows(trainer.student, callback.captions, config.languages[0], config.seed)
        rows = [{**self._context(config.measured), **row} for row in rows]
        return rows + ([] if tested is None else self._tested_rows(trainer.student, tested))

    def _tested_rows(self, student: training.Student, images: LabeledImages) -> list[Row]:
        """The teacher with its own prompts, and the student with those of each language."""
        config, sources, data = self.config, self.sources, self.config.tested
        assert data is not None
        origin = self._context(data)
        at = {"tower": "teacher", "language": config.languages[0]}
        best = [
            {**origin, "model": config.teacher.model, "model_options": model_options(config.teacher), **row}
            for row in measuring.accuracy_rows(images, sources.teacher_classes(data), at)
        ]
        rows = []
        for language, prompts in sources.class_texts(data).items():
            at = {"tower": "student", "step": config.steps, "language": language}
            for row, teacher in zip(
                measuring.accuracy_rows(images, measuring.class_rows(student, prompts), at), best, strict=True
            ):
                rows += [{**origin, **row}, {**origin, **measuring.share_row(row, teacher)}]
        return [*best, *rows]

    def _context(self, data: DatasetConfig) -> Row:
        """What all records of a data set have in common. The language is in their `at`."""
        options = data.model_dump(
            mode="json", serialize_as_any=True, exclude_defaults=True, exclude={"name", "split", "language", "pair"}
        )
        return context(data.name, data.split, options, self.config.seed)

    # --- the report

    def tabled(self, row: Row) -> bool:
        """Numbers of the saved student, and those of the last state that are not measured on it again."""
        again = [measuring.COSINE] if self.config.tested is None else [measuring.COSINE, ZERO_SHOT]
        return "trajectory" not in row or row["measure"] not in again

    def facts(self) -> Mapping[str, Any]:
        config, student = self.config, self.config.student
        return {
            "teacher": with_options(config.teacher.model, model_options(config.teacher)),
            "student": f"BERT of {student.layers} layer{'s' * (student.layers > 1)} of width {student.width}, "
            f"{student.heads} heads, {student.hidden} hidden; mean over tokens, one linear layer",
            "languages": ", ".join(config.languages),
            "trained on": data_words(config.data),
            "measured on": data_words(config.measured),
            "tested on": None if config.tested is None else data_words(config.tested),
            "prompts": " | ".join(each for language in config.languages for each in config.prompts.get(language, ())),
            "texts that are such": f"{config.class_captions:.0%}, of classes that are trained on",
            "AdamW": optimizer_words(config, f"{config.batch_size} texts"),
            "precision": config.precision,
            "states measured": len(self.steps),
            "seed": config.seed,
            "model": f"mclip:{self.model_folder}",
        }

    def drawings(self) -> Mapping[str, Any]:
        remove_finished(self.workspace.folder)
        return draw_distillation(self.finished_rows())

    @classmethod
    def sentences(cls, planned: "Sequence[Distillation]") -> list[str]:
        """Sentences about one training; for several the report reads their tables."""
        return sentences(planned[0].finished_rows()) if len(planned) == 1 else []

    def origin(self) -> str:
        config = self.config
        tested = "" if config.tested is None else f"; the saved student and its teacher on {data_words(config.tested)}"
        teacher = f"Teacher: {config.teacher.model}; pipeline: none; seed {config.seed}."
        return f"{data_words(config.measured)}{tested}. {teacher}"

    def label(self) -> str:
        return f"taught by {self.config.teacher.model}"

    def fresh_models(self) -> list[str]:
        return [self.config.teacher.model] if self.config.teacher.is_fresh else []


def model_options(model: EncoderConfig) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_defaults=True, exclude={"model"})


experiments.add("distillation", Distillation)

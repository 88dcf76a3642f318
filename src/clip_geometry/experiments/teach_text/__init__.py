"""A text tower for several languages, taught by an encoder that knows one (Carlsson et al. 2022)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clip_geometry.data.base import DatasetConfig
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.encoders.checkpoint import load_state_dict, read_state_dict
from clip_geometry.encoders.hf.loading import load_tokenizer
from clip_geometry.encoders.open_clip.source import scenes_folder
from clip_geometry.encoders.runtime import resolve_device
from clip_geometry.experiments.kit.base import Cell, Experiment, experiments
from clip_geometry.experiments.kit.checkpoint import Checkpoint, remove_finished, resume
from clip_geometry.experiments.kit.explained import read_explanations
from clip_geometry.experiments.kit.measured_training import train
from clip_geometry.experiments.teach_text.config import TeachTextConfig, parallel
from clip_geometry.experiments.teach_text.data import Texts
from clip_geometry.experiments.teach_text.measuring import (
    COSINE,
    TRAINING_LOSS,
    Observer,
    Pictures,
    accuracy_rows,
    caption_rows,
    class_rows,
    share_row,
    state_rows,
)
from clip_geometry.experiments.teach_text.model import Student, fresh_student, make_folder, save_student
from clip_geometry.experiments.teach_text.sources import Sources
from clip_geometry.experiments.teach_text.training import Place, Teaching, Trajectory
from clip_geometry.experiments.train_clip.config import measured_steps
from clip_geometry.experiments.train_clip.geometry import ZERO_SHOT
from clip_geometry.experiments.train_clip.words import data_words
from clip_geometry.progress import progress
from clip_geometry.report.origin import with_options
from clip_geometry.results import Row
from clip_geometry.versions import library_versions

if TYPE_CHECKING:
    from clip_geometry.report.gallery import FigureEntry


class TeachText(Experiment):
    """One cell: the teaching with all its states. It leaves the student as `mclip:` reads it, in `model_folder`."""

    Config = TeachTextConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))
    summary = "a small text tower taught in several languages by an encoder that knows one"

    def cells(self) -> Iterator[Cell]:
        yield self._cell

    @cached_property
    def _cell(self) -> Cell:
        config, left_out = self.config, {"name", "title", "description"}
        define = config.model_dump(mode="json", serialize_as_any=True, exclude=left_out)
        sets = [each for data in (config.data, config.measured) for each in self._parallel(data)]
        sets += [] if config.tested is None else [config.tested]
        define |= {"revisions": [self.workspace.revisions(config.teacher, data) for data in sets]}
        versions = library_versions()
        define |= {"versions": {name: versions[name] for name in ("clip-geometry", "torch", "transformers")}}
        return Cell(define, self._rows)

    def _parallel(self, data: DatasetConfig) -> list[DatasetConfig]:
        languages = self.config.languages
        return list(dict.fromkeys(each for name in languages for each in parallel(data, languages, name)))

    @property
    def model_folder(self) -> Path:
        """Where the student lies; `mclip:` before it."""
        return self.workspace.folder / "models" / f"student-{self._cell.key[:8]}"

    # --- the teaching

    @cached_property
    def sources(self) -> Sources:
        return Sources(self.config, self.workspace, load_tokenizer(scenes_folder()))

    @cached_property
    def captions(self) -> dict[str, Texts]:
        """Language → what is trained on."""
        return self.sources.texts(self.config.data)

    def teaching(self) -> Teaching:
        """Before its first step."""
        config, sources, captions = self.config, self.sources, self.captions
        numbers = next(iter(captions.values())).rows.shape[1]
        folder = make_folder(self.model_folder, config.student, numbers, config.teacher.model)
        prompts = {}
        if config.class_captions:
            seen = sources.seen()
            prompts = {name: each.of(seen) for name, each in sources.class_texts(config.data).items()}
        device = resolve_device(getattr(self.workspace, "device", "auto"))
        student = fresh_student(folder, numbers, config.seed)
        return Teaching(student, captions, prompts, config, seed=config.seed, device=device)

    def observer(self) -> Observer:
        """Of the captions in `measured`, and zero-shot on its pictures where it has some."""
        sources, data = self.sources, self.config.measured
        pictures = sources.pictures(data) if sources.has_pictures(data) else None
        return Observer(sources.texts(data), {} if pictures is None else sources.class_texts(data), pictures)

    def taught(self, observer: Observer, checkpoint: Checkpoint | None = None) -> tuple[Teaching, Trajectory]:
        """(after its last step, its states); from the checkpoint on, where there is one."""
        teaching = self.teaching()
        before = {} if checkpoint is None else resume(teaching, checkpoint, Place)
        with progress("teaching", total=self.config.steps, done=teaching.number) as advance:
            return teaching, train(
                teaching, self.steps, lambda each: observer(each.student), checkpoint, advance, before
            )

    @property
    def steps(self) -> list[int]:
        """After which a state is measured; 0 is before the first."""
        return measured_steps(self.config.steps, self.config.measurements)

    # --- rows

    def _rows(self) -> list[Row]:
        config = self.config
        tested = None if config.tested is None else self.sources.pictures(config.tested)  # says what lacks in time
        observer = self.observer()
        teaching, states = self.taught(observer, Checkpoint.of(self.workspace.folder, self._cell.key))
        rows = list(state_rows(states, self.steps, observer.captions, observer.pictures))
        rows.append(self._loss_row(teaching))
        weights = save_student(teaching.student, self.model_folder)
        load_state_dict(teaching.student, read_state_dict(weights), str(weights))  # in float16, as anybody has it
        rows += caption_rows(teaching.student, observer.captions, config.languages[0], config.seed)
        rows = [{**self._context(config.measured), **row} for row in rows]
        return rows + ([] if tested is None else self._tested_rows(teaching.student, tested))

    def _loss_row(self, teaching: Teaching) -> Row:
        """truncated: how many of the texts in each language were cut."""
        losses, steps = teaching.losses, self.steps
        means = [None, *(float(np.mean(losses[start:end])) for start, end in pairwise(steps))]
        row = {"measure": TRAINING_LOSS, "value": means[-1], "standard_error": None, "n": None, "d": None}
        row |= {"trajectory": means, "steps": steps}
        row |= {"truncated": {language: texts.truncated for language, texts in self.captions.items()}}
        return {**row, "at": {"tower": "student", "step": steps[-1]}}

    def _tested_rows(self, student: Student, pictures: Pictures) -> list[Row]:
        """The teacher by its own prompts, and the student by those of each language."""
        config, sources, data = self.config, self.sources, self.config.tested
        assert data is not None
        origin = self._context(data)
        at = {"tower": "teacher", "language": config.languages[0]}
        best = [
            {**origin, "model": config.teacher.model, "model_options": model_options(config.teacher), **row}
            for row in accuracy_rows(pictures, sources.teacher_classes(data), at)
        ]
        rows = []
        for language, prompts in sources.class_texts(data).items():
            at = {"tower": "student", "step": config.steps, "language": language}
            for row, teacher in zip(accuracy_rows(pictures, class_rows(student, prompts), at), best, strict=True):
                rows += [{**origin, **row}, {**origin, **share_row(row, teacher)}]
        return [*best, *rows]

    def _context(self, data: DatasetConfig) -> Row:
        """What all rows of a data set have in common. The language is in their `at`."""
        options = data.model_dump(
            mode="json", serialize_as_any=True, exclude_defaults=True, exclude={"name", "split", "language", "pair"}
        )
        return {
            "model": "trained here",
            "model_options": {},
            "dataset": data.name,
            "data_options": options,
            "split": data.split,
            "dtype": "float32",
            "pipeline": [],
            "fitted_on": None,
            "seed": self.config.seed,
            "versions": library_versions(),
        }

    # --- the report

    def tabled(self, row: Row) -> bool:
        """Numbers of the saved student, and of the last state what is not measured of it again."""
        again = [COSINE] if self.config.tested is None else [COSINE, ZERO_SHOT]
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
            "AdamW": f"{config.steps} steps of {config.batch_size} texts, lr {config.lr:g}, warm-up "
            f"{config.warmup:g}, then a cosine, decay {config.weight_decay:g}, gradients up to norm "
            f"{config.clip or 'any'}",
            "precision": config.precision,
            "states measured": len(self.steps),
            "seed": config.seed,
            "model": f"mclip:{self.model_folder}",
        }

    def figures(self, folder: Path, *, prefix: str = "", group: str = "") -> "list[FigureEntry]":
        from clip_geometry.experiments.teach_text.report import draw_teach_text

        remove_finished(self.workspace.folder)
        return draw_teach_text(self.finished_rows(), folder=folder, origin=self._origin, prefix=prefix, group=group)

    @classmethod
    def sentences(cls, planned: "Sequence[TeachText]") -> list[str]:
        """Of one teaching; several are read off their tables."""
        from clip_geometry.experiments.teach_text.report import sentences

        return sentences(planned[0].finished_rows()) if len(planned) == 1 else []

    @property
    def _origin(self) -> str:
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


experiments.add("teach_text", TeachText)

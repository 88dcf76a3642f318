"""A multilingual text tower, distilled from an encoder that knows one language (Carlsson et al. 2022)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.data.base import DatasetConfig
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.hf import load_tokenizer
from clip_geometry.encoders.hub import load_state_dict, read_state_dict
from clip_geometry.encoders.open_clip import scenes_folder
from clip_geometry.encoders.runtime import inference, resolve_device
from clip_geometry.evaluate import ensemble
from clip_geometry.registry import library_versions
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit.base import Cell, dataset_words, experiments, read_explanations
from clip_geometry_experiments.kit.clip_training import (
    ZERO_SHOT,
    Place,
    TrainingStudy,
    loss_record,
    share_record,
    state_record,
)
from clip_geometry_experiments.kit.languages import EXPLANATIONS, LanguageSets, parallel
from clip_geometry_experiments.kit.training import Checkpoint
from clip_geometry_experiments.studies.distillation import training
from clip_geometry_experiments.studies.distillation.figures import draw_distillation, sentences
from clip_geometry_experiments.studies.distillation.training import (
    DistillationConfig,
    DistillationTrainer,
    LabeledImages,
    Sources,
    Student,
    Texts,
)

LOSS, COSINE, UNEXPLAINED, TRAINING_LOSS = (
    f"distillation.{name}" for name in ("loss", "cosine", "unexplained", "training_loss")
)
BATCH = 256
ROUNDING = 1e-20  # relative threshold for squares in float64; anything smaller is zero variance


@dataclass(frozen=True, eq=False)
class StudentCallback:
    """Measures a state on fixed captions and images.

    Args:
        captions: Mapping from language to captions that are not in the training set.
        prompts: Mapping from language to prompts of all classes.
        images: Images for zero-shot classification.
    """

    captions: Mapping[str, Texts]
    prompts: Mapping[str, Texts]
    images: LabeledImages

    def __call__(self, trainer: DistillationTrainer) -> dict[Place, float]:
        student = trainer.student
        values = {}
        for language, texts in self.captions.items():
            for name, value in nearness(encode(student, texts.tokens), texts.targets()).items():
                values[Place(name, language)] = value
            for kind, value in self.images.accuracy(class_rows(student, self.prompts[language])).items():
                values[Place(ZERO_SHOT, language, kind)] = value
        return values

    def fields_of(self, place: Place, step: int) -> dict[str, Any]:
        """Return size, null value and `at` of a number of the last state."""
        texts = self.captions[place.of]
        at = {"tower": "student", "step": step, "language": place.of}
        size = {"n": len(texts), "d": texts.rows.shape[1]}
        if place.classes == "all":
            return {**size, "at": at}
        return {**size, **self.images.size(place.classes), "at": {**at, "classes": place.classes}}


def encode(student: Student, tokens: np.ndarray) -> Tensor:
    """Return float32 rows on the CPU, computed in float32 regardless of the training precision."""
    student.eval()
    device = next(student.parameters()).device
    with inference():
        parts = [student(part.to(device)) for part in torch.from_numpy(tokens.astype(np.int64)).split(BATCH)]
    return torch.cat(parts).float().cpu()


def class_rows(student: Student, prompts: Texts) -> Tensor:
    """Return one unit row per class, (c, d)."""
    return ensemble(encode(student, prompts.tokens), prompts.target).float()


def nearness(rows: Tensor, targets: Tensor) -> dict[str, float]:
    """Return the distances of a student's rows from its teacher's aligned rows.

    The unexplained share of the variance is NaN if the variance is 0.
    """
    rows, targets = rows.double(), targets.double()
    loss = (rows - targets).square().mean()
    spread = (targets - targets.mean(0)).square().mean()
    return {
        LOSS: float(loss),
        UNEXPLAINED: float(loss / spread) if spread > ROUNDING * targets.square().mean() else math.nan,
        COSINE: float(torch.cosine_similarity(rows, targets).mean()),
    }


def accuracy_rows(images: LabeledImages, classes: Tensor, at: Row) -> Iterator[Record]:
    """Yield zero-shot accuracies with their standard errors."""
    for kind, value in images.accuracy(classes).items():
        place = {**at, "classes": kind, "pictures": "tested"}
        yield share_record(ZERO_SHOT, value, **images.size(kind), d=classes.shape[1], at=place)


def caption_rows(student: Student, captions: Mapping[str, Texts], source: str, seed: int) -> Iterator[Row]:
    """Yield cosines to the teacher with their standard errors, and the distances between translations."""
    sets = {}
    for language, texts in captions.items():
        rows = encode(student, texts.tokens)
        cosines = torch.cosine_similarity(rows.double(), texts.targets().double())
        n = len(cosines)
        error = float(cosines.std() / math.sqrt(n))
        at = {"tower": "student", "language": language}
        yield Record(COSINE, float(cosines.mean()), error, n=n, d=rows.shape[1], at=at)
        sets[language] = Embeddings(vectors=rows.numpy(), modality="text", item_id=texts.items, language=language)
    languages = LanguageSets(sets, (), {name: source for name in sets if name != source}, seed=seed)
    for name in languages.sources:
        yield from languages.distance_rows(name)
        yield from languages.silhouette_rows(name)


class Distillation(TrainingStudy):
    """Distills a student and saves it in the format that `mclip:` reads."""

    Config = DistillationConfig
    explanations = EXPLANATIONS | read_explanations(Path(__file__).with_name("numbers.yaml"))

    @cached_property
    def cell(self) -> Cell:
        config = self.config
        define = config.settings()
        sets = []
        for data in (config.data, config.measured):  # each in the teacher's language and its own
            sets += dict.fromkeys(part for name in config.languages for part in parallel(data, config.languages, name))
        define |= {"revisions": [self.workspace.revisions(config.teacher, data) for data in (*sets, config.tested)]}
        versions = library_versions()
        define |= {"versions": {name: versions[name] for name in ("clip-geometry", "torch", "transformers")}}
        return Cell(define, self._rows, "distillation")

    # --- the training

    @cached_property
    def sources(self) -> Sources:
        return Sources(self.config, self.workspace, load_tokenizer(scenes_folder()))

    @cached_property
    def captions(self) -> dict[str, Texts]:
        """Mapping from language to training texts."""
        return self.sources.texts(self.config.data)

    def trainer(self) -> DistillationTrainer:
        config, captions = self.config, self.captions
        columns = next(iter(captions.values())).rows.shape[1]
        folder = training.make_folder(self.model_folder, config.student, columns, config.teacher.model)
        student = training.fresh_student(folder, columns, config.seed)
        seen = self.sources.seen()
        class_texts = self.sources.class_texts(config.data, config.training_prompts or config.prompts)
        prompts = {name: texts.of_classes(seen) for name, texts in class_texts.items()}
        device = resolve_device(self.workspace.device)
        return DistillationTrainer(student, captions, prompts, config, device=device)

    def callback(self) -> StudentCallback:
        """Return a callback that measures states on the images and captions of `measured`."""
        sources, data = self.sources, self.config.measured
        prompts = sources.class_texts(data, self.config.prompts)
        return StudentCallback(sources.texts(data), prompts, sources.images(data))

    # --- rows

    def _rows(self) -> list[Row]:
        """Train the student, save it, and return its result rows."""
        config = self.config
        tested = self.sources.images(config.tested)  # before the training, to report missing images at once
        callback = self.callback()
        trainer = self.trained(callback, Checkpoint.of(self.workspace.folder, self.cell.key))
        rows: list[Row] = [
            state_record(place, values, self.steps, **callback.fields_of(place, config.steps))
            for place, values in trainer.trajectory.items()
        ]
        truncated = {language: texts.truncated for language, texts in self.captions.items()}
        at = {"tower": "student"}
        rows.append(loss_record(TRAINING_LOSS, trainer.losses, self.steps, at, truncated=truncated))
        weights = training.save_student(trainer.student, self.model_folder)
        load_state_dict(trainer.student, read_state_dict(weights), str(weights))  # in float16, as users load it
        rows += caption_rows(trainer.student, callback.captions, config.languages[0], config.seed)
        origin = self._origin(config.measured)
        return [{**origin, **row} for row in rows] + self._tested_rows(trainer.student, tested)

    def _tested_rows(self, student: Student, images: LabeledImages) -> list[Row]:
        """Test the teacher with its own prompts, and the student with the prompts of each language."""
        config, sources, data = self.config, self.sources, self.config.tested
        origin = self._origin(data)
        at = {"tower": "teacher", "language": config.languages[0]}
        options = config.teacher.model_dump(mode="json", exclude_defaults=True, exclude={"model"})
        named = {"model": config.teacher.model, "model_options": options}
        classes = sources.teacher_classes(data)
        best = [{**origin, **named, **row} for row in accuracy_rows(images, classes, at)]
        rows = []
        for language, prompts in sources.class_texts(data, config.prompts).items():
            at = {"tower": "student", "step": config.steps, "language": language}
            own = accuracy_rows(images, class_rows(student, prompts), at)
            rows += [{**origin, **row} for row in own]
        return [*best, *rows]

    def _origin(self, data: DatasetConfig) -> Row:
        return self.context(data, without=("language", "pair"))

    # --- the report

    def tabled(self, row: Row) -> bool:
        """Show numbers of the saved student, and those of the last state that are not measured again on it."""
        return "trajectory" not in row or row["measure"] not in (COSINE, ZERO_SHOT)

    def facts(self) -> Mapping[str, Any]:
        return {**super().facts(), "model": f"mclip:{self.model_folder}"}

    def drawings(self) -> Mapping[str, Any]:
        return draw_distillation(self.finished_rows())

    @classmethod
    def sentences(cls, planned: "Sequence[Distillation]") -> list[str]:
        """Return the sentences of one training; several trainings are compared in tables."""
        return sentences(planned[0].finished_rows()) if len(planned) == 1 else []

    def origin(self) -> str:
        config = self.config
        return (
            f"{dataset_words(config.measured)}; the saved student and its teacher on {dataset_words(config.tested)}. "
            f"Teacher: {config.teacher.model}; pipeline: none; seed {config.seed}."
        )

    def label(self) -> str:
        return f"taught by {self.config.teacher.model}"

    def fresh_models(self) -> list[str]:
        return [self.config.teacher.model] if self.config.teacher.is_fresh else []


experiments.add("distillation", Distillation)

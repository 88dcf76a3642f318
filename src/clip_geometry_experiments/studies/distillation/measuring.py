"""What is measured of a student: its distance to the teacher, and zero-shot accuracy with its prompts."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.runtime import inference
from clip_geometry.evaluate import ensemble
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit.clip_training import ZERO_SHOT
from clip_geometry_experiments.kit.languages import LanguageSets
from clip_geometry_experiments.kit.training_states import Place, share_record
from clip_geometry_experiments.studies.distillation.data import LabeledImages, Texts
from clip_geometry_experiments.studies.distillation.training import DistillationTrainer, Student

LOSS, COSINE, UNEXPLAINED, SHARE, TRAINING_LOSS = (
    f"distillation.{name}" for name in ("loss", "cosine", "unexplained", "share", "training_loss")
)
BATCH = 256
ROUNDING = 1e-20  # of squares in float64: less is no variance


@dataclass(frozen=True, eq=False)
class StudentCallback:
    """Measures a state on fixed captions and images.

    Args:
        captions: language → other captions than those of the training.
        prompts: language → prompts of all classes.
        images: for zero-shot.
    """

    captions: Mapping[str, Texts]
    prompts: Mapping[str, Texts]
    images: LabeledImages

    def __call__(self, trainer: DistillationTrainer) -> dict[Place, float]:
        student, found = trainer.student, {}
        for language, texts in self.captions.items():
            for name, value in nearness(encode(student, texts.tokens), texts.targets()).items():
                found[Place(name, language)] = value
            for kind, value in self.images.accuracy(class_rows(student, self.prompts[language])).items():
                found[Place(ZERO_SHOT, language, kind)] = value
        return found

    def fields_of(self, place: Place, step: int) -> dict[str, Any]:
        """Size, null value and `at` of a number of the last state."""
        texts, at = self.captions[place.of], {"tower": "student", "step": step, "language": place.of}
        size = {"n": len(texts), "d": texts.rows.shape[1]}
        if place.classes == "all":
            return {**size, "at": at}
        return {**size, **self.images.size(place.classes), "at": {**at, "classes": place.classes}}


def encode(student: Student, tokens: np.ndarray) -> Tensor:
    """float32 rows on the CPU, computed in float32 whatever the precision of the training."""
    student.eval()
    device = next(student.parameters()).device
    with inference():
        parts = [student(part.to(device)) for part in torch.from_numpy(tokens.astype(np.int64)).split(BATCH)]
    return torch.cat(parts).float().cpu()


def class_rows(student: Student, prompts: Texts) -> Tensor:
    """(c, d) unit rows, one for each class."""
    return ensemble(encode(student, prompts.tokens), prompts.target).float()


def nearness(rows: Tensor, targets: Tensor) -> dict[str, float]:
    """Distances of a student's rows to its teacher's, aligned; NaN for the share of a variance that is 0."""
    rows, targets = rows.double(), targets.double()
    loss = (rows - targets).square().mean()
    spread = (targets - targets.mean(0)).square().mean()
    return {
        LOSS: float(loss),
        UNEXPLAINED: float(loss / spread) if spread > ROUNDING * targets.square().mean() else math.nan,
        COSINE: float(torch.cosine_similarity(rows, targets).mean()),
    }


def accuracy_rows(images: LabeledImages, classes: Tensor, at: Row) -> Iterator[Record]:
    """With its standard error."""
    for kind, value in images.accuracy(classes).items():
        place = {**at, "classes": kind, "pictures": "tested"}
        yield share_record(ZERO_SHOT, value, **images.size(kind), d=classes.shape[1], at=place)


def relative_row(row: Record, teacher: Row) -> Record:
    """The accuracy of a student divided by the teacher's on the same images; undefined if the teacher's is 0."""
    value = row["value"] / teacher["value"] if teacher["value"] else None
    note = {} if value is not None else {"note": "the teacher is right on no image"}
    return Record(SHARE, value, None, n=row.n, d=row.d, at=row.at, **note)


def caption_rows(student: Student, captions: Mapping[str, Texts], source: str, seed: int) -> Iterator[Row]:
    """Cosines to the teacher with their standard errors, and the distances between translations."""
    sets = {}
    for language, texts in captions.items():
        rows = encode(student, texts.tokens)
        cosines = torch.cosine_similarity(rows.double(), texts.targets().double())
        n, error = len(cosines), float(cosines.std() / math.sqrt(len(cosines)))
        at = {"tower": "student", "language": language}
        yield Record(COSINE, float(cosines.mean()), error, n=n, d=rows.shape[1], at=at)
        sets[language] = Embeddings(vectors=rows.numpy(), modality="text", item_id=texts.items, language=language)
    languages = LanguageSets(sets, (), {name: source for name in sets if name != source}, seed=seed)
    for name in languages.sources:
        yield from languages.distance_rows(name)
        yield from languages.silhouette_rows(name)

"""What is measured of a student: its distance to the teacher, and zero-shot accuracy with its prompts."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.runtime import inference
from clip_geometry.evaluators import ensemble
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit import trajectories
from clip_geometry_experiments.kit.clip_training import ZERO_SHOT
from clip_geometry_experiments.kit.languages import LanguageSets
from clip_geometry_experiments.studies.distillation.data import ClassTexts, LabeledImages, Texts
from clip_geometry_experiments.studies.distillation.training import DistillationTrainer, Student, TextPlace

LOSS, COSINE, UNEXPLAINED, SHARE, TRAINING_LOSS = (
    f"distillation.{name}" for name in ("loss", "cosine", "unexplained", "share", "training_loss")
)
BATCH = 256
ROUNDING = 1e-20  # of squares in float64: less is no variance


class StudentCallback:
    """Measures a state on fixed captions, and on images if there are some with prompts of their classes.

    Args:
        captions: language → other captions than those of the training.
        prompts: language → prompts of all classes.
        images: for zero-shot, None for none.
    """

    def __init__(
        self, captions: Mapping[str, Texts], prompts: Mapping[str, ClassTexts], images: LabeledImages | None = None
    ):
        self.captions, self.prompts, self.images = captions, prompts, images

    def __call__(self, trainer: DistillationTrainer) -> dict[TextPlace, float]:
        student, found = trainer.student, {}
        for language, texts in self.captions.items():
            rows, targets = encode(student, texts.tokens), texts.targets()
            for name, value in nearness(rows, targets).items():
                found[TextPlace(name, language)] = value
            if self.images is not None:
                classes = class_rows(student, self.prompts[language])
                for kind, value in self.images.accuracy(classes).items():
                    found[TextPlace(ZERO_SHOT, language, kind)] = value
        return found


def encode(student: Student, tokens: np.ndarray) -> Tensor:
    """float32 rows on the CPU, computed in float32 whatever the precision of the training."""
    student.eval()
    device = next(student.parameters()).device
    with inference():
        parts = [student(part.to(device)) for part in torch.from_numpy(tokens.astype(np.int64)).split(BATCH)]
    return torch.cat(parts).float().cpu()


def class_rows(student: Student, prompts: ClassTexts) -> Tensor:
    """(c, d) unit rows, one for each class."""
    return ensemble(encode(student, prompts.tokens), prompts.classes).float()


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


# --- rows


def state_rows(
    states: Mapping[TextPlace, Sequence[float]],
    steps: list[int],
    captions: Mapping[str, Texts],
    images: LabeledImages | None,
) -> Iterator[Record]:
    """All states of a number in one record: `trajectory` at `steps`; its value is the last."""
    for place, values in states.items():
        known, texts = trajectories.trajectory(values), captions[place.language]
        at = {"tower": "student", "step": steps[-1], "language": place.language}
        size: Row = {"n": len(texts), "d": texts.rows.shape[1]}
        if place.classes != "all" and images is not None:
            size |= {"n": images.count(place.classes), "null_value": 1 / images.candidates}
            at["classes"] = place.classes
        yield Record(place.measure, known[-1], **size, trajectory=known, steps=steps, at=at)


def loss_row(losses: Sequence[float], steps: list[int], captions: Mapping[str, Texts]) -> Record:
    """Mean of the training losses between two measured states; truncated: texts that were cut, by language."""
    means = trajectories.means_between(losses, steps)
    cut, at = {language: texts.truncated for language, texts in captions.items()}, {"tower": "student"}
    states = {"trajectory": means, "steps": steps, "truncated": cut}
    return Record(TRAINING_LOSS, means[-1], None, n=None, d=None, **states, at={**at, "step": steps[-1]})


def accuracy_rows(images: LabeledImages, classes: Tensor, at: Row) -> Iterator[Record]:
    """With its standard error."""
    for kind, value in images.accuracy(classes).items():
        n = images.count(kind)
        size = {"n": n, "d": classes.shape[1], "null_value": 1 / images.candidates}
        at = {**at, "classes": kind, "pictures": "tested"}
        yield Record(ZERO_SHOT, value, math.sqrt(value * (1 - value) / n), **size, at=at)


def share_row(row: Record, teacher: Row) -> Record:
    """The accuracy of a student divided by the teacher's on the same images; undefined if the teacher's is 0."""
    value = row["value"] / teacher["value"] if teacher["value"] else None
    note = {} if value is not None else {"note": "the teacher is right on no image"}
    return Record(SHARE, value, None, n=row.n, d=row.d, at=row.at, **note)


def caption_rows(student: Student, captions: Mapping[str, Texts], source: str, seed: int) -> Iterator[Row]:
    """Cosines to the teacher with their standard errors; for languages that translate the captions of `source` also
    the distances between translations."""
    encoded = {language: encode(student, texts.tokens) for language, texts in captions.items()}
    for language, rows in encoded.items():
        cosines = torch.cosine_similarity(rows.double(), captions[language].targets().double())
        n, error = len(cosines), float(cosines.std() / math.sqrt(len(cosines)))
        at = {"tower": "student", "language": language}
        yield Record(COSINE, float(cosines.mean()), error, n=n, d=rows.shape[1], at=at)
    same = {name: rows for name, rows in encoded.items() if captions[name].rows is captions[source].rows}
    if len(same) < 2:  # WikiCaps has other captions in each pair of languages
        return
    sets = {
        name: Embeddings(vectors=rows.numpy(), modality="text", item_id=captions[name].items, language=name)
        for name, rows in same.items()
    }
    languages = LanguageSets(sets, (), {name: source for name in same if name != source}, seed=seed)
    for name in languages.sources:
        yield from languages.distance_rows(name)
        yield from languages.silhouette_rows(name)

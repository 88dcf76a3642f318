"""Tasks whose targets are not classes: similarity scores of pairs (STS-B) and answers in a passage (SQuAD)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clip_geometry.config import digest
from clip_geometry.data.tables import Table
from clip_geometry.io.reading import parsed_number
from clip_geometry.registry import InputError
from clip_geometry_experiments.tasks import base
from clip_geometry_experiments.tasks.text import SENTENCES, texts_of


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Pairs of sentences, each with a score.

    Attributes:
        name: Name of the task.
        texts: The pairs.
        scores: (n,) float64.
        revision: Hash that changes if a pair or a score changes.
        dropped: Number of pairs without a score, which are left out.
    """

    name: str
    texts: tuple[tuple[str, str], ...]
    scores: np.ndarray
    revision: str
    dropped: int = 0


class Answer(NamedTuple):
    """The text of an answer, and the index of its first character in the passage."""

    text: str
    start: int


class Question(NamedTuple):
    """A question with its answers in a passage, of which there is at least one."""

    question: str
    passage: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions that are answered by spans of a passage.

    Attributes:
        name: Name of the task.
        questions: The questions.
        revision: Hash that changes if a question changes.
    """

    name: str
    questions: tuple[Question, ...]
    revision: str


class StsbConfig(base.FileTaskConfig):
    """Options of STS-B from GLUE (Cer et al. 2017): the similarity of two sentences from 0 to 5.

    Attributes:
        split: "train" or "validation"; the labels of the test set are not public.
    """

    SPLITS = ("train", "validation")
    split: str = "train"


def load_stsb(config: StsbConfig) -> ScoredPairs:
    """Load the scored pairs.

    Raises:
        InputError: If a score is outside 0 to 5, or if all scores are equal.
    """
    table = base.published_table(config, f"text/glue/stsb_{config.split}.parquet", ("nyu-mll/glue", "stsb"))
    base.require_columns(table, (*SENTENCES, "label"))
    labels: list[float | None] = []
    for row, cell in enumerate(table.values("label"), start=1):
        if cell in (None, "", -1, -1.0) or cell != cell:
            labels.append(None)  # not scored
            continue
        try:
            score = parsed_number(cell)
        except (TypeError, ValueError):
            score = float("nan")
        if not 0 <= score <= 5:
            raise InputError(f"row {row} of {table.path} has the score {cell!r}; expected a number from 0 to 5")
        labels.append(score)
    rows = base.spread([row for row, label in enumerate(labels) if label is not None], config.limit)
    scores = np.array([labels[row] for row in rows], dtype=np.float64)
    if len(np.unique(scores)) < 2:
        raise InputError(f"all {len(scores)} scores in {table.path} are equal; expected scores from 0 to 5")
    first, second = (texts_of(table, name) for name in SENTENCES)
    texts = tuple((first[row], second[row]) for row in rows)
    return ScoredPairs(config.name, texts, scores, digest([texts, scores.tolist()]), labels.count(None))


base.tasks.add("stsb", base.TaskEntry(StsbConfig, load_stsb, "score"))


SQUAD_COLUMNS = ("question", "context", "answers")


class SquadConfig(base.FileTaskConfig):
    """Options of SQuAD 1.1 (Rajpurkar et al. 2016): questions whose answer is a span of a passage.

    Attributes:
        split: "train" (87,599 questions) or "validation" (10,570 questions with several answers each).
        path: A table with the columns question, context and answers {text, answer_start}.
    """

    SPLITS = ("train", "validation")
    split: str = "train"


def load_squad(config: SquadConfig) -> Questions:
    """Load the questions.

    Raises:
        InputError: If an answer is not at its position in the passage, or if there are no questions with an answer.
    """
    table = base.published_table(config, f"text/squad_{config.split}.parquet", ("rajpurkar/squad", None))
    answered = [question for question in _read_questions(table) if question.answers]
    questions = tuple(base.spread(answered, config.limit))
    if not questions:
        raise InputError(f"{table.path} holds no questions with an answer; expected at least one")
    for question, passage, answers in questions:
        for text, start in answers:
            if not text or start < 0 or passage[start : start + len(text)] != text:
                raise InputError(
                    f"the answer {text!r} to {question!r} is not at character {start} of its passage; correct the file"
                )
    return Questions(config.name, questions, digest(questions))


def _read_questions(table: Table) -> Iterator[Question]:
    """Yield the questions of a table in the format of SQuAD 1.1."""
    base.require_columns(table, SQUAD_COLUMNS)
    for question, passage, answers in zip(*(table.values(name) for name in SQUAD_COLUMNS), strict=True):
        if not (isinstance(question, str) and isinstance(passage, str) and isinstance(answers, Mapping)):
            raise InputError(
                f"{table.path} has a question, context or answers of a wrong type; expected the types of SQuAD 1.1"
            )
        try:
            pairs = zip(answers["text"], answers["answer_start"], strict=True)
            yield Question(question, passage, tuple(Answer(str(text), int(start)) for text, start in pairs))
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{table.path} has answers that are not two lists 'text' and 'answer_start' of equal length"
            ) from None


base.tasks.add("squad", base.TaskEntry(SquadConfig, load_squad, "span"))

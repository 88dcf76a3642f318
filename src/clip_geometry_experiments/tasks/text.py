"""Tasks of texts: GLUE, SNLI, SST-5, sentence polarity, captions of scenes, STS-B, SQuAD, and the user's own tables."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from pydantic import Field

from clip_geometry.config import digest
from clip_geometry.data.scenes import caption
from clip_geometry.data.scenes.draw import COLOURS, SHAPES, sample
from clip_geometry.data.scenes.draw import labels as scene_labels
from clip_geometry.data.tables import Table, read_table
from clip_geometry.io.reading import parsed_number
from clip_geometry.registry import InputError, did_you_mean
from clip_geometry_experiments.tasks import base

LABELS = ("label", "gold_label")
NO_LABEL = (None, "", "-")  # "-": the annotators of SNLI found no majority
HIDDEN = ("-1", -1)  # also no label, in the published tasks


@dataclass(frozen=True)
class TextSource:
    """A published data set of texts with labels.

    Attributes:
        columns: Groups of columns that can hold the texts; the first group that the table has is used.
        class_names: Names of the classes, starting with label 0.
        file: The table in $CLIP_GEOMETRY_DATA; {} stands for the split.
        hub: The data set and its subset on the Hugging Face hub.
        validation: Name of the validation split in `file`.
        hub_split: Name of the split on the hub, if it differs from the split of the config.
    """

    columns: tuple[tuple[str, ...], ...]
    class_names: tuple[str, ...]
    file: str
    hub: tuple[str, str | None]
    validation: str = "validation"
    hub_split: str | None = None


def load(source: TextSource, config: base.FileTaskConfig) -> base.Task:
    """Load a task.

    Texts are compared as strings, with case and spaces, to find the distinct items. Labels are numbers or names.

    Args:
        source: The data set.
        config: Options of the task.

    Raises:
        InputError: If a column is missing or a label is unknown.
    """
    name = source.file.format(config.split.replace("validation", source.validation))
    table = base.published_table(config, name, source.hub, source.hub_split)
    label = next((name for name in LABELS if name in table.names), LABELS[0])
    *columns, _ = base.require_columns(table, *((*group, label) for group in source.columns))
    classes = {name: k for k, name in enumerate(source.class_names)}
    labels: list[int | None] = []
    for row, cell in enumerate(table.values(label), start=1):
        code = plain_label(cell)
        if isinstance(code, str) and (code in classes or code.isdecimal()):
            code = classes[code] if code in classes else int(code)
        if not (code is None or isinstance(code, int)):
            near = did_you_mean(str(code), classes)
            raise InputError(
                f"row {row} of {table.path} has the label {code!r}; expected one of {', '.join(classes)}{near}"
            )
        labels.append(code)
    return base.single_label_task(config, [texts_of(table, name) for name in columns], labels, source.class_names)


def texts_of(table: Table, name: str) -> list[str]:
    """Return a column of texts, which may be empty strings.

    Raises:
        InputError: If a cell is not text.
    """
    cells = table.values(name)
    for row, cell in enumerate(cells, start=1):
        if not isinstance(cell, str):
            raise InputError(f"row {row} of column {name!r} in {table.path} holds {type(cell).__name__}; expected text")
    return cells


def plain_label(cell: Any, missing: Sequence[Any] = (*NO_LABEL, *HIDDEN)) -> Any:
    """Return a label, or None for a missing label.

    A float such as 1.0 becomes an int, because a table holds floats if other cells of the column are missing.

    Args:
        cell: The label in the table.
        missing: Values that stand for a missing label; NaN always does.
    """
    if cell in missing or cell != cell:
        return None
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


class GlueConfig(base.FileTaskConfig):
    """Options of a task of GLUE (Wang et al. 2018).

    Attributes:
        split: "train" or "validation"; for mnli, "validation_matched" or "validation_mismatched" instead of
            "validation". The labels of the test sets are not public.
    """

    SPLITS = ("train", "validation", "validation_matched", "validation_mismatched")
    split: str = "train"


SENTENCE, SENTENCES = ("sentence",), ("sentence1", "sentence2")
# columns and class names, as in nyu-mll/glue
GLUE = {
    "cola": (SENTENCE, ("unacceptable", "acceptable")),
    "mnli": (("premise", "hypothesis"), ("entailment", "neutral", "contradiction")),
    "mrpc": (SENTENCES, ("not_equivalent", "equivalent")),
    "qnli": (("question", "sentence"), ("entailment", "not_entailment")),
    "qqp": (("question1", "question2"), ("not_duplicate", "duplicate")),
    "rte": (SENTENCES, ("entailment", "not_entailment")),
    "sst2": (SENTENCE, ("negative", "positive")),
    "wnli": (SENTENCES, ("not_entailment", "entailment")),
}
for _name, (_columns, _classes) in GLUE.items():
    _source = TextSource(
        columns=(_columns,), class_names=_classes, file=f"text/glue/{_name}_{{}}.parquet", hub=("nyu-mll/glue", _name)
    )
    base.tasks.add(_name, base.TaskEntry(GlueConfig, partial(load, _source)))


class SnliConfig(base.FileTaskConfig):
    """Options of SNLI (Bowman et al. 2015): sentence pairs, the second sentence entailed, neutral or contradicted."""

    SPLITS = ("train", "validation", "test")
    split: str = "validation"


SNLI = TextSource(
    columns=(("premise", "hypothesis"), SENTENCES),
    class_names=("entailment", "neutral", "contradiction"),
    file="text/snli_{}.parquet",
    hub=("stanfordnlp/snli", None),
    validation="dev",
)
base.tasks.add("snli", base.TaskEntry(SnliConfig, partial(load, SNLI)))


class Sst5Config(base.FileTaskConfig):
    """Options of SST-5 (Socher et al. 2013), sentences of film reviews.

    There are 8,544 training, 1,101 validation and 2,210 test sentences.
    """

    SPLITS = ("train", "validation", "test")
    split: str = "train"


SST5 = TextSource(
    columns=(("text",),),
    class_names=("very negative", "negative", "neutral", "positive", "very positive"),
    file="text/sst5_{}.parquet",
    hub=("SetFit/sst5", None),
)
base.tasks.add("sst5", base.TaskEntry(Sst5Config, partial(load, SST5)))


POLARITY = TextSource(  # Pang and Lee 2005: sentences of film reviews
    columns=(("text",),),
    class_names=("negative", "positive"),
    file="text/sentence_polarity.parquet",
    hub=("cornell-movie-review-data/rotten_tomatoes", None),
    hub_split="train+validation+test",
)
base.tasks.add("polarity", base.TaskEntry(base.FileTaskConfig, partial(load, POLARITY)))


class ScenesTaskConfig(base.TaskConfig):
    """Options of a task on generated scenes.

    Attributes:
        size: Number of captions before `limit` is applied and equal captions are merged.
        seed: Seed of the stream of scenes.
        split: "train", or "validation" for the test split of `scenes`.
    """

    SPLITS = ("train", "validation")
    split: str = "train"
    size: int = Field(default=1000, ge=2)
    seed: int = Field(default=0, ge=0, lt=2**63)


def load_scenes(config: ScenesTaskConfig) -> base.Task:
    """Load captions whose class is one of the eight shapes, in any color."""
    part = "train" if config.split == "train" else "test"
    rows = base.spread(range(config.size), config.limit)
    shapes = scene_labels(config.seed, part, config.size)[rows] // len(COLOURS)
    texts = [caption(sample(config.seed, part, row), 0) for row in rows]
    items, examples = base.distinct([[text] for text in texts])
    return base.make_task(config.name, items, examples, shapes.astype(np.int64), SHAPES)


base.tasks.add("scenes", base.TaskEntry(ScenesTaskConfig, load_scenes))


class TableConfig(base.TaskConfig):
    """Options of the user's own table.

    Attributes:
        path: A .csv, .tsv, .parquet or .jsonl file. Results are named after the file.
        text: One column of texts, or two columns whose embeddings are concatenated.
        label: The column of the labels, which are numbers or names. The classes are the labels that occur, sorted. Rows
            with an empty label or "-" are left out; −1 is a class like any other.
    """

    path: base.Located
    text: tuple[str, ...] = Field(default=("text",), min_length=1, max_length=2)
    label: str = "label"


def load_table(config: TableConfig) -> base.Task:
    """Load a task from the user's own table."""
    table = read_table(config.path)
    for name in (*config.text, config.label):
        if name not in table.names:
            hint = did_you_mean(name, table.names) or f"; it has {', '.join(table.names)}"
            raise InputError(f"{table.path} has no column {name!r}{hint}")
    cells = [plain_label(cell, NO_LABEL) for cell in table.values(config.label)]
    labels = [None if label is None else str(label) for label in cells]
    classes = sorted({label for label in labels if label is not None})
    if all(name.removeprefix("-").isdecimal() for name in classes):
        classes.sort(key=int)
    codes = {name: k for k, name in enumerate(classes)}
    texts = [texts_of(table, name) for name in config.text]
    task = base.single_label_task(config, texts, [None if label is None else codes[label] for label in labels], classes)
    return replace(task, name=config.path.stem)


base.tasks.add("table", base.TaskEntry(TableConfig, load_table))


@dataclass(frozen=True, eq=False)
class TargetTask:
    """Pairs of texts whose targets are not classes: sentences with a score, or questions with an answer in a passage.

    Attributes:
        name: Name of the task.
        texts: The pairs: two sentences, or a question and its passage.
        targets: (n,) scores, float64, or the index of the first character of the first answer in the passage, int64.
        revision: Hash that changes if a text or a target changes.
        answers: The accepted answers to each question.
        dropped: Number of pairs without a target, which are left out.
    """

    name: str
    texts: tuple[tuple[str, str], ...]
    targets: np.ndarray
    revision: str
    answers: tuple[tuple[str, ...], ...] = ()
    dropped: int = 0


class StsbConfig(base.FileTaskConfig):
    """Options of STS-B from GLUE (Cer et al. 2017): the similarity of two sentences from 0 to 5.

    Attributes:
        split: "train" or "validation"; the labels of the test set are not public.
    """

    SPLITS = ("train", "validation")
    split: str = "train"


def load_stsb(config: StsbConfig) -> TargetTask:
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
    revision = digest([texts, scores.tolist()])
    return TargetTask(config.name, texts, scores, revision, dropped=labels.count(None))


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


def load_squad(config: SquadConfig) -> TargetTask:
    """Load the questions that have an answer.

    Raises:
        InputError: If an answer is not at its position in the passage, or if there are no questions with an answer.
    """
    table = base.published_table(config, f"text/squad_{config.split}.parquet", ("rajpurkar/squad", None))
    base.require_columns(table, SQUAD_COLUMNS)
    questions = []
    for question, passage, given in zip(*(table.values(name) for name in SQUAD_COLUMNS), strict=True):
        try:
            answers = [
                (str(text), int(start)) for text, start in zip(given["text"], given["answer_start"], strict=True)
            ]
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{table.path} has answers that are not two lists 'text' and 'answer_start' of equal length"
            ) from None
        for text, start in answers:
            if not text or start < 0 or passage[start : start + len(text)] != text:
                raise InputError(
                    f"the answer {text!r} to {question!r} is not at character {start} of its passage; correct the file"
                )
        if answers:
            questions.append(((question, passage), answers))
    if not questions:
        raise InputError(f"{table.path} holds no questions with an answer; expected at least one")
    texts, answers = zip(*base.spread(questions, config.limit), strict=True)
    starts = np.array([first[1] for first, *_ in answers], dtype=np.int64)
    accepted = tuple(tuple(text for text, _ in of_question) for of_question in answers)
    return TargetTask(config.name, texts, starts, digest([texts, answers]), accepted)


base.tasks.add("squad", base.TaskEntry(SquadConfig, load_squad, "span"))

"""SQuAD 1.1 (Rajpurkar et al. 2016): questions whose answer is a span of a passage."""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from clip_geometry.config import digest
from clip_geometry.data.tables import Table, read_table
from clip_geometry.reading import read_json
from clip_geometry.registry import InputError
from clip_geometry.tasks.base import FileTaskConfig, spread
from clip_geometry.tasks.sources import file_at, hub_table
from clip_geometry.tasks.targets import Answer, Question, Questions, TargetEntry, target_tasks

COLUMNS = ("question", "context", "answers")
HUB = "rajpurkar/squad"


class SquadConfig(FileTaskConfig):
    """SQuAD 1.1.

    Attributes:
        split: 87,599 training and 10,570 validation questions, the latter with several answers each.
        path: The official JSON, or a table with the columns question, context and answers {text, answer_start}.
    """

    SPLITS = ("train", "validation")
    split: str = "train"


class _Answer(BaseModel):
    text: str
    answer_start: int


class _Asked(BaseModel):
    question: str
    answers: list[_Answer]


class _Paragraph(BaseModel):
    context: str
    qas: list[_Asked]


class _Article(BaseModel):
    paragraphs: list[_Paragraph]


class _Squad(BaseModel):
    """The official layout."""

    data: list[_Article]


def load(config: SquadConfig) -> Questions:
    """Load the questions; raise InputError for an answer that is not at its place in the passage."""
    official = {"train": "train-v1.1.json", "validation": "dev-v1.1.json"}[config.split]
    parquet = f"{config.split}-00000-of-00001.parquet"
    names = (f"squad_{config.split}.parquet", f"squad/{official}", official, f"plain_text/{parquet}", parquet)
    file = file_at(config, names)
    if file is not None and file.suffix == ".json":
        content: _Squad = read_json(file, "questions in the layout of SQuAD 1.1", _Squad)
        found = [
            Question(
                asked.question, paragraph.context, tuple(Answer(each.text, each.answer_start) for each in asked.answers)
            )
            for article in content.data
            for paragraph in article.paragraphs
            for asked in paragraph.qas
        ]
    elif file is None:
        instead = f"give the official JSON or a table with path=…, or put it at $CLIP_GEOMETRY_DATA/text/{names[0]}"
        found = list(_of_table(hub_table(HUB, None, config.split, instead)))
    else:
        found = list(_of_table(read_table(file)))
    questions = tuple(spread([each for each in found if each.answers], config.limit))
    if not questions:
        raise InputError(f"{file or HUB} holds no questions with an answer")
    for each in questions:
        for text, start in each.answers:
            if not text or start < 0 or each.passage[start : start + len(text)] != text:
                raise InputError(
                    f"the answer {text!r} to {each.question!r} does not stand at character {start} of its passage; "
                    "correct the file"
                )
    return Questions(config.name, questions, digest(questions))


def _of_table(table: Table) -> Iterator[Question]:
    if not set(COLUMNS) <= set(table.names):
        raise InputError(f"{table.path} has the columns {', '.join(table.names)}; squad needs {', '.join(COLUMNS)}")
    for question, passage, answers in zip(*(table.values(name) for name in COLUMNS), strict=True):
        if not (isinstance(question, str) and isinstance(passage, str) and isinstance(answers, Mapping)):
            raise InputError(
                f"{table.path} holds a question, context or answers of another type; expected those of SQuAD 1.1"
            )
        try:
            pairs = zip(answers["text"], answers["answer_start"], strict=True)
            yield Question(question, passage, tuple(Answer(str(text), int(start)) for text, start in pairs))
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{table.path} holds answers that are no lists 'text' and 'answer_start' of one length"
            ) from None


target_tasks.add(
    "squad", TargetEntry(SquadConfig, load, "questions answered by a span of a passage (SQuAD 1.1)", "span")
)

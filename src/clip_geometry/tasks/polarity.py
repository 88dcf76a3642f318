"""Sentence polarity (Pang and Lee 2005), as NLTK has it: sentences of film reviews, negative or positive."""

from clip_geometry.data.files import read_lines
from clip_geometry.tasks.base import FileTaskConfig, Task, TaskEntry, single_label_task, tasks
from clip_geometry.tasks.text import TextSource, file_at, load_text_task, shared_folder

CLASSES = ("negative", "positive")
NEGATIVE, POSITIVE = "rt-polarity.neg", "rt-polarity.pos"


class PolarityConfig(FileTaskConfig):
    """path: a table with the columns text and label, or NLTK's folder with rt-polarity.neg and rt-polarity.pos."""


def load(config: PolarityConfig) -> Task:
    """A sentence of NLTK's files is its words with single spaces between."""
    source = TextSource(
        columns=(("text",),),
        class_names=CLASSES,
        files=("sentence_polarity.parquet", NEGATIVE, f"sentence_polarity/{NEGATIVE}"),
        hub=("cornell-movie-review-data/rotten_tomatoes", None, "train+validation+test"),
    )
    file = file_at(config, source.files, shared_folder("text"))
    if file is None or file.name != NEGATIVE:
        return load_text_task(config, source)
    texts = [[" ".join(line.split()) for line in read_lines(file.with_name(name))] for name in (NEGATIVE, POSITIVE)]
    labels = [k for k, lines in enumerate(texts) for _ in lines]
    return single_label_task(config, [texts[0] + texts[1]], labels, CLASSES)


tasks.add("polarity", TaskEntry(PolarityConfig, load, "sentences of film reviews, negative or positive"))

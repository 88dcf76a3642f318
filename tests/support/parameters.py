"""Parameter counts of Mickus et al. 2024 (Tables 1 and 2), to check tasks against."""

from collections.abc import Iterator, Mapping
from typing import Any

from clip_geometry_experiments.tasks.base import Task

WITHOUT_BIAS = frozenset({"polarity"})  # the counts of Tables 1 and 2 fit a bias for every other task
DIMENSIONS = {"minilm": 384, "mpnet": 768, "roberta": 768}
WORD_DIMENSION = 300  # word2vec
SHAPES = {  # classes, items an example: what tells the number of distinct items from that of the parameters
    **dict.fromkeys(("polarity", "cola", "sst2"), (2, 1)),
    **dict.fromkeys(("mrpc", "qnli", "qqp", "rte", "wnli"), (2, 2)),
    **dict.fromkeys(("snli", "mnli"), (3, 2)),
    "pos": (4, 1),
    "supersense": (26, 1),
}


def parameter_count(task: Task, d: int, bias: bool = True) -> int:
    """n d + L (k d + 1): the embeddings of n distinct items and one linear layer on the k d columns of an example.

    bias: of that layer; without, n d + L k d. L: classes or labels.
    """
    return len(task.items) * d + classifier_parameters(len(task.class_names), task.width, d, bias)


def classifier_parameters(classes: int, width: int, d: int, bias: bool = True) -> int:
    return classes * (width * d + bias)


def published_sizes(paper: Mapping[str, Any]) -> Iterator[tuple[str, str, int, int, int]]:
    """(task, encoder, d, examples, parameters) of Tables 1 and 2, from the section mickus2024 of published.yaml."""
    for task, row in paper["table1_sizes"].items():
        words = task in ("pos", "supersense")
        yield task, "word2vec" if words else "minilm", WORD_DIMENSION if words else 384, row["items"], row["parameters"]
    for task, row in paper["table2_glue_sizes"].items():
        for encoder, d in DIMENSIONS.items():
            yield task, encoder, d, row["items"], row[encoder]


def published_items(task: str, d: int, parameters: int) -> float:
    """The number of distinct items that a published count of parameters stands for; whole if the reading is right."""
    classes, width = SHAPES[task]
    return (parameters - classifier_parameters(classes, width, d, task not in WITHOUT_BIAS)) / d


def size_table(paper: Mapping[str, Any], loaded: Mapping[str, Task]) -> list[dict[str, Any]]:
    """Published beside ours, a row for each task and encoder; ours only where the task is among `loaded`.

    d is that of the published encoder; "ours" of word tasks therefore counts 300 columns too.
    """
    rows = []
    for name, encoder, d, examples, parameters in published_sizes(paper):
        row = {"task": name, "encoder": encoder, "d": d, "examples": examples, "parameters": parameters}
        row["items"] = published_items(name, d, parameters)
        if task := loaded.get(name):
            count = parameter_count(task, d, name not in WITHOUT_BIAS)
            row |= {"our examples": len(task), "our items": len(task.items), "our parameters": count}
        rows.append(row)
    return rows

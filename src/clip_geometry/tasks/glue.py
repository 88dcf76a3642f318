"""Classification tasks of GLUE (Wang et al. 2018)."""

from functools import partial

from clip_geometry.tasks.base import FileTaskConfig, Task, TaskEntry, tasks
from clip_geometry.tasks.text import TextSource, load_text_task

SENTENCE, SENTENCES = ("sentence",), ("sentence1", "sentence2")
# columns and class names as nyu-mll/glue has them, label 0 first
SUBSETS = {
    "cola": (SENTENCE, ("unacceptable", "acceptable"), "sentences, acceptable or not"),
    "mnli": (("premise", "hypothesis"), ("entailment", "neutral", "contradiction"), "natural language inference"),
    "mrpc": (SENTENCES, ("not_equivalent", "equivalent"), "pairs of news sentences, paraphrases or not"),
    "qnli": (("question", "sentence"), ("entailment", "not_entailment"), "questions and sentences that answer them"),
    "qqp": (("question1", "question2"), ("not_duplicate", "duplicate"), "pairs of questions, duplicates or not"),
    "rte": (SENTENCES, ("entailment", "not_entailment"), "textual entailment"),
    "sst2": (SENTENCE, ("negative", "positive"), "phrases of film reviews, negative or positive"),
    "wnli": (SENTENCES, ("not_entailment", "entailment"), "Winograd sentences and readings of their pronoun"),
}


class GlueConfig(FileTaskConfig):
    """split: "train" or "validation", of mnli "validation_matched" or "validation_mismatched"; the labels of the test
    sets are not public.
    """

    SPLITS = ("train", "validation", "validation_matched", "validation_mismatched")
    split: str = "train"


def load(name: str, config: GlueConfig) -> Task:
    columns, class_names, _ = SUBSETS[name]
    source = TextSource(
        columns=(columns,),
        class_names=class_names,
        files=(
            f"glue/{name}_{config.split}.parquet",
            f"{name}_{config.split}.parquet",
            f"{name}/{config.split}-00000-of-00001.parquet",
            f"{config.split}-00000-of-00001.parquet",
        ),
        hub=("nyu-mll/glue", name, config.split),
    )
    return load_text_task(config, source)


for _name, (_, _, _summary) in SUBSETS.items():
    tasks.add(_name, TaskEntry(GlueConfig, partial(load, _name), f"GLUE: {_summary}"))

"""SNLI (Bowman et al. 2015): pairs of sentences, the second entailed, neutral or contradicted."""

from clip_geometry.tasks.base import FileTaskConfig, Task, TaskEntry, tasks
from clip_geometry.tasks.text import TextSource, load_text_task


class SnliConfig(FileTaskConfig):
    """split: "validation" is what the archive of nlp.stanford.edu calls dev."""

    SPLITS = ("train", "validation", "test")
    split: str = "validation"


def load(config: SnliConfig) -> Task:
    split = "dev" if config.split == "validation" else config.split
    source = TextSource(
        columns=(("premise", "hypothesis"), ("sentence1", "sentence2")),
        class_names=("entailment", "neutral", "contradiction"),
        files=(
            f"snli_{split}.parquet",
            f"snli_1.0_{split}.jsonl",
            f"snli_1.0/snli_1.0_{split}.jsonl",
            f"plain_text/{config.split}-00000-of-00001.parquet",
        ),
        hub=("stanfordnlp/snli", None, config.split),
    )
    return load_text_task(config, source)


tasks.add("snli", TaskEntry(SnliConfig, load, "natural language inference on captions (SNLI)"))

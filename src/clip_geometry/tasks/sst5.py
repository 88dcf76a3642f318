"""SST-5 (Socher et al. 2013): sentences of film reviews in five degrees from very negative to very positive."""

from clip_geometry.tasks.base import FileTaskConfig, Task, TaskEntry, tasks
from clip_geometry.tasks.text import TextSource, load_text_task

CLASSES = ("very negative", "negative", "neutral", "positive", "very positive")


class Sst5Config(FileTaskConfig):
    """split: 8544 training, 1101 validation and 2210 test sentences, all with labels."""

    SPLITS = ("train", "validation", "test")
    split: str = "train"


def load(config: Sst5Config) -> Task:
    part = {"validation": "dev"}.get(config.split, config.split)  # as SetFit/sst5 names its files
    source = TextSource(
        columns=(("text",), ("sentence",)),
        class_names=CLASSES,
        files=(f"sst5_{config.split}.parquet", f"sst5/{part}.jsonl", f"{part}.jsonl"),
        hub=("SetFit/sst5", None, config.split),
    )
    return load_text_task(config, source)


tasks.add("sst5", TaskEntry(Sst5Config, load, "sentences of film reviews in five degrees (SST-5)"))

"""STS-B of GLUE (Cer et al. 2017): the similarity of two sentences from 0 to 5."""

import numpy as np

from clip_geometry.config import digest
from clip_geometry.data.tables import read_table
from clip_geometry.registry import InputError
from clip_geometry.tasks.base import FileTaskConfig, spread
from clip_geometry.tasks.sources import file_at, hub_table
from clip_geometry.tasks.targets import ScoredPairs, TargetEntry, target_tasks
from clip_geometry.tasks.text import texts_of

SENTENCES, HIGHEST = ("sentence1", "sentence2"), 5.0


class StsbConfig(FileTaskConfig):
    """split: "train" or "validation"; the labels of the test set are not public."""

    SPLITS = ("train", "validation")
    split: str = "train"


def load(config: StsbConfig) -> ScoredPairs:
    """Load the pairs; raise InputError for a score outside 0 to 5 and if all scores are equal."""
    names = (
        f"glue/stsb_{config.split}.parquet",
        f"stsb_{config.split}.parquet",
        f"stsb/{config.split}-00000-of-00001.parquet",
        f"{config.split}-00000-of-00001.parquet",
    )
    file = file_at(config, names)
    instead = f"give its table with path=…, or put it at $CLIP_GEOMETRY_DATA/text/{names[0]}"
    table = hub_table("nyu-mll/glue", "stsb", config.split, instead) if file is None else read_table(file)
    if not {*SENTENCES, "label"} <= set(table.names):
        raise InputError(
            f"{table.path} has the columns {', '.join(table.names)}; stsb needs sentence1, sentence2, label"
        )
    labels: list[float | None] = []
    for row, cell in enumerate(table.values("label"), start=1):
        if cell in (None, "", -1, -1.0) or cell != cell:
            labels.append(None)  # not scored
            continue
        try:
            labels.append(value := float(cell))
        except (TypeError, ValueError):
            value = float("nan")
        if not 0 <= value <= HIGHEST:
            raise InputError(f"row {row} of {table.path} has the score {cell!r}; expected a number from 0 to 5")
    rows = spread([row for row, label in enumerate(labels) if label is not None], config.limit)
    scores = np.array([labels[row] for row in rows], dtype=np.float64)
    if len(np.unique(scores)) < 2:
        raise InputError(f"{table.path} has {len(scores)} pairs with a score, all of them equal; expected 0 to 5")
    first, second = (texts_of(table, name) for name in SENTENCES)
    texts = tuple((first[row], second[row]) for row in rows)
    return ScoredPairs(config.name, texts, scores, digest([texts, scores.tolist()]), labels.count(None))


target_tasks.add("stsb", TargetEntry(StsbConfig, load, "GLUE: similarity of two sentences from 0 to 5", "score"))

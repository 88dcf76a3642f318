"""What teacher and data sets give a teaching: texts with their targets, prompts of classes, pictures."""

from functools import cached_property
from typing import Any

import numpy as np
import torch

from clip_geometry.data import load_dataset
from clip_geometry.data.base import Dataset, DatasetConfig
from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.base import Encoder
from clip_geometry.evaluators import ensemble
from clip_geometry.experiments.kit.base import Workspace
from clip_geometry.experiments.teach_text.config import TeachTextConfig, changed, parallel
from clip_geometry.experiments.teach_text.data import ClassTexts, Texts, aligned, read_texts, text_tokens
from clip_geometry.experiments.teach_text.measuring import Pictures
from clip_geometry.registry import InputError

BATCH = 256  # texts or pictures that the teacher embeds at a time


class Sources:
    """The data sets of a config as its teacher sees them. tokenizer: of the student."""

    def __init__(self, config: TeachTextConfig, workspace: Workspace, tokenizer: Any):
        self.config, self.workspace, self.tokenizer = config, workspace, tokenizer
        self._rows: dict[DatasetConfig, tuple[list[str], np.ndarray]] = {}

    @cached_property
    def teacher(self) -> Encoder:
        return load_encoder(self.config.teacher, getattr(self.workspace, "device", "auto"))

    # --- captions

    def texts(self, data: DatasetConfig) -> dict[str, Texts]:
        """Language → its captions, with what the teacher says of the same captions in its own language."""
        return {language: self._texts(data, language) for language in self.config.languages}

    def _texts(self, data: DatasetConfig, language: str) -> Texts:
        source, target = parallel(data, self.config.languages, language)
        items, rows = self._embedded(source)
        side = load_dataset(target).text
        assert side is not None  # of the same data set as the teacher's
        texts = read_texts(side, language)
        i, j = aligned(items, side.item_id)
        tokens, truncated = text_tokens([texts[k] for k in j], self.tokenizer, self.tokenizer.model_max_length)
        return Texts(tokens, i, rows, np.asarray(side.item_id)[j], truncated)

    def _embedded(self, source: DatasetConfig) -> tuple[list[str], np.ndarray]:
        """(item ids, rows) of the teacher; embedded once and kept in the store."""
        if source not in self._rows:
            found = self.workspace.embeddings(self.config.teacher, source, limit=None, batch_size=BATCH, only="text")
            if "text" not in found:
                raise InputError(
                    f"{self.config.teacher.model} on {source.name} gives no text embeddings; expected a teacher with a "
                    "text tower, and a data set with captions"
                )
            each = found["text"]
            items = range(len(each)) if each.item_id is None else each.item_id.tolist()
            self._rows[source] = [str(item) for item in items], np.array(each.vectors, dtype=np.float32)
        return self._rows[source]

    # --- classes

    def seen(self) -> np.ndarray:
        """The classes of the items that are trained on."""
        dataset = load_dataset(self.config.data)
        labels = [side.labels for side in dataset.sides if side.labels is not None]
        if not labels or dataset.class_names is None:
            raise InputError(
                f"{self.config.data.name} has no labels with class names, which prompts are made of; leave prompts "
                "out, with class_captions=0 and tested=null"
            )
        return np.unique(labels[0])

    def class_texts(self, data: DatasetConfig) -> dict[str, ClassTexts]:
        """Language → prompts of all classes, with the mean of what the teacher says of its own prompts of a class."""
        source = self.config.languages[0]
        texts, classes = self.class_prompts(data, source)
        rows = self.teacher.text_features(self.teacher.tokenize(texts)).numpy()
        means = np.stack([rows[classes == k].mean(0) for k in range(classes.max() + 1)])
        found = {}
        for language in self.config.languages:
            texts, classes = self.class_prompts(data, language)
            tokens, _ = text_tokens(texts, self.tokenizer, self.tokenizer.model_max_length)
            found[language] = ClassTexts(tokens, classes, means)
        return found

    def class_prompts(self, data: DatasetConfig, language: str) -> tuple[list[str], np.ndarray]:
        """(texts, the class of each): all templates of the language."""
        texts, classes = [], []
        for template in self.config.prompts[language]:
            side = load_dataset(changed(data, language=language, prompt=template)).text
            if side is None or side.labels is None or side.pair_on != "label":
                raise InputError(f"{data.name} has no class names in {language!r}, which prompts are made of")
            texts += [str(side.load(k)) for k in range(len(side))]
            classes.append(side.labels)
        return texts, np.concatenate(classes)

    def teacher_classes(self, data: DatasetConfig) -> torch.Tensor:
        """(c, d) unit rows, one of each class by the prompts in the teacher's language."""
        texts, classes = self.class_prompts(data, self.config.languages[0])
        return ensemble(self.teacher.text_features(self.teacher.tokenize(texts)), classes).float()

    # --- pictures

    def pictures(self, data: DatasetConfig) -> Pictures:
        """Through the teacher's image tower."""
        found = self.workspace.embeddings(self.config.teacher, data, limit=None, batch_size=BATCH, only="image")
        image = found.get("image")
        if image is None or image.labels is None:
            raise InputError(f"{self.config.teacher.model} on {data.name} gives no labelled pictures for zero-shot")
        rows = torch.from_numpy(np.array(image.vectors, dtype=np.float32))
        return Pictures(rows, image.labels, self.seen(), len(load_dataset(data).class_names or ()))

    def has_pictures(self, data: DatasetConfig) -> bool:
        """With classes that there are prompts of."""
        dataset: Dataset = load_dataset(data)
        labelled = dataset.image is not None and dataset.image.labels is not None and dataset.class_names is not None
        return labelled and bool(self.config.prompts) and "image" in self.teacher.modalities

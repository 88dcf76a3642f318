"""The embeddings that are measured, of one layer at a time, with the type of each row."""

from dataclasses import replace
from functools import cached_property

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.measuring.views import context
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry_experiments.cai2021.contextual.config import ContextualConfig
from clip_geometry_experiments.kit.base import RunFolder
from clip_geometry_experiments.kit.word_vectors import find, read_words


class WordEmbeddings:
    """Embeddings of words, read on first use."""

    def __init__(self, config: ContextualConfig, workspace: RunFolder):
        self.config = config
        self.workspace = workspace

    @cached_property
    def embeddings(self) -> Embeddings:
        config = self.config
        if config.data is None:
            assert config.model is not None  # checked by the config
            files = find(config.model)  # the vectors of the words in a file, in its order
            words = read_words(files)
            chosen = list(words.index.items())[: config.limit]
            return Embeddings(
                vectors=words.rows([place for _, place in chosen]),
                modality="text",
                metadata={"token": np.array([word for word, _ in chosen], dtype=object)},
                provenance={"model": config.model.model, "dataset": "all words", "split": files[0].name},
            )
        sets = self.workspace.embeddings(
            config.model, config.data, limit=config.limit, batch_size=config.batch_size, only="text"
        )
        (one,) = sets.values() if len(sets) == 1 else [sets.get("text")]
        if one is None:
            raise InputError(f"{config.data.name} has no text embeddings; words in context are those of texts")
        if config.layers and "layer" not in one.metadata:
            made_by = config.model.model if config.model else config.data.name
            raise InputError(
                f"{made_by} gives rows without layers, but layers = {list(config.layers)}; name the model "
                "hidden-states:NAME, or leave layers out for stored embeddings"
            )
        return one

    def rows(self, layer: int | None) -> Embeddings:
        """The rows of one layer, or all rows for None. Raises InputError for an unknown layer."""
        embeddings = self.embeddings
        if layer is None:
            return replace(embeddings, vectors=np.asarray(embeddings.vectors))
        column = np.asarray(embeddings.metadata["layer"])
        chosen = column == layer
        if not chosen.any():
            known = ", ".join(map(str, np.unique(column)))
            raise InputError(f"there are no rows of layer {layer}; there are those of {known}: set layers")
        return embeddings.take(chosen)

    def types(self, rows: Embeddings) -> list[str] | None:
        """The type of each row: its word; None where words are unknown."""
        tokens = rows.metadata.get("token", rows.labels)
        if tokens is None:
            return None
        words = [str(token) for token in np.asarray(tokens).tolist()]
        return [word.lower() for word in words] if self.config.fold_case else words

    def context(self) -> Row:
        """The fields that all result rows share."""
        shared = context({"text": self.embeddings}, seed=self.config.seed)
        # the other layers in the store do not affect a number
        options = {key: value for key, value in shared["model_options"].items() if key != "layers"}
        return {**shared, "model_options": options}


def sampled(n: int, size: int | None, seed: int) -> np.ndarray:
    """Indices of `size` of n rows drawn at random, ascending; of all rows for None or where there are no more."""
    if size is None or size >= n:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False))

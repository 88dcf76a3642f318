"""The config and its embeddings: words in context by layer, or the static vectors of a vocabulary."""

from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders import encoder_revision
from clip_geometry.measuring.views import context
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry_experiments.kit.base import Model, RunConfig, RunFolder, Source, distinct
from clip_geometry_experiments.kit.stored import check_sources
from clip_geometry_experiments.kit.word_vectors import WordsConfig, find, read_words


class ContextualConfig(RunConfig):
    """Config of the experiment `contextual`.

    Args:
        model: hidden-states:…, or words:PATH for the vectors of all words in a file; null for stored embeddings.
        data: A corpus; null for words:PATH.
        layers: Layers to measure, where 0 is the embeddings before the first block; empty if rows have no layers.
        fold_case: Whether to count "The" and "the" as one type, for models that do not distinguish them.
        limit: Use only the first N sentences (or words of the file); null uses all.
        batch_size: Batch size of the encoder.
        sample: Number of random rows on which k is chosen and among which neighbors are searched, at least 3; null uses
            all rows (exact).
        probes: Number of rows whose neighbors are also searched among all rows, if there are more rows than `sample`; 0
            for none.
        neighbours: Number of neighbors K of the local intrinsic dimension, at least 2.
        most_clusters: Largest k to try, at least 2.
        least_silhouette: Minimum silhouette for more than one cluster; if the best silhouette is lower, k = 1.
        starts: Number of runs of each k-means on the sample.
    """

    model: Model | None = None
    data: Source | None = None
    layers: Annotated[tuple[Annotated[int, Field(ge=0)], ...], distinct("layers")] = ()
    fold_case: bool = False
    limit: int | None = Field(default=None, ge=2)
    batch_size: int = Field(default=64, ge=1)
    sample: int | None = Field(default=20_000, ge=3)
    probes: int = Field(default=2000, ge=0)
    neighbours: int = Field(default=100, ge=2)
    most_clusters: int = Field(default=15, ge=2)
    least_silhouette: float = Field(default=0.1, ge=-1, le=1)
    starts: int = Field(default=3, ge=1)

    @model_validator(mode="after")
    def _known_source(self) -> Self:
        """Check that model, data, layers and probes fit together."""
        if isinstance(self.model, WordsConfig):  # the vectors of a vocabulary
            if self.data is not None or self.layers:
                raise InputError("words:PATH uses all words of its file; leave data and layers out")
            return self
        if self.data is None:
            raise InputError("data is missing; expected a corpus, or model: words:PATH for the words of a file")
        check_sources(self.model, data=self.data)
        if self.model is not None and not self.layers:
            raise InputError("layers is missing; expected a list such as [0, 1, 2], 0 being the embeddings")
        if self.probes == 1:
            raise InputError("probes = 1 has no standard error; expected 0 for none, or at least 2")
        return self

    @property
    def places(self) -> tuple[int | None, ...]:
        """The layers, or (None,) for rows without layers."""
        return self.layers or (None,)

    def of_layer(self, workspace: RunFolder) -> dict[str, Any]:
        """Return everything that a layer's numbers depend on, without names and the other measured layers."""
        values = self.settings("layers")
        if self.data is not None:
            return values | workspace.revisions(self.model, self.data)
        assert self.model is not None  # checked by the config: it is a model of words
        return values | {"model_revision": encoder_revision(self.model), "version": version("clip-geometry")}


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
            files = find(config.model)  # the word vectors of a file, in the order of the file
            words = read_words(files)
            chosen = list(words.index.items())[: config.limit]
            return Embeddings(
                vectors=words.rows([position for _, position in chosen]),
                modality="text",
                metadata={"token": np.array([word for word, _ in chosen], dtype=object)},
                provenance={"model": config.model.model, "dataset": "all words", "split": files[0].name},
            )
        sets = self.workspace.embeddings(
            config.model, config.data, limit=config.limit, batch_size=config.batch_size, only="text"
        )
        (rows,) = sets.values() if len(sets) == 1 else [sets.get("text")]
        if rows is None:
            raise InputError(f"{config.data.name} has no text embeddings; expected texts, whose words are measured")
        if config.layers and "layer" not in rows.metadata:
            made_by = config.model.model if config.model else config.data.name
            raise InputError(
                f"{made_by} gives rows without layers, but layers = {list(config.layers)}; name the model "
                "hidden-states:NAME, or leave layers out for stored embeddings"
            )
        return rows

    def rows(self, layer: int | None) -> Embeddings:
        """Return the rows of one layer, or all rows for None. Raises InputError for an unknown layer."""
        embeddings = self.embeddings
        if layer is None:
            return replace(embeddings, vectors=np.asarray(embeddings.vectors))
        column = np.asarray(embeddings.metadata["layer"])
        chosen = column == layer
        if not chosen.any():
            known = ", ".join(map(str, np.unique(column)))
            raise InputError(f"there are no rows of layer {layer}; set layers to some of {known}")
        return embeddings.take(chosen)

    def types(self, rows: Embeddings) -> list[str] | None:
        """Return the type of each row, which is its word; None if the words are unknown."""
        tokens = rows.metadata.get("token", rows.labels)
        if tokens is None:
            return None
        words = [str(token) for token in np.asarray(tokens).tolist()]
        return [word.lower() for word in words] if self.config.fold_case else words

    def context(self) -> Row:
        """Return the fields that all result rows share."""
        shared = context({"text": self.embeddings}, seed=self.config.seed)
        # the other layers in the store do not affect the numbers
        options = {key: value for key, value in shared["model_options"].items() if key != "layers"}
        return {**shared, "model_options": options}


def sampled(n: int, size: int | None, seed: int) -> np.ndarray:
    """Return sorted indices of `size` rows drawn at random from n; of all rows if size is None or at least n."""
    if size is None or size >= n:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False))

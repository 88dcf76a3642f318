"""Words in context by layer (Cai et al. 2021): cones, clusters inside them, and the number of dimensions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clip_geometry.display.origin import with_options
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders import encoder_revision
from clip_geometry.measuring.views import context
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry_experiments.cai2021.contextual.figures import draw_contextual, sentences
from clip_geometry_experiments.cai2021.contextual.measures import (
    LIDS,
    ContextualConfig,
    cluster_rows,
    cosine_rows,
    dimension_rows,
    sampled,
    size_rows,
)
from clip_geometry_experiments.kit.base import Cell, Experiment, experiments, read_explanations
from clip_geometry_experiments.kit.word_vectors import find, read_words


class Contextual(Experiment):
    """A cell is a layer; if there are layers in context, a last cell averages their dimensions."""

    Config = ContextualConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))

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

    def layer(self, layer: int | None) -> Embeddings:
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

    # --- cells

    def cells(self) -> Iterator[Cell]:
        for layer in self.config.places:
            define = {"of": "a layer", "layer": layer, **self._shared}
            yield Cell(define, partial(self._layer_rows, layer), f"layer {layer}")
        if self._in_context:
            yield Cell(
                {"of": "layers", "layers": self._in_context, **self._shared}, self._mean_rows, "mean of the layers"
            )

    @cached_property
    def _shared(self) -> dict[str, Any]:
        """Everything that a layer's numbers depend on, without names and the other measured layers."""
        config = self.config
        shared = {"measure": "contextual", **config.settings("layers")}
        if config.data is not None:
            return shared | self.workspace.revisions(config.model, config.data)
        assert config.model is not None  # checked by the config: it is a model of words
        return shared | {"model_revision": encoder_revision(config.model), "version": version("clip-geometry")}

    @property
    def _in_context(self) -> list[int]:
        """The measured layers except the embeddings before the first block, which have no context."""
        return [layer for layer in sorted(self.config.layers) if layer > 0]

    def _layer_rows(self, layer: int | None) -> list[Row]:
        """Measure the word vectors of one layer, or of all words if the model has no layers."""
        config = self.config
        embeddings = self.layer(layer)
        x = np.require(embeddings.vectors, requirements=["C", "W"])  # torch needs writable arrays
        sample = sampled(len(x), config.sample, config.seed)
        types = self.types(embeddings)
        records = [*cosine_rows(torch.from_numpy(x), types), *cluster_rows(x, types, sample, config)]
        size = {"n": len(x), "d": x.shape[1]}
        rows: list[Row] = [{**size, **record} for record in records]  # clusters are chosen on fewer rows
        rows += dimension_rows(x, sample, config)
        if layer is None:
            rows += size_rows(*x.shape)
        else:
            rows = [{**row, "at": {"layer": layer, **row["at"]}} for row in rows]
        return [{**self.context(), **row} for row in rows]

    def _mean_rows(self) -> list[Row]:
        """Average the dimensions over the layers, whose rows are already written; Table 3 has one mean per model.

        Standard errors are averaged as if the layers, which contain the same words, were perfectly correlated. This can
        only overestimate the error.
        """
        layers = self._in_context
        note = f"mean of the layers {', '.join(map(str, layers))}"
        groups: dict[tuple[str, bool], list[Row]] = {}
        names = [name for of_metric in LIDS.values() for name in of_metric.values()]
        for row in self.finished_rows():
            if row["measure"] in names and row["at"]["layer"] in layers and row["value"] is not None:
                groups.setdefault((row["measure"], "probes" in row["at"]), []).append(row)
        rows: list[Row] = []
        for members in groups.values():
            if len(members) < len(layers):
                continue
            first = members[0]
            keys = ("value", "standard_error", "null_value")
            means: dict[str, Any] = {key: float(np.mean([row[key] for row in members])) for key in keys}
            at = {**first["at"], "layer": "mean"}
            n = min(row["n"] for row in members)
            rows.append(Record(first["measure"], **means, n=n, d=first["d"], at=at, note=note))
        rows += [{**row, "at": {"layer": "mean"}} for row in size_rows(*self._size)]
        return [{**self.context(), **row} for row in rows]

    @property
    def _size(self) -> tuple[int, int]:
        """(n, d) of a layer, or of all rows if there are no layers."""
        embeddings = self.embeddings
        layers = embeddings.metadata.get("layer") if self.config.layers else None
        n = len(embeddings) if layers is None else int((np.asarray(layers) == self.config.layers[0]).sum())
        return n, embeddings.dim

    # --- the report

    def facts(self) -> Mapping[str, Any]:
        types = self.types(self.layer(self.config.places[0]))
        provenance = self.embeddings.provenance
        return {
            **super().facts(),
            "types": None if types is None else len(set(types)),
            "truncated sentences": provenance.get("truncated") or None,
            "words without a row": provenance.get("lost") or None,
        }

    @property
    def _names(self) -> tuple[str, str]:
        """Labels of the model and of the data."""
        row = self.context()
        data = with_options(row["dataset"] or "", row["data_options"])
        return with_options(row["model"] or "", row["model_options"]), ", ".join(filter(None, (data, row["split"])))

    @classmethod
    def sentences(cls, planned: "Sequence[Contextual]") -> list[str]:
        return sentences([(each.label() if len(planned) > 1 else "", each.finished_rows()) for each in planned])

    def drawings(self) -> Mapping[str, Any]:
        layers = {layer: partial(self.layer, layer) for layer in self.config.places}
        return draw_contextual(self.finished_rows(), layers, self.config.seed)

    def origin(self) -> str:
        return f"{'; '.join(self._names)}; raw rows; seed {self.config.seed}."

    def label(self) -> str:
        return ", ".join(self._names)


experiments.add("contextual", Contextual)

"""Words in context by layer (Cai et al. 2021): cones, clusters inside them, and the number of dimensions."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clip_geometry.display.origin import with_options
from clip_geometry.results import Record, Row
from clip_geometry_experiments.cai2021.contextual.config import ContextualConfig, WordEmbeddings, sampled
from clip_geometry_experiments.cai2021.contextual.figures import draw_contextual, sentences
from clip_geometry_experiments.cai2021.contextual.measures import (
    LIDS,
    cluster_rows,
    cosine_rows,
    dimension_rows,
    size_rows,
)
from clip_geometry_experiments.kit.base import Cell, Experiment, experiments, read_explanations


class Contextual(Experiment):
    """A cell is a layer; if there are layers in context, a last cell averages their dimensions."""

    Config = ContextualConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))

    @cached_property
    def words(self) -> WordEmbeddings:
        return WordEmbeddings(self.config, self.workspace)

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
        return {"measure": "contextual", **self.config.of_layer(self.workspace)}

    @property
    def _in_context(self) -> list[int]:
        """The measured layers except the embeddings before the first block, which have no context."""
        return [layer for layer in sorted(self.config.layers) if layer > 0]

    def _layer_rows(self, layer: int | None) -> list[Row]:
        """Measure the word vectors of one layer, or of all words if the model has no layers."""
        config, words = self.config, self.words
        embeddings = words.rows(layer)
        x = np.require(embeddings.vectors, requirements=["C", "W"])  # torch needs writable arrays
        sample = sampled(len(x), config.sample, config.seed)
        types = words.types(embeddings)
        records = [*cosine_rows(torch.from_numpy(x), types), *cluster_rows(x, types, sample, config)]
        size = {"n": len(x), "d": x.shape[1]}
        rows: list[Row] = [{**size, **record} for record in records]  # clusters are chosen on fewer rows
        rows += dimension_rows(x, sample, config)
        if layer is None:
            rows += size_rows(*x.shape)
        else:
            rows = [{**row, "at": {"layer": layer, **row["at"]}} for row in rows]
        return [{**words.context(), **row} for row in rows]

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
        return [{**self.words.context(), **row} for row in rows]

    @property
    def _size(self) -> tuple[int, int]:
        """(n, d) of a layer, or of all rows if there are no layers."""
        embeddings = self.words.embeddings
        layers = embeddings.metadata.get("layer") if self.config.layers else None
        n = len(embeddings) if layers is None else int((np.asarray(layers) == self.config.layers[0]).sum())
        return n, embeddings.dim

    # --- the report

    def facts(self) -> Mapping[str, Any]:
        types = self.words.types(self.words.rows(self.config.places[0]))
        provenance = self.words.embeddings.provenance
        return {
            **super().facts(),
            "types": None if types is None else len(set(types)),
            "truncated sentences": provenance.get("truncated") or None,
            "words without a row": provenance.get("lost") or None,
        }

    @property
    def _names(self) -> tuple[str, str]:
        """Labels of the model and of the data."""
        row = self.words.context()
        data = with_options(row["dataset"] or "", row["data_options"])
        return with_options(row["model"] or "", row["model_options"]), ", ".join(filter(None, (data, row["split"])))

    @classmethod
    def sentences(cls, planned: "Sequence[Contextual]") -> list[str]:
        return sentences([(each.label() if len(planned) > 1 else "", each.finished_rows()) for each in planned])

    def drawings(self) -> Mapping[str, Any]:
        return draw_contextual(
            self.finished_rows(),
            {layer: partial(self.words.rows, layer) for layer in self.config.places},
            least_silhouette=self.config.least_silhouette,
            seed=self.config.seed,
        )

    def origin(self) -> str:
        return f"{'; '.join(self._names)}; raw rows; seed {self.config.seed}."

    def label(self) -> str:
        return ", ".join(self._names)


experiments.add("contextual", Contextual)

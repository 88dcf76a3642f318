"""Words in context by layer (Cai et al. 2021): cones, clusters inside them, and the number of dimensions."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clip_geometry.display.origin import with_options
from clip_geometry.results import Row
from clip_geometry_experiments.cai2021.contextual.config import ContextualConfig, WordEmbeddings, sampled
from clip_geometry_experiments.cai2021.contextual.figures import draw_contextual, sentences
from clip_geometry_experiments.cai2021.contextual.rows import (
    LIDS,
    cluster_rows,
    cosine_rows,
    dimension_rows,
    row,
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
        config, words = self.config, self.words
        embeddings = words.rows(layer)
        x = np.require(embeddings.vectors, requirements=["C", "W"])  # torch needs writable arrays
        sample = sampled(len(x), config.sample, config.seed)
        size, types = {"n": len(x), "d": x.shape[1]}, words.types(embeddings)
        found = (*cosine_rows(torch.from_numpy(x), types), *cluster_rows(x, types, sample, config))
        rows: list[Row] = [{**size, **each} for each in found]  # clusters are chosen on fewer rows
        rows += dimension_rows(x, sample, config)
        if layer is None:
            rows += size_rows(*x.shape)
        else:
            rows = [{**each, "at": {"layer": layer, **each["at"]}} for each in rows]
        return [{**words.context(), **each} for each in rows]

    def _mean_rows(self) -> list[Row]:
        """Average the dimensions over the layers, whose rows are already written; Table 3 has one mean per model.

        Standard errors are averaged as if the layers, which contain the same words, were perfectly correlated. This can
        only overestimate the error.
        """
        layers = self._in_context
        note = f"mean of the layers {', '.join(map(str, layers))}"
        found: dict[tuple[str, bool], list[Row]] = {}
        names = [name for of_metric in LIDS.values() for name in of_metric.values()]
        for each in self.finished_rows():
            if each["measure"] in names and each["at"]["layer"] in layers and each["value"] is not None:
                found.setdefault((each["measure"], "probes" in each["at"]), []).append(each)
        rows = []
        for members in (members for members in found.values() if len(members) == len(layers)):
            first = members[0]
            value, error, null = (
                float(np.mean([each[key] for each in members])) for key in ("value", "standard_error", "null_value")
            )
            at = {**first["at"], "layer": "mean"}
            size = {"n": min(each["n"] for each in members), "d": first["d"]}
            rows.append(row(first["measure"], value, standard_error=error, null_value=null, **size, at=at, note=note))
        rows += [{**each, "at": {"layer": "mean"}} for each in size_rows(*self._size)]
        return [{**self.words.context(), **each} for each in rows]

    @property
    def _size(self) -> tuple[int, int]:
        """(n, d) of a layer, or of all rows if there are no layers."""
        embeddings = self.words.embeddings
        layers = embeddings.metadata.get("layer") if self.config.layers else None
        n = len(embeddings) if layers is None else int((np.asarray(layers) == self.config.layers[0]).sum())
        return n, embeddings.dim

    # --- the report

    def facts(self) -> Mapping[str, Any]:
        config, (n, d) = self.config, self._size
        model, data = self._names
        lost = {key: self.words.embeddings.provenance.get(key) or None for key in ("truncated", "lost")}
        types = self.words.types(self.words.rows(self.config.places[0]))
        return {
            "model": model,
            "data": data,
            "layers": list(config.layers) or None,
            "rows of a layer": n,
            "types": None if types is None else len(set(types)),
            "case": None if types is None else "folded" if config.fold_case else "as written",
            "dimension": d,
            "pipeline": "raw",
            "truncated sentences": lost["truncated"],
            "words without a row": lost["lost"],
            "sample for k and for neighbors": min(n, config.sample or n),
            "rows whose neighbors are looked for among all": config.probes if n > (config.sample or n) else None,
            "neighbors K": config.neighbours,
            "k-means": f"k from 2 to {config.most_clusters}, {config.starts} starts; 1 below a silhouette of "
            f"{config.least_silhouette:g}",
            "seed of samples and clusters": config.seed,
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

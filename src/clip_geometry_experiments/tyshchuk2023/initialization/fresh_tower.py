"""Freshly initialized towers: embeddings, and the average cosine after each operation."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from clip_geometry.data.base import Dataset, Side
from clip_geometry.embedding.store import indices_within
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.base import Encoder
from clip_geometry.geometry import average_cosine
from clip_geometry.measuring.records import named, rows_or_notes
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.steps import parse_pipeline
from clip_geometry_experiments.kit.base import data_options
from clip_geometry_experiments.tyshchuk2023.initialization.trace import Trace, trace

CONE = ("average_cosine", "min_pairwise_cosine", "cone_mean_cosine", "cone_min_cosine", "cone_half_angle")
PARTITION = (
    "isotropy_i1", "isotropy_i1[canonical]", "isotropy_i1[rows]",
    "isotropy_i2", "isotropy_i2[canonical]", "isotropy_i2[rows]",
)  # fmt: skip
# cosines do not depend on the lengths of the rows, but the partition function does
MEASURED = {("normalize",): (*CONE, *PARTITION), (): PARTITION}


def run_tower(
    encoder: Encoder,
    options: Mapping[str, Any],
    dataset: Dataset,
    modality: str,
    *,
    limit: int | None,
    batch_size: int,
    seed: int,
) -> tuple[Embeddings, list[Row]]:
    """Embed a data set with one tower, and return its embeddings and the result rows of all numbers.

    Args:
        encoder: The model.
        options: Options that the model was built with; they are recorded in the result rows.
        dataset: The data set to embed.
        modality: Which modality of the data set to embed, "image" or "text".
        limit: Use only the first N items; None uses all.
        batch_size: Batch size of the encoder; all items form one batch if the rows depend on their batch.
        seed: Seed of the null values.
    """
    side = dataset.image if modality == "image" else dataset.text
    data = dataset.config
    if side is None:
        raise InputError(f"the data set {data.name} has no {modality}s; choose another data set for them")
    n = indices_within(side.item_id, limit, side.pair_on)
    size = n if encoder.config.depends_on_batch else batch_size
    batches = (_batch(encoder, side, range(start, min(start + size, n))) for start in range(0, n, size))
    traced = trace(encoder, modality, batches)
    provenance = {
        "model": encoder.config.model,
        "model_options": dict(options),
        "dataset": data.name,
        "data_options": data_options(data) | ({} if limit is None else {"limit": limit}),
        "split": data.split,
    }
    embeddings = Embeddings(traced.rows[-1].numpy(), modality, provenance=provenance)
    rows = [*_embedding_rows(embeddings, seed), *_operation_rows(traced, embeddings, seed)]
    return embeddings, [row | {"batch_size": size} for row in rows]


def _batch(encoder: Encoder, side: Side, indices: range) -> Any:
    """Load and preprocess some items of a data set for the encoder."""
    items = []
    for k in indices:
        try:
            items.append(side.load(k))
        except OSError as error:
            raise InputError(f"the {side.modality} {side.item_id[k]} cannot be read ({error}); remove it") from None
    return torch.stack(list(map(encoder.preprocess, items))) if side.modality == "image" else encoder.tokenize(items)


def _embedding_rows(embeddings: Embeddings, seed: int) -> Iterator[Row]:
    """Measure the cone and the partition function of the embeddings, on unit rows and on raw rows."""
    for pipeline, names in MEASURED.items():
        sets = MeasuredSets({embeddings.modality: embeddings}, parse_pipeline(pipeline), seed=seed, blocks=0)
        for measure in named(names):
            for row in rows_or_notes(sets, measure, named=False):
                yield {**sets.context(), **row}


def _operation_rows(traced: Trace, embeddings: Embeddings, seed: int) -> Iterator[Row]:
    """Return the average cosine after each operation."""
    shared = MeasuredSets({embeddings.modality: embeddings}, (), seed=seed, blocks=0).context()
    for operation, rows in zip(traced.operations, traced.rows, strict=True):
        number: dict[str, Any]
        try:
            number = {"value": float(average_cosine(rows))}
        except InputError as error:
            note = str(error) if rows.any() else "all rows are zero, there are no cosines"
            number = {"value": None, "note": note}
        yield {
            **shared,
            "measure": "average_cosine",
            **number,
            "n": len(rows),
            "d": rows.shape[1],
            "at": {"modality": embeddings.modality, "layer": operation.layer, "operation": operation.name},
        }

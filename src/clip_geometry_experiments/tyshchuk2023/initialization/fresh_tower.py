"""Fresh towers: what is known without weights, their embeddings, and the cosine after each operation beside theory."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import open_clip
import torch
from torch import Tensor, nn

from clip_geometry.data.base import Dataset, Side
from clip_geometry.embedding.store import indices_within
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.base import Encoder, EncoderConfig
from clip_geometry.encoders.hf.text import HFTextConfig
from clip_geometry.encoders.open_clip import FreshConfig
from clip_geometry.encoders.runtime import quiet_logging
from clip_geometry.geometry import average_cosine
from clip_geometry.measuring.records import named, rows_or_notes
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.steps import parse_pipeline
from clip_geometry_experiments.tyshchuk2023.initialization import random_network as theory
from clip_geometry_experiments.tyshchuk2023.initialization.trace import (
    AffineMeans,
    Norm,
    Operation,
    Trace,
    trace,
)

CONE = ("average_cosine", "min_pairwise_cosine", "cone_mean_cosine", "cone_min_cosine", "cone_half_angle")
PARTITION = (
    "isotropy_i1", "isotropy_i1[canonical]", "isotropy_i1[rows]",
    "isotropy_i2", "isotropy_i2[canonical]", "isotropy_i2[rows]",
)  # fmt: skip
# cosines do not depend on the length of the rows, the partition function does
MEASURED = {("normalize",): (*CONE, *PARTITION), (): PARTITION}
UNCHANGED = "all biases are zero as initialised, zero_bias changes nothing"


def modalities(config: EncoderConfig) -> tuple[str, ...]:
    """The towers of a model; of the families with fresh models, hf-text: has no image tower."""
    return ("text",) if isinstance(config, HFTextConfig) else ("image", "text")


def has_batch_norm(config: EncoderConfig) -> bool:
    """Whether a tower of an open_clip model has batch norm, from the model built without weights in 0.1 s."""
    if not isinstance(config, FreshConfig):
        return False
    source = config.source()
    if "hf_model_name" in source.architecture["text_cfg"]:
        return False  # its text tower is on the hub, and the image towers of these models have none
    with quiet_logging(), torch.device("meta"):
        model = open_clip.create_model(
            source.name, load_weights=False, pretrained_text=False, device="meta",
            force_preprocess_cfg=dict(source.preprocessing),
        )  # fmt: skip
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


@dataclass(frozen=True)
class FreshTower:
    """A tower to be run.

    Args:
        encoder: The model.
        options: What the model was built with.
        dataset: The data set.
        side: Its images or texts.
        limit: Use only the first N items.
        batch_size: Batch size of the encoder.
        layers: Whether to follow the rows through the tower.
        seed: Of the null values.
    """

    encoder: Encoder
    options: Mapping[str, Any]
    dataset: Dataset
    side: Side
    limit: int | None
    batch_size: int
    layers: bool
    seed: int

    def run(self) -> tuple[Embeddings, list[Row]]:
        """The embeddings and the rows of all numbers. `seconds` is the time of the forward pass."""
        started = time.monotonic()
        modality, found = self.side.modality, None
        if self.layers:
            found = trace(self.encoder, modality, self._batches())
            vectors = found.rows[-1]
        else:
            embed = self.encoder.image_features if modality == "image" else self.encoder.text_features
            vectors = torch.cat([embed(batch) for batch in self._batches()])
        seconds = round(time.monotonic() - started, 2)
        data = self.dataset.config
        options = data.model_dump(mode="json", serialize_as_any=True, exclude_defaults=True, exclude={"name", "split"})
        provenance = {
            "model": self.encoder.config.model,
            "model_options": dict(self.options),
            "dataset": data.name,
            "data_options": options | ({} if self.limit is None else {"limit": self.limit}),
            "split": data.split,
        }
        embeddings = Embeddings(vectors.numpy(), modality, provenance=provenance)
        rows = [*self._measured(embeddings), *(self._followed(found, embeddings) if found else [])]
        shared = {"seconds": seconds, "batch_size": self._batch_size}
        return embeddings, [{**row, **shared} for row in rows]

    @property
    def _indices(self) -> range:
        return range(indices_within(self.side.item_id, self.limit, self.side.pair_on))

    @property
    def _batch_size(self) -> int:
        """All items are one batch if the rows depend on their batch."""
        return len(self._indices) if self.encoder.config.depends_on_batch else self.batch_size

    def _batches(self) -> Iterator[Any]:
        size = self._batch_size
        for start in range(0, len(self._indices), size):
            items = [_loaded(self.side, k) for k in self._indices[start : start + size]]
            if self.side.modality == "image":
                yield torch.stack([self.encoder.preprocess(item) for item in items])
            else:
                yield self.encoder.tokenize(items)

    def _measured(self, embeddings: Embeddings) -> Iterator[Row]:
        """Cone and partition function of the embeddings, of unit rows and of raw rows."""
        for pipeline, names in MEASURED.items():
            sets = MeasuredSets({self.side.modality: embeddings}, parse_pipeline(pipeline), seed=self.seed, blocks=0)
            for measure in named(names):
                for row in rows_or_notes(sets, measure, named=False):
                    yield {**sets.context(), **row}

    def _followed(self, found: Trace, embeddings: Embeddings) -> Iterator[Row]:
        """The average cosine after each operation, measured and predicted by theory."""
        shared = MeasuredSets({self.side.modality: embeddings}, (), seed=self.seed, blocks=0).context()
        near, far = predicted_cosines(found), predicted_cosines(found, from_start=True)
        for operation, rows, from_before, from_start in zip(found.operations, found.rows, near, far, strict=True):
            number: dict[str, Any]
            try:
                number = {"value": float(average_cosine(rows))}
            except InputError as error:
                zero = not bool(rows.any())
                number = {"value": None, "note": "all rows are zero, there are no cosines" if zero else str(error)}
            yield {
                **shared,
                "measure": "average_cosine",
                **number,
                "predicted": from_before,
                "predicted_from_start": from_start,
                "n": len(rows),
                "d": rows.shape[1],
                "at": {"modality": self.side.modality, "layer": operation.layer, "operation": operation.name},
            }


def _loaded(side: Side, index: int) -> Any:
    try:
        return side.load(index)
    except OSError as error:
        raise InputError(f"the {side.modality} {side.item_id[index]} cannot be read ({error}); remove it") from None


def with_note(rows: Sequence[Row], note: str) -> list[Row]:
    return [{**row, "note": f"{row['note']}; {note}" if row.get("note") else note} for row in rows]


def has_biases(model: nn.Module) -> bool:
    """Whether any bias of a tower differs from zero; that of the logits belongs to neither tower."""
    return any(
        bool(parameter.any())
        for name, parameter in model.named_parameters()
        if name.endswith("bias") and name != "logit_bias"
    )


def side_of(dataset: Dataset, modality: str) -> Side:
    """The images or texts of a data set. Raises InputError if it has none."""
    side = dataset.image if modality == "image" else dataset.text
    if side is None:
        raise InputError(f"the data set {dataset.config.name} has no {modality}s; choose another one for them")
    return side


class KernelState(NamedTuple):
    """kernel: (n, n) of n rows. mean: (n,) of each over its coordinates, which only layer norm looks at."""

    kernel: Tensor
    mean: Tensor


def predicted_cosines(trace: Trace, *, from_start: bool = False) -> list[float | None]:
    """The average cosine after each operation by the kernel recursion; None where the theory does not apply.

    Weights and biases enter by their mean squares.

    Args:
        trace: The operations of a tower and the rows after each.
        from_start: Start each operation from the prediction before it rather than from the measured rows, so that
            errors accumulate and only embedding and attention are measured.
    """
    states: list[KernelState] = []
    cosines: list[float | None] = []
    for operation, rows in zip(trace.operations, trace.rows, strict=True):
        measured = KernelState(theory.kernel(rows), rows.double().mean(1))
        if not operation.sources:
            states.append(measured)
            cosines.append(None)
            continue
        expected = after(operation, [states[k] for k in operation.sources])
        states.append(expected if from_start else measured)
        cosines.append(theory.kernel_average_cosine(expected.kernel))
    return cosines


def after(operation: Operation, sources: list[KernelState]) -> KernelState:
    """The predicted state after an operation on the sum of its sources."""
    kernel, mean = sources[0]
    for source in sources[1:]:
        kernel, mean = kernel + source.kernel, mean + source.mean  # products of a fresh branch with it average out
    for step in operation.steps:
        if isinstance(step, Norm):
            kernel = theory.layer_norm(kernel, mean, eps=step.eps)
        elif isinstance(step, AffineMeans):
            kernel = theory.linear(kernel, fan_in=step.fan_in, weight=step.weight, bias=step.bias)
        else:
            kernel = theory.relu(kernel) if isinstance(step, nn.ReLU) else theory.activation(kernel, step)
        mean = torch.zeros_like(mean)  # weights have mean zero
    return KernelState(kernel, mean)

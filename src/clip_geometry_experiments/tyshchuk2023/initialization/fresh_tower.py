"""Freshly initialized towers: embeddings, and the average cosine after each operation, measured and predicted."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import gammaln
from torch import Tensor

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
from clip_geometry_experiments.tyshchuk2023.initialization.trace import AffineMeans, Norm, Operation, Trace, trace

TERMS = 128  # terms of the series in Hermite polynomials
NODES = 256  # quadrature nodes on each side of 0, where activations may have a kink
REACH = 12.0  # integration range in standard deviations; the weight beyond it is 1e-32

Kernel = Float[Tensor, "n n"]


def kernel(rows: Float[Tensor, "n d"]) -> Kernel:
    """Return the kernel K_ab = ⟨x_a, x_b⟩/d. Zero rows are allowed."""
    rows = rows.double()
    return rows @ rows.T / rows.shape[1]


def kernel_average_cosine(K: Kernel) -> float | None:
    """Return the mean cosine over all pairs of different rows, the mean over a ≠ b of K_ab / √(K_aa K_bb).

    It is None if a row is zero.
    """
    variance, n = K.diagonal(), len(K)
    if not bool((variance > 0).all()):
        return None
    return float(((K / _scale(variance)).sum() - n) / (n * (n - 1)))


def linear(K: Kernel, *, fan_in: int, weight: float, bias: float) -> Kernel:
    """Return the kernel after x ↦ W x + b: fan_in · weight · K + bias.

    `weight` and `bias` are the mean squares of the entries of W and b, which are independent of each other and have
    mean zero. A bias adds the same value to all entries of K and so raises all cosines; without a bias they do not
    change.
    """
    return fan_in * weight * K + bias


def activation(K: Kernel, function: Callable[[Tensor], Tensor]) -> Kernel:
    """Return the kernel after x ↦ φ(x), applied to each coordinate.

    It is E φ(u_a) φ(u_b) for Gaussian (u_a, u_b) with mean zero and covariance K. By Mehler's formula this equals
    Σ_k c_k(a) c_k(b) ρ_ab^k with c_k(a) = E φ(√K_aa z) h_k(z), where h_k are the orthonormal Hermite polynomials and ρ
    are the cosines. The coefficients come from Gauss-Legendre quadrature on each side of 0. The part of E φ² that the
    first TERMS coefficients leave out is added as one further power of ρ, so that the diagonal is exact. Off the
    diagonal, the error is at rounding level for polynomials, GELU, QuickGELU and tanh with variances about 1, and below
    1e-4 E φ² where φ has a kink at 0.
    """
    z, hermite, weights = _quadrature()
    values = function((K.diagonal().sqrt()[:, None] * z).to(torch.float64))
    coefficients = values @ hermite
    left = ((values.square() @ weights) - coefficients.square().sum(1)).clamp(min=0).sqrt()
    cosines = _cosines(K)
    power, total = torch.ones_like(K), torch.zeros_like(K)
    for column in (*coefficients.T, left):
        total += torch.outer(column, column) * power
        power *= cosines
    return total


def layer_norm(K: Kernel, mean: Float[Tensor, " n"], *, eps: float) -> Kernel:
    """Return the kernel after each row is centered over its coordinates and divided by its standard deviation.

    The result is (K_ab − m_a m_b)/√((v_a + eps)(v_b + eps)) with v_a = K_aa − m_a². The kernel does not determine the
    means m. After a layer with weights of mean zero, m is of size 1/√d, and zeros can be passed. Where the rows contain
    a positional or class embedding, pass `rows.mean(1)`.
    """
    K = K - torch.outer(mean, mean).to(K)
    return K / _scale(K.diagonal() + eps)


def _scale(variance: Float[Tensor, " n"]) -> Kernel:
    root = variance.sqrt()
    return torch.outer(root, root)


def _cosines(K: Kernel) -> Kernel:
    """Return the cosines, 0 for zero rows: their activations are constant and enter no power of the cosine."""
    scale = _scale(K.diagonal())
    cosines = torch.where(scale > 0, K / scale.clamp(min=torch.finfo(K.dtype).tiny), 0.0).clamp(-1, 1)
    return cosines.fill_diagonal_(1.0)


def _quadrature() -> tuple[Tensor, Tensor, Tensor]:
    """Return nodes z (q,), the matrix (q, TERMS) of ω_i h_k(z_i) from function values to coefficients, and ω (q,)."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = (nodes + 1) * REACH / 2
    z = np.concatenate([-half[::-1], half])
    weights = np.concatenate([weights[::-1], weights]) * REACH / 2
    weights *= np.exp(-np.square(z) / 2) / np.sqrt(2 * np.pi)
    lengths = np.exp(gammaln(np.arange(1, TERMS + 1)) / 2)  # √k! normalizes the k-th polynomial
    hermite = np.polynomial.hermite_e.hermevander(z, TERMS - 1) / lengths
    return torch.from_numpy(z), torch.from_numpy(hermite * weights[:, None]), torch.from_numpy(weights)


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
    """Return the average cosine after each operation, as measured and as predicted by theory."""
    shared = MeasuredSets({embeddings.modality: embeddings}, (), seed=seed, blocks=0).context()
    near, far = predicted_cosines(traced), predicted_cosines(traced, from_start=True)
    for operation, rows, from_before, from_start in zip(traced.operations, traced.rows, near, far, strict=True):
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
            "predicted": from_before,
            "predicted_from_start": from_start,
            "n": len(rows),
            "d": rows.shape[1],
            "at": {"modality": embeddings.modality, "layer": operation.layer, "operation": operation.name},
        }


class KernelState(NamedTuple):
    """Kernel (n, n) of n rows, and the mean (n,) of each row over its coordinates, which only layer norm uses."""

    kernel: Tensor
    mean: Tensor


def predicted_cosines(trace: Trace, *, from_start: bool = False) -> list[float | None]:
    """Predict the average cosine after each operation by the kernel recursion.

    Weights and biases enter through their mean squares. The prediction is None where the theory does not apply.

    Args:
        trace: The operations of a tower and the rows after each one.
        from_start: Start each operation from the prediction for the previous one instead of from the measured rows, so
            that errors accumulate and only embedding and attention are measured.
    """
    states: list[KernelState] = []
    cosines: list[float | None] = []
    for operation, rows in zip(trace.operations, trace.rows, strict=True):
        measured = KernelState(kernel(rows), rows.double().mean(1))
        if not operation.sources:
            states.append(measured)
            cosines.append(None)
            continue
        expected = after(operation, [states[k] for k in operation.sources])
        states.append(expected if from_start else measured)
        cosines.append(kernel_average_cosine(expected.kernel))
    return cosines


def after(operation: Operation, sources: list[KernelState]) -> KernelState:
    """Return the predicted state after an operation on the sum of its sources."""
    kernel, mean = sources[0]
    for source in sources[1:]:
        kernel, mean = kernel + source.kernel, mean + source.mean  # the cross terms with a fresh branch average out
    for step in operation.steps:
        if isinstance(step, Norm):
            kernel = layer_norm(kernel, mean, eps=step.eps)
        elif isinstance(step, AffineMeans):
            kernel = linear(kernel, fan_in=step.fan_in, weight=step.weight, bias=step.bias)
        else:
            kernel = activation(kernel, step)
        mean = torch.zeros_like(mean)  # weights have mean zero
    return KernelState(kernel, mean)

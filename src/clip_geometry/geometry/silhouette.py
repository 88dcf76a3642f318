"""Silhouette (Rousseeuw 1987): do the rows lie closer to their own class than to the nearest other one?

Squared Euclidean and cosine distances have class means in closed form, O(ndK); Euclidean ones are summed in blocks,
each pair of rows once, never an n × n matrix.
"""

from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.rows import Labels, Rows, as_codes, as_rows, mean_row, unit_rows
from clip_geometry.registry import InputError

if TYPE_CHECKING:
    Metric: TypeAlias = Literal["euclidean", "sqeuclidean", "cosine"]
else:  # an unknown one is our sentence, not a type checker's
    Metric = str

# Below this share of ‖x‖² + ‖y‖² a squared distance taken from a product has lost more than four of sixteen digits
CANCELLED = 1e-4


def silhouette(x: Rows, labels: Labels, *, metric: Metric = "euclidean") -> Float[Tensor, ""]:
    """Mean of silhouette_samples over the rows, in [−1, 1]; higher means tighter, better separated classes."""
    return silhouette_samples(x, labels, metric=metric).mean()


def silhouette_samples(x: Rows, labels: Labels, *, metric: Metric = "euclidean") -> Float[Tensor, " n"]:
    """Silhouette of each row: (b − a)/max(a, b).

    a is the mean distance to the other rows of its class (the row itself excluded), b the smallest mean distance
    to the rows of another class; 0 for the only row of a class and where a = b = 0, as in scikit-learn.
    metric: "euclidean", "sqeuclidean" or "cosine" (1 − cos).
    x: (n, d); labels: (n,) of at least two values, at most n − 1, so n ≥ 3. Raises InputError otherwise and, for
    "cosine", for zero rows.
    """
    if metric not in ("euclidean", "sqeuclidean", "cosine"):
        raise InputError(f"metric {metric!r} is unknown; known are 'euclidean', 'sqeuclidean', 'cosine'")
    x = as_rows(x)
    codes, k = as_codes(labels, len(x))
    if k == len(x):
        raise InputError(f"each of the {k} rows has a label of its own; a silhouette needs a class of two")
    codes = codes.to(x.device)
    rows = unit_rows(x) if metric == "cosine" else x.double()
    rows = rows - mean_row(rows)  # near rows far from the origin would cancel in products
    sums = _euclidean_sums(rows, codes, k) if metric == "euclidean" else _squared_sums(rows, codes, k)
    return _from_class_sums(sums, codes, k)


def _from_class_sums(sums: Float[Tensor, "n k"], codes: Int[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
    """Silhouettes from each row's sum of distances to every class."""
    counts = torch.bincount(codes, minlength=k)
    own = codes[:, None]
    a = sums.gather(1, own).squeeze(1) / (counts[codes] - 1).clamp(min=1)
    means = sums / counts
    b = means.scatter(1, own, torch.inf).amin(1)
    larger = torch.maximum(a, b)
    defined = (counts[codes] > 1) & (larger > 0)
    return torch.where(defined, (b - a) / torch.where(defined, larger, 1), 0)


def _squared_sums(x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int) -> Float[Tensor, "n k"]:
    """Σ_{j in class} ‖x_i − x_j‖² = n_k (‖x_i − μ_k‖² + V_k), V_k the mean squared distance to the class mean.

    For the cosine distance of unit rows, half of it, which cancels in the silhouette.
    """
    counts = torch.bincount(codes, minlength=k).double()
    # about a row of the class, so that equal rows have exactly their own mean and no spread: 0/0 stays 0/0
    first = torch.full_like(counts, len(x), dtype=torch.long)
    base = x[first.scatter_reduce(0, codes, torch.arange(len(x), device=x.device), "amin")]
    offsets = x - base[codes]
    shift = x.new_zeros(k, x.shape[1]).index_add(0, codes, offsets) / counts[:, None]
    spread = x.new_zeros(k).index_add(0, codes, (offsets - shift[codes]).square().sum(1)) / counts
    means = base + shift
    parts = [squared_distances(part, means) for part in x.split(4096)]
    return counts * (torch.cat(parts) + spread)


def _euclidean_sums(
    x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int, block_size: int = 1024
) -> Float[Tensor, "n k"]:
    """Σ_{j in class} ‖x_i − x_j‖ for every row and class; block (i, j) also serves (j, i)."""
    rows, labels = x.split(block_size), codes.split(block_size)
    sums = [x.new_zeros(len(part), k) for part in rows]
    for i, left in enumerate(rows):
        for j, right in enumerate(rows[i:], start=i):
            distances = _root(squared_distances(left, right))
            sums[i] = sums[i] + _class_sums(distances, labels[j], k)
            if j > i:
                sums[j] = sums[j] + _class_sums(distances.T, labels[i], k)
    return torch.cat(sums)


def _class_sums(distances: Float[Tensor, "a b"], codes: Int[Tensor, " b"], k: int) -> Float[Tensor, "a k"]:
    return distances.new_zeros(len(distances), k).index_add(1, codes, distances)


def _root(squares: Float[Tensor, "a b"]) -> Float[Tensor, "a b"]:
    """√ with gradient 0 at 0, where a row meets itself."""
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1).sqrt(), 0)


def squared_distances(x: Float[Tensor, "a d"], y: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
    """‖x_i − y_j‖² from products; where those cancel, again from the differences."""
    norms = x.square().sum(1)[:, None] + y.square().sum(1)
    squares = norms - 2 * (x @ y.T)
    i, j = (squares < CANCELLED * norms).nonzero(as_tuple=True)
    if len(i) == 0:
        return squares
    step = max(1, 2**22 // x.shape[1])  # 32 MB of differences at a time
    exact = [(x[a] - y[b]).square().sum(1) for a, b in zip(i.split(step), j.split(step), strict=True)]
    return squares.index_put((i, j), torch.cat(exact))


_SILHOUETTE = Measure(
    name="silhouette",
    title="Silhouette of the labels",
    group="clusters",
    function=silhouette,
    takes="labelled rows",
    summary="How much closer rows lie to their own class than to the nearest other class.",
    reading="1 is tight and separate, 0 overlapping, negative mixed up; over training it tends to fall as isotropy "
    "rises (Mickus et al. 2024).",
    trap="In high dimensions distances concentrate and separable classes still score near 0; metrics do not compare.",
    least_n=3,
    quadratic=True,
    formula="mean_i (b_i − a_i)/max(a_i, b_i), a within, b to the nearest other class, Euclidean",
    range=(-1, 1),
    direction="higher is more clustered",
    at_gaussian=0,
    invariances=("rotation", "translation", "scale"),
    reference="Rousseeuw 1987, doi:10.1016/0377-0427(87)90125-7",
)
add_measure(
    _SILHOUETTE,
    variant(
        _SILHOUETTE,
        "sqeuclidean",
        title="Silhouette of the labels, squared distances",
        formula="mean_i (b_i − a_i)/max(a_i, b_i), a within, b to the nearest other class, squared Euclidean",
        options={"metric": "sqeuclidean"},
        quadratic=False,
    ),
    variant(
        _SILHOUETTE,
        "cosine",
        title="Silhouette of the labels, cosine",
        formula="mean_i (b_i − a_i)/max(a_i, b_i), a within, b to the nearest other class, 1 − cos",
        options={"metric": "cosine"},
        quadratic=False,
        invariances=("rotation", "scale", "row scale"),
    ),
)

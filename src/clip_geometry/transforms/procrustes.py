"""The orthogonal map from one set to another."""

import warnings
from typing import Literal

import numpy as np

from clip_geometry.geometry._core.arguments import one_of
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.registry import InputError
from clip_geometry.transforms.base import PairedTransform, RankWarning, Rows, TransformEntry, as_blocks, transforms


class Procrustes(PairedTransform):
    """The orthogonal Ω that minimises ‖AΩ − B‖_F for source rows A and target rows B, both (n, d) (Schönemann 1966).

    With M = AᵀB = U S Vᵀ of rank r: Ω = U_r V_rᵀ + U_⊥ Q V_⊥ᵀ. Every orthogonal Q gives the same error; unique is Ω
    for r = d only, otherwise a RankWarning says so. completion="identity" takes the Q that brings Ω nearest to the
    identity, the polar factor of U_⊥ᵀ V_⊥, so that what the pairs say nothing of is moved as little as can be;
    "lapack" takes the Q = I of LAPACK's arbitrary U_⊥ and V_⊥, as scipy.linalg.orthogonal_procrustes does. Where
    U_⊥ᵀ V_⊥ is singular, several Q are equally near and one of them is taken.

    Attributes: W_ = Ω (d, d), rank_ = r, the singular values of M above max(n, d) · ε · ‖A‖_F ‖B‖_F. Neither
    centres nor scales; so directions that carry less than about 1e-8 of the length of both sets count as free.
    """

    name = "procrustes"

    def __init__(self, completion: Literal["identity", "lapack"] = "identity"):
        self.completion = completion

    def check(self) -> None:
        one_of(self.completion, f"completion of {self.name}", ("identity", "lapack"))

    def _learn_pairs(self, source: Rows, target: Rows) -> None:
        n, d = source.shape
        if target.shape[1] != d:
            raise InputError(
                f"source has dimension {d} and target has {target.shape[1]}; {self.name} needs one space, "
                "least_squares does not"
            )
        product, lengths = _product(source, target)
        u, values, vt = np.linalg.svd(product)
        noise = max(n, d) * np.finfo(np.float64).eps * lengths
        self.rank_ = r = int((values > noise).sum())
        if self.completion == "identity":
            u[:, r:] = u[:, r:] @ nearest_orthogonal(u[:, r:].T @ vt[r:].T)
        self.W_ = u @ vt
        if r < d:
            done = "nearest to the identity" if self.completion == "identity" else "as LAPACK happens to"
            warnings.warn(
                f"{self.name} was fitted on pairs of rank {r} in dimension {d}, which leave part of the map free; "
                f"it is completed {done}",
                RankWarning,
                stacklevel=3,
            )


def _product(source: Rows, target: Rows) -> tuple[np.ndarray, float]:
    """AᵀB and ‖A‖_F ‖B‖_F."""
    if not isinstance(source, StreamedRows) and not isinstance(target, StreamedRows):
        return source.T @ target, float(np.linalg.norm(source) * np.linalg.norm(target))
    product, squares = np.zeros((source.shape[1], target.shape[1])), np.zeros(2)
    for a, b in zip(as_blocks(source), as_blocks(target), strict=True):
        product += a.T @ b
        squares += np.square(a).sum(), np.square(b).sum()
    return product, float(np.sqrt(squares).prod())


def nearest_orthogonal(matrix: np.ndarray) -> np.ndarray:
    """The polar factor: the orthogonal Q with the largest tr(Qᵀ matrix)."""
    u, _, vt = np.linalg.svd(matrix)
    return u @ vt


transforms.add(
    Procrustes.name,
    TransformEntry(
        make=Procrustes,
        fits=True,
        paired=True,
        summary="turns one modality onto the other; what the pairs leave free stays nearest to the identity",
        formula="w Ω, Ω = argmin ‖AΩ − B‖, ΩᵀΩ = I",
    ),
)

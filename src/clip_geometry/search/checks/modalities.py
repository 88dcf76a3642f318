"""Groups of rows that lie apart: rows from another space, rows among another modality, and the modality gap.

Rows from another space come from another model, revision or seed. Two models are related by no more than a random
rotation, so rows of one lie across the principal directions of the other like random directions: d⟨u, v⟩² is near 1.
For two rows of one model it is 7 (a small CLIP of drawn scenes) to 300 (CLIP ViT-B/32), since they lie in one cone and
in few dimensions.
"""

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch

from clip_geometry.embeddings import in_order
from clip_geometry.rows.matrix import BLOCK as MOMENT_BLOCK
from clip_geometry.rows.matrix import total
from clip_geometry.search.checks import BLOCK, NEIGHBORS, Context, Findings, add_check, finding, once, selected

SAMPLE = 1200  # rows in which to look for the groups
LEAST_OF_GROUP = 8  # smallest number of rows in a group
RELATED = 0.1  # overlap of second moments; halves of clean sets have 0.2 to 0.99, random rotations 0 ± √2/d
RELATED_LOCALLY = 0.4  # clusters with different second moments still vary along the same directions: 0.7
SEPARATED = 3.5  # deviations between held-out rows of the groups: 5 to 10 for two models, under 2.5 for isotropic noise
ROUNDS = 10
MOMENT_ROWS = 20_000  # largest number of rows for the covariance of a modality


@once
def foreign(context: Context, modality: str) -> "Foreign | None":
    """Return the rows from a different space than the rest; None if there are none."""
    return foreign_rows(context.unit(modality), context.seed)


def foreign_numbers(context: Context, modality: str) -> np.ndarray:
    """Return the numbers of the rows from another space."""
    minority = foreign(context, modality)
    return context.sample(modality)[minority.rows] if minority is not None else np.empty(0, dtype=np.int64)


def usual_mask(context: Context, modality: str) -> np.ndarray:
    """Return the mask of the sampled rows that belong to the usual space."""
    return ~np.isin(context.sample(modality), foreign_numbers(context, modality))


def usual_rows(context: Context, modality: str) -> np.ndarray:
    """Return the sampled rows of the usual space at unit length."""
    return selected(context.unit(modality), usual_mask(context, modality))


@once
def shared_space(context: Context, one: str, other: str) -> "Overlap":
    """Return the overlap of the covariances of two modalities, which does not depend on how their rows are paired."""
    sampled = []
    for modality in (one, other):
        rows = usual_rows(context, modality)
        stride = -(-len(rows) // MOMENT_ROWS) or 1
        sampled.append(rows[::stride])
    return overlap(*(rows - rows.mean(0) for rows in sampled))


@once
def gaussian(context: Context, modality: str) -> "Gaussian":
    """Return the Gaussian with the mean and covariance of the rows of the usual space."""
    return Gaussian.of(usual_rows(context, modality))


class Overlap(NamedTuple):
    """Overlap of two second moments: 1 if they are equal, 0 on average after a random rotation.

    z: the overlap in standard deviations under a random rotation, whatever the spectra are.
    """

    value: float
    z: float


def overlap(a: np.ndarray, b: np.ndarray) -> Overlap:
    """Return the overlap of the second moments, about the origin, of two sets of rows, (n, d) and (m, d).

    With A = aᵀa/n and B = bᵀb/m, both without their trace part, the overlap is ⟨A, B⟩/(‖A‖‖B‖). Under a random rotation
    Q, ⟨A, QBQᵀ⟩ has mean 0 and variance 2‖A‖²‖B‖²/((d − 1)(d + 2)), by the moments of the Haar measure. ‖A‖ is
    estimated from two halves of the rows, because the noise of few rows would inflate it.
    """
    d = a.shape[1]
    product = (traceless(a) * traceless(b)).sum()
    biased_norms = math.sqrt((traceless(a) ** 2).sum() * (traceless(b) ** 2).sum())
    squares = [max((traceless(x[::2]) * traceless(x[1::2])).sum(), 0.0) for x in (a, b)]
    norms = math.sqrt(squares[0] * squares[1])
    z = product / biased_norms * math.sqrt((d - 1) * (d + 2) / 2) if biased_norms > 0 and d > 1 else 0.0
    return Overlap(float(product / norms) if norms > 0 else 0.0, float(z))


def traceless(x: np.ndarray) -> np.ndarray:
    """Return xᵀx/n minus its mean eigenvalue times the identity, in float64."""
    x = np.asarray(x, dtype=np.float64)
    moment = x.T @ x / len(x)
    moment[np.diag_indices_from(moment)] -= np.trace(moment) / len(moment)
    return moment


class Gaussian(NamedTuple):
    """Mean and a root of the covariance of unit rows; `draw` samples noise with both and scales it to unit length."""

    mean: torch.Tensor
    root: torch.Tensor

    @classmethod
    def of(cls, rows: np.ndarray) -> "Gaussian":
        x = torch.from_numpy(rows)
        mean = x.mean(0)
        if len(x) <= x.shape[1]:  # with fewer rows than dimensions, the centered rows are a root
            return cls(mean, (x - mean) / len(x) ** 0.5)
        blocks = (part - mean for part in x.split(MOMENT_BLOCK))  # float32 products err by 1e-7 of the largest variance
        covariance = total((block.T @ block).double() for block in blocks) / len(x)
        values, vectors = torch.linalg.eigh(covariance)
        return cls(mean, (vectors * values.clamp(min=0).sqrt()).T.float())

    def draw(self, n: int, generator: torch.Generator) -> np.ndarray:
        noise = torch.empty((n, self.root.shape[1]))
        for block in noise.split(MOMENT_BLOCK):
            torch.addmm(self.mean, torch.randn((len(block), len(self.root)), generator=generator), self.root, out=block)
            block /= block.norm(dim=1, keepdim=True)
        return noise.numpy()


class Foreign(NamedTuple):
    """Rows from another space.

    rows: numbers of the rows in the smaller group. overlap: overlap of the two groups. mean_cosine: cosine of their
    means.
    """

    rows: np.ndarray
    overlap: Overlap
    mean_cosine: float


def foreign_rows(unit: np.ndarray, seed: int) -> Foreign | None:
    """Return the smaller of two groups of unit rows that do not share a space; None if all rows share one.

    Three conditions must hold: the second moments of the groups do not overlap; neither do the second moments of the
    differences between near rows; and nothing lies between the groups. The last one matters because rows of isotropic
    noise can also be split into two such groups, but without a border between them.
    """
    if len(unit) < 4 * LEAST_OF_GROUP:
        return None
    generator = np.random.default_rng(seed)
    numbers = np.sort(generator.choice(len(unit), min(len(unit), SAMPLE), replace=False))
    rows = unit[numbers].astype(np.float64)
    squares = np.square(rows @ rows.T) * rows.shape[1]
    np.fill_diagonal(squares, 0)
    for start in (_minority(squares), _two_blocks(squares, generator)):
        group = _refined(rows, start)
        if not LEAST_OF_GROUP <= group.sum() <= len(rows) - LEAST_OF_GROUP:
            continue
        group = group if group.mean() <= 0.5 else ~group
        moments = overlap(rows[group], rows[~group])
        differences = overlap(_local_differences(rows[group]), _local_differences(rows[~group]))
        if moments.value >= RELATED or differences.value >= RELATED_LOCALLY:
            continue
        if _separation(rows, group, generator) > SEPARATED:
            in_group = _nearer(unit, rows[group], rows[~group])
            means = [unit[mask].mean(0, dtype=np.float64) for mask in (in_group, ~in_group)]
            cosine = means[0] @ means[1] / (np.linalg.norm(means[0]) * np.linalg.norm(means[1]))
            return Foreign(np.flatnonzero(in_group), moments, float(cosine))
    return None


def _separation(rows: np.ndarray, group: np.ndarray, generator: np.random.Generator) -> float:
    """Return the distance of the groups along the difference of their second moments, in sums of their deviations.

    One half of the rows determines the difference, and the other half is measured.
    """
    learned = np.zeros(len(rows), dtype=bool)
    for members in (np.flatnonzero(group), np.flatnonzero(~group)):
        learned[generator.permutation(members)[: len(members) // 2]] = True
    first, second = traceless(rows[learned & group]), traceless(rows[learned & ~group])
    difference = first / np.linalg.norm(first) - second / np.linalg.norm(second)
    held_out = [rows[~learned & mask] for mask in (group, ~group)]
    one, other = (np.einsum("nd,nd->n", x @ difference, x) for x in held_out)
    return float((one.mean() - other.mean()) / max(one.std() + other.std(), 1e-12))


def _local_differences(x: np.ndarray) -> np.ndarray:
    """Return the difference between each row and its nearest row."""
    cosines = x @ x.T
    np.fill_diagonal(cosines, -2)
    return x - x[cosines.argmax(1)]


def _minority(squares: np.ndarray) -> np.ndarray:
    """Return the mask of rows whose median squared cosine is well below the usual: a minority foreign to the others."""
    medians = np.median(squares, axis=1)
    return medians < 0.2 * np.median(medians)


def _two_blocks(squares: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return a mask of one of the two blocks of a nearly block-diagonal matrix, by its two leading eigenvectors."""
    basis = np.linalg.qr(generator.normal(size=(len(squares), 4)))[0]
    for _ in range(20):
        basis = np.linalg.qr(squares @ basis)[0]
    values, vectors = np.linalg.eigh(basis.T @ squares @ basis)
    leading = (basis @ vectors)[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
    leading /= np.maximum(np.linalg.norm(leading, axis=1, keepdims=True), 1e-12)
    first = leading[np.abs(leading @ leading[0]).argmin()]  # the row least similar to row 0
    second = leading[np.abs(leading @ first).argmin()]  # the row least similar to `first`
    return np.abs(leading @ first) > np.abs(leading @ second)


def _refined(rows: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Reassign each row to the group along whose second moment it lies, up to `ROUNDS` times."""
    for _ in range(ROUNDS):
        if not LEAST_OF_GROUP <= group.sum() <= len(rows) - LEAST_OF_GROUP:
            break
        changed = _nearer(rows, rows[group], rows[~group])
        if np.array_equal(changed, group):
            break
        group = changed
    return group


def _nearer(unit: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the mask of rows that lie along the second moment of a rather than of b, both scaled to the same norm."""
    first, second = traceless(a), traceless(b)
    difference = (first / np.linalg.norm(first) - second / np.linalg.norm(second)).astype(unit.dtype)
    return np.einsum("nd,nd->n", unit @ difference, unit) > 0


LEAST = 50  # fewest rows of each modality
FIT = 5000  # rows of each modality on which the direction is fitted
AWAY = 6.0  # standard deviations from its own modality; one in thousands of clean rows is that far away
AMONG = 4.0  # standard deviations from the other modality
MOST = 0.1  # largest share of misplaced rows; more indicate a different fault


@add_check
def misplaced_rows(context: Context) -> Findings:
    if len(context.sets) < 2:
        context.skip("misplaced_rows", "one modality only")
    for one, other in context.same_dimension("misplaced_rows", combinations(context.sets, 2)):
        numbers = [context.sample(name)[usual_mask(context, name)] for name in (one, other)]
        if min(map(len, numbers)) < LEAST:
            context.skip("misplaced_rows", f"fewer than {LEAST} rows of both", one, other)
            continue
        rows = [usual_rows(context, name) for name in (one, other)]
        scores = _scores(rows, [np.zeros(len(x), dtype=bool) for x in rows], context.seed)
        # refit without the misplaced rows, which rotate the direction
        scores = _scores(rows, [scores[0] < 0, scores[1] > 0], context.seed)
        beyond = [scores[0] < 0, scores[1] > 0]
        medians, spreads = zip(*map(_middle_and_spread, scores), strict=True)
        if medians[0] - medians[1] < AWAY * max(spreads):
            context.skip("misplaced_rows", "no gap between the modalities", one, other)
            continue
        for side, (name, opposite) in enumerate(((one, other), (other, one))):
            away, among = (np.abs(scores[side] - medians[k]) / spreads[k] for k in (side, 1 - side))
            misplaced = np.flatnonzero(beyond[side] & (away > AWAY) & (among < AMONG))
            if 0 < len(misplaced) <= MOST * len(numbers[side]):
                values = {"count": len(misplaced), "n": len(numbers[side]), "rows": numbers[side][misplaced].tolist()}
                values |= {"usual": float(np.delete(away, misplaced).max())}
                values |= {"away": float(away[misplaced].min()), "among": float(among[misplaced].max())}
                yield finding("misplaced_rows", "error", name, opposite, **values)


def _scores(rows: list[np.ndarray], beyond: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Project both modalities on a discriminant fitted on the other half of the rows; 0 is midway between the means."""
    generator = np.random.default_rng(seed)
    first_halves = [generator.permutation(len(x)) % 2 == 0 for x in rows]
    scores = [np.empty(len(x)) for x in rows]
    for fit_on_first in (True, False):
        fit = []
        for x, is_first, is_beyond in zip(rows, first_halves, beyond, strict=True):
            numbers = np.flatnonzero((is_first == fit_on_first) & ~is_beyond)[:FIT]
            fit.append(x[numbers].astype(np.float64))
        means = [x.mean(0) for x in fit]
        first, second = ((x - mean).T @ (x - mean) / len(x) for x, mean in zip(fit, means, strict=True))
        scatter = first + second
        scatter[np.diag_indices_from(scatter)] += np.trace(scatter) / len(scatter)
        direction = np.linalg.solve(scatter, means[0] - means[1])
        middle = (means[0] + means[1]) @ direction / 2
        for x, is_first, score in zip(rows, first_halves, scores, strict=True):
            for start in range(0, len(x), BLOCK):
                block = slice(start, start + BLOCK)
                score[block] = np.where(is_first[block] != fit_on_first, x[block] @ direction - middle, score[block])
    return scores


def _middle_and_spread(scores: np.ndarray) -> tuple[float, float]:
    """Return the median, and the standard deviation estimated from the median absolute deviation."""
    middle = float(np.median(scores))
    return middle, max(1.4826 * float(np.median(np.abs(scores - middle))), 1e-12)


QUERIES, INDEX = 1000, 5000
BROKEN = 0.9  # share of the query's own modality in the top ten; at most one place is left for the other
NOTABLE = 0.1  # share above chance that is reported
SURE = 4.0  # standard errors


@add_check
def modality_gap(context: Context) -> Findings:
    if len(context.sets) < 2:
        context.skip("modality_gap", "one modality only")
    for one, other in context.same_dimension("modality_gap", combinations(in_order(context.sets), 2)):
        generator = np.random.default_rng(context.seed)
        rows = {name: context.unit(name) for name in (one, other)}
        rows = {name: unit[generator.permutation(len(unit))[:INDEX]] for name, unit in rows.items()}
        if min(map(len, rows.values())) <= NEIGHBORS:
            context.skip("modality_gap", f"no more than {NEIGHBORS} rows of both", one, other)
            continue
        index = np.concatenate([*rows.values()])
        is_other = np.repeat([False, True], [*map(len, rows.values())])
        shares = {}
        for modality, unit in rows.items():
            same_modality = is_other == (modality == other)
            cosines = unit[:QUERIES] @ index.T
            cosines[np.arange(len(cosines)), np.flatnonzero(same_modality)[: len(cosines)]] = -np.inf
            top = np.argpartition(-cosines, NEIGHBORS - 1, axis=1)[:, :NEIGHBORS]
            share = same_modality[top].mean(1)
            chance = (len(unit) - 1) / (len(index) - 1)
            error = float(share.std(ddof=1) / np.sqrt(len(share)))
            shares[modality] = {"share": float(share.mean()), "error": error, "chance": chance}
        gap = float(np.linalg.norm(rows[one].mean(0) - rows[other].mean(0)))
        broken = [name for name, each in shares.items() if each["share"] > BROKEN]
        above = [each["share"] - each["chance"] > max(NOTABLE, SURE * each["error"]) for each in shares.values()]
        if broken or any(above):
            severity = "warning" if broken else "note"
            values = {"shares": shares, "gap": gap, "broken": broken, "n": len(index)}
            yield finding("modality_gap", severity, one, other, **values)

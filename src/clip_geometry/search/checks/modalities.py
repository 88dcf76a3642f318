"""Groups of rows that lie apart: of another space than the rest, among another modality, across a modality gap.

Rows of another space are another model's, another revision's, another seed's. Two models are related by no more than a
random rotation, so that rows of one lie across the principal directions of the other as random directions do: d⟨u, v⟩²
is near 1, where rows of one model have 7 (a small CLIP of drawn scenes) to 300 (CLIP ViT-B/32), since their cone and
their few dimensions bring them together.
"""

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch

from clip_geometry.embeddings import in_order
from clip_geometry.rows.matrix import BLOCK as MOMENT_BLOCK
from clip_geometry.rows.matrix import total
from clip_geometry.search.checks import BLOCK, NEIGHBORS, Context, Findings, add_check, chosen, finding, once

SAMPLE = 1200  # rows among which the groups are looked for
LEAST_OF_GROUP = 8  # rows of a group
RELATED = 0.1  # overlap of second moments; halves of clean sets have 0.2 to 0.99, random rotations 0 ± √2/d
RELATED_LOCALLY = 0.4  # clusters that lie across each other still vary along the same directions: 0.7
SEPARATED = 3.5  # deviations between held-out rows of the groups; two models have 5 to 10, isotropic noise under 2.5
ROUNDS = 10
MOMENT_ROWS = 20_000  # of a modality in its covariance, at most


@once
def foreign(context: Context, modality: str) -> "Foreign | None":
    """Rows of another space than the rest; None where there are none."""
    return foreign_rows(context.unit(modality), context.seed)


def foreign_numbers(context: Context, modality: str) -> np.ndarray:
    """Numbers of the rows of another space."""
    found = foreign(context, modality)
    return context.sample(modality)[found.rows] if found is not None else np.empty(0, dtype=np.int64)


def own(context: Context, modality: str) -> np.ndarray:
    """Mask of the sampled rows that are of the usual space."""
    return ~np.isin(context.sample(modality), foreign_numbers(context, modality))


def own_rows(context: Context, modality: str) -> np.ndarray:
    """The sampled rows of the usual space at unit length."""
    return chosen(context.unit(modality), own(context, modality))


@once
def shared_space(context: Context, one: str, other: str) -> "Overlap":
    """Overlap of the covariances of the rows of two modalities, whatever their order."""
    every = (own_rows(context, modality) for modality in (one, other))
    some = [rows[:: -(-len(rows) // MOMENT_ROWS) or 1] for rows in every]
    return overlap(*(rows - rows.mean(0) for rows in some))


@once
def gaussian(context: Context, modality: str) -> "Gaussian":
    """Noise with the mean and covariance of the rows of the usual space."""
    return Gaussian.of(own_rows(context, modality))


class Overlap(NamedTuple):
    """Overlap of two second moments: 1 for equal ones, 0 on average after a random rotation.

    z: in standard deviations under a random rotation, whatever the spectra.
    """

    value: float
    z: float


def overlap(a: np.ndarray, b: np.ndarray) -> Overlap:
    """Overlap of the second moments of two sets of rows, (n, d) and (m, d), about the origin.

    With A = aᵀa/n and B = bᵀb/m, both less their trace part: ⟨A, B⟩/(‖A‖‖B‖). Under a random rotation Q, ⟨A, QBQᵀ⟩ has
    mean 0 and variance 2‖A‖²‖B‖²/((d − 1)(d + 2)), by the moments of the Haar measure. ‖A‖ is taken from two halves of
    the rows, since the noise of few rows would lengthen it.
    """
    d = a.shape[1]
    product = (traceless(a) * traceless(b)).sum()
    plain = math.sqrt((traceless(a) ** 2).sum() * (traceless(b) ** 2).sum())
    own = [max((traceless(x[::2]) * traceless(x[1::2])).sum(), 0.0) for x in (a, b)]
    length = math.sqrt(own[0] * own[1])
    z = product / plain * math.sqrt((d - 1) * (d + 2) / 2) if plain > 0 and d > 1 else 0.0
    return Overlap(float(product / length) if length > 0 else 0.0, float(z))


def traceless(x: np.ndarray) -> np.ndarray:
    """xᵀx/n less its mean eigenvalue, in float64."""
    x = np.asarray(x, dtype=np.float64)
    moment = x.T @ x / len(x)
    moment[np.diag_indices_from(moment)] -= np.trace(moment) / len(moment)
    return moment


class Gaussian(NamedTuple):
    """The mean of unit rows and a root of their covariance: noise of `draw` has both, and is of length 1."""

    mean: torch.Tensor
    root: torch.Tensor

    @classmethod
    def of(cls, rows: np.ndarray) -> "Gaussian":
        x = torch.from_numpy(rows)
        mean = x.mean(0)
        if len(x) <= x.shape[1]:  # fewer rows than dimensions are a root themselves
            return cls(mean, (x - mean) / len(x) ** 0.5)
        covariance = total((block := part.double() - mean).T @ block for part in x.split(MOMENT_BLOCK)) / len(x)
        values, vectors = torch.linalg.eigh(covariance)
        return cls(mean, (vectors * values.clamp(min=0).sqrt()).T.float())

    def draw(self, n: int, generator: torch.Generator) -> np.ndarray:
        noise = torch.empty((n, self.root.shape[1]))
        for block in noise.split(MOMENT_BLOCK):
            torch.addmm(self.mean, torch.randn((len(block), len(self.root)), generator=generator), self.root, out=block)
            block /= block.norm(dim=1, keepdim=True)
        return noise.numpy()


class Foreign(NamedTuple):
    """rows: numbers of the rows in the smaller group. overlap: of the two groups. mean_cosine: of their means."""

    rows: np.ndarray
    overlap: Overlap
    mean_cosine: float


def foreign_rows(unit: np.ndarray, seed: int) -> Foreign | None:
    """The smaller of two groups of unit rows that share no space; None where all rows share one.

    Neither the second moments of the groups overlap, nor those of the differences between near rows, and nothing lies
    between the groups: rows of isotropic noise can be split into two such groups as well, but not without a border.
    """
    if len(unit) < 4 * LEAST_OF_GROUP:
        return None
    generator = np.random.default_rng(seed)
    numbers = np.sort(generator.choice(len(unit), min(len(unit), SAMPLE), replace=False))
    rows = unit[numbers].astype(np.float64)
    squares = np.square(rows @ rows.T) * rows.shape[1]
    np.fill_diagonal(squares, 0)
    for start in (_apart(squares), _two_blocks(squares, generator)):
        group = _refined(rows, start)
        if not LEAST_OF_GROUP <= group.sum() <= len(rows) - LEAST_OF_GROUP:
            continue
        group = group if group.mean() <= 0.5 else ~group
        found, local = overlap(rows[group], rows[~group]), overlap(_local(rows[group]), _local(rows[~group]))
        if found.value < RELATED and local.value < RELATED_LOCALLY and _separation(rows, group, generator) > SEPARATED:
            inside = _nearer(unit, rows[group], rows[~group])
            means = [unit[each].mean(0, dtype=np.float64) for each in (inside, ~inside)]
            cosine = means[0] @ means[1] / (np.linalg.norm(means[0]) * np.linalg.norm(means[1]))
            return Foreign(np.flatnonzero(inside), found, float(cosine))
    return None


def _separation(rows: np.ndarray, group: np.ndarray, generator: np.random.Generator) -> float:
    """How far the groups are apart along the difference of their second moments, in sums of their deviations.

    The difference is taken of one half of the rows, and the other half is measured.
    """
    learned = np.zeros(len(rows), dtype=bool)
    for members in (np.flatnonzero(group), np.flatnonzero(~group)):
        learned[generator.permutation(members)[: len(members) // 2]] = True
    first, second = traceless(rows[learned & group]), traceless(rows[learned & ~group])
    difference = first / np.linalg.norm(first) - second / np.linalg.norm(second)
    sides = [rows[~learned & of] for of in (group, ~group)]
    along = [np.einsum("nd,nd->n", side @ difference, side) for side in sides]
    return float((along[0].mean() - along[1].mean()) / max(along[0].std() + along[1].std(), 1e-12))


def _local(x: np.ndarray) -> np.ndarray:
    """Differences of the rows to their nearest rows."""
    cosines = x @ x.T
    np.fill_diagonal(cosines, -2)
    return x - x[cosines.argmax(1)]


def _apart(squares: np.ndarray) -> np.ndarray:
    """Rows whose median square is a small part of the usual one: a minority that is foreign to most rows."""
    medians = np.median(squares, axis=1)
    return medians < 0.2 * np.median(medians)


def _two_blocks(squares: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The two blocks of a matrix that is nearly block diagonal, by its two leading eigenvectors."""
    basis = np.linalg.qr(generator.normal(size=(len(squares), 4)))[0]
    for _ in range(20):
        basis = np.linalg.qr(squares @ basis)[0]
    values, vectors = np.linalg.eigh(basis.T @ squares @ basis)
    leading = (basis @ vectors)[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
    leading /= np.maximum(np.linalg.norm(leading, axis=1, keepdims=True), 1e-12)
    first = leading[np.abs(leading @ leading[0]).argmin()]  # the row least like row 0, and the row least like that
    second = leading[np.abs(leading @ first).argmin()]
    return np.abs(leading @ first) > np.abs(leading @ second)


def _refined(rows: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The groups after each row went to the one whose second moment it lies along, a few times."""
    for _ in range(ROUNDS):
        if not LEAST_OF_GROUP <= group.sum() <= len(rows) - LEAST_OF_GROUP:
            break
        changed = _nearer(rows, rows[group], rows[~group])
        if np.array_equal(changed, group):
            break
        group = changed
    return group


def _nearer(unit: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rows that lie along the second moment of a rather than of b, both scaled to one length."""
    first, second = traceless(a), traceless(b)
    difference = (first / np.linalg.norm(first) - second / np.linalg.norm(second)).astype(unit.dtype)
    return np.einsum("nd,nd->n", unit @ difference, unit) > 0


LEAST = 50  # rows of each modality
FIT = 5000  # rows of each modality that the direction is fitted on
AWAY = 6.0  # standard deviations from the own modality; of clean rows, one in thousands is
AMONG = 4.0  # of the other modality
MOST = 0.1  # of the rows: more are another fault


@add_check
def misplaced_rows(context: Context) -> Findings:
    if len(context.sets) < 2:
        context.skip("misplaced_rows", "one modality only")
    for one, other in context.of_one_space("misplaced_rows", combinations(context.sets, 2)):
        numbers = [context.sample(name)[own(context, name)] for name in (one, other)]
        if min(map(len, numbers)) < LEAST:
            context.skip("misplaced_rows", f"fewer than {LEAST} rows of both", one, other)
            continue
        rows = [own_rows(context, name) for name in (one, other)]
        scores = _scores(rows, [np.zeros(len(x), dtype=bool) for x in rows], context.seed)
        # again without the rows that are out of place: they turn the direction
        scores = _scores(rows, [scores[0] < 0, scores[1] > 0], context.seed)
        astray = [scores[0] < 0, scores[1] > 0]
        middles, spreads = zip(*map(_middle_and_spread, scores), strict=True)
        if middles[0] - middles[1] < AWAY * max(spreads):
            context.skip("misplaced_rows", "no gap between the modalities", one, other)
            continue
        for side, (name, beside) in enumerate(((one, other), (other, one))):
            away, among = (np.abs(scores[side] - middles[k]) / spreads[k] for k in (side, 1 - side))
            found = np.flatnonzero(astray[side] & (away > AWAY) & (among < AMONG))
            if 0 < len(found) <= MOST * len(numbers[side]):
                values = {"count": len(found), "n": len(numbers[side]), "usual": float(np.delete(away, found).max())}
                values |= {"away": float(away[found].min()), "among": float(among[found].max())}
                rows_found = numbers[side][found].tolist()
                yield finding("misplaced_rows", "error", name, beside, **values, rows=rows_found)


def _scores(rows: list[np.ndarray], astray: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Places of both modalities along the discriminant that was fitted on the other half of the rows, 0 in between."""
    generator = np.random.default_rng(seed)
    half = [generator.permutation(len(x)) % 2 == 0 for x in rows]
    scores = [np.empty(len(x)) for x in rows]
    for part in (True, False):
        numbers = [np.flatnonzero((h == part) & ~a)[:FIT] for h, a in zip(half, astray, strict=True)]
        fit = [x[each].astype(np.float64) for x, each in zip(rows, numbers, strict=True)]
        means = [x.mean(0) for x in fit]
        first, second = ((x - mean).T @ (x - mean) / len(x) for x, mean in zip(fit, means, strict=True))
        scatter = first + second
        scatter[np.diag_indices_from(scatter)] += np.trace(scatter) / len(scatter)
        direction = np.linalg.solve(scatter, means[0] - means[1])
        middle = (means[0] + means[1]) @ direction / 2
        for x, h, score in zip(rows, half, scores, strict=True):
            for start in range(0, len(x), BLOCK):
                block = slice(start, start + BLOCK)
                score[block] = np.where(h[block] != part, x[block] @ direction - middle, score[block])
    return scores


def _middle_and_spread(scores: np.ndarray) -> tuple[float, float]:
    """Median, and standard deviation by the median absolute deviation."""
    middle = float(np.median(scores))
    return middle, max(1.4826 * float(np.median(np.abs(scores - middle))), 1e-12)


QUERIES, INDEX = 1000, 5000
BROKEN = 0.9  # share of the own modality in the top ten: at most one place is left for the other
NOTABLE = 0.1  # above chance
SURE = 4.0  # standard errors


@add_check
def modality_gap(context: Context) -> Findings:
    if len(context.sets) < 2:
        context.skip("modality_gap", "one modality only")
    for one, other in context.of_one_space("modality_gap", combinations(in_order(context.sets), 2)):
        generator = np.random.default_rng(context.seed)
        rows = {name: context.unit(name) for name in (one, other)}
        rows = {name: unit[generator.permutation(len(unit))[:INDEX]] for name, unit in rows.items()}
        if min(map(len, rows.values())) <= NEIGHBORS:
            context.skip("modality_gap", f"no more than {NEIGHBORS} rows of both", one, other)
            continue
        index, is_other = np.concatenate([*rows.values()]), np.repeat([False, True], [*map(len, rows.values())])
        shares = {}
        for modality, unit in rows.items():
            mine = is_other == (modality == other)
            cosines = unit[:QUERIES] @ index.T
            cosines[np.arange(len(cosines)), np.flatnonzero(mine)[: len(cosines)]] = -np.inf
            top = np.argpartition(-cosines, NEIGHBORS - 1, axis=1)[:, :NEIGHBORS]
            share, chance = mine[top].mean(1), (len(unit) - 1) / (len(index) - 1)
            error = float(share.std(ddof=1) / np.sqrt(len(share)))
            shares[modality] = {"share": float(share.mean()), "error": error, "chance": chance}
        gap = float(np.linalg.norm(rows[one].mean(0) - rows[other].mean(0)))
        broken = [name for name, each in shares.items() if each["share"] > BROKEN]
        above = [each["share"] - each["chance"] > max(NOTABLE, SURE * each["error"]) for each in shares.values()]
        if broken or any(above):
            severity = "warning" if broken else "note"
            values = {"shares": shares, "gap": gap, "broken": broken, "n": len(index)}
            yield finding("modality_gap", severity, one, other, **values)

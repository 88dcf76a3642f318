"""Silhouette of large sets, Euclidean: of some rows, against all rows or against some of each class, with its error.

Which rows are averaged decides only how sure the number is. The rows that they are compared with decide the number
too: the smallest of several estimated means is too small on average. What is left of that after a jackknife over
groups of these rows is of second order in their number.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer, seed_number, whole_number
from clip_geometry.geometry._core.kinds import Value, in_kind
from clip_geometry.geometry._core.row_sums import sums_of_distances
from clip_geometry.geometry._core.rows import Labels, Matrix, Rows, as_matrix
from clip_geometry.geometry.clusters.silhouette import as_classes, from_means
from clip_geometry.geometry.measure import add_measure, measures, variant

ROWS = 4096
GROUPS = 20  # of references; the error's own relative error is about 1/√(2 · 19) = 16 %


class SampledSilhouette(NamedTuple):
    """rows: how many were averaged. references: how many they were compared with."""

    value: Value
    standard_error: Value
    rows: int
    references: int


class _References(NamedTuple):
    """Rows compared with, the group of each in its class, and how many there are."""

    rows: Int[Tensor, " r"]
    codes: Int[Tensor, " r"]
    groups: Int[Tensor, " r"]
    counts: Float[Tensor, "k g"]
    group_of: Int[Tensor, " n"]  # of every row of x; −1 where it is no reference


@in_kind
@torch.no_grad()
def sampled_silhouette(
    x: Rows, labels: Labels, *, of: Integer = ROWS, references: Integer | None = None, seed: Integer = 0
) -> SampledSilhouette:
    """Euclidean silhouette, estimated from a stratified sample of rows.

    Each sampled row is compared with all rows, or with some of each class. With all rows the estimate is unbiased. With
    some of them it is corrected by a delete-a-group jackknife and may leave [−1, 1] slightly. The standard error covers
    both draws, without replacement: it is 0 where everything is drawn, and says nothing about other data. O(of · d ·
    rows compared with), in blocks, with at most 16 million sums. `StreamedRows` are read in order, twice where `of` is
    at most 8192 and the sums are. Sources: Cochran 1977, Sampling Techniques, chapter 5; Shao & Tu 1995, The Jackknife
    and Bootstrap, chapter 6.

    Args:
        x: Rows, (n, d), n ≥ 3.
        labels: One label per row, (n,), as in `silhouette`.
        of: Number of rows to average, ≥ 2, drawn from the classes in proportion to their size.
        references: Most rows of a class to compare with, ≥ 40, drawn at random; None for all rows.
        seed: Seed of the draws.

    Returns:
        A `SampledSilhouette`: value, standard_error, rows and references; float64, without gradient.

    Raises:
        InputError: A number is out of range, or as in `silhouette`.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> found = cg.sampled_silhouette(x, np.arange(100) % 2, of=50)
        >>> round(found.value, 3), round(found.standard_error, 3), found.rows
        (0.012, 0.004, 50)
    """
    x = as_matrix(x, least=3)
    codes, k = as_classes(labels, x)
    of, seed = whole_number(of, "of", least=2, of=", of rows, for a standard error"), seed_number(seed)
    if references is not None:
        references = whole_number(references, "references", least=2 * GROUPS, of=", of a class, or None for all")
    codes, generator = codes.cpu(), torch.Generator().manual_seed(seed)
    sizes = torch.bincount(codes)
    stratum = strata(sizes, min(of, len(x)))[codes]
    drawn = in_proportion(torch.bincount(stratum), min(of, len(x)))
    chosen = (random_ranks(stratum, generator) < drawn[stratum]).nonzero()[:, 0]
    chosen = chosen[codes[chosen].argsort(stable=True)]
    compared = _references(codes, k, references, generator)
    values, without = _estimates(x, chosen, codes, sizes, compared)
    value, variance = _stratified(values, stratum[chosen], torch.bincount(stratum))
    if references is not None:
        means = torch.stack([_stratified(each, stratum[chosen], torch.bincount(stratum))[0] for each in without])
        variance = variance + (GROUPS - 1) * (means - means.mean()).square().mean()
    return SampledSilhouette(value, variance.sqrt(), len(chosen), len(compared.rows))


def _references(codes: Int[Tensor, " n"], k: int, most: int | None, generator: torch.Generator) -> _References:
    if most is None:
        groups, drawn, count = torch.zeros_like(codes), torch.ones_like(codes).bool(), 1
    else:
        ranks = random_ranks(codes, generator)
        groups, drawn, count = ranks % GROUPS, ranks < most, GROUPS
    rows = drawn.nonzero()[:, 0]
    counts = torch.bincount(codes[rows] * count + groups[rows], minlength=k * count).view(k, count).double()
    return _References(rows, codes[rows], groups[rows], counts, torch.where(drawn, groups, -1))


def _estimates(
    x: Float[Matrix, "n d"],
    chosen: Int[Tensor, " m"],
    codes: Int[Tensor, " n"],
    sizes: Int[Tensor, " k"],
    compared: _References,
) -> tuple[Float[Tensor, " m"], Float[Tensor, "w m"]]:
    """Silhouettes of the chosen rows, corrected, and those without each group of the references, if there are any."""
    k, count = compared.counts.shape
    parts = []
    of, to, groups = (part.to(x.device) for part in (chosen, compared.rows, compared.codes * count + compared.groups))
    for some, sums in sums_of_distances(x, of, to, groups, k * count):
        rows = some.cpu()
        own = compared.group_of[rows]
        parts.append(_silhouettes(sums.cpu().view(k, count, -1), compared.counts, codes[rows], own, sizes.double()))
    every, without = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
    if count > 1:
        every = count * every - (count - 1) * without.mean(0)
    return every, without


def _silhouettes(
    sums: Float[Tensor, "k g b"],
    counts: Float[Tensor, "k g"],
    mine: Int[Tensor, " b"],
    own_group: Int[Tensor, " b"],
    sizes: Float[Tensor, " k"],
) -> tuple[Float[Tensor, " b"], Float[Tensor, "w b"]]:
    """Of b rows, with all references and without each group of them.

    A row is not compared with itself. Without a group a mean moves by what it would move if the class were infinite,
    times √(1 − share of the class that was drawn), so that it does not move where all of the class was.
    """
    alone = sizes[mine] == 1
    own_sums = sums[mine, :, torch.arange(len(mine))]
    itself = torch.nn.functional.one_hot(own_group + 1, counts.shape[1] + 1)[:, 1:]  # no column for −1
    own_counts = counts[mine] - itself
    left_out = 1 - counts.sum(1) / sizes
    own_left_out = 1 - own_counts.sum(1) / (sizes[mine] - 1).clamp(min=1)
    means, own = sums.sum(1) / counts.sum(1)[:, None], own_sums.sum(1) / own_counts.sum(1).clamp(min=1)

    def values(means: Float[Tensor, "k b"], own: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
        return from_means(own, means.scatter(0, mine[None], torch.inf).amin(0), alone=alone)

    without = []
    for g in range(counts.shape[1] if counts.shape[1] > 1 else 0):
        rest = (counts.sum(1) - counts[:, g]).clamp(min=1)[:, None]
        own_rest = (own_counts.sum(1) - own_counts[:, g]).clamp(min=1)
        moved = means + left_out.sqrt()[:, None] * ((sums.sum(1) - sums[:, g]) / rest - means)
        own_moved = own + own_left_out.sqrt() * ((own_sums.sum(1) - own_sums[:, g]) / own_rest - own)
        without.append(values(moved, own_moved))
    return values(means, own), torch.stack(without) if without else means.new_empty((0, len(mine)))


def _stratified(
    values: Float[Tensor, " m"], stratum: Int[Tensor, " m"], sizes: Int[Tensor, " s"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Mean over all rows of the strata, and its variance in draws without replacement."""
    drawn = torch.bincount(stratum, minlength=len(sizes)).double()
    share = sizes.double() / sizes.sum()
    means = values.new_zeros(len(sizes)).index_add(0, stratum, values) / drawn
    squares = values.new_zeros(len(sizes)).index_add(0, stratum, (values - means[stratum]).square())
    variances = squares / (drawn - 1).clamp(min=1) / drawn * (1 - drawn / sizes)
    return (share * means).sum(), (share.square() * variances).sum()


def _said(x: Rows, labels: Labels, **_) -> str | None:
    """The remark of the measure."""
    n = len(as_matrix(x))
    if n <= ROWS:
        return None
    found = sampled_silhouette(x, labels, of=ROWS)
    return f"of {found.rows} of {n} rows, drawn from all classes (seed 0), standard error {found.standard_error:.1g}"


add_measure(
    variant(
        measures["silhouette"], "sampled", function=sampled_silhouette, attribute="value", streams=True, remark=_said
    )
)


def random_ranks(codes: Int[Tensor, " n"], generator: torch.Generator) -> Int[Tensor, " n"]:
    """The place of each row, from 0, in a random order of its class; the lowest m are a random sample of m."""
    order = torch.randperm(len(codes), generator=generator)
    order = order[codes[order].argsort(stable=True)]
    sizes = torch.bincount(codes)
    starts = (sizes.cumsum(0) - sizes)[codes[order]]
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(codes)) - starts)


def strata(sizes: Int[Tensor, " k"], of: int) -> Int[Tensor, " k"]:
    """The stratum of each class, 0 …: large classes are one each, small ones share one, so that of `of` rows, dealt in
    proportion, two or more fall to every stratum."""
    least = 2 * int(sizes.sum()) / of
    stratum, last, filled = torch.empty_like(sizes), 0, 0
    for c in sizes.argsort(descending=True, stable=True).tolist():
        if filled >= least:
            last, filled = last + 1, 0
        stratum[c] = last
        filled += int(sizes[c])
    if filled < least and last > 0:  # too few are left for one of their own
        stratum[stratum == last] = last - 1
    return stratum


def in_proportion(sizes: Int[Tensor, " s"], of: int) -> Int[Tensor, " s"]:
    """`of` rows dealt to strata of these sizes in proportion, the largest remainders rounded up."""
    shares = sizes.double() * of / sizes.sum()
    dealt = shares.floor().long()
    dealt[(shares - dealt).argsort(descending=True, stable=True)[: of - int(dealt.sum())]] += 1
    return dealt

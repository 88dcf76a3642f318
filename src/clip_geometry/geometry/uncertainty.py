"""How sure a number is: a standard error by the jackknife, and permutation tests of labels and pairings."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.lookup import as_measure
from clip_geometry.geometry.measure import Measure
from clip_geometry.geometry.rows import as_two_sets
from clip_geometry.registry import InputError

if TYPE_CHECKING:
    Alternative: TypeAlias = Literal["two-sided", "greater", "less"]
else:  # an unknown one is our sentence, not a type checker's
    Alternative = str

BLOCKS = 20  # the error's own relative error is about 1/√(2 · 19) = 16 %


def standard_error(
    measure: str | Measure | Callable[..., Any], *sets: Any, blocks: int = BLOCKS, seed: int = 0
) -> Float[Tensor, ""]:
    """Standard error of a measure by the delete-block jackknife.

    The rows are dealt at random into g blocks; θ_b is the measure without block b:
    SE² = (g − 1)/g Σ_b (θ_b − mean θ)². Never the bootstrap: its duplicated rows are pairs at distance zero, which
    ruin every measure of pairs and neighbours.

    measure: a name, a Measure (of an evaluator's number `clip_geometry.evaluators.evaluators[name]`), or any function
    of the sets. sets: what it takes: rows; rows and labels; two sets; images, labels and class texts, which all stay.
    Sets of the same length lose the same rows, so that pairs and labels stay together; rows must be independent of
    each other (of several captions of one image, hand over one, or use MeasuredSets, which deals out items).
    blocks: g, at most n. seed: of the dealing. ≥ 0, in the units of the measure. Raises InputError for fewer than
    two blocks, where the measure cannot be taken without a block, and for measures that are not smooth (extremes, an
    arbitrary basis, the nearest of neighbours), of which the jackknife gives no standard error. Source: Efron &
    Tibshirani 1993.
    """
    measure = as_measure(measure)
    if isinstance(measure, Measure) and not measure.smooth:
        raise InputError(
            f"{measure.name} is no smooth function of the rows; the jackknife gives no standard error of it"
        )
    sets, fixed = _sampled(measure, sets)
    dealt = {len(part): deal(len(part), blocks, seed) for part in sets}
    without = (tuple(take(part, dealt[len(part)] != block) for part in sets) for block in range(blocks))
    return jackknife([torch.as_tensor(measure(*kept, *fixed)) for kept in without])


def _sampled(measure: Measure | Callable[..., Any], sets: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The sets that are samples, and those that stay whole: class texts, without one of which a class is missing."""
    if not isinstance(measure, Measure):
        return sets, ()
    known = {
        "rows": ("rows",),
        "labelled rows": ("rows", "labels"),
        "classes": ("image", "labels", "class_text"),
        "languages": ("source", "target"),
    }
    takes = known.get(measure.takes, ("image", "text"))
    if len(sets) != len(takes):
        what = ", ".join(takes[:-1]) + " and " * (len(takes) > 1) + takes[-1]
        raise InputError(f"{measure.name} takes {what}; {len(sets)} sets were given")
    return (sets[:2], sets[2:]) if measure.takes == "classes" else (sets, ())


def deal(n: int, blocks: int, seed: int) -> Int[Tensor, " n"]:
    """The block of each of n units, at random, as evenly as possible. Raises InputError for unusable numbers."""
    if not 2 <= blocks <= n:
        raise InputError(f"{blocks} blocks of {n} rows were asked for; expected from 2 blocks to one for each row")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return torch.empty(n, dtype=torch.long).scatter_(0, order, torch.arange(n) % blocks)


def jackknife(without: Sequence[Tensor]) -> Float[Tensor, ""]:
    """The standard error from the values without each of the blocks."""
    values = torch.stack([value.detach().double().cpu() for value in without])
    return ((len(values) - 1) * (values - values.mean()).square().mean()).sqrt()


def take(part: Any, rows: Tensor) -> Any:
    """Those rows (a mask or an order) of a tensor, an array or a list."""
    if isinstance(part, Tensor):
        return part[rows.to(part.device)]
    if hasattr(part, "__array__"):
        return part.__array__()[rows.numpy()]
    indices = rows.nonzero().squeeze(1) if rows.dtype == torch.bool else rows
    return [part[i] for i in indices.tolist()]


class PermutationTest(NamedTuple):
    """value: of the data. p_value, null_mean, null_std: of the draws in which nothing belongs together."""

    value: Tensor
    p_value: Tensor
    null_mean: Tensor
    null_std: Tensor


def permutation_test(
    measure: str | Measure,
    x: Any,
    labels_or_y: Any,
    *,
    draws: int = 999,
    seed: int = 0,
    alternative: Alternative = "two-sided",
) -> PermutationTest:
    """Whether labels, or the pairing of two sets, matter to a measure more than chance.

    Labels are permuted; of pairs the second set is; two sets without pairing are pooled and split again (is the
    modality more than a random label?). p = (1 + #{draws at least as extreme})/(1 + draws), never 0;
    "two-sided" is twice the smaller of both tails.
    measure: a name or a Measure (of an evaluator's number `clip_geometry.evaluators.evaluators[name]`) of labelled
    rows, pairs or two sets. x: (n, d); labels_or_y: (n,) labels or (m, d)
    rows. seed: of the draws. Costs `draws` times the measure. Raises InputError for measures of one set of rows, which
    have nothing to permute, and of more than two arguments. Source: Phipson & Smyth 2010.
    """
    measure = as_measure(measure)
    if alternative not in ("two-sided", "greater", "less"):
        raise InputError(f"alternative {alternative!r} is unknown; known are 'two-sided', 'greater', 'less'")
    if draws < 1:
        raise InputError(f"{draws} draws were asked for; expected at least 1")
    if measure.takes == "rows":
        raise InputError(f"{measure.name} takes one set of rows; there are no labels and no pairs to permute")
    if measure.takes == "classes" or measure.takes.startswith("train"):
        raise InputError(f"{measure.name} needs {measure.needs[0]}; expected a measure of labelled rows or of two sets")
    value = measure(x, labels_or_y).detach()
    generator = torch.Generator().manual_seed(seed)
    null = torch.stack([measure(*_shuffled(measure, x, labels_or_y, generator)).detach() for _ in range(draws)])
    slack = 1e-12 * value.abs()  # the data's own arrangement, drawn again, may differ in the last digit
    above = (1 + (null >= value - slack).sum().double()) / (1 + draws)
    below = (1 + (null <= value + slack).sum().double()) / (1 + draws)
    tails = {"greater": above, "less": below, "two-sided": (2 * torch.minimum(above, below)).clamp(max=1)}
    return PermutationTest(value, tails[alternative], null.mean(), null.std(correction=0))


def _shuffled(measure: Measure, x: Any, other: Any, generator: torch.Generator) -> tuple[Any, Any]:
    if measure.takes != "two sets":
        return x, take(other, torch.randperm(len(other), generator=generator))
    pooled = torch.cat(as_two_sets(x, other, one_space=False))  # of the wider of both precisions
    order = torch.randperm(len(pooled), generator=generator)
    return take(pooled, order[: len(x)]), take(pooled, order[len(x) :])

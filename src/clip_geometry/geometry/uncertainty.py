"""Uncertainty of a measure: its standard error, its null value, and permutation tests of labels and pairings."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from clip_geometry.geometry.kinds import Value, as_given
from clip_geometry.geometry.measure import Measure, as_measure, as_registered
from clip_geometry.geometry.statistics.statistic import BlockedRows
from clip_geometry.memory import memory
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import (
    DRAWS,
    Integer,
    Literal,
    Number,
    one_of,
    positive_number,
    require_plain,
    seed_number,
    whole_number,
)
from clip_geometry.rows.matrix import Labels, as_codes, as_matrix, as_two_sets, as_values, unit_rows
from clip_geometry.rows.streamed import StreamedRows

Alternative: TypeAlias = Literal["two-sided", "greater", "less"]
BLOCKS = 20  # the standard error then has a relative error of about 1/√(2 · 19) = 16%


def standard_error(
    measure: str | Measure | Callable[..., Any], *sets: Any, blocks: Integer = BLOCKS, seed: Integer = 0
) -> Value:
    """Return the standard error of a measure by the delete-block jackknife.

    The rows are assigned at random to g blocks, and the measure is computed without each block: SE² = (g − 1)/g Σ_b
    (θ_b − θ̄)², where θ_b is the value without block b and θ̄ the mean of the θ_b. It is at least 0, in the units of
    the measure. Sets of the same length lose the same rows, so pairs and labels stay together. The bootstrap is not
    used, because it duplicates rows, and copies at distance zero distort measures of neighbors. On isotropic noise, the
    jackknife is 1.3 to 1.9 times too large for most measures. Source: Efron & Tibshirani 1993.

    The rows must be independent. If an image has several captions, pass one of them, or use `cg.measure`, which assigns
    items instead of rows to blocks, and fits its pipeline again without each block.

    For shares of queries, such as recall, the standard error comes from a 95% interval instead: half of its width
    divided by 1.96. The interval is Wilson's, with a smaller sample size if queries share an item, so it is never 0.

    Args:
        measure: Name of a measure or of an evaluator's number, a `Measure`, or any function of the sets.
        sets: The arguments of the measure: rows; rows and labels; two sets; or images, labels and class texts. Class
            texts are never left out.
        blocks: Number of blocks g, from 2 to n.
        seed: Seed of the assignment to blocks.

    Returns:
        The standard error as a float, or as a 0-d float64 tensor without gradient for tensor input.

    Raises:
        InputError: There are fewer than two blocks, the measure cannot be computed without a block, or the measure is
            not smooth (a minimum, an arbitrary basis, the distance to the nearest neighbor), so that the jackknife does
            not apply.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.geometry.standard_error("isoscore", x), 3)
        0.029
    """
    measure = as_measure(measure)
    registered = measure if isinstance(measure, Measure) else None
    if registered is not None and not registered.smooth:
        raise InputError(
            f"{registered.name} is not a smooth function of the rows, so the jackknife gives no standard error of it; "
            "expected a smooth measure"
        )
    arguments = sets
    sets, fixed = _sampled(registered, sets)
    streamed = any(isinstance(rows, StreamedRows) for rows in sets)
    if registered is not None and registered.shares is not None:
        items = tuple(torch.arange(len(rows)) for rows in sets if not isinstance(rows, StreamedRows))
        share = registered.shares(*sets, *fixed, items=items, **registered.options).get(registered.attribute or "")
        if share is not None:
            return as_given(share.standard_error, arguments)
    block_of = {len(rows): assign_blocks(len(rows), blocks, seed).long() for rows in sets}
    if registered is not None and not streamed:
        blocked = []
        for rows in sets:
            if isinstance(rows, Tensor) and rows.ndim == 2:
                blocked.append(BlockedRows(rows.detach(), block_of[len(rows)].to(rows.device), int(blocks)))
            else:
                blocked.append(rows)
        results = registered.without_each(*blocked, *fixed)
        if results is not None:
            return as_given(jackknife([_number(registered.pick(result)) for result in results]), arguments)
    without = []
    for block in range(int(blocks)):
        kept = [take(rows, block_of[len(rows)] != block) for rows in sets]
        without.append(_number(measure(*kept, *fixed)))
    return as_given(jackknife(without), arguments)


def _sampled(measure: Measure | None, sets: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Split the sets into those that are resampled and those that stay whole.

    Class texts stay whole, because without its text a class would be missing.
    """
    if measure is None:
        for k, rows in enumerate(sets, 1):
            if isinstance(rows, Tensor):
                require_plain(rows, f"set {k}")
            is_sequence = isinstance(rows, list | tuple | range | StreamedRows)
            is_array = hasattr(rows, "__array__") and not isinstance(rows, type) and getattr(rows, "ndim", 0) > 0
            if not is_sequence and not is_array:
                raise InputError(f"set {k} is {shown(rows)}; expected rows or labels as an array, a tensor or a list")
        return sets, ()
    names = measure.inputs.arguments
    if len(sets) != len(names):
        arguments = ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]
        raise InputError(f"{measure.name} takes {arguments}; {len(sets)} instead of {len(names)} arguments were given")
    sets = tuple(_as_set(rows, name) for rows, name in zip(sets, names, strict=True))
    sampled = len(names) - len(measure.inputs.whole)
    return sets[:sampled], sets[sampled:]


def _as_set(rows: Any, name: str) -> Any:
    """Return rows as a matrix; return labels unchanged if they are a list or an array."""
    return as_values(rows, name=name) if name == "labels" else as_matrix(rows, name=name, least=0)


def _number(value: Any) -> float:
    """Return the value of a measure as a float, or raise InputError if it is not one finite number."""
    try:
        number = torch.as_tensor(value, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        number = None
    if number is None or number.ndim > 0 or not number.isfinite():
        raise InputError(f"the measure without a block is {shown(value)}; expected one finite number")
    return float(number)


def assign_blocks(n: int, blocks: Integer, seed: Integer) -> Int[Tensor, " n"]:
    """Assign n units to blocks at random, as evenly as possible, and return the block of each.

    Raises InputError for unusable numbers.
    """
    if n < 2:
        raise InputError(f"{n} rows were given; expected at least 2, to assign them to blocks")
    blocks = whole_number(blocks, "blocks", least=2, most=n, of=", the number of rows")
    dtype = torch.int32 if n < 2**31 else torch.long  # int32 gives the same order with half of the memory
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed_number(seed)), dtype=dtype)
    block_of = torch.empty(n, dtype=dtype)
    for start in range(0, n, 2**16):
        units = order[start : start + 2**16].long()
        block_of[units] = torch.arange(start, start + len(units)).remainder_(blocks).to(dtype)
    return block_of


def jackknife(without: Iterable[float | Tensor]) -> float:
    """Return SE = √((g − 1)/g Σ_b (θ_b − mean θ)²) from the values θ_b without each of the g blocks.

    Raises InputError if the result exceeds float64.
    """
    values = torch.tensor([float(value) for value in without], dtype=torch.float64)
    largest = values.abs().max()
    unit = 1.0 if largest < 1e150 else largest  # so that squares stay in range
    values = values / unit
    error = ((len(values) - 1) * (values - values.mean()).square().mean()).sqrt() * unit
    if error.isinf():
        raise InputError("the standard error exceeds float64; rescale the rows")
    return float(error)


def take(values: Any, chosen: Tensor) -> Any:
    """Return the chosen rows (a mask or an order) of a tensor, an array or a list."""
    if isinstance(values, Tensor):
        return values[chosen.to(values.device)]
    if hasattr(values, "__array__") and not isinstance(values, StreamedRows):
        return values.__array__()[chosen.numpy()]
    indices = chosen.nonzero().squeeze(1) if chosen.dtype == torch.bool else chosen
    if isinstance(values, StreamedRows):
        return values.take(indices)
    return [values[i] for i in indices.tolist()]


class PermutationTest(NamedTuple):
    """Result of `permutation_test`: the value of a measure, and its distribution under random permutations.

    Args:
        value: The measure on the data.
        p_value: Share of permutations with a value at least as extreme as that of the data, in (0, 1].
        null_mean: Mean of the measure over the permutations.
        null_std: Standard deviation of the measure over the permutations.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> labels = np.arange(100) % 2
        >>> result = cg.geometry.permutation_test("silhouette", x + labels[:, None], labels, draws=99)
        >>> round(result.value, 2), round(result.null_mean, 2), round(result.p_value, 2)
        (0.18, 0.0, 0.02)
    """

    value: Value
    p_value: Value
    null_mean: Value
    null_std: Value


def permutation_test(
    measure: str | Measure,
    x: Any,
    labels_or_y: Any,
    *,
    draws: Integer = 999,
    seed: Integer = 0,
    alternative: Alternative = "two-sided",
) -> PermutationTest:
    """Test whether a measure depends on the labels, or on the pairing of two sets, by random permutations.

    For measures of labeled rows, the labels are permuted; for measures of pairs, the rows of the second set are
    permuted. For measures of two sets without pairs, the sets are pooled and split at random, which tests whether the
    modality matters. p = (1 + number of permutations at least as extreme as the data)/(1 + draws), which is never 0.
    The two-sided p is twice the smaller of the one-sided ones, at most 1. The cost is `draws` times that of the
    measure. Source: Phipson & Smyth 2010.

    Args:
        measure: Name of a measure or of an evaluator's number, or a `Measure`. It must take labeled rows, pairs or two
            sets.
        x: Rows, (n, d).
        labels_or_y: Labels, (n,), or rows, (m, d).
        draws: Number of permutations, ≥ 1.
        seed: Seed of the permutations.
        alternative: Which values count as extreme: "greater", "less" or "two-sided" (both).

    Returns:
        A `PermutationTest` with value, p_value, null_mean and null_std, as floats, or as 0-d float64 tensors for tensor
        input.

    Raises:
        InputError: The measure takes a single set of rows, which leaves nothing to permute, or more than two arguments.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> labels = np.arange(100) % 2
        >>> result = cg.geometry.permutation_test("silhouette", x + labels[:, None], labels, draws=99)
        >>> round(result.value, 3), round(result.p_value, 3)
        (0.175, 0.02)
    """
    measure = as_registered(measure)
    alternative = one_of(alternative, "alternative", ("two-sided", "greater", "less"))
    draws = whole_number(draws, "draws", most=DRAWS)
    if measure.takes == "rows":
        raise InputError(
            f"{measure.name} takes one set of rows, without labels or pairs to permute; expected a measure of labeled "
            "rows or of two sets"
        )
    if measure.inputs.permuted is None:
        raise InputError(f"{measure.name} needs {measure.needs[0]}; expected a measure of labeled rows or of two sets")
    arguments = (x, labels_or_y)
    seed = seed_number(seed)
    x, labels_or_y = map(_as_set, arguments, measure.inputs.arguments)
    value = measure(x, labels_or_y).detach()
    generator = torch.Generator().manual_seed(seed)
    shuffled = []
    for _ in range(draws):
        if measure.inputs.permuted == "rows":
            pooled = torch.cat(as_two_sets(x, labels_or_y, one_space=False))  # in the wider of the two precisions
            order = torch.randperm(len(pooled), generator=generator)
            arranged = take(pooled, order[: len(x)]), take(pooled, order[len(x) :])
        else:
            arranged = x, take(labels_or_y, torch.randperm(len(labels_or_y), generator=generator))
        shuffled.append(measure(*arranged).detach())
    null = torch.stack(shuffled)
    slack = 1e-12 * value.abs()  # a draw that repeats the original arrangement may differ in the last digit
    above = (1 + (null >= value - slack).sum().double()) / (1 + draws)
    below = (1 + (null <= value + slack).sum().double()) / (1 + draws)
    tails = {"greater": above, "less": below, "two-sided": (2 * torch.minimum(above, below)).clamp(max=1)}
    return as_given(PermutationTest(value, tails[alternative], null.mean(), null.std(correction=0)), arguments)


def null_value(
    measure: str | Measure,
    n: Integer,
    d: Integer,
    *,
    n_text: Integer | None = None,
    labels: Labels | None = None,
    scale: Number | None = None,
    prepare: Callable[[Tensor], Tensor] = lambda rows: rows,
    draws: Integer = 1,
    seed: Integer = 0,
) -> float:
    """Return the value of a measure on isotropic Gaussian rows of the same shape, as a reference for a measured value.

    `cg.measure` reports another draw of this value, from Gaussian rows that also have the row lengths, labels and pairs
    of the data and go through the same pipeline (`MeasuredSets.null`).

    Args:
        measure: Name of a measure or of an evaluator's number, or a `Measure`.
        n: Number of rows, as in the data.
        d: Dimension, as in the data.
        n_text: Number of rows of the second set, n by default. For a measure with class texts, the number of classes.
        labels: Labels of the data, so that class sizes agree. The default is two equal classes.
        scale: Standard deviation of a coordinate. By default, rows have unit length for measures that depend on the
            scale of the rows, and scale 1 for all others.
        prepare: Function that is applied to each set of Gaussian rows, such as the preprocessing of the data.
        draws: Number of draws to average, ≥ 1.
        seed: Seed of the first draw.

    Returns:
        The mean of the measure over the draws, as a float.

    Raises:
        InputError: There are no rows, columns or draws, or the measure is not a function of rows and labels.

    Example:
        >>> import clip_geometry as cg
        >>> round(cg.geometry.null_value("isoscore", 100, 50), 2)  # biased low: isotropic rows would have 1
        0.66
    """
    measure = as_registered(measure)
    n, d = whole_number(n, "n"), whole_number(d, "d")
    n_text = None if n_text is None else whole_number(n_text, "n_text")
    draws = whole_number(draws, "draws", most=DRAWS)
    seed = seed_number(seed)
    scale = None if scale is None else positive_number(scale, "scale")
    if max(n, n_text or n) * d * 8 > memory():
        raise InputError(f"{max(n, n_text or n)} × {d} numbers do not fit into memory; give a smaller n or d")
    if not callable(prepare):
        raise InputError(f"prepare = {shown(prepare)}; expected a function of the rows")
    if measure.takes.startswith("train"):
        raise InputError(
            f"{measure.name} needs {measure.needs[0]}; for its null value, call it with shuffled labels instead"
        )
    if labels is None:
        labels = torch.arange(n) % (n_text or 2 if measure.takes == "classes" else 2)

    def value(draw: int) -> Tensor:
        generator = torch.Generator().manual_seed(draw)

        def rows(count: int) -> Tensor:
            drawn = torch.randn(count, d, generator=generator, dtype=torch.float64)
            if scale is not None:
                return prepare(scale * drawn)
            return prepare(unit_rows(drawn) if "rows of one scale" in measure.needs else drawn)

        arguments = []
        for name in measure.inputs.arguments:
            if name == "labels":
                arguments.append(labels)
            elif name == "class_text":
                arguments.append(rows(n_text or as_codes(labels, n)[1]))
            else:
                arguments.append(rows(n if n_text is None or not arguments else n_text))
        return measure(*arguments)

    values = [float(value(draw)) for draw in range(seed, seed + draws)]
    return float(torch.tensor(values, dtype=torch.float64).mean())

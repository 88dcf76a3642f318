"""Sums of Euclidean distances over classes, for each row, in one kernel: no distance leaves the registers.

A program has BLOCK_M rows and walks through all rows, which are sorted by class, BLOCK_N at a time: products, squared
distances, roots, their sum over the class at hand, and at the end of a class its mean. Nothing is added atomically, so
that the same input gives the same bits.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["classes"])
def distance_sums(
    high,  # (n, d) rows about a centre, scaled
    low,  # (n, d) what `high` leaves of them, where SPLIT
    norms,  # (n,) float32 squared lengths of what is multiplied
    exact,  # (n, d) float32 rows as they came, from which differences are taken
    units,  # (n,) length 1 / LIFT of `exact` in the unit of `high`
    codes,  # (n,) int32, ascending; those of padding are the largest, and no class
    bounds,  # (classes + 1,) int32: where a class begins
    spans,  # (n / BLOCK_M, 4) int32: columns from, to, and which of them to leave out, from, to
    out,  # (n,) float64
    classes,
    share,
    least,
    d,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr,  # three products in place of one: all but that of the two rests
    WITHIN: tl.constexpr,  # sum over the own class; otherwise the smallest mean over another
    PRECISION: tl.constexpr,  # of float32 products
    LIFT: tl.constexpr,
):
    tile = tl.program_id(0)
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    # offsets in 32 bits, from a start in 64: fewer registers, and matrices beyond 2³¹ entries
    left, left_start = tl.arange(0, BLOCK_M)[:, None] * d, (tile * BLOCK_M).to(tl.int64) * d
    right = tl.arange(0, BLOCK_N)[None, :] * d
    mine = tl.load(codes + rows)
    left_norms = tl.load(norms + rows)[:, None]
    unit = tl.load(units + rows)[:, None]
    start, stop = tl.load(spans + 4 * tile), tl.load(spans + 4 * tile + 1)
    gap, gap_end = tl.load(spans + 4 * tile + 2), tl.load(spans + 4 * tile + 3)
    total = tl.zeros((BLOCK_M,), tl.float64)
    nearest = tl.full((BLOCK_M,), float("inf"), tl.float64)
    inner = tl.arange(0, BLOCK_K)
    for step in range((stop - start - (gap_end - gap)) // BLOCK_N):
        first = start + step * BLOCK_N
        first += tl.where(first >= gap, gap_end - gap, 0)
        columns = first + tl.arange(0, BLOCK_N)
        right_start = first.to(tl.int64) * d
        products = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, d, BLOCK_K):
            at_left, at_right = left + (k + inner)[None, :], right + (k + inner)[:, None]
            x, y = tl.load(high + left_start + at_left), tl.load(high + right_start + at_right)
            if SPLIT:
                # Tensor cores cut off each sum, always towards 0: their sums stay short, and are added up elsewhere
                # (Ootomo & Yokota 2022, doi:10.1177/10943420221090256)
                part = tl.dot(x, tl.load(low + right_start + at_right))
                part = tl.dot(tl.load(low + left_start + at_left), y, part)
                products += tl.dot(x, y, part)
            else:
                products = tl.dot(x, y, products, input_precision=PRECISION)
        theirs = tl.load(codes + columns)
        norm_sums = left_norms + tl.load(norms + columns)[None, :]
        squares = norm_sums - 2 * products
        if WITHIN:
            wanted = (mine[:, None] == theirs[None, :]) & (rows[:, None] != columns[None, :])
        else:
            wanted = mine[:, None] != theirs[None, :]
        # written so that NaN, the length of rows that do not fit this precision, counts as lost
        kept = squares >= share * norm_sums + least
        apart = tl.where(wanted, tl.where(kept, tl.sqrt(tl.where(kept, squares, 0.0)), -1.0), 0.0)
        if tl.max((apart < 0).to(tl.int32)) > 0:  # pyright: ignore[reportOperatorIssue]
            differences = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for k in range(d):
                x, y = tl.load(exact + left_start + k + left), tl.load(exact + right_start + k + right)
                difference = (x - y) * LIFT
                differences += difference * difference
            apart = tl.where(apart < 0, tl.sqrt(differences) * unit, apart)
        if WITHIN:
            total += tl.sum(apart, 1).to(tl.float64)
        else:
            last = tl.minimum(tl.load(codes + first + BLOCK_N - 1), classes - 1)
            for c in range(tl.load(codes + first), last + 1):
                total += tl.sum(tl.where((theirs == c)[None, :], apart, 0.0), 1).to(tl.float64)
                begin, end = tl.load(bounds + c), tl.load(bounds + c + 1)
                if end <= first + BLOCK_N:  # all of the class is summed up
                    mean = total / (end - begin).to(tl.float64)
                    nearest = tl.where(mine == c, nearest, tl.minimum(nearest, mean))
                    total = tl.zeros((BLOCK_M,), tl.float64)
    if WITHIN:
        tl.store(out + rows, total)
    else:
        tl.store(out + rows, nearest)

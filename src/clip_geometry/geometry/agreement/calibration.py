"""Null calibration: an agreement of two sets, less what a random pairing would have shown anyway."""

import math
from typing import NamedTuple

import torch

from clip_geometry.geometry._core.arguments import DRAWS, Integer, Number, real_number, whole_number
from clip_geometry.geometry._core.kinds import Value, as_given
from clip_geometry.geometry._core.rows import Rows
from clip_geometry.geometry.measure import Measure, as_registered
from clip_geometry.geometry.uncertainty import permuted_values
from clip_geometry.registry import InputError


class NullCalibrated(NamedTuple):
    """Result of `null_calibrated`.

    Args:
        value: The measure on the data.
        calibrated: (value − threshold)/(maximum − threshold), at least 0: what is left above the level that a random
            pairing exceeds with probability `alpha`.
        above_chance: (value − null_mean)/(maximum − null_mean): 0 on average for a random pairing, 1 at the maximum.
        z: (value − null_mean)/null_std.
        p_value: Share of the pairings, the data's own included, with at least its value.
        threshold: The level.
        null_mean: Mean over random pairings.
        null_std: Standard deviation over random pairings.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 50, 8))
        >>> isinstance(cg.null_calibrated("mutual_knn", image, text, draws=19), cg.NullCalibrated)
        True
    """

    value: Value
    calibrated: Value
    above_chance: Value
    z: Value
    p_value: Value
    threshold: Value
    null_mean: Value
    null_std: Value


def null_calibrated(
    measure: str | Measure, x: Rows, y: Rows, *, alpha: Number = 0.05, draws: Integer = 200, seed: Integer = 0
) -> NullCalibrated:
    """Agreement of two sets beyond that of a random pairing (Gröger et al. 2026).

    Unrelated sets have a positive mutual_knn, so that values of different n and k do not compare. The second set is
    shuffled `draws` times. The threshold is the ⌈(1 − alpha)(draws + 1)⌉-th smallest of these values and the data's
    own; the calibrated value is the excess over it, as a share of the largest possible one. It is Algorithm 1 of the
    paper, as its package calibrated-similarity computes it. Costs `draws` times the measure.

    Args:
        measure: A measure of pairs of which higher agrees better and whose range has a finite upper bound, such as
            "mutual_knn", "cka", "cknna", "cycle_knn" or "rsa".
        x: Rows, (n, d).
        y: Rows, (n, e), aligned with x.
        alpha: Probability that unrelated sets exceed the threshold, in (0, 1).
        draws: Number of random pairings.
        seed: Seed of the pairings.

    Returns:
        A `NullCalibrated`, floats (for tensors 0-d float64 tensors, without gradient).

    Raises:
        InputError: The measure is no such measure, or all random pairings have the same value.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 50, 8))
        >>> unrelated = cg.null_calibrated("mutual_knn", image, text)
        >>> round(unrelated.value, 2), unrelated.calibrated, round(unrelated.p_value, 2)
        (0.23, 0.0, 0.21)
        >>> round(cg.null_calibrated("mutual_knn", image, image[:, :4]).calibrated, 2)
        0.36
    """
    measure = as_registered(measure)
    draws = whole_number(draws, "draws", most=DRAWS)
    alpha = real_number(alpha, "alpha", lambda share: 0 < share < 1, "a number between 0 and 1")
    most = measure.range[1]
    if measure.inputs.arguments != ("image", "text") or measure.inputs.permuted != "order":
        raise InputError(f"{measure.name} is no measure of pairs; expected one, such as 'mutual_knn' or 'cka'")
    if isinstance(most, str) or math.isinf(most) or not measure.direction.startswith("higher"):
        raise InputError(f"{measure.name} has no greatest agreement; expected a measure such as 'mutual_knn' or 'cka'")
    value, null = permuted_values(measure, x, y, draws, seed)
    mean, spread = null.mean(), null.std(correction=0)
    if spread <= 1e-12 * value.abs():
        raise InputError(
            f"all {draws} random pairings have the same {measure.name}, so that there is no scale of chance"
        )
    ordered = torch.cat([null, value[None]]).sort().values
    threshold = ordered[math.ceil((1 - alpha) * (draws + 1)) - 1]
    room = (most - threshold).clamp(min=1e-12)
    found = NullCalibrated(
        value=value,
        calibrated=((value - threshold) / room).clamp(0, 1),
        above_chance=(value - mean) / (most - mean),
        z=(value - mean) / spread,
        p_value=(1 + (null >= value - 1e-12 * value.abs()).sum().double()) / (1 + draws),
        threshold=threshold,
        null_mean=mean,
        null_std=spread,
    )
    return as_given(found, (x, y))

"""Penalties on the geometry of hidden states, for anybody's training loop."""

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clip_geometry.geometry import Moments
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Integer, real_number, seed_number, whole_number
from clip_geometry.training.covariance import Batch, RunningCovariance, reduced, second_moments
from clip_geometry.training.hidden import Hidden, Layers, weight

LAST, POINTS = 5.0, 17  # of the frequencies −5 … 5, at which characteristic functions are compared


class RowPenalty(nn.Module):
    """Base of the penalties λ f(rows) on the hidden states that count, in at least float32 whatever autocast says."""

    def __init__(self, lambda_: float):
        super().__init__()
        self.lambda_ = weight(lambda_)

    def forward(self, hidden: Hidden, mask: Tensor | None = None) -> Float[Tensor, ""]:
        """Computes the penalty.

        Args:
            hidden: (n, d), (b, t, d), or a sequence of such.
            mask: (n,) or (b, t), true for rows that count; None for all.

        Returns:
            A scalar in the precision of the rows, at least float32.
        """
        rows = Layers(hidden, mask).together()
        with torch.autocast(rows.device.type, enabled=False):
            return self.lambda_ * self._statistic(rows.to(torch.promote_types(rows.dtype, torch.float32)))

    @abstractmethod
    def _statistic(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, ""]: ...

    def extra_repr(self) -> str:
        return f"lambda_={self.lambda_:g}"


class CosReg(RowPenalty):
    """Penalty on the average cosine of hidden states, to be added to a task loss.

    It is λ (Σ_ij cos(w_i, w_j) − N)/N² over N hidden states, usually of the last layer, computed as λ (‖ū‖² − 1/N) with
    ū the mean of the unit rows: O(Nd), no N × N matrix. It equals λ (N − 1)/N times the average cosine. Only the rows
    of this process count, also in distributed training.

    Computed in at least float32 whatever autocast says. If a row that counts is not finite, as in a half-precision step
    that overflows, the penalty and every gradient are NaN, and GradScaler skips the step, which an error would end.

    Args:
        lambda_: λ; positive spreads directions, negative gathers them.

    Raises:
        InputError: in `forward`, for zero rows, which have no direction, for rows so short that their gradient
            overflows, and if the mask leaves no row.

    Example:
        >>> import torch
        >>> from clip_geometry.training import CosReg
        >>> states = torch.randn(4, 5, 8, requires_grad=True)
        >>> mask = torch.arange(5) < torch.tensor([[5], [3], [4], [2]])  # true except for padding
        >>> penalty = CosReg(1.0)(states, mask)
        >>> penalty.backward()
    """

    def _statistic(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
        largest = rows.detach().abs().amax(1, keepdim=True)
        # a gradient of λ/length would be infinite
        small = largest < torch.finfo(rows.dtype).tiny * max(1.0, abs(self.lambda_))
        if small.any():
            row = int(small.nonzero()[0, 0])
            what = "so short that its gradient overflows" if largest[row] > 0 else "zero, which has no direction"
            raise InputError(f"row {row} of the hidden states is {what}; mask it")
        scaled = rows / largest  # the squares of large or small rows would leave the range
        mean = (scaled / scaled.norm(dim=1, keepdim=True)).mean(0)
        return mean.square().sum() - 1 / len(rows)


class IStar(nn.Module):
    """Penalty λ (1 − IsoScore*) on the isotropy of hidden states, to be added to a task loss.

    IsoScore* is the IsoScore of (1 − ζ) C + ζ C_0, with C the covariance of all rows (layers stacked, padding left
    out) and C_0 that of a larger sample, through which no gradient flows. It needs traces and Frobenius norms only, no
    decomposition.

    C_0 is set by `refresh`, once an epoch, or by momentum m: after each batch in training mode C_0 ← (1 − m) C_0 + m C,
    unless C is not finite, as in a step that GradScaler skips. Before there is a C_0, the batch's own C stands in, with
    its gradient: IsoScore.

    The gradient reaches every given row. The scatter is computed in float32 (float64 for float64 rows) whatever
    autocast says, the rest in float64. If a row that counts is not finite, or beyond 1e18, whose square float32 cannot
    hold, the penalty and every gradient are NaN, and GradScaler skips the step, which an error would end.

    Args:
        lambda_: λ; positive makes hidden states more isotropic, negative less.
        zeta: ζ in [0, 1]; 0 is IsoScore of the batch.
        momentum: m, None if only `refresh` sets C_0.
        group: torch.distributed process group, None for all processes. In training mode C is computed on the rows of
            all of them, exactly, however many each has, and so is the gradient that DistributedDataParallel ends with;
            in eval mode on this process's rows.

    Raises:
        InputError: in `forward`, for fewer than two rows, d < 2, and rows that are all equal without a C_0.

    Example:
        >>> import torch
        >>> from clip_geometry.training import IStar
        >>> model, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)
        >>> istar = IStar(-1.0, zeta=0.2)
        >>> tokens, labels = torch.randn(4, 5, 8), torch.tensor([0, 1, 1, 0])
        >>> mask = torch.arange(5) < torch.tensor([[5], [3], [4], [2]])  # true except for padding
        >>> with torch.no_grad():  # before each epoch, on enough batches for a few times d rows
        ...     istar.refresh((model(batch), mask) for batch in torch.randn(20, 4, 5, 8))
        >>> states = model(tokens)
        >>> task = torch.nn.functional.cross_entropy(head(states[:, 0]), labels)
        >>> loss = task + istar([tokens, states], mask)
        >>> loss.backward()
    """

    def __init__(self, lambda_: float, zeta: float = 0.2, *, momentum: float | None = None, group: Any = None):
        super().__init__()
        share = "a share from 0 (the batch alone) to 1 (C_0 alone)"
        self.lambda_ = weight(lambda_)
        self.zeta = real_number(zeta, "zeta", lambda part: 0 <= part <= 1, share)
        self.group = group
        self.running = RunningCovariance(momentum)

    def forward(self, hidden: Hidden, mask: Tensor | None = None) -> Float[Tensor, ""]:
        """Computes the penalty, and in training mode updates C_0.

        Args:
            hidden: (n, d), (b, t, d), or a sequence of such, one for each layer.
            mask: (n,) or (b, t), true for rows that count; None for all.

        Returns:
            A scalar in the precision of the rows, at least float32.
        """
        layers = Layers(hidden, mask)
        moments = second_moments(layers.rows, layers.kept)
        if self.training:
            moments = reduced(moments, self.group)
        precision = torch.promote_types(layers.rows[0].dtype, torch.float32)
        limits = torch.finfo(precision)
        score = self._score(moments, limits.tiny / limits.eps)
        if self.training:
            self.running.update(moments)
        return (self.lambda_ * (1 - score)).to(precision)

    def refresh(self, sample: Tensor | Iterable[Batch], mask: Tensor | None = None) -> None:
        """Sets C_0 to the covariance of a sample, of the samples of all processes if there are several.

        Args:
            sample: rows (n, d) or (b, t, d), or an iterable of batches, each as `forward` takes them or in a tuple (or
                list) with its mask.
            mask: of a tensor.

        Raises:
            InputError: for fewer than two rows and for entries that are not finite; C_0 is not changed.
        """
        self.running.refresh(sample, mask, group=self.group)

    def extra_repr(self) -> str:
        return f"lambda_={self.lambda_:g}, zeta={self.zeta:g}, momentum={self.running.momentum}"

    def _score(self, moments: Moments, least: float) -> Float[Tensor, ""]:
        """`isoscore_star` without its checks of every entry. least: trace below which products lose digits."""
        if moments.n < 2 or moments.d < 2:
            raise InputError(f"hidden states are {moments.n} × {moments.d} numbers; expected at least 2 rows of 2")
        c_0 = self.running.like(moments)
        shrunken = moments.covariance
        if c_0 is not None:
            shrunken = (1 - self.zeta) * shrunken + self.zeta * c_0
        trace = shrunken.trace()
        if trace < least:  # false for NaN
            raise InputError(
                f"all {moments.n} hidden states are equal, or nearer than their squares can tell; their isotropy is "
                "undefined"
            )
        return ((shrunken / trace).square().sum().reciprocal() - 1) / (moments.d - 1)


class SIGReg(RowPenalty):
    """Penalty on the distance of hidden states from a standard Gaussian, along random directions.

    λ times the mean over directions of the Epps-Pulley statistic of the projections, n ∫ |φ(t) − e^{−t²/2}|² e^{−t²/2}
    dt, φ their empirical characteristic function, by the trapezoidal rule at 17 frequencies from −5 to 5 (Algorithm 1
    of Balestriero & LeCun 2025), of rows as they are: mean 0 and variance 1 in every direction are part of the target.
    Each call in training mode takes new directions, of the next seed, which is a buffer, so that a resumed run goes on
    with them. Only the rows of this process count, also in distributed training. Rows several standard deviations out
    are hardly pulled back, so that rows that start much too large may stay so. Computed in at least float32 whatever
    autocast says.

    Args:
        lambda_: λ, positive.
        directions: Number of random directions of each step.
        seed: Seed of the first.

    Example:
        >>> import torch
        >>> from clip_geometry.training import SIGReg
        >>> states = torch.randn(64, 8, requires_grad=True)
        >>> SIGReg(0.05)(states).backward()
    """

    seed: Tensor

    def __init__(self, lambda_: float, *, directions: Integer = 256, seed: Integer = 0):
        super().__init__(lambda_)
        self.directions = whole_number(directions, "directions")
        self.register_buffer("seed", torch.tensor(seed_number(seed), device="cpu"))

    def _statistic(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
        along = random_directions(rows, self.directions, int(self.seed))
        if self.training:
            self.seed += 1
        return epps_pulley(rows @ along).mean()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, directions={self.directions}"


def random_directions(rows: Float[Tensor, "n d"], count: int, seed: int) -> Float[Tensor, "d count"]:
    """Uniform unit columns, the same on every device."""
    drawn = torch.randn(rows.shape[1], count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (drawn / drawn.norm(dim=0)).to(rows)


def epps_pulley(values: Float[Tensor, "n k"]) -> Float[Tensor, " k"]:
    """n ∫ |φ(t) − e^{−t²/2}|² e^{−t²/2} dt of each column against the standard normal distribution."""
    step = 2 * LAST / (POINTS - 1)
    statistic = values.new_zeros(values.shape[1])
    for k in range(POINTS // 2 + 1):  # t and −t give the same
        t = k * step
        normal = math.exp(-(t**2) / 2)
        difference = ((t * values).cos().mean(0) - normal).square() + (t * values).sin().mean(0).square()
        times = 1 if k in (0, POINTS // 2) else 2  # t = 0 is there once, both ends have half the weight
        statistic = statistic + times * step * normal * difference
    return len(values) * statistic

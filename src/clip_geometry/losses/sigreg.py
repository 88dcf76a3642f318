"""SIGReg: a penalty that makes rows an isotropic Gaussian (LeJEPA, Balestriero & LeCun 2025)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clip_geometry.losses.hidden import Hidden, Layers, weight
from clip_geometry.rows.arguments import Integer, seed_number, whole_number

LAST, POINTS = 5.0, 17  # of the frequencies −5 … 5, at which characteristic functions are compared


class SIGReg(nn.Module):
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
        >>> from clip_geometry.losses import SIGReg
        >>> states = torch.randn(64, 8, requires_grad=True)
        >>> SIGReg(0.05)(states).backward()
    """

    seed: Tensor

    def __init__(self, lambda_: float, *, directions: Integer = 256, seed: Integer = 0):
        super().__init__()
        self.lambda_ = weight(lambda_)
        self.directions = whole_number(directions, "directions")
        self.register_buffer("seed", torch.tensor(seed_number(seed), device="cpu"))

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
            rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
            along = random_directions(rows, self.directions, int(self.seed))
            if self.training:
                self.seed += 1
            return self.lambda_ * epps_pulley(rows @ along).mean()

    def extra_repr(self) -> str:
        return f"lambda_={self.lambda_:g}, directions={self.directions}"


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

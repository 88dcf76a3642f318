"""SIGReg: a penalty that makes rows an isotropic Gaussian (LeJEPA, Balestriero & LeCun 2025)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clip_geometry.geometry._core.arguments import Integer, seed_number, whole_number
from clip_geometry.geometry.distributions.normality import epps_pulley, random_directions
from clip_geometry.losses.hidden import Hidden, Layers, weight


class SIGReg(nn.Module):
    """Penalty on the distance of hidden states from a standard Gaussian, along random directions.

    λ times the mean over directions of the Epps-Pulley statistic of the projections (see `sliced_normality`), of rows
    as they are: mean 0 and variance 1 in every direction are part of the target. Each call in training mode takes new
    directions, of the next seed, which is a buffer, so that a resumed run goes on with them. Only the rows of this
    process count, also in distributed training. Rows several standard deviations out are hardly pulled back, so that
    rows that start much too large may stay so. Computed in at least float32 whatever autocast says.

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

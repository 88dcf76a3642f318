"""CosReg: a penalty on the average cosine of hidden states (Gao et al. 2019, as Rudman & Eickhoff 2024 use it)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clip_geometry.losses.hidden import Hidden, Layers, weight
from clip_geometry.registry import InputError


class CosReg(nn.Module):
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
        >>> from clip_geometry.losses import CosReg
        >>> states = torch.randn(4, 5, 8, requires_grad=True)
        >>> mask = torch.arange(5) < torch.tensor([[5], [3], [4], [2]])  # true except for padding
        >>> penalty = CosReg(1.0)(states, mask)
        >>> penalty.backward()
    """

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
            rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
            largest = rows.detach().abs().amax(1, keepdim=True)
            # a gradient of λ/length would be infinite
            small = largest < torch.finfo(rows.dtype).tiny * max(1.0, abs(self.lambda_))
            if small.any():
                row = int(small.nonzero()[0, 0])
                what = "so short that its gradient overflows" if largest[row] > 0 else "zero, which has no direction"
                raise InputError(f"row {row} of the hidden states is {what}; mask it")
            scaled = rows / largest  # the squares of large or small rows would leave the range
            mean = (scaled / scaled.norm(dim=1, keepdim=True)).mean(0)
            return self.lambda_ * (mean.square().sum() - 1 / len(rows))

    def extra_repr(self) -> str:
        return f"lambda_={self.lambda_:g}"

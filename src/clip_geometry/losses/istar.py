"""I-STAR: a penalty on the isotropy of hidden states, stable on small batches (Rudman & Eickhoff 2024)."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clip_geometry.geometry._core.arguments import real_number
from clip_geometry.geometry._core.moments import Moments
from clip_geometry.losses.hidden import Hidden, Layers, weight
from clip_geometry.losses.running import Batch, RunningCovariance, reduced
from clip_geometry.losses.second_moments import second_moments
from clip_geometry.registry import InputError


class IStar(nn.Module):
    """λ (1 − IsoScore*) of hidden states, to be added to a task loss.

    IsoScore* is IsoScore of (1 − ζ) C + ζ C_0, C the covariance of all given rows (layers stacked, padding left out),
    C_0 that of a larger sample, which no gradient goes through. Traces and Frobenius norms only, nothing is decomposed.

    lambda_: λ; positive makes hidden states more isotropic, negative less. zeta: ζ in [0, 1]; 0 is IsoScore of the
    batch. C_0 comes from `refresh`, once an epoch, or with momentum m from the batches: after each one in training
    mode C_0 ← (1 − m) C_0 + m C, unless C is not finite, as in a step that GradScaler skips. Before there is any, it is
    the batch's own C, with its gradient: IsoScore.
    group: of torch.distributed processes, None: all. In training mode C is that of the rows of all of them, exactly,
    however many each has, and so is the gradient that DistributedDataParallel ends with; in eval mode it is of this
    process's rows.

    >>> import torch
    >>> from clip_geometry.losses import IStar
    >>> model, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)
    >>> istar = IStar(-1.0, zeta=0.2)
    >>> tokens, labels = torch.randn(4, 5, 8), torch.tensor([0, 1, 1, 0])
    >>> mask = torch.arange(5) < torch.tensor([[5], [3], [4], [2]])  # true where there is no padding
    >>> with torch.no_grad():  # at the start of each epoch, from as many batches as are needed for a few d rows
    ...     istar.refresh((model(batch), mask) for batch in torch.randn(20, 4, 5, 8))
    >>> states = model(tokens)
    >>> task = torch.nn.functional.cross_entropy(head(states[:, 0]), labels)
    >>> loss = task + istar([tokens, states], mask)
    >>> loss.backward()

    The gradient reaches every given row; the scatter is taken in float32 (float64 for float64 rows) whatever autocast
    says, and the rest in float64. Where a row that counts is not finite, or beyond 1e18, whose square float32 does not
    hold, as in a step of half precision that overflows, the penalty is NaN and so is every gradient: GradScaler skips
    such a step, which an error would end. Raises InputError for fewer than two rows, d < 2, and rows that are all
    equal without a C_0.
    """

    def __init__(self, lambda_: float, zeta: float = 0.2, *, momentum: float | None = None, group: Any = None):
        super().__init__()
        share = "a share from 0 (the batch alone) to 1 (C_0 alone)"
        self.lambda_ = weight(lambda_)
        self.zeta = real_number(zeta, "zeta", lambda part: 0 <= part <= 1, share)
        self.group = group
        self.running = RunningCovariance(momentum)

    def forward(self, hidden: Hidden, mask: Tensor | None = None) -> Float[Tensor, ""]:
        """hidden: (n, d), (b, t, d), or a sequence of such, one for each layer. mask: (n,) or (b, t), true for rows
        that count. A scalar in the precision of the rows, at least float32."""
        layers = Layers(hidden, mask)
        moments = second_moments(layers.rows, layers.kept)
        if self.training:
            moments = reduced(moments, self.group)
        kind = torch.finfo(torch.promote_types(layers.rows[0].dtype, torch.float32))
        score = self._score(moments, kind.tiny / kind.eps)
        if self.training:
            self.running.update(moments)
        return (self.lambda_ * (1 - score)).to(torch.promote_types(layers.rows[0].dtype, torch.float32))

    def refresh(self, sample: Tensor | Iterable[Batch], mask: Tensor | None = None) -> None:
        """Sets C_0 to the covariance of a sample: rows (n, d) or (b, t, d) with their mask, or an iterable of batches,
        each as `forward` takes them or in a tuple (or list) with its mask. With several processes, of the samples of
        all. Raises InputError for fewer than two rows and for entries that are not finite; C_0 is then as it was."""
        self.running.refresh(sample, mask, group=self.group)

    def extra_repr(self) -> str:
        return f"lambda_={self.lambda_:g}, zeta={self.zeta:g}, momentum={self.running.momentum}"

    def _score(self, moments: Moments, least: float) -> Float[Tensor, ""]:
        """`isoscore_star` less its checks of every entry. least: the trace below which products lose digits."""
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

"""Penalties on the geometry of hidden states, for any training loop."""

import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import FLOATS, Integer, real_number, require_plain, seed_number, whole_number

Hidden: TypeAlias = Tensor | Sequence[Tensor]  # (n, d) or (b, t, d), or a sequence of these, one per layer
Batch: TypeAlias = Hidden | tuple[Hidden, Tensor] | list[Any]  # hidden states, alone or with their mask

BLOCK = 2048  # rows to center, sum and multiply while they are in the cache
STRIP = 64  # columns to multiply at once; narrower strips skip more of the symmetric half, but are slower
LAST, POINTS = 5.0, 17  # characteristic functions are compared at 17 frequencies −5 … 5
WEIGHT = "a finite weight of the penalty"


def hidden_rows(hidden: Hidden, mask: Tensor | None = None) -> list[Float[Tensor, "n d"]]:
    """Return the rows of each layer, without those that the mask leaves out.

    Args:
        hidden: (n, d), (b, t, d), or a sequence of these, one per layer.
        mask: (n,) or (b, t), true for rows that count; None for all.

    Raises:
        InputError: The shapes do not fit, or the mask leaves no row.
    """
    layers = [hidden] if isinstance(hidden, Tensor) else hidden
    if not isinstance(layers, list | tuple) or not all(isinstance(layer, Tensor) for layer in layers):
        raise InputError(
            f"hidden states are a {type(hidden).__name__}; expected a tensor, or a list with one per layer"
        )
    for layer in layers:
        require_plain(layer, "a layer of hidden states")
    first = layers[0] if layers else torch.empty(0)
    usable = first.ndim in (2, 3) and first.dtype in FLOATS and first.numel() > 0
    if not usable or any(layer.shape != first.shape or layer.device != first.device for layer in layers):
        shapes = ", ".join(f"{str(layer.dtype).removeprefix('torch.')} {tuple(layer.shape)}" for layer in layers)
        raise InputError(
            f"hidden states are {shapes or 'an empty list'}; expected floating point of shape (n, d) or (b, t, d), the "
            "same for every layer"
        )
    rows = [layer.reshape(-1, layer.shape[-1]) for layer in layers]
    if mask is None:
        return rows
    if not isinstance(mask, Tensor) or mask.is_floating_point() or mask.shape != first.shape[:-1]:
        kind = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(f"the mask is {kind}; expected {tuple(first.shape[:-1])}, true or 1 for rows that count")
    indices = mask.to(first.device).reshape(-1).nonzero().squeeze(1)
    if len(indices) == 0:
        raise InputError(f"the mask leaves out all {mask.numel()} rows; a batch of padding alone has no geometry")
    return rows if len(indices) == mask.numel() else [layer.index_select(0, indices) for layer in rows]


class Penalty(nn.Module):
    """Base class of the penalties λ f(rows) on the hidden states that count, in at least float32 despite autocast."""

    def __init__(self, lambda_: float):
        super().__init__()
        self.lambda_ = real_number(lambda_, "lambda_", math.isfinite, WEIGHT)

    def forward(self, hidden: Hidden, mask: Tensor | None = None) -> Float[Tensor, ""]:
        """Compute the penalty; in training mode, a penalty that has a state updates it.

        Args:
            hidden: (n, d), (b, t, d), or a sequence of these, one per layer.
            mask: (n,) or (b, t), true for rows that count; None for all.

        Returns:
            A scalar in the precision of the rows, at least float32.
        """
        layers = hidden_rows(hidden, mask)
        precision = functools.reduce(torch.promote_types, (rows.dtype for rows in layers), torch.float32)
        with torch.autocast(layers[0].device.type, enabled=False):
            return (self.lambda_ * self._statistic(layers, precision)).to(precision)

    @abstractmethod
    def _statistic(self, layers: list[Float[Tensor, "n d"]], precision: torch.dtype) -> Float[Tensor, ""]: ...

    def extra_repr(self) -> str:
        return f"lambda_={self.lambda_:g}"


class CosReg(Penalty):
    """Penalty on the average cosine of hidden states, to be added to a task loss.

    The penalty is λ (Σ_ij cos(w_i, w_j) − N)/N² for N hidden states w, usually those of the last layer: λ (N − 1)/N
    times their average cosine. It is computed as λ (‖ū‖² − 1/N), where ū is the mean of the unit rows, in O(Nd). In
    distributed training, each process uses its own rows only.

    The computation uses at least float32, even under autocast. If a row is not finite, as after an overflow in half
    precision, the penalty and all gradients are NaN, so that GradScaler skips the step.

    Args:
        lambda_: Weight λ. A positive value spreads the directions, a negative one makes them more alike.

    Raises:
        InputError: In `forward`: a row is zero and so has no direction, a row is so short that its gradient overflows,
            or the mask selects no row.

    Example:
        >>> import torch
        >>> from clip_geometry.training import CosReg
        >>> states = torch.randn(4, 5, 8, requires_grad=True)
        >>> mask = torch.arange(5) < torch.tensor([[5], [3], [4], [2]])  # true except for padding
        >>> penalty = CosReg(1.0)(states, mask)
        >>> penalty.backward()
    """

    def _statistic(self, layers: list[Float[Tensor, "n d"]], precision: torch.dtype) -> Float[Tensor, ""]:
        """Return ‖ū‖² − 1/N for the unit rows, which is (N − 1)/N times their average cosine."""
        rows = torch.cat(layers).to(precision)
        largest = rows.detach().abs().amax(1, keepdim=True)
        # a gradient of λ/length would be infinite
        small = largest < torch.finfo(rows.dtype).tiny * max(1.0, abs(self.lambda_))
        if small.any():
            row = int(small.nonzero()[0, 0])
            problem = "so short that its gradient overflows" if largest[row] > 0 else "zero, which has no direction"
            raise InputError(f"row {row} of the hidden states is {problem}; mask it")
        scaled = rows / largest  # the squares of large or small rows would overflow or underflow
        mean = (scaled / scaled.norm(dim=1, keepdim=True)).mean(0)
        return mean.square().sum() - 1 / len(rows)


class IStar(Penalty):
    """Penalty λ (1 − IsoScore*) on hidden states that are not isotropic, to be added to a task loss.

    IsoScore* is the IsoScore of (1 − ζ) C + ζ C_0. C is the covariance of the rows of the batch, with all given layers
    together and without padding. C_0 is the covariance of a larger sample, through which no gradient flows. It makes
    the score usable for batches with few rows.

    C_0 is set by `refresh`, for example once per epoch, or with a momentum m: after each batch in training mode, C_0 ←
    (1 − m) C_0 + m C. Until it is set, C takes its place, so the score is the IsoScore of the batch. C_0 is the buffer
    `covariance`, (d, d), None before it is set. It is always float64, moves with the model to its device, and is saved
    in the state_dict.

    The computation uses at least float32, even under autocast. If a row is not finite or has entries above 1e18, whose
    squares overflow float32, the penalty and all gradients are NaN, so that GradScaler skips the step, and C_0 does not
    change.

    Args:
        lambda_: Weight λ. A positive value makes hidden states more isotropic, a negative one less.
        zeta: Weight ζ of C_0, in [0, 1]; 0 uses the batch only.
        momentum: Momentum m in (0, 1]; None if only `refresh` sets C_0.
        group: torch.distributed process group; None for all processes. In training mode, C and the gradient are those
            of the rows of all processes together, also if their numbers differ. In eval mode, each process uses its own
            rows.

    Raises:
        InputError: In `forward`: there are fewer than two rows, d < 2, or all rows are equal and there is no C_0.

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

    covariance: Tensor | None

    def __init__(self, lambda_: float, zeta: float = 0.2, *, momentum: float | None = None, group: Any = None):
        super().__init__(lambda_)
        expected = "a share from 0 (the batch alone) to 1 (C_0 alone)"
        self.zeta = real_number(zeta, "zeta", lambda share: 0 <= share <= 1, expected)
        expected = "the weight of a new batch, above 0 and at most 1"
        if momentum is not None:
            momentum = real_number(momentum, "momentum", lambda weight: 0 < weight <= 1, expected)
        self.momentum = momentum
        self.group = group
        self.register_buffer("covariance", None)

    def _statistic(self, layers: list[Float[Tensor, "n d"]], precision: torch.dtype) -> Float[Tensor, ""]:
        """Return 1 − IsoScore*, and update C_0 by the momentum in training mode."""
        moments = second_moments(layers)
        if self.training:
            moments = reduced(moments, self.group)
        n, d = moments.n, moments.d
        if n < 2 or d < 2:
            raise InputError(f"hidden states are {n} × {d} numbers; expected at least 2 rows of 2")
        if self.covariance is not None:
            if len(self.covariance) != d:
                dimensions = f"C_0 has dimension {len(self.covariance)}, but the hidden states have {d}"
                raise InputError(f"{dimensions}; refresh it with hidden states of this dimension")
            self.covariance = self.covariance.to(moments.M2)
        shrunken = moments.covariance
        c_0 = self.covariance
        if c_0 is not None:
            shrunken = (1 - self.zeta) * shrunken + self.zeta * c_0
        trace = shrunken.trace()
        limits = torch.finfo(precision)
        if trace < limits.tiny / limits.eps:  # products of smaller rows lose precision; false for NaN
            raise InputError(f"all {n} hidden states are equal, or too close for {precision}; expected some spread")
        batch_covariance = moments.covariance.detach()
        # a half-precision step that overflows is skipped; using it would destroy C_0
        if self.training and self.momentum is not None and batch_covariance.isfinite().all():
            self.covariance = batch_covariance.clone() if c_0 is None else c_0.lerp(batch_covariance, self.momentum)
        return 1 - ((shrunken / trace).square().sum().reciprocal() - 1) / (d - 1)

    @torch.no_grad()
    def refresh(self, sample: Tensor | Iterable[Batch], mask: Tensor | None = None) -> None:
        """Set C_0 to the covariance of a sample; with several processes, of their samples together.

        Batches are merged, so only one has to be in memory.

        Args:
            sample: Rows (n, d) or (b, t, d), or an iterable of batches, each as `forward` takes them or in a tuple (or
                list) with its mask.
            mask: Mask of the rows if `sample` is a tensor.

        Raises:
            InputError: There are fewer than two rows, or entries are not finite; C_0 does not change.
        """
        if isinstance(sample, Tensor):
            batches: Iterable[Any] = [(sample, mask)]
        elif isinstance(sample, Iterable) and mask is None:
            batches = sample
        else:
            raise InputError(
                f"the sample is a {type(sample).__name__}; expected a tensor, or batches, each with its own mask: "
                "(states, mask)"
            )
        parts = (second_moments(hidden_rows(*_with_mask(batch))) for batch in batches)
        merged = functools.reduce(lambda a, b: b if a is None else a.merged(b), parts, None)
        if merged is None:
            raise InputError("the sample has no batches to compute the covariance of; expected at least one")
        covariance = reduced(merged, self.group).covariance
        if not covariance.isfinite().all():
            raise InputError(
                "the sample has fewer than 2 rows, or entries that are not finite or too large to be squared; expected "
                "finite rows, preferably more rows than dimensions"
            )
        self.covariance = covariance

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "IStar":
        """Move C_0 to another device, but never to another precision: float16 would keep only three digits."""
        super()._apply(lambda tensor: tensor.to(fn(tensor.float()).device), recurse)
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any, **options: Any) -> None:
        """Accept a C_0 of any shape, because its dimension is unknown until the first one is set."""
        saved = state_dict.get(f"{prefix}covariance")
        current = saved if self.covariance is None else self.covariance
        self.covariance = None if saved is None or current is None else torch.empty_like(saved, device=current.device)
        super()._load_from_state_dict(state_dict, prefix, *rest, **options)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, zeta={self.zeta:g}, momentum={self.momentum}"


def _with_mask(batch: Batch) -> tuple[Hidden, Tensor | None]:
    """Split a batch into hidden states and mask.

    A pair consists of hidden states and a mask, not of two layers, if its second entry is not floating point.
    """
    if isinstance(batch, tuple | list) and len(batch) == 2:
        hidden, mask = batch
        if mask is None or (isinstance(mask, Tensor) and not mask.is_floating_point()):
            return hidden, mask
    return batch, None  # pyright: ignore[reportReturnType]


def reduced(moments: Moments, group: Any = None) -> Moments:
    """Return the moments over all processes of a torch.distributed group (None for all), if several train together."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size(group) > 1:
        return moments.all_reduce(group)
    return moments


def second_moments(layers: Sequence[Float[Tensor, "n d"]]) -> Moments:
    """Return n, mean and M2 of the rows of all layers together; T and Q, which are not needed here, are zero.

    Products are computed in float32 (float64 for float64 rows), even under autocast; mean and M2 are float64 (float32
    on devices without float64). Rows are centered before they are multiplied, in the gradient too, so a mean far from
    the origin costs no precision. The function is once differentiable; its gradient needs one product with a (d, d)
    matrix and no copy.
    """
    mean, m2 = _SecondMoments.apply(*layers)  # pyright: ignore[reportGeneralTypeIssues]
    return Moments(sum(map(len, layers)), mean, m2, torch.zeros_like(mean), mean.new_zeros(()))


class _SecondMoments(torch.autograd.Function):
    """Mean and M2 = Σ c cᵀ of rows. With their gradients g and G, the gradient of a row is (G + Gᵀ) c + g/n."""

    @staticmethod
    def forward(ctx: Any, *layers: Tensor) -> tuple[Tensor, Tensor]:
        """Compute M2 about a center near the mean, then correct it.

        M2 = Σ (x − center)(x − center)ᵀ − n δδᵀ, δ = mean − center.
        """
        products = torch.float64 if layers[0].dtype == torch.float64 else torch.float32
        exact = torch.float32 if layers[0].device.type == "mps" else torch.float64
        with torch.autocast(layers[0].device.type, enabled=False):
            # the first blocks suffice: rounding grows with δ²/σ², which is below n divided by their number of rows
            center = torch.stack([rows[:BLOCK].to(products).mean(0) for rows in layers]).mean(0)
            d = len(center)
            sums, scatter = center.new_zeros(d, dtype=exact), center.new_zeros((d, d), dtype=exact)
            for rows in layers:
                gram = center.new_zeros((d, d))
                for block in rows.split(BLOCK):
                    block = block.to(products) - center
                    sums += block.sum(0)
                    # the matrix is symmetric, so skip what is below its diagonal: 7/12 of the work remains at d = 384
                    for start in range(0, d, STRIP):
                        gram[start : start + STRIP, start:].addmm_(block[:, start : start + STRIP].T, block[:, start:])
                scatter += gram
            scatter = scatter.triu() + scatter.triu(1).T
            ctx.n = sum(map(len, layers))
            shift = sums / ctx.n
            mean = center + shift
        ctx.save_for_backward(mean, *layers)
        return mean, scatter - ctx.n * torch.outer(shift, shift)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        g, G = gradients
        mean, *layers = ctx.saved_tensors
        products = torch.float64 if layers[0].dtype == torch.float64 else torch.float32

        def gradient(rows: Tensor) -> Tensor:
            blocks = (torch.addmm(offset, block.to(products) - center, slope) for block in rows.split(BLOCK))
            return torch.cat([block.to(rows.dtype) for block in blocks])

        with torch.autocast(mean.device.type, enabled=False):
            center = mean.to(products)
            slope = G + G.T
            offset = (g / ctx.n + slope @ (center - mean)).to(products)  # corrects for rounding the mean to `products`
            slope = slope.to(products)
            needed = zip(layers, ctx.needs_input_grad, strict=True)
            return tuple(gradient(rows) if need else None for rows, need in needed)


class SIGReg(Penalty):
    """Penalty on the difference between the distribution of hidden states and a standard Gaussian.

    For each of several random directions, the n projections of the rows are compared with a standard normal
    distribution by the Epps-Pulley statistic, n ∫ |φ(t) − e^{−t²/2}|² e^{−t²/2} dt, where φ is their empirical
    characteristic function. The penalty is λ times the mean over the directions. The integral is computed by the
    trapezoidal rule at 17 points from −5 to 5 (Algorithm 1 of Balestriero & LeCun 2025).

    Rows are used as given, so the penalty also asks for mean 0 and variance 1 in every direction. Rows several standard
    deviations from the mean are hardly pulled back, so rows that are much too large at the start may stay so. Each call
    in training mode uses new directions; their seed is a buffer, so a resumed run continues the sequence. In
    distributed training, each process uses its own rows only. The computation uses at least float32, even under
    autocast.

    Args:
        lambda_: Weight λ, positive.
        directions: Number of random directions in each step.
        seed: Seed of the first directions.

    Example:
        >>> import torch
        >>> from clip_geometry.training import SIGReg
        >>> states = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
        >>> penalty = SIGReg(0.05)(states)
        >>> penalty.backward()
        >>> states.grad.shape
        torch.Size([64, 8])
    """

    seed: Tensor

    def __init__(self, lambda_: float, *, directions: Integer = 256, seed: Integer = 0):
        super().__init__(lambda_)
        self.directions = whole_number(directions, "directions")
        self.register_buffer("seed", torch.tensor(seed_number(seed), device="cpu"))

    def _statistic(self, layers: list[Float[Tensor, "n d"]], precision: torch.dtype) -> Float[Tensor, ""]:
        """Return the mean Epps-Pulley statistic along new random directions."""
        rows = torch.cat(layers).to(precision)
        generator = torch.Generator().manual_seed(int(self.seed))  # on the CPU, for the same directions on every device
        normal = torch.randn(rows.shape[1], self.directions, generator=generator, dtype=torch.float64)
        directions = (normal / normal.norm(dim=0)).to(rows)
        if self.training:
            self.seed += 1
        return epps_pulley(rows @ directions).mean()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, directions={self.directions}"


def epps_pulley(values: Float[Tensor, "n k"]) -> Float[Tensor, " k"]:
    """Return n ∫ |φ(t) − e^{−t²/2}|² e^{−t²/2} dt of each column, relative to the standard normal distribution."""
    step = 2 * LAST / (POINTS - 1)
    statistic = values.new_zeros(values.shape[1])
    for k in range(POINTS // 2 + 1):  # t and −t give the same value
        t = k * step
        normal = math.exp(-(t**2) / 2)
        difference = ((t * values).cos().mean(0) - normal).square() + (t * values).sin().mean(0).square()
        times = 1 if k in (0, POINTS // 2) else 2  # t = 0 occurs once, and both ends have half the weight
        statistic = statistic + times * step * normal * difference
    return len(values) * statistic

"""Penalties on the geometry of hidden states, for anybody's training loop."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clip_geometry.geometry import Moments
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import FLOATS, Integer, real_number, seed_number, whole_number

Hidden: TypeAlias = Tensor | Sequence[Tensor]  # (n, d), (b, t, d), or several of either, one for each layer


def weight(lambda_: Any) -> float:
    """λ as a finite float. Raises InputError for anything else."""
    return real_number(lambda_, "lambda_", math.isfinite, "a finite weight of the penalty")


class Layers:
    """The rows of all layers (`rows`), and the indices of those that count (`kept`), the same in each layer, None for
    all. Raises InputError for shapes that do not fit, and if the mask leaves no row."""

    def __init__(self, hidden: Hidden, mask: Tensor | None = None):
        given = [hidden] if isinstance(hidden, Tensor) else hidden
        if not isinstance(given, list | tuple):
            raise InputError(f"hidden states are a {type(hidden).__name__}; expected a tensor, or one for each layer")
        _check(given)
        self.rows: list[Float[Tensor, "n d"]] = [layer.reshape(-1, layer.shape[-1]) for layer in given]
        self.kept = None if mask is None else _indices(mask, given[0])

    def together(self) -> Float[Tensor, "n d"]:
        """The rows that count, of all layers, in one matrix."""
        return torch.cat([rows if self.kept is None else rows.index_select(0, self.kept) for rows in self.rows])


def _check(layers: Sequence[Any]) -> None:
    if not layers:
        raise InputError("there are no hidden states; expected a tensor (n, d) or (b, t, d), or one for each layer")
    first = layers[0]
    for layer in layers:
        if not isinstance(layer, Tensor):
            raise InputError(f"hidden states are a {type(layer).__name__}; expected a tensor, or one for each layer")
        sparse = layer.layout != torch.strided or layer.is_nested or layer.is_quantized
        if sparse or layer.is_meta or hasattr(layer, "get_mask"):
            raise InputError("hidden states are a sparse, quantized, masked or meta tensor; expected a dense one")
        if layer.ndim not in (2, 3) or layer.dtype not in FLOATS:
            raise InputError(f"hidden states are {_described(layer)}; expected floating point, (n, d) or (b, t, d)")
        if layer.shape != first.shape or layer.device != first.device:
            given = f"{tuple(first.shape)} on {first.device} and {tuple(layer.shape)} on {layer.device}"
            raise InputError(f"layers are {given}; expected one shape and one device")
    if first.numel() == 0:
        raise InputError(f"hidden states have shape {tuple(first.shape)}; expected at least one row")


def _indices(mask: Tensor, layer: Tensor) -> Int[Tensor, " k"] | None:
    """None if the mask leaves out nothing, so that nothing is copied."""
    if not isinstance(mask, Tensor) or mask.layout != torch.strided:
        raise InputError(f"the mask is {shown(mask)}; expected a tensor, true (or 1) for each row that is no padding")
    if mask.shape != layer.shape[:-1] or mask.is_floating_point() or mask.is_complex():
        expected = f"{tuple(layer.shape[:-1])}, true (or 1) for each row that is no padding"
        raise InputError(f"the mask is {_described(mask)}; expected {expected}")
    indices = mask.to(layer.device).reshape(-1).nonzero().squeeze(1)
    if len(indices) == 0:
        raise InputError(f"the mask leaves none of {mask.numel()} rows; a batch of padding alone has no geometry")
    return None if len(indices) == mask.numel() else indices


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


Batch = Hidden | tuple[Hidden, Tensor] | list[Any]  # hidden states, or these and their mask
BLOCK = 2048  # rows that are centered, summed and multiplied while they are in the cache
STRIP = 64  # columns multiplied at once: narrower ones save more of the symmetric half, but are slower


def second_moments(layers: Sequence[Float[Tensor, "n d"]], kept: Int[Tensor, " k"] | None = None) -> Moments:
    """n, mean and M2 of the rows of all layers together; T and Q, which nothing here needs, are zero.

    kept: indices of the rows that count, the same in each layer; None for all. Products are in float32 (float64 for
    float64 rows) whatever autocast says; n, mean and M2 are float64 (float32 on devices without it). Each row is
    centered before it is multiplied, for the gradient too, so that a mean far from the origin costs no digits. Once
    differentiable in the rows: the gradient needs one product with a (d, d) matrix and no copy of them.
    """
    rows = len(layers[0]) if kept is None else len(kept)
    mean, m2 = _SecondMoments.apply(kept, *layers)  # pyright: ignore[reportGeneralTypeIssues]
    return Moments(rows * len(layers), mean, m2, torch.zeros_like(mean), mean.new_zeros(()))


def widest(device: torch.device) -> torch.dtype:
    """Precision of the sums."""
    return torch.float32 if device.type == "mps" else torch.float64


class _SecondMoments(torch.autograd.Function):
    """With G the gradient for M2 = Σ c cᵀ and g that for the mean, a row's gradient is (G + Gᵀ) c + g/n."""

    @staticmethod
    def forward(ctx: Any, kept: Tensor | None, *layers: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(layers[0].device.type, enabled=False):
            mean, m2, n = _mean_and_scatter(layers, kept)
        ctx.save_for_backward(mean, *([] if kept is None else [kept]), *layers)
        ctx.n, ctx.masked = n, kept is not None
        return mean, m2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        g, G = gradients
        mean, *layers = ctx.saved_tensors
        kept = layers.pop(0) if ctx.masked else None
        with torch.autocast(mean.device.type, enabled=False):
            centre, slope = mean.to(_products(layers[0])), G + G.T
            offset = g / ctx.n + slope @ (centre - mean)  # what rounding the mean to the rows' precision misses
            needed = zip(layers, ctx.needs_input_grad[1:], strict=True)
            return None, *(_gradient(rows, kept, centre, slope, offset) if need else None for rows, need in needed)


def _mean_and_scatter(layers: Sequence[Tensor], kept: Tensor | None) -> tuple[Tensor, Tensor, int]:
    """About a center near the mean, then corrected: M2 = Σ (x − c)(x − c)ᵀ − n δδᵀ, δ = mean − c."""
    kind, exact = _products(layers[0]), widest(layers[0].device)
    # of the first blocks is near enough: rounding grows with δ²/σ², which is below n divided by their rows
    centre = torch.stack([next(_blocks(rows, kept)).to(kind).mean(0) for rows in layers]).mean(0)
    n, d = 0, len(centre)
    sums = centre.new_zeros(d, dtype=exact)
    scatter = centre.new_zeros((d, d), dtype=exact)
    for rows in layers:
        gram = centre.new_zeros((d, d))
        for block in _blocks(rows, kept):
            block = block.to(kind) - centre
            n += len(block)
            sums += block.sum(0)
            # without the strips below its diagonal, since it is symmetric: 7 of 12 strips at d = 384
            for start in range(0, len(gram), STRIP):
                gram[start : start + STRIP, start:].addmm_(block[:, start : start + STRIP].T, block[:, start:])
        scatter += gram
    scatter = scatter.triu() + scatter.triu(1).T
    shift = sums / n
    return centre + shift, scatter - n * torch.outer(shift, shift), n


def _blocks(rows: Tensor, kept: Tensor | None) -> Iterator[Tensor]:
    """The rows that count, a block at a time."""
    if kept is None:
        return iter(rows.split(BLOCK))
    return (rows.index_select(0, part) for part in kept.split(BLOCK))


def _gradient(rows: Tensor, kept: Tensor | None, centre: Tensor, slope: Tensor, offset: Tensor) -> Tensor:
    """(x − center) slope + offset, and 0 for rows that do not count."""
    slope, offset = slope.to(centre), offset.to(centre)
    if kept is None:
        found = torch.empty_like(rows)
        for part, block in zip(found.split(BLOCK), rows.split(BLOCK), strict=True):
            block = block.to(centre) - centre
            if part.dtype == block.dtype:
                torch.addmm(offset, block, slope, out=part)
            else:
                part.copy_(torch.addmm(offset, block, slope))
        return found
    found = torch.zeros_like(rows)
    for part, block in zip(kept.split(BLOCK), _blocks(rows, kept), strict=True):
        found.index_copy_(0, part, torch.addmm(offset, block.to(centre) - centre, slope).to(rows.dtype))
    return found


def _products(rows: Tensor) -> torch.dtype:
    return torch.float64 if rows.dtype == torch.float64 else torch.float32


class RunningCovariance(nn.Module):
    """C_0, a buffer (d, d) that is None before the first sample or batch.

    It is kept in float64 whatever precision the model is converted to, moves to its device, and is in its state_dict.

    Args:
        momentum: weight of each new batch in the average; None if only `refresh` sets C_0.
    """

    covariance: Tensor | None

    def __init__(self, momentum: float | None = None):
        super().__init__()
        share = "the weight of a new batch, above 0 and at most 1"
        if momentum is not None:
            momentum = real_number(momentum, "momentum", lambda part: 0 < part <= 1, share)
        self.momentum = momentum
        self.register_buffer("covariance", None)

    @torch.no_grad()
    def refresh(self, sample: Tensor | Iterable[Batch], mask: Tensor | None = None, *, group: Any = None) -> None:
        """Sets C_0 to the covariance of a sample; its batches are merged, so that only one is in memory.

        Args:
            sample: rows (n, d) or (b, t, d), or an iterable of batches: hidden states, or these in a tuple (or list)
                with their mask.
            mask: of a tensor.
            group: as in `reduced`.

        Raises:
            InputError: for fewer than two rows in all and for entries that are not finite; C_0 is not changed.
        """
        alone = isinstance(sample, Tensor)
        if not isinstance(sample, Iterable) or (mask is not None and not alone):
            raise InputError(
                f"the sample is a {type(sample).__name__}; expected a tensor, or batches without a mask beside them, "
                "each with its own: (states, mask)"
            )
        merged: Moments | None = None
        for hidden, kept in [(sample, mask)] if alone else map(_with_mask, sample):
            layers = Layers(hidden, kept)
            part = second_moments(layers.rows, layers.kept)
            merged = part if merged is None else merged.merged(part)
        if merged is None:
            raise InputError("there are no batches to take the covariance of; expected at least one")
        merged = reduced(merged, group)
        if merged.n < 2:
            raise InputError("the sample has 1 row; expected at least 2, better more than dimensions")
        found = merged.covariance
        if not found.isfinite().all():
            raise InputError("the sample has entries that are not finite, or too large to be squared; leave them out")
        self.covariance = found

    @torch.no_grad()
    def update(self, moments: Moments) -> None:
        """With momentum m, C_0 becomes (1 − m) C_0 + m C, C the batch's covariance about its own mean.

        Not changed if C is not finite: a half-precision step that overflows is skipped, and C_0 would be lost.
        """
        if self.momentum is None:
            return
        before, now = self.like(moments), moments.covariance.detach()
        if now.isfinite().all():
            self.covariance = now.clone() if before is None else before.lerp(now, self.momentum)

    def like(self, moments: Moments) -> Float[Tensor, "d d"] | None:
        """C_0 on the device of the moments. Raises InputError for another dimension."""
        found = self.covariance
        if found is not None:
            if len(found) != moments.d:
                raise InputError(f"C_0 has dimension {len(found)}, the hidden states {moments.d}; refresh it with such")
            self.covariance = found = found.to(moments.M2)
        return found

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RunningCovariance":
        """Moves C_0 to another device, but never to another precision: float16 would leave three digits of it."""
        super()._apply(lambda tensor: tensor.to(fn(tensor.float()).device), recurse)
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any, **options: Any) -> None:
        """Accepts a C_0 of any shape: its dimension is known only with the first."""
        found = state_dict.get(f"{prefix}covariance")
        here = found if self.covariance is None else self.covariance
        self.covariance = None if found is None or here is None else torch.empty_like(found, device=here.device)
        super()._load_from_state_dict(state_dict, prefix, *rest, **options)


def reduced(moments: Moments, group: Any = None) -> Moments:
    """Moments of all processes of a torch.distributed group (None for all), if several train together."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size(group) > 1:
        return moments.all_reduce(group)
    return moments


def _with_mask(batch: Batch) -> tuple[Hidden, Tensor | None]:
    """A pair is hidden states with a mask, rather than two layers, if its second entry can only be a mask."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        hidden, mask = batch
        first = hidden[0] if isinstance(hidden, tuple | list) and hidden else hidden
        if mask is None or (
            isinstance(mask, Tensor)
            and (not mask.is_floating_point() or mask.shape == getattr(first, "shape", ())[:-1])
        ):
            return hidden, mask
    return batch, None  # pyright: ignore[reportReturnType]


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

"""What stands for an activation: second moments of its values over the channels, and where in its shape they lie."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from clip_geometry.initialization.moments import Function, activated, root
from clip_geometry.registry import InputError

WIDE = 512  # channels; a wider layer counts as infinitely wide
MOST = 6000  # sites; their products would take gigabytes
MANY = 1000  # sites; drawing the channels of more of them takes too long
CHANNELS = 1 << 32  # an element's code is site * CHANNELS + channel


class Draw:
    """The channels of a layer that is not wide, drawn where they are needed, once for all that take them.

    channels: their number. shared: None, or the share of a map's moments that each channel's own factor scales, in
    a convolution of each channel alone.
    """

    def __init__(self, channels: int, shared: float | None, generator: torch.Generator):
        self.channels, self.shared, self.generator = channels, shared, generator
        self.scales: Tensor | None = None
        self.values: Tensor | None = None

    def normal(self, rows: int) -> Tensor:
        return torch.randn(rows, self.channels, generator=self.generator, dtype=torch.float64)

    def of(self, second: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        """(values, scales): Gaussian values (sites, channels) of these moments, and the scale of each channel."""
        if self.values is None or self.scales is None:
            self.scales = torch.ones(self.channels, dtype=torch.float64)
            if self.shared is not None:
                self.scales = (self.shared * self.normal(1)[0].square() + 1 - self.shared).sqrt()
            centered = root(second - torch.outer(average, average)) @ self.normal(len(second))
            self.values = average[:, None] + centered * self.scales
        return self.values, self.scales


class State(Tensor):
    """A stand-in for an activation of a wide fresh network, which a model's own `forward` takes for a tensor.

    Its elements are channels of sites; a site is a position of one input, such as a token of one image. Channels of a
    site are draws of one random value, jointly Gaussian over the sites, to which `function` is yet to be applied.

    codes: that of the site and channel of each element, of the state's shape; operations on shapes act on it alone.
    second: (sites, sites), mean products over the channels. average: (sites,), means over the channels.
    near: (sites, lags), for maps that are larger than their grid of sites: mean products of positions 1, 2, 4, … apart.
    function: applied to every element.
    gains: factors of the second moments that differ between channels, as (share of the channels, factor); None: all 1.
    draw: of the channels, in a layer that is not wide; the moments are then those that they have on average.
    generator: of draws; None: all layers count as infinitely wide.
    """

    codes: Tensor
    second: Tensor
    average: Tensor
    near: Tensor
    function: Function | None
    gains: tuple[tuple[float, float], ...] | None
    draw: Draw | None
    generator: ClassVar[torch.Generator | None] = None
    rules: ClassVar[dict[str, Callable[..., Any]]] = {}

    @classmethod
    def of(
        cls, index: Tensor, second: Tensor, mean: Tensor | None = None, near: Tensor | None = None,
        function: Function | None = None, gains: tuple[tuple[float, float], ...] | None = None,
        draw: Draw | None = None,
    ) -> Self:  # fmt: skip
        if len(second) > MOST:
            raise InputError(f"{len(second)} positions of the inputs together differ; at most {MOST} can be followed")
        self = torch.zeros(()).expand(index.shape).as_subclass(cls)
        self.codes, self.second = index, second
        self.average = second.new_zeros(len(second)) if mean is None else mean
        self.near = second.new_zeros(len(second), 0) if near is None else near
        self.function, self.gains, self.draw = function, gains, draw
        return self

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if name == "__get__":
            name = getattr(func.__self__, "__name__", name)
        rule = cls.rules.get(name) or cls.rules.get(name.strip("_"))
        if rule is None:
            raise InputError(f"there is no rule for {name} of a fresh network's second moments")
        return rule(*args, **(kwargs or {}))

    def with_codes(self, index: Tensor) -> "State":
        """The same values in another shape or selection."""
        return State.of(index, self.second, self.average, self.near, self.function, self.gains, self.draw)

    def then(self, function: Function) -> "State":
        """After an elementwise function."""
        before = self.function
        composed = function if before is None else lambda z: function(before(z))
        return State.of(self.codes, self.second, self.average, self.near, composed, self.gains, self.draw)

    def fresh(self, channels: int, shared: float | None = None) -> "State":
        """After new weights: of as many channels as there are, unless all layers count as wide."""
        if State.generator is None or channels > WIDE or len(self.second) > MANY:
            return self
        draw = Draw(channels, shared, State.generator)
        return State.of(self.codes, self.second, self.average, self.near, self.function, self.gains, draw)

    def _drawn(self, draw: Draw) -> "State":
        values, scales = draw.of(self.second, self.average)
        function = self.function or (lambda z: z)
        found = function(values)
        mean = self.average[:, None]
        variance = (self.second.diagonal()[:, None] - mean.square()).clamp(min=0)
        rho = ((self.near - mean.square()) / variance.clamp(min=1e-36)).clamp(-1, 1)
        near = torch.zeros_like(self.near)
        for lag in range(near.shape[1]):
            r = rho[:, lag : lag + 1]
            apart = (variance * (1 - r.square())).sqrt() * scales * draw.normal(len(values))
            other = mean + r * (values - mean) + apart
            near[:, lag] = (found * function(other)).mean(1)
        return State.of(self.codes, found @ found.T / draw.channels, found.mean(1), near)

    def settled(self) -> "State":
        """With its function applied to the moments; from here on its values count as Gaussian again."""
        if self.draw is not None:
            return self._drawn(self.draw)
        if self.function is None:
            return self
        second, average, near = (torch.zeros_like(each) for each in (self.second, self.average, self.near))
        for share, gain in self.gains or ((1.0, 1.0),):
            parts = activated(gain * self.second, gain**0.5 * self.average, gain * self.near, self.function)
            second, average, near = second + share * parts[0], average + share * parts[1], near + share * parts[2]
        return State.of(self.codes, second, average, near)

    @property
    def sites(self) -> Tensor:
        """Site of each element, of size 1 along the channels."""
        index = self.codes
        for dim in self.channel_dims:
            index = index.narrow(dim, 0, 1)
        return torch.div(index, CHANNELS, rounding_mode="floor")

    @property
    def channel_dims(self) -> list[int]:
        """Dimensions along which the channel changes."""
        index, found = self.codes, []
        for dim, size in enumerate(index.shape):
            line = index
            for other in range(index.ndim):
                if other != dim:
                    line = line.narrow(other, 0, 1)
            channels = line.reshape(-1)[[0, 1 % size, size // 2, size - 1]] % CHANNELS
            if bool((channels != channels[0]).any()):
                found.append(dim)
        return found

    @property
    def mixed_dims(self) -> list[int]:
        """Channel dimensions along which the site changes too: of a flattened map, of merged patches."""
        found = []
        for dim in self.channel_dims:
            size = self.codes.shape[dim]
            ends = self.codes.index_select(dim, torch.tensor([0, size // 2, size - 1])) // CHANNELS
            if bool((ends != ends.narrow(dim, 0, 1)).any()):
                found.append(dim)
        return found

    def unmixed(self) -> "State":
        """With one site for all channels of a row: the mean of their moments."""
        self = self.settled()
        if not self.mixed_dims:
            return self
        channels = self.channel_dims
        others = [dim for dim in range(self.codes.ndim) if dim not in channels]
        rows = self.codes.permute(*others, *channels).reshape(
            int(torch.tensor([self.codes.shape[d] for d in others]).prod()), -1
        )
        rows = rows // CHANNELS
        columns, counts = torch.unique(rows, dim=1, return_counts=True)
        share = (counts / counts.sum()).to(self.second)
        n = len(rows)
        second, mean = self.second.new_zeros(n, n), self.second.new_zeros(n)
        for column, weight in zip(columns.T, share, strict=True):
            second += weight * self.second[column][:, column]
            mean += weight * self.average[column]
        shape = [1 if dim in channels else self.codes.shape[dim] for dim in range(self.codes.ndim)]
        index = torch.arange(n).view(shape) * CHANNELS + self.codes % CHANNELS
        return State.of(index, second, mean)


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two index tensors are equal, cheaply where one is a view of the other."""
    return a.shape == b.shape and ((a.data_ptr() == b.data_ptr() and a.stride() == b.stride()) or bool((a == b).all()))


def new_index(sites: Tensor, channels: int, dim: int = -1) -> Tensor:
    """Index of `channels` channels along a new or size-one dimension of sites (size one at dim)."""
    dim = dim % sites.ndim
    shape = [1] * sites.ndim
    shape[dim] = channels
    return sites * CHANNELS + torch.arange(channels).view(shape)


def lifted(value: Tensor, like: State) -> State:
    """A parameter or buffer, broadcast to the shape of a state, as a state of its own sites."""
    value = value.detach().to(like.second)
    value = value.reshape((1,) * (like.codes.ndim - value.ndim) + tuple(value.shape))
    channels = [d for d in like.channel_dims if value.shape[d] > 1]
    places = [d for d in range(value.ndim) if d not in channels]
    rows = value.permute(*places, *channels).reshape(int(torch.tensor([value.shape[d] for d in places]).prod()), -1)
    sites = torch.arange(len(rows))
    if len(rows) > MANY:  # such as positions that are given to each input
        rows, sites = torch.unique(rows, dim=0, return_inverse=True)
    second, mean = rows @ rows.T / rows.shape[1], rows.mean(1)
    shape = [1 if d in channels else value.shape[d] for d in range(value.ndim)]
    sites = sites.view(shape)
    shape = torch.broadcast_shapes(value.shape, like.codes.shape)
    index = (sites * CHANNELS).expand(shape) + like.codes.expand(shape) % CHANNELS
    return State.of(index, second, mean)


def joined(a: State, b: State) -> tuple[Tensor, Tensor, Tensor]:
    """(index, sites of a, sites of b) of the sites that two states have together, broadcast to one shape."""
    shape = torch.broadcast_shapes(a.codes.shape, b.codes.shape)
    index_a, index_b = a.codes.expand(shape), b.codes.expand(shape)
    wide = State.of(index_a if len(a.channel_dims) >= len(b.channel_dims) else index_b, a.second)
    channels = wide.channel_dims
    first_a, first_b = index_a, index_b
    for dim in channels:
        first_a, first_b = first_a.narrow(dim, 0, 1), first_b.narrow(dim, 0, 1)
    site_a, site_b = first_a // CHANNELS, first_b // CHANNELS
    if torch.equal(site_a, site_b) and len(a.second) == len(b.second):
        every = torch.arange(len(a.second))
        return wide.codes, every, every
    codes, inverse = torch.unique(site_a * len(b.second) + site_b, return_inverse=True)
    if len(codes) > max(MANY, len(a.second), len(b.second)):  # a cell of a coarse map has positions of several values
        first = a if len(a.second) >= len(b.second) else b
        larger = codes // len(b.second) if first is a else codes % len(b.second)
        places = [(larger == site).nonzero()[:, 0] for site in torch.unique(larger)]
        index = torch.empty_like(codes)
        for k, place in enumerate(places):
            index[place] = k
        codes, inverse = codes[torch.stack([place[len(place) // 2] for place in places])], index[inverse]
    index = inverse * CHANNELS + wide.codes % CHANNELS
    return index, codes // len(b.second), codes % len(b.second)


def rows_at(second: Tensor, sites: Tensor) -> Tensor:
    return second[sites][:, sites]

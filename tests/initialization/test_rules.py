"""The rules against wide networks that are really drawn, on the same pixels."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from clip_geometry.initialization import attention
from clip_geometry.initialization.inputs import Pixels
from clip_geometry.initialization.state import State
from clip_geometry.registry import InputError

assert attention
WIDTH = 768


def pixels(n=4, side=12):
    generator = torch.Generator().manual_seed(3)
    smooth = F.interpolate(torch.randn(n, 3, 4, 4, generator=generator), (side, side), mode="bilinear")
    return smooth + 0.3 * torch.randn(n, 3, side, side, generator=generator) + 0.4


def cosines(products):
    scale = products.diagonal().sqrt()
    return products / torch.outer(scale, scale)


def predicted(module, x):
    with torch.no_grad():
        out = module(x.as_subclass(Pixels)).unmixed()
    sites = out.sites.reshape(len(x), -1)[:, 0]
    return out.second[sites][:, sites]


def difference(found, expected):
    """Of the mean cosines of different inputs."""
    n = len(found)
    return abs(float((cosines(found) - cosines(expected)).sum()) / (n * (n - 1)))


def drawn(build, x, seeds=2):
    """The mean of ⟨x_a, x_b⟩/width over initializations."""
    total = torch.zeros(len(x), len(x), dtype=torch.float64)
    for seed in range(seeds):
        torch.manual_seed(seed)
        with torch.no_grad():
            rows = build().eval()(x).double()
        total += rows @ rows.T / rows.shape[1] / seeds
    return total


class Tokens(nn.Module):
    """Patches with a class token and positions, through a block."""

    def __init__(self, block, pool="class"):
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, 6, 6)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(0.5 * torch.randn(1, 5, WIDTH))
        self.block, self.pool = block, pool

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        x = self.block(x)
        return x[:, 0] if self.pool == "class" else x.mean(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 8, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + 3 * self.attention(y, y, y, need_weights=False)[0]


class Mixer(nn.Module):
    """Across positions, with the same weights for every channel."""

    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(WIDTH), nn.Sequential(nn.Linear(5, 64), nn.GELU(), nn.Linear(64, 5))

    def forward(self, x):
        return x + 4 * self.mix(self.norm(x).transpose(1, 2)).transpose(1, 2)


class Gated(nn.Module):
    """A residual with squeeze and excitation, concatenated with its input."""

    def __init__(self):
        super().__init__()
        self.stem, self.branch = nn.Conv2d(3, WIDTH, 3, 2, 1), nn.Conv2d(WIDTH, WIDTH, 1)
        self.gate, self.norm = nn.Linear(WIDTH, WIDTH), nn.GroupNorm(1, 2 * WIDTH)

    def forward(self, x):
        x = F.silu(self.stem(x))
        gate = torch.sigmoid(3 * self.gate(x.mean((2, 3))))[:, :, None, None]
        return self.norm(torch.cat([x, x + 2 * self.branch(x) * gate], 1)).mean((2, 3))


def conv(*layers):
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


CASES = {
    "perceptron": lambda: nn.Sequential(nn.Flatten(), nn.Linear(432, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH),
                                        nn.Tanh()),
    "convolutions": lambda: conv(nn.Conv2d(3, WIDTH, 3, 1, 1), nn.ReLU(), nn.AvgPool2d(2),
                                 nn.Conv2d(WIDTH, WIDTH, 3, 2, 1), nn.BatchNorm2d(WIDTH), nn.Hardswish()),
    "flattened": lambda: nn.Sequential(nn.Conv2d(3, 256, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(2304, WIDTH)),
    "attention": lambda: Tokens(Attention()),
    "mean of tokens": lambda: Tokens(Attention(), "mean"),
    "mixer": lambda: Tokens(Mixer(), "mean"),
    "gated": Gated,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_wide_networks_have_the_predicted_cosines(name):
    x = pixels()
    torch.manual_seed(0)
    found, expected = predicted(CASES[name]().eval(), x), drawn(CASES[name], x, 1 if name == "mixer" else 2)
    assert difference(found, expected) < 0.05
    assert float((found.diagonal() / expected.diagonal()).log().abs().max()) < 0.35


@pytest.mark.parametrize("pool, bound", [(nn.MaxPool2d(3, 2, 1), 0.05), (nn.Identity(), 0.03)])
def test_pooling_and_depthwise_convolutions(pool, bound):
    """Approximate: a window's largest value, and channels of nine weights."""

    def build():
        return conv(nn.Conv2d(3, WIDTH, 3, 1, 1), nn.ReLU(), pool,
                    nn.Conv2d(WIDTH, WIDTH, 3, 1, 1, groups=WIDTH, bias=False), nn.SiLU())  # fmt: skip

    x = pixels()
    torch.manual_seed(0)
    found, expected = predicted(build().eval(), x), drawn(build, x, 4)
    assert difference(found, expected) < bound


def test_a_large_map_is_followed_on_a_grid():
    """48 positions a side, of which 7 are sites."""

    def build():
        return conv(nn.Conv2d(3, 256, 3, 2, 1), nn.ReLU(), nn.Conv2d(256, 256, 3, 2, 1), nn.ReLU(), nn.AvgPool2d(2))

    x = F.interpolate(pixels(4, 12), (96, 96), mode="bilinear")
    torch.manual_seed(0)
    found, expected = predicted(build().eval(), x), drawn(build, x)
    assert difference(found, expected) < 0.05


def test_an_explicit_padding_is_that_of_the_convolution():
    """Where each position is a site, and where a site is a cell."""
    x = pixels()
    for size in (12, 96):
        wide = F.interpolate(x, (size, size), mode="bilinear")
        moments = []
        for explicit in (True, False):
            torch.manual_seed(0)
            padding = [nn.ZeroPad2d(1)] if explicit else []
            module = conv(
                nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), *padding, nn.Conv2d(64, 64, 3, padding=0 if explicit else 1)
            )
            moments.append(predicted(module, wide))
        assert torch.allclose(*moments, rtol=1e-9 if size == 12 else 0.02)


class OverChannels(nn.Module):
    """Channels that attend to channels, as in XCiT and EdgeNeXt, with the temperature of 1 that these begin with."""

    def __init__(self, width=512, heads=32):
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, width, 2, 2), nn.LayerNorm(width)
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        x = self.norm(self.patch(x).flatten(2).transpose(1, 2))
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 4, 1).unbind(0)
        logits = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        mixed = logits.softmax(-1) @ v
        return self.out(mixed.permute(0, 3, 1, 2).reshape(n, tokens, width)).mean(1)


def test_channels_that_attend_to_channels():
    x = pixels()
    torch.manual_seed(0)
    found, expected = predicted(OverChannels().eval(), x), drawn(OverChannels, x, 12)
    assert difference(found, expected) < 0.05
    assert float((found.diagonal() / expected.diagonal()).log().abs().max()) < 0.35


def narrow():
    """Eight channels: a seed is far from infinite width, and so is the mean over seeds."""
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.Hardswish(), nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
        nn.Hardswish(), nn.Conv2d(8, 16, 1, bias=False), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    for layer, variance in zip(layers[:5:2], (2 / 72, 2 / 9, 2 / 16), strict=True):
        nn.init.normal_(layer.weight, 0, variance**0.5)
    return layers


def test_narrow_networks_scatter_as_predicted():
    """Mean and deviation of the cosine over seeds, within three standard errors."""
    x, found, measured = 2 * pixels(8, 12), [], []
    off = ~torch.eye(8, dtype=torch.bool)
    try:
        for seed in range(32):
            torch.manual_seed(seed)
            module = narrow()
            State.generator = torch.Generator().manual_seed(seed)
            found.append(cosines(predicted(module, x))[off].mean())
            State.generator = None
            with torch.no_grad():
                rows = module(x).double()
            measured.append(cosines(rows @ rows.T)[off].mean())
    finally:
        State.generator = None
    a, b = torch.stack(found), torch.stack(measured)
    assert float(b.std()) > 0.05
    assert abs(float(a.mean() - b.mean())) < 3 * float(((a.var() + b.var()) / len(a)).sqrt()) + 0.02
    assert 0.6 < float(a.std() / b.std()) < 1.6


def test_an_operation_without_a_rule_is_named():
    class Sorted(nn.Module):
        def forward(self, x):
            return nn.functional.conv2d(x, torch.ones(4, 3, 3, 3)).cumsum(1)

    with pytest.raises(InputError, match="no rule for cumsum"):
        predicted(Sorted(), pixels())

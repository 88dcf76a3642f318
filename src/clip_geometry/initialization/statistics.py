"""What a prediction has to know of the data: second moments of images, lengths and repeated words of captions."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from clip_geometry.registry import InputError, shown

SIDE = 128  # pixels of the images that statistics are taken of
KEPT = 224  # pixels of the examples
EXAMPLES = 16


@dataclass(frozen=True)
class ImageStatistics:
    """Second moments of images with values in [0, 1].

    Args:
        mean: Mean color.
        between: (3, 3) covariance of the images' mean colors.
        within: (3, 3) covariance of the pixels of an image, the mean over images.
        exponent: The power spectrum falls as frequency to the power of minus this; about 2 in photographs.
        contrast: Standard deviation over images of the logarithm of their contrast.
        texture: Standard deviation over an image of the logarithm of its local contrast.
        examples: (n, 3, KEPT, KEPT) some of the images, whose own second moments are then taken instead.

    Example:
        >>> import numpy as np
        >>> import clip_geometry as cg
        >>> statistics = cg.image_statistics(np.random.default_rng(0).random((4, 64, 64, 3)))
        >>> statistics.sample(2, 16).shape
        torch.Size([2, 3, 16, 16])
    """

    mean: tuple[float, float, float]
    between: tuple[tuple[float, ...], ...]
    within: tuple[tuple[float, ...], ...]
    exponent: float
    contrast: float
    texture: float
    examples: Tensor | None = field(default=None, repr=False, compare=False)

    def sample(self, n: int, side: int, *, seed: int = 0) -> Tensor:
        """(n, 3, side, side): examples, at most as many as there are, or random images of these moments in [0, 1]."""
        if self.examples is not None:
            chosen = self.examples[_typical(self.examples, n)]
            return F.interpolate(chosen, (side, side), mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        colors = _standardized(normal(n, 3)) @ _root(self.between).T
        contrasts = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
        contrasts = (self.contrast * contrasts[torch.randperm(n, generator=generator)] - self.contrast**2).exp()
        fields = _fields(normal(n, 3, side, side), self.exponent)
        local = (self.texture * _fields(normal(n, 1, side, side), 3.0) - self.texture**2).exp()
        details = torch.einsum("cd,ndhw->nchw", _root(self.within), fields * local)
        details = details - details.mean((2, 3), keepdim=True)
        centers = torch.tensor(self.mean, dtype=torch.float64) + colors
        return (centers[:, :, None, None] + contrasts[:, None, None, None] * details).clamp(0, 1).float()


PHOTOGRAPHS = ImageStatistics(
    mean=(0.472, 0.449, 0.395),
    between=((0.0150, 0.0122, 0.0116), (0.0122, 0.0146, 0.0145), (0.0116, 0.0145, 0.0222)),
    within=((0.0528, 0.0477, 0.0440), (0.0477, 0.0510, 0.0478), (0.0440, 0.0478, 0.0530)),
    exponent=2.57, contrast=0.27, texture=0.54,
)  # fmt: skip


@dataclass(frozen=True)
class TextStatistics:
    """Lengths and repetition of captions.

    Args:
        length: Mean number of tokens, without those of start and end.
        spread: Its standard deviation.
        repeated: Probability that two tokens of two captions are equal.

    Example:
        >>> import clip_geometry as cg
        >>> cg.TextStatistics(length=10.0, spread=2.0, repeated=0.1).sample(1)[0][:1] in ([0], [1])
        True
    """

    length: float
    spread: float
    repeated: float

    def sample(self, n: int, *, seed: int = 0) -> list[list[int]]:
        """n lists of word numbers: 0 is the repeated word, the others are all different."""
        generator = torch.Generator().manual_seed(seed)
        quantiles = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
        lengths = (
            (self.length + self.spread * quantiles).round().clamp(min=1).long()[torch.randperm(n, generator=generator)]
        )
        found, word = [], 0
        for length in lengths.tolist():
            common = torch.rand(length, generator=generator) < math.sqrt(self.repeated)
            found.append([0 if same else (word := word + 1) for same in common.tolist()])
        return found


CAPTIONS = TextStatistics(length=13.5, spread=3.5, repeated=0.03)


def image_statistics(images: Iterable[Any]) -> ImageStatistics:
    """The second moments of images, for `predicted_cone`.

    Args:
        images: PIL images, or arrays (height, width, 3) of uint8 or of floats in [0, 1]; at least 2.

    Returns:
        The moments of their central squares, and up to 16 of the squares as examples.

    Raises:
        InputError: fewer than 2 images, something that is none, or other values.

    Example:
        >>> import clip_geometry as cg, numpy as np
        >>> images = np.random.default_rng(0).random((8, 32, 32, 3))
        >>> cg.image_statistics(images).mean[0] > 0.4
        True
    """
    if isinstance(images, str) or not isinstance(images, Iterable):
        raise InputError(f"images are {shown(images)}; expected several, PIL images or arrays (height, width, 3)")
    images = list(images)
    n = len(images)
    if n < 2:
        raise InputError("image statistics need at least 2 images")
    pixels = torch.stack([_square(image, SIDE) for image in images]).double()
    kept = images[:: max(1, n // EXAMPLES)][:EXAMPLES]
    means = pixels.mean((2, 3))
    details = pixels - means[:, :, None, None]
    within = torch.einsum("nchw,ndhw->ncd", details, details) / SIDE**2
    strength = within.diagonal(dim1=1, dim2=2).mean(1).clamp(min=1e-8)
    gray = details.mean(1)
    power = torch.fft.fft2(gray).abs().square().mean(0)
    frequency = torch.hypot(*torch.meshgrid(*(torch.fft.fftfreq(SIDE, dtype=torch.float64),) * 2, indexing="ij")) * SIDE
    rings = [(frequency >= low) & (frequency < 1.5 * low) for low in (2, 3, 4.5, 6.75, 10.1, 15.2, 22.8)]
    slope = np.polyfit(
        [float(frequency[ring].log().mean()) for ring in rings],
        [float(power[ring].mean().clamp(min=1e-12).log()) for ring in rings], 1,
    )[0]  # fmt: skip
    blocks = F.avg_pool2d(gray.square()[:, None], SIDE // 4) - F.avg_pool2d(gray[:, None], SIDE // 4).square()
    local = blocks.clamp(min=1e-6).sqrt().log().flatten(1)
    return ImageStatistics(
        mean=tuple(means.mean(0).tolist()), between=_rows(means.T.cov()), within=_rows(within.mean(0)),
        exponent=float(np.clip(-slope, 0, 4)), contrast=float(strength.sqrt().log().std()),
        texture=float(local.std(1).mean()), examples=torch.stack([_square(image, KEPT) for image in kept]),
    )  # fmt: skip


def text_statistics(captions: Iterable[str]) -> TextStatistics:
    """Lengths and repetition of captions, for `predicted_cone`; a word counts as a token.

    Args:
        captions: At least 2.

    Returns:
        The statistics.

    Raises:
        InputError: fewer than 2 captions, or something that is no text.

    Example:
        >>> import clip_geometry as cg
        >>> cg.text_statistics(["a red cube", "a blue ball"]).length
        3.0
    """
    if isinstance(captions, str) or not isinstance(captions, Iterable):
        raise InputError(f"captions are {shown(captions)}; expected a list of texts")
    captions = list(captions)
    if others := [each for each in captions if not isinstance(each, str)]:
        raise InputError(f"captions hold {shown(others[0])}; expected texts")
    words = [caption.lower().split() for caption in captions]
    if len(words) < 2:
        raise InputError("text statistics need at least 2 captions")
    lengths = np.array([len(each) for each in words], dtype=float)
    counts = np.unique([word for each in words for word in each], return_counts=True)[1]
    shares = counts / counts.sum() if len(counts) else np.zeros(1)
    return TextStatistics(float(lengths.mean()), float(lengths.std(ddof=1)), float((shares**2).sum()))


def _typical(images: Tensor, n: int) -> Tensor:
    """Indices of n images, the set of 500 random ones whose products at three scales are most like those of all."""
    if n >= len(images):
        return torch.arange(len(images))
    generator = torch.Generator().manual_seed(0)
    sets = torch.stack([torch.randperm(len(images), generator=generator)[:n] for _ in range(500)])
    distances = torch.zeros(len(sets), dtype=torch.float64)
    for side in (1, 4, 16):
        rows = F.adaptive_avg_pool2d(images - images.mean((0, 2, 3), keepdim=True), side).flatten(1).double()
        products = rows @ rows.T
        for values in (products, products / torch.outer(*(products.diagonal().sqrt().clamp(min=1e-12),) * 2)):
            own = values.diagonal()
            scale = own.mean()
            pairs = values[sets[:, :, None], sets[:, None, :]].sum((1, 2))
            spread = (pairs - own[sets].sum(1)) / (n * (n - 1)) if n > 1 else torch.zeros(len(sets)).double()
            whole = (values.sum() - own.sum()) / (len(images) * (len(images) - 1))
            distances += ((spread - whole) / scale).square() + (own[sets].mean(1) / scale - 1).square()
    return sets[distances.argmin()].sort().values


def _square(image: Any, size: int) -> Tensor:
    array = np.asarray(image.convert("RGB") if hasattr(image, "convert") else image)
    if array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise InputError(f"an image has the shape {shown(array.shape)}; expected (height, width, 3)")
    if array.dtype != np.uint8 and not (array.dtype.kind == "f" and array.min() >= 0 and array.max() <= 1):
        raise InputError(f"an image has {array.dtype} values; expected uint8, or floats from 0 to 1")
    values = torch.from_numpy(np.array(array, dtype=np.float32)) / (255 if array.dtype == np.uint8 else 1)
    side = min(values.shape[:2])
    top, left = (values.shape[0] - side) // 2, (values.shape[1] - side) // 2
    square = values[top : top + side, left : left + side].permute(2, 0, 1)[None]
    return F.interpolate(square, (size, size), mode="bilinear", antialias=True, align_corners=False)[0]


def _rows(matrix: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


def _root(matrix: tuple[tuple[float, ...], ...]) -> Tensor:
    values, vectors = torch.linalg.eigh(torch.tensor(matrix, dtype=torch.float64))
    return vectors * values.clamp(min=0).sqrt()


def _standardized(values: Tensor) -> Tensor:
    """With the mean product of different rows that independent ones have on average, 0, and uncorrelated columns."""
    n = len(values)
    values = values - values.mean(0)
    if n > values.shape[1]:
        root = torch.linalg.cholesky(values.T @ values / n)
        values = torch.linalg.solve_triangular(root, values.T, upper=False).T
    return (1 - 1 / n) ** 0.5 * values + n**-0.5 * values[0].sign()


def _fields(noise: Tensor, exponent: float) -> Tensor:
    """Noise with a power spectrum that falls as frequency^−exponent, of variance 1."""
    side = noise.shape[-1]
    frequency = torch.hypot(torch.fft.fftfreq(side).double()[:, None], torch.fft.rfftfreq(side).double()[None])
    frequency[0, 0] = math.inf
    filtered = torch.fft.irfft2(torch.fft.rfft2(noise) * frequency ** (-exponent / 2), s=(side, side))
    return filtered / filtered.square().mean().sqrt()

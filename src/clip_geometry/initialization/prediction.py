"""The prediction: second moments of the data through a fresh model's own `forward`, stage by stage."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from clip_geometry.encoders.runtime import quiet_logging, zero_biases
from clip_geometry.geometry._core.arguments import one_of, seed_number
from clip_geometry.initialization import attention
from clip_geometry.initialization.inputs import Pixels, Tokens
from clip_geometry.initialization.state import State
from clip_geometry.initialization.statistics import CAPTIONS, PHOTOGRAPHS, ImageStatistics, TextStatistics
from clip_geometry.initialization.windows import MOST_PLACES
from clip_geometry.registry import InputError, did_you_mean, shown

assert attention  # imported for the rules that they register
MOST_SITES = 400  # positions of all inputs together
MOST_INPUTS = 8
SOT, EOT = 49406, 49407  # CLIP's tokens of start and end


class Stage(NamedTuple):
    """A block of the model. cosine: mean over positions of the cosine of two inputs at the same position."""

    name: str
    cosine: float


@dataclass(frozen=True)
class PredictedCone:
    """The predicted cone of a fresh model's embeddings.

    Attributes:
        model: Its name.
        modality: "image" or "text".
        average_cosine: Of the embeddings of two inputs, expected over initializations.
        deviation: Its standard deviation over initializations; NaN of fewer than 2 draws.
        stages: The cosine after each block, mean over draws.
        inputs: Number of synthetic inputs whose second moments were followed.

    Example:
        >>> import clip_geometry as cg
        >>> cone = cg.predicted_cone("test_resnet", draws=2)
        >>> len(cone.stages) > 3, 0 <= cone.deviation < 0.2
        (True, True)
    """

    model: str
    modality: str
    average_cosine: float
    deviation: float
    stages: tuple[Stage, ...]
    inputs: int

    def __str__(self) -> str:
        lines = [f"{stage.name:<28}{stage.cosine:7.3f}" for stage in self.stages]
        spread = "" if math.isnan(self.deviation) else f", of one seed ± {self.deviation:.3f}"
        return "\n".join([f"{self.model}, {self.modality}: average cosine {self.average_cosine:.3f}{spread}", *lines])


def predicted_cone(
    architecture: str,
    statistics: ImageStatistics | TextStatistics | None = None,
    *,
    modality: Literal["image", "text"] = "image",
    zero_bias: bool = False,
    draws: int = 4,
    seed: int = 0,
) -> PredictedCone:
    """The average cosine of a freshly initialized model's embeddings, from theory: the model is never run on data.

    Follows the second moments of a few synthetic inputs, E_c[x_c(input, position) x_c(input', position')] over the
    channels c, through the operations of the model: linear maps and convolutions scale them by the mean squares of
    their fresh weights, activations act by their dual kernels (Cho & Saul 2009; Mehler's formula), attention by the
    softmax of Gaussian logits (Hron et al. 2020), pooling by averages, positional and class embeddings by their own
    moments. Fresh batch norm in eval mode is the identity. The model gives the order of its operations and the
    statistics of its parameters. Moments over few channels scatter, so those of layers of at most 512 channels are
    taken over as many draws of Gaussian values; the result is the mean over `draws` of all layers, with its deviation.
    It misses many architectures (docs/findings/predicted-cone.md): measure the fresh model where it matters.

    Args:
        architecture: A model of timm, or of open_clip as `open_clip:NAME`.
        statistics: `image_statistics(…)` or `text_statistics(…)`; None: of photographs, or of their captions.
        modality: Tower of a model of open_clip.
        zero_bias: Set all biases to zero.
        draws: Number of initializations; 0: one of infinite width.
        seed: Of the initialization and of the synthetic inputs.

    Returns:
        The prediction, and the cosine after each block.

    Raises:
        InputError: unknown architecture, no such tower, statistics of the other modality, or an operation that has
            no rule.

    Example:
        >>> import clip_geometry as cg
        >>> cone = cg.predicted_cone("resnet18")
        >>> cone.average_cosine > 0.9
        True
    """
    if draws < 0:
        raise InputError(f"draws is {draws}; expected a number of initializations, or 0 for infinite width")
    wanted = ImageStatistics if modality == "image" else TextStatistics
    one_of(modality, "modality", ("image", "text"))
    seed = seed_number(seed)
    statistics = (PHOTOGRAPHS if modality == "image" else CAPTIONS) if statistics is None else statistics
    if not isinstance(statistics, wanted):
        raise InputError(
            f"the statistics are {shown(type(statistics).__name__)}; expected {wanted.__name__} of {modality}s"
        )
    values: list[float] = []
    stages: dict[str, list[float]] = {}
    number = 0
    for draw in range(max(draws, 1)):
        tower = _tower(architecture, modality, seed + draw)
        if zero_bias:
            zero_biases(tower.module)
        inputs = tower.inputs(statistics, seed)
        number = len(inputs)
        State.generator = torch.Generator().manual_seed(seed + draw) if draws else None
        try:
            values.append(_followed(tower, inputs, stages))
        except InputError as error:
            raise InputError(f"the cone of {architecture} cannot be predicted: {error}") from None
        finally:
            State.generator = None
    return PredictedCone(
        architecture, modality, fmean(values), stdev(values) if len(values) > 1 else math.nan,
        tuple(Stage(name, fmean(found)) for name, found in stages.items()), number,
    )  # fmt: skip


def _followed(tower: "_Tower", inputs: Tensor, stages: dict[str, list[float]]) -> float:
    """The average cosine of one initialization; those after its blocks are appended to stages."""
    with ExitStack() as stack, torch.no_grad():
        for name, module in _stages(tower.module):

            def keep(_: Any, __: Any, out: Any, name: str = name) -> None:
                if isinstance(out, State) and (found := _aligned(out, len(inputs))) is not None:
                    stages.setdefault(name, []).append(found)

            stack.callback(module.register_forward_hook(keep).remove)
        embedded = tower.forward(inputs).unmixed()
    sites = embedded.sites.reshape(len(inputs), -1)[:, 0]
    found = _mean_cosine(embedded.second[sites][:, sites][None])
    if found is None:
        raise InputError("the embeddings of the fresh model are zero and have no cosine")
    return found if math.isfinite(found) else math.nan


class _Tower(NamedTuple):
    module: nn.Module
    forward: Callable[[Any], State]
    inputs: Callable[[Any, int], Tensor]


def _tower(architecture: str, modality: str, seed: int) -> _Tower:
    if not isinstance(architecture, str):
        raise InputError(f"architecture is {shown(architecture)}; expected a name of timm, or open_clip:NAME")
    if architecture.startswith("open_clip:"):
        return _of_open_clip(architecture.partition(":")[2], modality, seed)
    import timm

    name = architecture.removeprefix("timm:")
    if not timm.is_model(name):
        near = did_you_mean(name, timm.list_models())
        raise InputError(f"timm has no model {shown(name)}{near or '; open_clip:NAME is one of open_clip'}")
    if modality != "image":
        raise InputError(f"{name} of timm has no {modality} tower")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model: Any = timm.create_model(name, pretrained=False, num_classes=0)
    data = model.pretrained_cfg
    return _images(model.eval(), data["input_size"][-1], data["mean"], data["std"], data.get("crop_pct") or 1.0)


def _of_open_clip(name: str, modality: str, seed: int) -> _Tower:
    import open_clip

    if name not in open_clip.list_models():
        raise InputError(f"open_clip has no model {shown(name)}{did_you_mean(name, open_clip.list_models()) or ''}")
    text = (open_clip.get_model_config(name) or {}).get("text_cfg", {})
    if modality == "text" and "hf_model_name" in text:
        raise InputError(f"the text tower of {name} has to be downloaded and cannot be initialized here")
    with quiet_logging(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model: Any = open_clip.create_model(name, load_weights=False, pretrained_text=False).eval()
    if modality == "image":
        size = model.visual.image_size
        settings = model.visual.preprocess_cfg
        return _images(model.visual, size if isinstance(size, int) else size[0], settings["mean"], settings["std"])
    tower = model.text if hasattr(model, "text") else model.transformer
    length = getattr(model, "context_length", None) or model.text.context_length
    vocabulary = getattr(model, "vocab_size", None) or model.text.vocab_size
    return _Tower(tower, model.encode_text, lambda statistics, seed: _captions(statistics, seed, length, vocabulary))


def _images(model: Any, size: int, mean: Any, std: Any, crop: float = 1.0) -> _Tower:
    """crop: Share of an image's side that the model's own preparation keeps."""

    def inputs(statistics: ImageStatistics, seed: int) -> Tensor:
        whole = math.floor(size / crop)
        edge = (whole - size) // 2
        pixels = statistics.sample(_number(model, size), whole, seed=seed)[..., edge : edge + size, edge : edge + size]
        centers, scales = (torch.tensor(each).view(1, 3, 1, 1) for each in (mean, std))
        return ((pixels - centers) / scales).as_subclass(Pixels)

    return _Tower(model, model, inputs)


def _number(model: nn.Module, size: int) -> int:
    """As many inputs as keep all positions below MOST_SITES: a first convolution without overlap makes tokens."""
    first = next((each for each in model.modules() if isinstance(each, nn.Conv2d)), None)
    places = MOST_PLACES**2
    if first is not None and first.kernel_size == first.stride and first.stride[0] > 4:
        places = (size // int(first.stride[0])) ** 2 + 1
    return min(max(MOST_SITES // places, 4), MOST_INPUTS)


def _captions(statistics: TextStatistics, seed: int, length: int, vocabulary: int) -> Tensor:
    n = min(max(MOST_SITES // length, 4), MOST_INPUTS)
    ids = torch.zeros(n, length, dtype=torch.long)
    start, end = (SOT, EOT) if vocabulary > EOT else (vocabulary - 2, vocabulary - 1)
    for row, words in zip(ids, statistics.sample(n, seed=seed), strict=True):
        words = words[: length - 2]
        row[0], row[1 : len(words) + 1], row[len(words) + 1] = start, 1 + torch.tensor(words), end
    return ids.as_subclass(Tokens)


def _stages(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """The children, and instead of lists of modules, or of what holds one, their members."""
    found = []
    for name, child in module.named_children():
        is_list = isinstance(child, (nn.ModuleList, nn.Sequential)) and len(child) > 0
        if is_list or any(isinstance(each, nn.ModuleList) for each in child.children()):
            found += _stages(child, f"{prefix}{name}.")
        else:
            found.append((prefix + name, child))
    return found


def _aligned(state: State, n: int) -> float | None:
    """The mean cosine of different inputs at the same position, None where the inputs are no dimension."""
    state = state.unmixed()
    shape = state.sites.shape
    batch = next((dim for dim in range(len(shape)) if shape[dim] == n and dim not in state.channel_dims), None)
    if batch is None:
        return None
    sites = state.sites.movedim(batch, 0).reshape(n, -1)
    places = torch.unique(sites, dim=1)
    return _mean_cosine(state.second[places.T[:, :, None], places.T[:, None, :]])


def _mean_cosine(K: Tensor) -> float | None:
    """K: (positions, n, n), products of n inputs. Positions where one is zero do not count; None if they all do not."""
    n, scale = K.shape[1], K.diagonal(dim1=1, dim2=2).sqrt()
    kept = (scale > 0).all(1)
    if not bool(kept.any()):
        return None
    cosines = K[kept] / (scale[kept][:, :, None] * scale[kept][:, None, :])
    return float(((cosines.sum((1, 2)) - n) / (n * (n - 1))).mean())

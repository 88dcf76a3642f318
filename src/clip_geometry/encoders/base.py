"""The encoder interface: preprocessing and features, nothing about files or batching."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from pydantic import Field, model_validator
from torch import Tensor

from clip_geometry.config import Config
from clip_geometry.data.images import rgb
from clip_geometry.registry import InputError, Registry, of_packages, shown


class EncoderConfig(Config):
    """Options of every encoder, to which a subclass adds its own; all enter the store's key.

    model: the full name, e.g. "open_clip:ViT-B-32/fresh". features: rows after the tower's final projection, or the
    pooled rows before it. precision: of the weights and the computation; rows are float32 in any case.
    """

    model: str
    features: Literal["projected", "pooled"] = "projected"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"

    @property
    def name(self) -> str:
        """What follows the family's prefix: a hub name, a path, …"""
        return self.model.partition(":")[2]

    @property
    def is_fresh(self) -> bool:
        """Whether the weights are untrained, which a report has to state."""
        return False

    @property
    def depends_on_batch(self) -> bool:
        """Whether a row depends on the others of its batch (batch-norm statistics)."""
        return False


class SeededConfig(EncoderConfig):
    """A model that can be initialized. seed: of the initialization. zero_bias: set all biases to zero afterwards."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    zero_bias: bool = False

    @model_validator(mode="after")
    def _fresh_only(self) -> Self:
        if (self.seed or self.zero_bias) and not self.is_fresh:
            raise ValueError("seed and zero_bias are for freshly initialised models, this one has weights")
        return self

    def initialized(self, model: torch.nn.Module) -> dict[str, Any]:
        """What `describe` says about the weights of a model that was initialized; sets its biases to zero if asked."""
        if self.zero_bias:
            for name, parameter in model.named_parameters():
                if name.endswith("bias") and name != "logit_bias":  # which is in neither tower
                    parameter.data.zero_()
        return {"name": "fresh", "seed": self.seed, "zero_bias": self.zero_bias}


class NamedWeights(SeededConfig):
    """FAMILY:NAME/TAG, FAMILY:NAME/fresh or FAMILY:NAME@PATH."""

    @property
    def parts(self) -> tuple[str, str, str]:
        """(NAME, kind, TAG or PATH); kind is "tag", "fresh" or "path"."""
        name, _, path = self.name.partition("@")
        if name and path:
            return name, "path", path
        name, _, tag = self.name.rpartition("/")
        if not (name and tag):
            forms = "{0}:NAME/TAG, {0}:NAME/fresh or {0}:NAME@PATH".format(self.model.partition(":")[0])
            raise InputError(f"{shown(self.model)} names no weights; expected {forms}")
        return name, "fresh" if tag == "fresh" else "tag", tag

    @property
    def is_fresh(self) -> bool:
        return self.parts[1] == "fresh"


class FreshOption(EncoderConfig):
    """fresh: initialize instead of loading the weights, which may then be absent."""

    fresh: bool = False

    @property
    def is_fresh(self) -> bool:
        return self.fresh


class BatchNormOption(EncoderConfig):
    """batch_norm: "eval" uses the running statistics (in a fresh model, the identity), "batch" those of the current
    batch, so that a row depends on its batch.
    """

    batch_norm: Literal["eval", "batch"] = "eval"

    @property
    def depends_on_batch(self) -> bool:
        return self.batch_norm == "batch"


@dataclass(frozen=True)
class Pixels:
    """The evaluation transform of open_clip or timm in two halves: `normalize(cut(image))` equals it bit for bit.

    Between the halves an image is bytes, a quarter of its size as float32, to be sent to another process or a GPU.
    Pillow resizes: torch's interpolation rounds otherwise, in about 15 % of the pixels of CIFAR-100.

    steps: of the transform, on a PIL image. size: (height, width) of their result.
    """

    steps: tuple[Any, ...]
    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @staticmethod
    def of(transform: Any) -> "Pixels | None":
        """The halves of a transform; None for one with other steps."""
        steps: list[Any] = list(getattr(transform, "transforms", ()))
        if len(steps) > 2 and type(steps[-3]).__name__ == "MaybeConvertMode":  # of open_clip; the images are RGB
            del steps[-3]
        names = [type(step).__name__ for step in steps]
        on_images = {"Resize", "CenterCrop", "ResizeKeepRatio", "CenterCropOrPad", "SquareCrop"}
        if len(steps) < 3 or names[-2:] != ["MaybeToTensor", "Normalize"] or not set(names[:-2]) <= on_images:
            return None
        size = steps[-3].size  # both of the steps that may come last give exactly this size
        if isinstance(size, int) or len(size) != 2:
            return None
        mean, std = (tuple(float(value) for value in values) for values in (steps[-1].mean, steps[-1].std))
        return Pixels(tuple(steps[:-2]), (int(size[0]), int(size[1])), mean, std)

    def cut(self, image: Image.Image) -> Tensor:
        """(3, height, width) uint8."""
        from torchvision.transforms.functional import pil_to_tensor

        image = rgb(image)
        for step in self.steps:
            image = step(image)
        return pil_to_tensor(rgb(image)).contiguous()

    def normalize(self, pixels: Tensor) -> Tensor:
        """uint8 → float32. Divides by tensors, since a GPU turns division by a number into an inexact product."""
        values = ((255.0,), self.mean, self.std)
        whole, mean, std = (torch.tensor(each, dtype=torch.float32, device=pixels.device) for each in values)
        return pixels.to(torch.float32).div_(whole).sub_(mean[:, None, None]).div_(std[:, None, None])


@dataclass(frozen=True)
class Tokens:
    """A tokenized batch. inputs: for the text tower. truncated: number of texts that did not fit."""

    inputs: Any
    truncated: int


@dataclass(frozen=True)
class EncodedRows:
    """The rows of a batch.

    vectors: (m, d) float32 on the CPU. item: (m,) the input of the batch that each row belongs to, ascending; None for
    one row each. columns: metadata of each row. lost: number of parts of the inputs (words) without a row.
    """

    vectors: Tensor
    item: np.ndarray | None = None
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    lost: int = 0


class Encoder:
    """A model that embeds images, texts or both. Rows are raw: never normalized.

    `preprocess` and `tokenize` run on the CPU, possibly in workers. `image_features` and `text_features` take their
    stacked results, move them to `device` and return float32 rows on the CPU. An encoder with several rows per input
    overrides `image_rows` and `text_rows`.
    """

    config: EncoderConfig
    device: torch.device
    modalities: frozenset[str]  # of {"image", "text"}
    model: Any  # a torch module
    weights: Mapping[str, Any]  # name and checksum of their file, or "fresh" and seed
    transform: Callable[[Image.Image], Tensor]  # of an RGB image; like the two below, where the model has any
    tokenizer: Any
    context_length: Any  # in tokens
    pixels: Pixels | None = None  # `preprocess` in two halves, if it can be divided
    takes_images: bool = False  # whether `image_features` takes a list of RGB images, and there is no `preprocess`
    pads_to_longest: bool = False  # whether the cost of a batch of texts depends on its longest text
    item_bytes: int = 0  # estimated size of an input's rows, where there are many; shards then hold fewer inputs

    def dim(self) -> Mapping[str, int | None]:
        """Modality → number of columns."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """JSON-like facts for the manifest, None where the model has no such thing; families add or replace some.

        activation: the class names of the activation functions in the model: "QuickGELU", "GELU, ReLU".
        """
        kinds = {type(module).__name__.removesuffix("Activation") for module in self.model.modules()}
        scale, bias = (getattr(self.model, name, None) for name in ("logit_scale", "logit_bias"))
        transform, tokenizer = (getattr(self, name, None) for name in ("transform", "tokenizer"))
        return {
            "weights": dict(self.weights),
            "dim": self.dim(),
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "activation": ", ".join(sorted(kind for kind in kinds if kind.lower().endswith(("gelu", "relu", "silu")))),
            "preprocessing": None if transform is None else re.sub(r" at 0x\w+", "", repr(transform)),
            "tokenizer": None if tokenizer is None else type(tokenizer).__name__,
            "context_length": getattr(self, "context_length", None),
            "logit_scale": scale.exp().item() if isinstance(scale, Tensor) and scale.numel() == 1 else None,
            "logit_bias": bias.item() if isinstance(bias, Tensor) and bias.numel() == 1 else None,
        }

    def require(self, modality: str) -> None:
        """Raises InputError where the model lacks the modality."""
        if modality not in self.modalities:
            has = " and ".join(sorted(self.modalities))
            raise InputError(f"{self.config.model} embeds {has} only, it has no {modality} tower")

    def preprocess(self, image: Image.Image) -> Tensor:
        return self.transform(rgb(image))

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        raise NotImplementedError

    def text_lengths(self, texts: Sequence[str]) -> Sequence[int]:
        """What a batch of texts is padded by, to sort them where `pads_to_longest`: characters, or tokens if known."""
        return [len(text) for text in texts]

    def image_features(self, pixels: Tensor) -> Tensor:
        raise NotImplementedError

    def text_features(self, tokens: Tokens) -> Tensor:
        raise NotImplementedError

    def heads(self) -> Mapping[str, np.ndarray]:
        """Modality → (width, d) linear projection, pooled features f ↦ f A, as `IsoCLIP` is fitted on it."""
        raise InputError(f"the projection heads of {self.config.model} are not read; those of open_clip models are")

    def image_rows(self, pixels: Tensor) -> EncodedRows:
        return EncodedRows(self.image_features(pixels))

    def text_rows(self, tokens: Tokens) -> EncodedRows:
        return EncodedRows(self.text_features(tokens))


@dataclass(frozen=True)
class EncoderEntry:
    """A family of encoders, chosen by the prefix of the model's name, which ends at its first colon or slash.

    The first line of the config's docstring is the line of `clip-geometry list models`: the pattern of the family's
    names, and what it is.
    """

    config: type[EncoderConfig]
    load: Callable[[Any, torch.device], Encoder]  # (config, device)
    revision: Callable[[Any], str]  # (config): checksum of the weights' files, known without building the model
    check: Callable[[Any], object] = lambda config: None  # (config): InputError on a wrong name, without network

    @property
    def headline(self) -> tuple[str, str]:
        """The pattern of its names, such as "open_clip:NAME/TAG", and what it is."""
        pattern, _, summary = (self.config.__doc__ or "").partition("\n")[0].partition(": ")
        return pattern, summary.removesuffix(".")


# other packages have modules that register further families
encoders: Registry[EncoderEntry] = Registry(
    "encoder", "clip-geometry list models", more=[entry.module for entry in of_packages("clip_geometry.encoders")]
)

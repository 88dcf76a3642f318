"""The encoder interface: preprocessing and features, without files or batching."""

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
    """Base class of the options of a model. Subclasses add fields; all fields identify the model in a store.

    `resolve_encoder` returns an instance.

    Attributes:
        model: The full name, such as "open_clip:ViT-B-32/fresh".
        features: "projected" for rows after the final projection of the image or text tower, "pooled" for the rows
            before it.
        precision: Number type of the weights and of the computation. The returned rows are always float32.
    """

    model: str
    features: Literal["projected", "pooled"] = "projected"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"

    @property
    def name(self) -> str:
        """The part of the model's name after the family's prefix: a hub name, a path, …"""
        return self.model.partition(":")[2]

    @property
    def is_fresh(self) -> bool:
        """Whether the weights are untrained, which reports must state."""
        return False

    @property
    def depends_on_batch(self) -> bool:
        """Whether a row depends on the other rows in its batch (through batch-norm statistics)."""
        return False


class SeededConfig(EncoderConfig):
    """Options of models that can be initialized randomly.

    Attributes:
        seed: Seed of the initialization.
        zero_bias: Set all biases to zero after the initialization.
    """

    seed: int = Field(default=0, ge=0, lt=2**63)
    zero_bias: bool = False

    @model_validator(mode="after")
    def _fresh_only(self) -> Self:
        if (self.seed or self.zero_bias) and not self.is_fresh:
            raise ValueError("seed and zero_bias are for freshly initialized models, but this model has weights")
        return self

    def initialized(self, model: torch.nn.Module) -> dict[str, Any]:
        """Finish an initialized model and return the entry of its weights for `describe`.

        Sets the biases to zero if `zero_bias` is set.
        """
        if self.zero_bias:
            for name, parameter in model.named_parameters():
                if name.endswith("bias") and name != "logit_bias":  # logit_bias is in neither tower
                    parameter.data.zero_()
        return {"name": "fresh", "seed": self.seed, "zero_bias": self.zero_bias}


class NamedWeights(SeededConfig):
    """A model named FAMILY:NAME/TAG, FAMILY:NAME/fresh or FAMILY:NAME@PATH."""

    @property
    def parts(self) -> tuple[str, str, str]:
        """The name split into (NAME, kind, TAG or PATH), where kind is "tag", "fresh" or "path"."""
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
    """The option to initialize a model randomly.

    Attributes:
        fresh: Initialize the model instead of loading its weights, which may then be missing.
    """

    fresh: bool = False

    @property
    def is_fresh(self) -> bool:
        return self.fresh


class BatchNormOption(EncoderConfig):
    """The option to choose the statistics of batch norm layers.

    Attributes:
        batch_norm: "eval" uses the running statistics (the identity in a fresh model); "batch" uses those of the
            current batch, so that a row depends on its batch.
    """

    batch_norm: Literal["eval", "batch"] = "eval"

    @property
    def depends_on_batch(self) -> bool:
        return self.batch_norm == "batch"


@dataclass(frozen=True)
class Pixels:
    """The evaluation transform of open_clip or timm in two halves: `normalize(cut(image))` equals it bit for bit.

    Between the halves, an image is uint8, a quarter of its size in float32, to be sent to another process or a GPU.
    Pillow does the resizing, because torch's interpolation rounds about 15% of the pixels of CIFAR-100 differently.

    Attributes:
        steps: The steps of the transform on a PIL image.
        size: (height, width) of the result of these steps.
        mean: Mean of each channel.
        std: Standard deviation of each channel.
    """

    steps: tuple[Any, ...]
    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @staticmethod
    def of(transform: Any) -> "Pixels | None":
        """Split a transform into its halves; return None if it has other steps."""
        steps: list[Any] = list(getattr(transform, "transforms", ()))
        if len(steps) > 2 and type(steps[-3]).__name__ == "MaybeConvertMode":  # of open_clip; images are RGB here
            del steps[-3]
        names = [type(step).__name__ for step in steps]
        on_images = {"Resize", "CenterCrop", "ResizeKeepRatio", "CenterCropOrPad", "SquareCrop"}
        if len(steps) < 3 or names[-2:] != ["MaybeToTensor", "Normalize"] or not set(names[:-2]) <= on_images:
            return None
        size = steps[-3].size  # either possible last step gives exactly this size
        if isinstance(size, int) or len(size) != 2:
            return None
        mean = tuple(float(value) for value in steps[-1].mean)
        std = tuple(float(value) for value in steps[-1].std)
        return Pixels(tuple(steps[:-2]), (int(size[0]), int(size[1])), mean, std)

    def cut(self, image: Image.Image) -> Tensor:
        """Return an image as (3, height, width) uint8."""
        from torchvision.transforms.functional import pil_to_tensor

        image = rgb(image)
        for step in self.steps:
            image = step(image)
        return pil_to_tensor(rgb(image)).contiguous()

    def normalize(self, pixels: Tensor) -> Tensor:
        """Convert uint8 pixels to normalized float32.

        Divides by tensors, because a GPU replaces division by a number with an inexact multiplication.
        """

        def constant(values: tuple[float, ...]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=pixels.device)

        mean = constant(self.mean)[:, None, None]
        std = constant(self.std)[:, None, None]
        return pixels.to(torch.float32).div_(constant((255.0,))).sub_(mean).div_(std)


@dataclass(frozen=True)
class Tokens:
    """Result of `Encoder.tokenize`: a tokenized batch of texts.

    Attributes:
        inputs: Input of the text tower: a tensor of token ids, or what the model takes.
        truncated: Number of texts that were longer than the context of the model and were cut.
    """

    inputs: Any
    truncated: int


@dataclass(frozen=True)
class EncodedRows:
    """The rows of a batch.

    Attributes:
        vectors: (m, d) float32 on the CPU.
        item: (m,) ascending indices of the input that each row belongs to; None if each input has one row.
        columns: Metadata of each row.
        lost: Number of parts of the inputs (words) without a row.
    """

    vectors: Tensor
    item: np.ndarray | None = None
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    lost: int = 0


class Encoder:
    """Base class of models that embed images, texts or both. Rows are never normalized.

    `load_encoder` returns an instance. `preprocess` converts one image and `tokenize` a list of texts, on the CPU.
    `image_features` takes a batch of preprocessed images and `text_features` the tokenized texts; both compute on
    `device` and return float32 rows, (n, d), on the CPU. Encoders with several rows per input, such as one per word,
    override `image_rows` and `text_rows`.

    Attributes:
        config: Name and options of the model.
        device: Device on which the model computes.
        modalities: Subset of {"image", "text"} that the model embeds.
        model: The torch module.
    """

    config: EncoderConfig
    device: torch.device
    modalities: frozenset[str]  # subset of {"image", "text"}
    model: Any  # a torch module
    weights: Mapping[str, Any]  # name and checksum of the weights file, or "fresh" and the seed
    # the preprocessing of an RGB image; this and the next two exist only if the model has them
    transform: Callable[[Image.Image], Tensor]
    tokenizer: Any
    context_length: Any  # in tokens
    pixels: Pixels | None = None  # `preprocess` in two halves, if it can be split
    takes_images: bool = False  # whether `image_features` takes a list of RGB images, without `preprocess`
    pads_to_longest: bool = False  # whether the cost of a batch of texts depends on its longest text
    item_bytes: int = 0  # estimated size of an input's rows if there are many; shards then hold fewer inputs

    def dim(self) -> Mapping[str, int | None]:
        """Return modality → dimension of its rows."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Return facts about the model for the manifest of a store; subclasses add or replace some.

        A fact is None if it does not apply to the model. "activation" holds the class names of the activation
        functions, such as "QuickGELU" or "GELU, ReLU".
        """
        kinds = {type(module).__name__.removesuffix("Activation") for module in self.model.modules()}
        scale = getattr(self.model, "logit_scale", None)
        bias = getattr(self.model, "logit_bias", None)
        transform = getattr(self, "transform", None)
        tokenizer = getattr(self, "tokenizer", None)
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
        """Raise InputError if the model does not embed the modality."""
        if modality not in self.modalities:
            names = " and ".join(sorted(self.modalities))
            raise InputError(f"{self.config.model} embeds {names} only, since it has no {modality} tower")

    def preprocess(self, image: Image.Image) -> Tensor:
        """Convert an image to the input of the image tower, a tensor without the batch dimension."""
        return self.transform(rgb(image))

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Convert texts to the input of the text tower."""
        raise NotImplementedError

    def text_lengths(self, texts: Sequence[str]) -> Sequence[int]:
        """Return the lengths by which texts are sorted if `pads_to_longest`: in tokens if known, else in characters."""
        return [len(text) for text in texts]

    def image_features(self, pixels: Tensor) -> Tensor:
        """Return the rows of a batch of preprocessed images, (n, d), float32 on the CPU."""
        raise NotImplementedError

    def text_features(self, tokens: Tokens) -> Tensor:
        """Return the rows of a batch of tokenized texts, (n, d), float32 on the CPU."""
        raise NotImplementedError

    def heads(self) -> Mapping[str, np.ndarray]:
        """Return the linear projection heads, on which `IsoCLIP` can be fitted.

        They are a mapping of modality → A, (width, d), where pooled features f become the row f A.
        """
        raise InputError(f"the projection heads of {self.config.model} cannot be read; give a model of open_clip")

    def image_rows(self, pixels: Tensor) -> EncodedRows:
        """Return the rows of a batch of images with their metadata; by default, one row per image."""
        return EncodedRows(self.image_features(pixels))

    def text_rows(self, tokens: Tokens) -> EncodedRows:
        """Return the rows of a batch of texts with their metadata; by default, one row per text."""
        return EncodedRows(self.text_features(tokens))


@dataclass(frozen=True)
class EncoderEntry:
    """A family of encoders, chosen by the prefix of the model's name up to the first colon or slash.

    The first line of the config's docstring is printed by `clip-geometry list models`: the pattern of the family's
    names and a summary.
    """

    config: type[EncoderConfig]
    load: Callable[[Any, torch.device], Encoder]  # (config, device)
    revision: Callable[[Any], str]  # (config) → checksum of the weights files, without building the model
    check: Callable[[Any], object] = lambda config: None  # (config): raises InputError for a wrong name, offline

    @property
    def headline(self) -> tuple[str, str]:
        """The pattern of its names, such as "open_clip:NAME/TAG", and a summary."""
        pattern, _, summary = (self.config.__doc__ or "").partition("\n")[0].partition(": ")
        return pattern, summary.removesuffix(".")


# modules of other packages register more families
encoders: Registry[EncoderEntry] = Registry(
    "encoder", "clip-geometry list models", more=[entry.module for entry in of_packages("clip_geometry.encoders")]
)

"""Encoders, which embed images and texts, and their lookup by a model's name and options.

Each family of models has a file or folder and registers itself under the prefix of its names. Importing this package
is fast: open_clip and transformers are imported only when a model is looked up.
"""

import re
from typing import Any, NamedTuple

from clip_geometry.config import validate
from clip_geometry.encoders.base import Encoder, EncoderConfig, EncoderEntry, Tokens, encoders
from clip_geometry.encoders.mclip import paired_image_model
from clip_geometry.encoders.open_clip import list_names
from clip_geometry.encoders.runtime import resolve_device
from clip_geometry.registry import InputError, import_all, instance, listed, shown

__all__ = ["Encoder", "EncoderConfig", "Tokens", "load_encoder", "paired_image_model", "resolve_encoder"]


import_all(__name__)


class ModelList(NamedTuple):
    """The models that `clip-geometry list models` prints.

    Attributes:
        families: (pattern, summary) of each family.
        architectures: NAME → TAGs of open_clip's architectures. Without tags, only NAME/fresh exists.
    """

    families: list[tuple[str, str]]
    architectures: dict[str, tuple[str, ...]]


def resolve_encoder(model: str, **options: Any) -> EncoderConfig:
    """Check the name and options of a model, and return its config. Nothing is downloaded.

    Args:
        model: Name of the model, such as `open_clip:ViT-B-32/laion2b_s34b_b79k`; `clip-geometry list models` prints the
            possible names.
        **options: Fields of the config of the model's family, such as `features`, `precision` or `seed`.

    Returns:
        The `EncoderConfig`, for `load_encoder`. It identifies the model in a store.

    Raises:
        InputError: The family, architecture, tag or option is unknown (the message names the nearest known one), a file
            is missing, or the model does not take an option.

    Example:
        >>> import clip_geometry as cg
        >>> config = cg.encoders.resolve_encoder("open_clip:RN50/fresh", seed=1, batch_norm="batch")
        >>> config.is_fresh, config.depends_on_batch
        (True, True)
    """
    entry = _family(model)
    config = validate(entry.config, {"model": model, **options}, f"model {shown(model)}")
    entry.check(config)
    return config


def config_class(model: str) -> type[EncoderConfig]:
    """Return the config class of a model's family."""
    return _family(model).config


def load_encoder(model: str | EncoderConfig, device: str = "auto", **options: Any) -> Encoder:
    """Load a model in eval mode. Weights on the Hugging Face hub are downloaded.

    Args:
        model: Name of the model, as for `resolve_encoder`, or a config returned by `resolve_encoder`.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", …
        **options: Options that go with a name, as for `resolve_encoder`.

    Returns:
        An `Encoder`. Its rows are never normalized.

    Raises:
        InputError: The name or an option is unknown, the device does not exist, the weights do not fit the
            architecture, files are damaged, or the hub cannot be reached.

    Example:
        >>> import clip_geometry as cg
        >>> encoder = cg.encoders.load_encoder("scenes-clip/fresh", device="cpu")
        >>> encoder.text_features(encoder.tokenize(["a red circle", "a blue square"])).shape
        torch.Size([2, 512])
    """
    if isinstance(model, EncoderConfig) and options:
        raise InputError(f"{listed(options)} cannot be given with a config; give the options to resolve_encoder")
    config = model if isinstance(model, EncoderConfig) else resolve_encoder(model, **options)
    return _family(config.model).load(config, resolve_device(device))


def encoder_revision(config: EncoderConfig) -> str:
    """Return a checksum of the model's current weights, architecture and tokenizer.

    The model is not built, but a model on the hub is downloaded.
    """
    return _family(config.model).revision(config)


def models() -> ModelList:
    """Return the families and architectures that `clip-geometry list models` prints."""
    return ModelList([entry.headline for entry in encoders.values()], list_names())


def _family(model: str) -> EncoderEntry:
    """Return the encoder entry for a model name FAMILY:NAME."""
    prefix = re.split("[:/]", instance(model, str, "model", "the name of a model"), maxsplit=1)[0]
    if prefix == model:
        known = ", ".join(encoders)
        raise InputError(f"model {shown(model)} is not of the form FAMILY:NAME; expected one of the families {known}")
    return encoders[prefix]


def __dir__() -> list[str]:
    return __all__

"""Text towers of Multilingual-CLIP, both generations: mean over the tokens, one linear layer, not normalised.

current   config.json of type M-CLIP; one file with transformer.* and LinearTransformation.*; the base transformer's
          config (and tokenizer, where the folder has none) in base/ beside it, or on the hub under its modelBase
legacy    a transformer in transformers' layout; the linear layer in a file of its own, beside it or given as linear=
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, Field
from torch import Tensor, nn

from clip_geometry.config import digest
from clip_geometry.encoders import checkpoint, hub
from clip_geometry.encoders.base import EncoderConfig, EncoderEntry, encoders
from clip_geometry.encoders.hf.loading import (
    WEIGHTS,
    drop_pooler,
    from_settings,
    load_model,
    load_tokenizer,
    one_sentence,
    read_config,
    read_settings,
)
from clip_geometry.encoders.hf.tokens import context_length
from clip_geometry.encoders.mclip.table import paired_image_model
from clip_geometry.encoders.pickled_arrays import read_pickled_arrays
from clip_geometry.encoders.shipped import model_path
from clip_geometry.encoders.text_encoder import TextEncoder, TextParts
from clip_geometry.encoders.token_pooling import mean_pooling
from clip_geometry.files import sha256_of
from clip_geometry.paths import existing_file
from clip_geometry.reading import checked
from clip_geometry.registry import InputError

EXPECTED = "a text tower of Multilingual-CLIP"
LINEAR = "a file with the weights of a linear layer"
LINEAR_SUFFIXES = (".pkl", ".safetensors", ".pt", ".bin")


class MClipConfig(EncoderConfig):
    """mclip:ORG/NAME or mclip:PATH. linear: the file of the linear layer's weights, for a tower of the legacy layout
    that does not have it beside it ("M-BERT Distil 40 Linear Weights.pkl", by get-weights.sh of Multilingual-CLIP).
    """

    linear: str | None = None


@dataclass(frozen=True)
class Files:
    """Where the tower's parts lie. base: the folder with the base transformer's config; linear: only legacy."""

    folder: Path
    tokenizer: Path
    base: Path
    weights: Path
    linear: Path | None


Width = Annotated[int, Field(ge=1, le=2**16, strict=True)]


class _Settings(BaseModel):
    """What of config.json is used here."""

    modelBase: str = ""
    transformerDimensions: Width = 1
    numDims: Width = 1


def find(config: MClipConfig) -> Files:
    """Config and tokenizer files of tower and base, and the weights; downloaded if need be."""
    name = config.model.partition(":")[2]
    folder = hub.folder(name, hub.TOKENIZER_FILES)
    values = read_config(folder, EXPECTED, key=None)
    if _is_legacy(values):
        linear = _linear_file(config, folder)
        return Files(folder, folder, folder, hub.first_file(name, WEIGHTS), linear)
    if config.linear is not None:
        raise InputError(f"{config.model} has its linear layer among its weights; leave linear out")
    base = folder / "base"
    has_tokenizer = (folder / "tokenizer_config.json").is_file()
    if not base.is_dir():
        wanted = ["config.json"] if has_tokenizer else hub.TOKENIZER_FILES
        base = hub.folder(_settings(values).modelBase, wanted)
    return Files(folder, folder if has_tokenizer else base, base, hub.first_file(name, WEIGHTS), None)


def _is_legacy(values: Mapping[str, Any]) -> bool:
    return values.get("model_type") != "M-CLIP" and "modelBase" not in values


def _settings(values: Mapping[str, Any]) -> Any:
    """The package's own config class, whose fields and defaults these are."""
    from multilingual_clip.Config_MCLIP import MCLIPConfig

    checked(values, f"the config.json of {EXPECTED}", _Settings)
    with one_sentence(f"the config.json of {EXPECTED} cannot be read"):
        return MCLIPConfig.from_dict(dict(values))


def _linear_file(config: MClipConfig, folder: Path) -> Path:
    if config.linear is not None:
        return existing_file(Path(config.linear), LINEAR)
    found = [path for path in folder.iterdir() if "linear" in path.name.lower() and path.suffix in LINEAR_SUFFIXES]
    if len(found) == 1:
        return found[0]
    what = f"has several files for it ({', '.join(sorted(path.name for path in found))})" if found else "has none"
    raise InputError(
        f"{config.model} is of Multilingual-CLIP's legacy layout, whose linear layer is a file of its own, and {what}: "
        "give it by linear=PATH, or lay one '… Linear Weights.pkl' into the folder"
    )


def check(config: MClipConfig) -> None:
    name = config.model.partition(":")[2]
    hub.check_name(name)
    folder = model_path(name)
    if folder.is_dir():
        values = read_config(folder, EXPECTED, key=None)
        if (folder / "base").is_dir() or _is_legacy(values):  # otherwise the base is on the hub
            find(config)


def revision(config: MClipConfig) -> str:
    files = find(config)
    facts = {"folder": hub.folder_digest(files.folder), "weights": sha256_of(files.weights)}
    facts |= {"base": _config_digest(files.base), "tokenizer": hub.folder_digest(files.tokenizer)}
    return digest(facts | ({"linear": sha256_of(files.linear)} if files.linear else {}))


def _config_digest(base: Path) -> str:
    """Of this one file: a folder in the hub's cache may gain others later."""
    return sha256_of(existing_file(base / "config.json", "the config of the base transformer"))


def load(config: MClipConfig, device: torch.device) -> TextEncoder:
    files = find(config)
    transformer, linear = _legacy(files, config) if files.linear else _current(files)
    tokenizer = load_tokenizer(files.tokenizer, transformer.config)
    weights = {"name": files.weights.name, "sha256": sha256_of(files.weights)}
    if files.linear:
        weights |= {"linear": files.linear.name, "linear_sha256": sha256_of(files.linear)}
    parts = TextParts(
        transformer=transformer,
        tokenizer=tokenizer,
        context_length=context_length(tokenizer, transformer, config.model),
        pool=mean_pooling,
        width=linear.in_features,
        weights=weights,
        head=nn.Sequential(linear),
        facts={"image_model": _pair(config.model)},
    )
    return TextEncoder(config, parts, device)


def _pair(model: str) -> str | None:
    try:
        return paired_image_model(model)
    except InputError:
        return None


# --- the current layout: one file


class _Tower(nn.Module):
    """Its parameters have the names that the published files give them."""

    def __init__(self, transformer: nn.Module, linear: nn.Linear):
        super().__init__()
        self.transformer = transformer
        self.LinearTransformation = linear


def _current(files: Files) -> tuple[Any, nn.Linear]:
    settings = _settings(read_config(files.folder, EXPECTED, key=None))
    transformer = _from_config(files.base)
    with torch.random.fork_rng(devices=[]):  # initialised, which draws, and then overwritten
        linear = nn.Linear(settings.transformerDimensions, settings.numDims)
    without_pooler = drop_pooler(transformer)
    state = checkpoint.read_state_dict(files.weights)
    if without_pooler:
        state = {name: value for name, value in state.items() if not name.startswith("transformer.pooler.")}
    checkpoint.load_state_dict(_Tower(transformer, linear), state, str(files.weights))
    return transformer, linear


def _from_config(base: Path) -> Any:
    """The architecture alone: its own pretrained weights would be overwritten, so they are not downloaded."""
    from transformers import AutoModel

    return from_settings(AutoModel, read_settings(base, str(base)), str(base))


# --- the legacy layout: two files


def _legacy(files: Files, config: MClipConfig) -> tuple[Any, nn.Linear]:
    from transformers import AutoModel

    assert files.linear is not None
    transformer = load_model(AutoModel, files.folder, config.model)
    weight, bias = _read_linear(files.linear)
    width = transformer.config.hidden_size
    if weight.ndim != 2 or weight.shape[1] != width or bias.shape != weight.shape[:1]:
        raise InputError(
            f"{files.linear} does not fit {config.model}: the weights map {tuple(weight.shape)[-1:]} columns with a "
            f"bias of shape {tuple(bias.shape)}, the transformer has {width}"
        )
    linear = nn.Linear(width, len(weight), device="meta")
    linear.load_state_dict({"weight": weight.float().contiguous(), "bias": bias.float()}, assign=True)
    return transformer, linear


def _read_linear(path: Path) -> tuple[Tensor, Tensor]:
    """(weight, bias) as nn.Linear has them. The pickles are from TensorFlow, whose weight is the transpose."""
    if path.suffix == ".pkl":
        arrays = read_pickled_arrays(path, LINEAR)
        if len(arrays) != 2:
            raise InputError(f"{path} holds {len(arrays)} arrays; weight and bias of a linear layer were expected")
        return torch.tensor(arrays[0]).t(), torch.tensor(arrays[1])
    state = {name.rpartition(".")[2]: value for name, value in checkpoint.read_state_dict(path).items()}
    if state.keys() != {"weight", "bias"}:
        raise InputError(f"{path} holds {', '.join(sorted(state))}; weight and bias of a linear layer were expected")
    return state["weight"], state["bias"]


encoders.add(
    "mclip",
    EncoderEntry(
        config=MClipConfig,
        load=load,
        revision=revision,
        pattern="mclip:ORG/NAME or PATH",
        summary="a text tower of Multilingual-CLIP, current or legacy layout (linear)",
        check=check,
    ),
)

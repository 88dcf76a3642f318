"""Text towers of Multilingual-CLIP in both layouts: mean over the tokens, then a linear layer, not normalized.

current   config.json of type M-CLIP; one file with transformer.* and LinearTransformation.*; the base transformer's
          config (and tokenizer, where the folder has none) in base/ beside it, or on the hub under its modelBase
legacy    a transformer in transformers' layout; the linear layer in a file of its own, beside it or given as linear=
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, Field
from torch import nn

from clip_geometry.config import digest
from clip_geometry.encoders import checkpoint, hub
from clip_geometry.encoders.base import EncoderConfig, EncoderEntry, encoders
from clip_geometry.encoders.hf import (
    WEIGHTS,
    drop_pooler,
    from_settings,
    load_model,
    load_tokenizer,
    one_sentence,
    read_config,
    read_settings,
)
from clip_geometry.encoders.hf.text import TextEncoder, TextParts, mean_pooling
from clip_geometry.encoders.hub import model_path
from clip_geometry.files import sha256_of
from clip_geometry.io.pickles import read_pickle
from clip_geometry.io.reading import checked
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, shown

EXPECTED = "a text tower of Multilingual-CLIP"
LINEAR = "a file with the weights of a linear layer"
LINEAR_SUFFIXES = (".pkl", ".safetensors", ".pt", ".bin")

# The image model that each tower was trained to match: README of FreddeFrallan/Multilingual-CLIP, both tables ("Vision
# Model"). OpenAI's weights want QuickGELU. The model card of M-BERT-Base-ViT-B says Res50x4, copied from its neighbor:
# the README, and its 512 columns, say ViT-B/32.
B32, L14, RN50X4 = "ViT-B-32-quickgelu/openai", "ViT-L-14-quickgelu/openai", "RN50x4-quickgelu/openai"
PAIRS = {
    "M-CLIP/XLM-Roberta-Large-Vit-B-16Plus": "ViT-B-16-plus-240/laion400m_e32",
    "M-CLIP/XLM-Roberta-Large-Vit-B-32": B32,
    "M-CLIP/XLM-Roberta-Large-Vit-L-14": L14,
    "M-CLIP/LABSE-Vit-L-14": L14,
    "M-CLIP/M-BERT-Distil-40": RN50X4,
    "M-CLIP/M-BERT-Base-69": RN50X4,
    "M-CLIP/M-BERT-Base-ViT-B": B32,
    "M-CLIP/Swedish-500k": RN50X4,
    "M-CLIP/Swedish-2M": RN50X4,
}


def paired_image_model(model: str) -> str:
    """Name the image model whose embedding space a Multilingual-CLIP text tower shares.

    Args:
        model: name of the text tower, `mclip:ORG/NAME` or `mclip:PATH`. A folder states its image model as
            `image_model` in its config.json.

    Returns:
        The name of the image model, for `resolve_encoder`.

    Raises:
        InputError: the model is not a text tower of Multilingual-CLIP, or its image model is not known.

    Example:
        >>> import clip_geometry as cg
        >>> cg.paired_image_model("mclip:M-CLIP/LABSE-Vit-L-14")
        'open_clip:ViT-L-14-quickgelu/openai'
    """
    prefix, _, name = model.partition(":")
    if prefix != "mclip":
        raise InputError(f"{model} has no paired image model: only towers of Multilingual-CLIP, mclip:…, have one")
    folder = model_path(name)
    if folder.is_dir():
        stated = read_config(folder, EXPECTED, key=None).get("image_model")
        if isinstance(stated, str) and stated:
            return stated
        raise InputError(
            f'{model} names no image model: add "image_model": "open_clip:NAME/TAG" to its config.json, '
            "the one whose space it was trained to share"
        )
    if name not in PAIRS:
        raise InputError(f"no image model is known for {model}; it is for mclip: and one of {', '.join(PAIRS)}")
    return f"open_clip:{PAIRS[name]}"


# --- files


class MClipConfig(EncoderConfig):
    """mclip:ORG/NAME or mclip:PATH.

    linear: the file with the linear layer's weights, for a tower of the legacy layout that does not have it beside it
    ("M-BERT Distil 40 Linear Weights.pkl", by get-weights.sh of Multilingual-CLIP).
    """

    linear: str | None = None


@dataclass(frozen=True)
class Files:
    """The files of a tower. base: the folder with the base transformer's config; linear: legacy layout only."""

    folder: Path
    tokenizer: Path
    base: Path
    weights: Path
    linear: Path | None


Width = Annotated[int, Field(ge=1, le=2**16, strict=True)]


class _Settings(BaseModel):
    """The fields of config.json that are used here."""

    modelBase: str = ""
    transformerDimensions: Width = 1
    numDims: Width = 1


def _settings(values: Mapping[str, Any]) -> Any:
    """config.json as the package's own config class, which has the defaults."""
    from multilingual_clip.Config_MCLIP import MCLIPConfig

    checked(values, f"the config.json of {EXPECTED}", _Settings)
    with one_sentence(f"the config.json of {EXPECTED} cannot be read"):
        return MCLIPConfig.from_dict(dict(values))


def _is_legacy(values: Mapping[str, Any]) -> bool:
    return values.get("model_type") != "M-CLIP" and "modelBase" not in values


def find(config: MClipConfig) -> Files:
    """Config and tokenizer files of tower and base, and the weights; downloaded if need be."""
    folder = hub.folder(config.name, hub.TOKENIZER_FILES)
    values = read_config(folder, EXPECTED, key=None)
    if not _is_legacy(values):
        if config.linear is not None:
            raise InputError(f"{config.model} has its linear layer among its weights; leave linear out")
        base = folder / "base"
        has_tokenizer = (folder / "tokenizer_config.json").is_file()
        if not base.is_dir():
            wanted = ["config.json"] if has_tokenizer else hub.TOKENIZER_FILES
            base = hub.folder(_settings(values).modelBase, wanted)
        return Files(folder, folder if has_tokenizer else base, base, hub.first_file(config.name, WEIGHTS), None)
    if config.linear is not None:
        linear = existing_file(Path(config.linear), LINEAR)
    else:
        found = [path for path in folder.iterdir() if "linear" in path.name.lower() and path.suffix in LINEAR_SUFFIXES]
        if len(found) != 1:
            several = f"has several files for it ({', '.join(sorted(path.name for path in found))})"
            raise InputError(
                f"{config.model} is of Multilingual-CLIP's legacy layout, whose linear layer is a file of its own, and "
                f"{several if found else 'has none'}: give it by linear=PATH, or lay one '… Linear Weights.pkl' into "
                "the folder"
            )
        linear = found[0]
    return Files(folder, folder, folder, hub.first_file(config.name, WEIGHTS), linear)


def check(config: MClipConfig) -> None:
    hub.check_name(config.name)
    folder = model_path(config.name)
    if folder.is_dir():
        values = read_config(folder, EXPECTED, key=None)
        if (folder / "base").is_dir() or _is_legacy(values):  # otherwise the base is on the hub
            find(config)


def revision(config: MClipConfig) -> str:
    files = find(config)
    # the config alone, because a base in the hub's cache may gain other files later
    base = existing_file(files.base / "config.json", "the config of the base transformer")
    facts = {"folder": hub.folder_digest(files.folder), "weights": sha256_of(files.weights)}
    facts |= {"base": sha256_of(base), "tokenizer": hub.folder_digest(files.tokenizer)}
    return digest(facts | ({"linear": sha256_of(files.linear)} if files.linear else {}))


# --- models


def load(config: MClipConfig, device: torch.device) -> TextEncoder:
    from transformers import AutoModel

    files = find(config)
    if files.linear:
        transformer, linear = _load_legacy(files, config)
    else:
        settings = _settings(read_config(files.folder, EXPECTED, key=None))
        # the architecture alone: its own pretrained weights would be overwritten, so they are not downloaded
        transformer = from_settings(AutoModel, read_settings(files.base, str(files.base)), str(files.base))
        with torch.random.fork_rng(devices=[]):  # initialization draws random numbers
            linear = nn.Linear(settings.transformerDimensions, settings.numDims)
        without_pooler = drop_pooler(transformer)
        state = checkpoint.read_state_dict(files.weights)
        if without_pooler:
            state = {name: value for name, value in state.items() if not name.startswith("transformer.pooler.")}
        tower = nn.ModuleDict({"transformer": transformer, "LinearTransformation": linear})  # names in the file
        checkpoint.load_state_dict(tower, state, str(files.weights))
    weights = {"name": files.weights.name, "sha256": sha256_of(files.weights)}
    if files.linear:
        weights |= {"linear": files.linear.name, "linear_sha256": sha256_of(files.linear)}
    image_model = None
    with suppress(InputError):
        image_model = paired_image_model(config.model)
    parts = TextParts(
        transformer=transformer,
        tokenizer=load_tokenizer(files.tokenizer, transformer.config),
        pool=mean_pooling,
        width=linear.in_features,
        weights=weights,
        head=nn.Sequential(linear),
        facts={"image_model": image_model},
    )
    return TextEncoder(config, parts, device)


def _load_legacy(files: Files, config: MClipConfig) -> tuple[Any, nn.Linear]:
    from transformers import AutoModel

    transformer, path = load_model(AutoModel, files.folder, config.model), files.linear
    assert path is not None
    if path.suffix == ".pkl":
        arrays = read_pickle(path, "a pickled list of arrays")
        numeric = isinstance(arrays, list | tuple) and all(
            isinstance(value, np.ndarray) and value.dtype.kind == "f" for value in arrays
        )
        if not numeric:
            raise InputError(
                f"{shown(path)} is no pickled list of arrays of floating-point numbers; {LINEAR} was expected"
            )
        if len(arrays) != 2:
            raise InputError(f"{path} holds {len(arrays)} arrays; weight and bias of a linear layer were expected")
        weight, bias = torch.tensor(arrays[0]).t(), torch.tensor(arrays[1])  # from TensorFlow, which has the transpose
    else:
        state = {name.rpartition(".")[2]: value for name, value in checkpoint.read_state_dict(path).items()}
        if state.keys() != {"weight", "bias"}:
            given = ", ".join(sorted(state))
            raise InputError(f"{path} holds {given}; weight and bias of a linear layer were expected")
        weight, bias = state["weight"], state["bias"]
    width = transformer.config.hidden_size
    if weight.ndim != 2 or weight.shape[1] != width or bias.shape != weight.shape[:1]:
        raise InputError(
            f"{path} does not fit {config.model}: the weights map {tuple(weight.shape)[-1:]} columns with a "
            f"bias of shape {tuple(bias.shape)}, the transformer has {width}"
        )
    linear = nn.Linear(width, len(weight), device="meta")
    linear.load_state_dict({"weight": weight.float().contiguous(), "bias": bias.float()}, assign=True)
    return transformer, linear


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

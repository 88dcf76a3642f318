"""Text towers of Multilingual-CLIP: the mean over the tokens, then a linear layer, not normalized.

There are two layouts:

current   config.json of type M-CLIP; one file with transformer.* and LinearTransformation.*; the base transformer's
          config (and tokenizer, if the folder has none) in base/ beside it, or on the hub under the name in modelBase
legacy    a transformer in transformers' layout; the linear layer as pickled arrays, beside it or given as linear=
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

from clip_geometry.catalog import read_yaml
from clip_geometry.config import digest
from clip_geometry.encoders import hf, hub
from clip_geometry.encoders.base import EncoderConfig, EncoderEntry, encoders
from clip_geometry.encoders.hf.text import TextEncoder, mean_pooling
from clip_geometry.encoders.runtime import seeded
from clip_geometry.files import sha256_of
from clip_geometry.io.reading import checked, read_pickle
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, instance

EXPECTED = "a text tower of Multilingual-CLIP"


def paired_image_model(model: str) -> str:
    """Return the name of the CLIP image model that a Multilingual-CLIP text model was trained to match.

    Args:
        model: Name of the text model, `mclip:ORG/NAME` or `mclip:PATH`. The config.json of a folder must name the image
            model as `image_model`.

    Returns:
        The name of the image model, for `resolve_encoder`.

    Raises:
        InputError: The model is not a Multilingual-CLIP text tower, or its image model is not known.

    Example:
        >>> import clip_geometry as cg
        >>> cg.encoders.paired_image_model("mclip:M-CLIP/LABSE-Vit-L-14")
        'open_clip:ViT-L-14-quickgelu/openai'
    """
    prefix, _, name = instance(model, str, "model", "the name of a model").partition(":")
    if prefix != "mclip":
        raise InputError(f"{model} has no paired image model: only towers of Multilingual-CLIP, mclip:…, have one")
    folder = hub.model_path(name)
    if folder.is_dir():
        stated = hf.read_config(folder, EXPECTED).get("image_model")
        if isinstance(stated, str) and stated:
            return stated
        raise InputError(f'{model} names no image model: add "image_model": "open_clip:NAME/TAG" to its config.json')
    pairs = read_yaml(Path(__file__).with_name("mclip.yaml"))
    if name not in pairs:
        raise InputError(f"no image model is known for {model}; expected mclip: and one of {', '.join(pairs)}")
    return f"open_clip:{pairs[name]}"


class MClipConfig(EncoderConfig):
    """mclip:ORG/NAME or PATH: a text tower of Multilingual-CLIP, current or legacy layout (linear).

    Attributes:
        linear: File with the linear layer's weights, for a tower of the legacy layout without this file in its folder
            ("M-BERT Distil 40 Linear Weights.pkl", downloaded by get-weights.sh of Multilingual-CLIP).
    """

    linear: str | None = None


@dataclass(frozen=True)
class Files:
    """The files of a tower.

    Attributes:
        base: Folder or hub name of the base transformer.
        linear: File of the linear layer, in the legacy layout only.
    """

    folder: Path
    base: str
    weights: Path
    linear: Path | None = None

    def base_and_tokenizer(self) -> tuple[Path, Path]:
        """Return the folders of the base transformer's config and of the tokenizer, downloaded if necessary."""
        tokenizer = hub.tokenizer_in(self.folder)
        if tokenizer is not None:
            return hub.folder(self.base, ["config.json"]), tokenizer
        base = hub.folder(self.base, hub.TOKENIZER_FILES)
        return base, base


Width = Annotated[int, Field(ge=1, le=2**16, strict=True)]


class TowerFields(BaseModel):
    """The fields of config.json that this module uses."""

    modelBase: str = ""
    transformerDimensions: Width = 1
    numDims: Width = 1


def _settings(values: Mapping[str, Any]) -> Any:
    """Return config.json as an object of the multilingual_clip package's config class, which has the defaults."""
    from multilingual_clip.Config_MCLIP import MCLIPConfig

    checked(values, f"the config.json of {EXPECTED}", TowerFields)
    with hf.one_sentence(f"the config.json of {EXPECTED} cannot be read"):
        return MCLIPConfig.from_dict(dict(values))


def find(config: MClipConfig) -> Files:
    """Return the tower's files, downloaded if necessary, and the location of its base."""
    folder = hub.folder(config.name, hub.TOKENIZER_FILES)
    values = hf.read_config(folder, EXPECTED)
    weights = hub.first_file(config.name, hf.WEIGHTS)
    if values.get("model_type") != "M-CLIP" and "modelBase" not in values:
        path = config.linear or next(iter(sorted(folder.glob("*Linear*.pkl"))), None)
        if path is None:
            raise InputError(
                f"{config.model} has Multilingual-CLIP's legacy layout, whose linear layer is a separate file: give it "
                "with linear=PATH, or put its '… Linear Weights.pkl' into the folder"
            )
        linear = existing_file(path, "a file with the weights of a linear layer")
        return Files(folder, str(folder), weights, linear)
    if config.linear is not None:
        raise InputError(f"{config.model} has its linear layer among its weights; leave linear out")
    base = folder / "base"
    return Files(folder, str(base) if base.is_dir() else _settings(values).modelBase, weights)


def revision(config: MClipConfig) -> str:
    files = find(config)
    base, tokenizer = files.base_and_tokenizer()
    # only the config, because a base in the hub's cache may get more files later
    base_config = existing_file(base / "config.json", "the config of the base transformer")
    facts = {"folder": hub.folder_digest(files.folder), "weights": sha256_of(files.weights)}
    facts |= {"base": sha256_of(base_config), "tokenizer": hub.folder_digest(tokenizer)}
    if files.linear:
        facts["linear"] = sha256_of(files.linear)
    return digest(facts)


def load(config: MClipConfig, device: torch.device) -> TextEncoder:
    from transformers import AutoModel

    files = find(config)
    base, tokenizer_folder = files.base_and_tokenizer()
    weights = {"name": files.weights.name, "sha256": sha256_of(files.weights)}
    if files.linear:
        transformer = hf.load_model(AutoModel, files.folder, config.model)
        linear = _read_linear(files.linear, transformer.config.hidden_size)
        weights |= {"linear": files.linear.name, "linear_sha256": sha256_of(files.linear)}
    else:
        settings = _settings(hf.read_config(files.folder, EXPECTED))
        # only the architecture: its pretrained weights would be overwritten, so they are not downloaded
        transformer = hf.from_settings(AutoModel, hf.read_settings(base, str(base)), str(base))
        with seeded():
            linear = nn.Linear(settings.transformerDimensions, settings.numDims)
        state = hub.read_state_dict(files.weights)
        if hf.drop_pooler(transformer):
            state = {name: value for name, value in state.items() if not name.startswith("transformer.pooler.")}
        tower = nn.ModuleDict({"transformer": transformer, "LinearTransformation": linear})  # as in the file
        hub.load_state_dict(tower, state, str(files.weights))
    image_model = None
    with suppress(InputError):
        image_model = paired_image_model(config.model)
    return TextEncoder(
        config,
        device,
        transformer,
        hf.load_tokenizer(tokenizer_folder, transformer.config),
        mean_pooling,
        linear.in_features,
        weights,
        nn.Sequential(linear),
        facts={"image_model": image_model},
    )


def _read_linear(path: Path, width: int) -> nn.Linear:
    """Read the linear layer of the legacy layout: pickled TensorFlow arrays, in which the weight is transposed."""
    content = read_pickle(path, "a pickled list of arrays")
    arrays = [np.asarray(item) for item in content] if isinstance(content, list | tuple) else []
    shapes = [array.shape for array in arrays]
    is_float = all(array.dtype.kind == "f" for array in arrays)
    if not is_float or len(shapes) != 2 or len(shapes[1]) != 1 or shapes[0] != (width, *shapes[1]):
        raise InputError(
            f"{path} holds {shapes or 'something else'}; expected a linear layer: the pickled arrays ({width}, d) and "
            "(d,) of floating-point numbers"
        )
    weight, bias = (torch.tensor(array, dtype=torch.float32) for array in arrays)
    linear = nn.Linear(width, len(bias), device="meta")
    linear.load_state_dict({"weight": weight.t().contiguous(), "bias": bias}, assign=True)
    return linear


encoders.add("mclip", EncoderEntry(MClipConfig, load, revision, hub.local_check(find)))

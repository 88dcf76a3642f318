"""Models of open_clip: published by name and tag, fresh, from a checkpoint, on the hub or in a folder.

With features "pooled", rows are the input of a tower's last projection:

- VisionTransformer and the text transformers: the pooled token after the last LayerNorm.
- ModifiedResNet: the attention-pooled vector before c_proj.
- timm towers: the pooled output of the trunk before the head's linear layer or MLP, or before the trunk's own
  classifier if that is the projection.
- Hugging Face text towers: the output of the pooler.

Towers without a projection (SigLIP's image tower) have no pooled features.
"""

import importlib
import importlib.util
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float
from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, model_validator
from torch import Tensor, nn
from torch.func import functional_call

from clip_geometry.config import digest
from clip_geometry.encoders import base, hub, runtime
from clip_geometry.encoders.base import Encoder, EncoderConfig, EncoderEntry, Pixels, Tokens, encoders
from clip_geometry.encoders.hf import check_ids, one_sentence, read_settings
from clip_geometry.files import sha256_of
from clip_geometry.io.reading import checked, read_json
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, did_you_mean, shown

QUICKGELU = "-quickgelu"
CONFIG_FILE = "open_clip_config.json"
HUB_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
FOLDER_WEIGHTS = (*HUB_WEIGHTS, "model.safetensors", "pytorch_model.bin", "pytorch_model.pth", "model.pth")
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")


# --- checks of a model's config in open_clip's format, before it is passed to open_clip
#
# Sizes are limited, and keyword arguments that open_clip passes on to other libraries are whitelisted: tokenizer_kwargs
# reach AutoTokenizer.from_pretrained, where trust_remote_code would run modules in the folder. All other keys are left
# to open_clip, which rejects unknown ones.

Size = Annotated[int, Field(ge=1, le=2**20)]
Layers = Annotated[int, Field(ge=0, le=1000)]


def _sides(value: Any) -> Any:
    """Validate an image size: one number of pixels, a list, or a mapping such as {height: …, width: …}."""
    if isinstance(value, dict):
        sides = list(value.values())
    else:
        sides = value if isinstance(value, list) else [value]
    if not all(side is None or (isinstance(side, int) and 1 <= side <= 2**14) for side in sides):
        raise ValueError("sides of 1 to 16384 pixels were expected")
    return value


Sides = Annotated[Any, AfterValidator(_sides)]  # of an image: a number, a list or a dictionary
# one value per channel, for pixels from 0 to 1; open_clip divides by the standard deviations
Mean = Annotated[list[Annotated[FiniteFloat, Field(ge=-1000, le=1000)]], Field(min_length=3, max_length=3)]
StandardDeviation = Annotated[list[Annotated[FiniteFloat, Field(ge=1e-6, le=1e6)]], Field(min_length=3, max_length=3)]


class _Tower(BaseModel):
    width: Size = 1
    layers: Layers | list[Layers] = 1
    act_kwargs: dict[Literal["approximate"], Literal["none", "tanh"]] | None = None
    norm_kwargs: dict[Literal["eps"], Annotated[FiniteFloat, Field(gt=0)]] | None = None


class _Vision(_Tower):
    image_size: Sides = 1
    # only a name: timm would also accept hf-hub:ORG/NAME and local-dir:PATH and read keyword arguments from there
    timm_model_name: Annotated[str, Field(pattern=r"^[\w.]*$")] | None = None


class _Text(_Tower):
    context_length: Annotated[int, Field(ge=1, le=2**17)] = 1
    vocab_size: Size = 1
    hf_model_name: str | None = None
    hf_tokenizer_name: str | None = None
    tokenizer_mode: Literal["clips"] | None = None
    tokenizer_kwargs: dict[Literal["clean", "strip_sep_token", "language"], str | bool | None] | None = None


class ModelFields(BaseModel):
    """The fields of model_cfg."""

    embed_dim: Size
    vision_cfg: _Vision
    text_cfg: _Text
    multimodal_cfg: _Tower | None = None


class PreprocessingFields(BaseModel):
    """The fields of preprocess_cfg."""

    size: Sides = None
    mean: Mean | None = None
    std: StandardDeviation | None = None
    interpolation: Literal["bicubic", "bilinear", "random"] | None = None
    resize_mode: Literal["shortest", "longest", "squash"] | None = None
    fill_color: Annotated[int, Field(ge=0, le=255)] | None = None


class OpenClipFile(BaseModel):
    """The fields of open_clip_config.json."""

    model_cfg: ModelFields
    preprocess_cfg: PreprocessingFields | None = None


# --- sources: from names and options to architecture, weights and tokenizer


@dataclass(frozen=True)
class ModelSource:
    """The source of a model.

    Attributes:
        name: open_clip's name of the model.
        architecture: The model_cfg.
        weights: Function that returns the path of the weights file, downloaded if necessary; None for a fresh model.
    """

    name: str
    architecture: Mapping[str, Any]
    weights: Callable[[], Path] | None
    published: bool = False  # whether open_clip can convert the layout of the weights; others must fit exactly
    quick_gelu: bool = False  # whether to force QuickGELU
    preprocessing: Mapping[str, Any] = field(default_factory=dict)  # settings of the tag
    folder: Path | None = None


def list_names() -> dict[str, tuple[str, ...]]:
    """Return open_clip's architectures and the tags of each, without importing all of open_clip (4 s)."""
    spec = importlib.util.find_spec("open_clip")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    # a package with another name for the same folder, so that pretrained.py is run but __init__ is not
    alias = "_clip_geometry_open_clip"
    package = sys.modules.setdefault(alias, types.ModuleType(alias))
    package.__path__ = [str(folder)]
    pairs = importlib.import_module(f"{alias}.pretrained").list_pretrained()
    names = sorted(path.stem for path in (folder / "model_configs").glob("*.json"))
    return {name: tuple(tag for owner, tag in pairs if owner == name) for name in names}


class OpenClipConfig(base.BatchNormOption):
    """Options of all open_clip models."""

    def source(self) -> ModelSource:
        """Return the sources of the architecture, tokenizer and weights.

        Raises InputError if the name, tag, activation, file or folder is wrong. Nothing is downloaded at this point,
        except for the config and tokenizer of hf-hub: models.
        """
        raise NotImplementedError


class FreshConfig(base.SeededConfig, OpenClipConfig):
    """Options of open_clip models that can be initialized randomly."""

    @property
    def is_fresh(self) -> bool:
        return True


class NamedConfig(base.NamedWeights, FreshConfig):
    """open_clip:NAME/TAG | NAME/fresh | NAME@PATH: published weights; random initialization; a checkpoint.

    Attributes:
        quick_gelu: Whether a checkpoint was trained with QuickGELU.
    """

    quick_gelu: bool | None = None

    @model_validator(mode="after")
    def _checkpoint_only(self) -> Self:
        if self.quick_gelu is not None and self.parts[1] != "path":
            raise ValueError("quick_gelu is only for open_clip:NAME@PATH; otherwise, the architecture's name decides")
        return self

    def source(self) -> ModelSource:
        import open_clip

        name, kind, rest = self.parts
        architecture = open_clip.get_model_config(name) if name in open_clip.list_models() else None
        if architecture is None:
            near = did_you_mean(name, open_clip.list_models())
            raise InputError(f"open_clip has no model {shown(name)}{near or '; see clip-geometry list models'}")
        checked(architecture, f"open_clip's config of {name}", ModelFields)  # users can register configs from files
        if kind == "fresh":
            return ModelSource(name, architecture, weights=None)
        if kind == "path":
            path = existing_file(rest, "a checkpoint file")
            forced = self._activation(name, architecture)
            return ModelSource(name, architecture, weights=lambda: path, quick_gelu=forced)
        return _published(name, rest, architecture)

    def _activation(self, name: str, architecture: Mapping[str, Any]) -> bool:
        """Return whether to build with QuickGELU, by name or option, since a state dict does not contain this."""
        by_name = architecture.get("quick_gelu", False)
        is_timm = "timm_model_name" in architecture["vision_cfg"]
        is_hf = "hf_model_name" in architecture["text_cfg"]
        has_choice = not (is_timm and is_hf)
        if self.quick_gelu is None and has_choice and not by_name:
            raise InputError(
                f"{self.model}: a checkpoint does not state its activation; add quick_gelu=true (trained as "
                f"{name}{QUICKGELU}) or quick_gelu=false (trained as {name})"
            )
        if by_name and self.quick_gelu is False:
            plain = name.removesuffix(QUICKGELU)
            raise InputError(f"{self.model}: {name} is built with QuickGELU; for quick_gelu=false, use {plain}")
        return bool(self.quick_gelu) or by_name


def _published(name: str, tag: str, architecture: Mapping[str, Any]) -> ModelSource:
    """Return the source of published weights; raise InputError if their activation is not the architecture's."""
    import open_clip
    from open_clip.pretrained import get_pretrained_cfg

    tags = [*open_clip.list_pretrained_tags_by_model(name), "fresh"]
    if tag not in tags:
        hint = did_you_mean(tag, tags) or f"; it has {', '.join(tags)}"
        raise InputError(f"open_clip's {name} has no weights {tag!r}{hint}")
    settings = get_pretrained_cfg(name, tag)
    built = architecture.get("quick_gelu", False)
    trained = settings.get("quick_gelu", False)
    if built != trained:  # open_clip only warns
        other = name.removesuffix(QUICKGELU) if built else name + QUICKGELU
        remedy = f"load a downloaded file by open_clip:{name}@PATH with the activation it was trained with"
        if (other, tag) in open_clip.list_pretrained() and other != name:
            remedy = f"use open_clip:{other}/{tag}"
        activation = {True: "QuickGELU", False: "GELU"}
        raise InputError(
            f"open_clip says that the weights {tag!r} were trained with {activation[trained]}, but the architecture "
            f"{name} is built with {activation[built]}; {remedy}"
        )
    preprocessing = {k: settings[k] for k in ("mean", "std", "interpolation", "resize_mode") if k in settings}
    # hf_hub is "ORG/NAME/FILE", or "ORG/NAME/" for the usual file; safetensors are preferred
    repository, _, filename = settings["hf_hub"].rpartition("/")
    files = (str(Path(filename).with_suffix(".safetensors")), filename) if filename else HUB_WEIGHTS
    weights = partial(hub.first_file, repository, files)
    return ModelSource(name, architecture, weights, published=True, preprocessing=preprocessing)


class LocalConfig(base.FreshOption, FreshConfig):
    """local-dir:PATH: a folder in open_clip's layout; fresh=true: initialized."""

    def source(self) -> ModelSource:
        folder = hub.model_path(self.name)
        source = in_folder(folder)
        if self.fresh:
            return source
        named = [folder / name for name in FOLDER_WEIGHTS if (folder / name).is_file()]  # in open_clip's order
        others = sorted(path for path in folder.iterdir() if path.suffix in WEIGHT_SUFFIXES)
        if not named and len(others) != 1:
            problem = f"several checkpoints ({', '.join(path.name for path in others[:3])})" if others else "no weights"
            raise InputError(
                f"{shown(folder)} has {problem}; name one file {HUB_WEIGHTS[0]} ({HUB_WEIGHTS[1]} if it is pickled), "
                "or add fresh=true to initialize the model"
            )
        path = (named or others)[0]
        return replace(source, weights=lambda: path)


class HubConfig(OpenClipConfig):
    """hf-hub:ORG/NAME: a model on the Hugging Face hub in open_clip's layout."""

    def require_name(self) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", self.name):
            raise InputError(f"{shown(self.name)} is not a name on the Hugging Face hub; expected hf-hub:ORG/NAME")

    def source(self) -> ModelSource:
        self.require_name()
        source = in_folder(hub.folder(self.name, [CONFIG_FILE, *hub.TOKENIZER_FILES]))
        return replace(source, weights=partial(hub.first_file, self.name, HUB_WEIGHTS), published=True)


class ScenesClipConfig(FreshConfig):
    """scenes-clip/fresh: the package's own small model, random initialization."""

    model: Literal["scenes-clip/fresh"]  # pyright: ignore[reportIncompatibleVariableOverride]

    def source(self) -> ModelSource:
        return in_folder(scenes_folder())


def scenes_folder() -> Path:
    """Return the folder of the package's own small architecture and tokenizer, in open_clip's layout."""
    return hub.folder_of("scenes-clip")


def in_folder(folder: Path) -> ModelSource:
    """Return the source of a fresh model: a folder in open_clip's layout with a config and, if needed, a tokenizer."""
    if not folder.is_dir():
        raise InputError(f"model folder {shown(folder)} does not exist")
    path = hub.plain(folder) / CONFIG_FILE
    if not path.exists():
        raise InputError(f"{shown(folder)} has no {CONFIG_FILE}; a folder in open_clip's layout was expected")
    values = read_json(path, "a config of open_clip")
    checked(values, shown(path), OpenClipFile)
    return ModelSource(f"local-dir:{folder}", values["model_cfg"], weights=None, folder=folder)


# --- loading


def revision(config: OpenClipConfig) -> str:
    """Return a checksum that identifies the files of the architecture, weights and tokenizer.

    For fresh models it includes the versions of torch and open_clip, on which the initialization depends.
    """
    source = config.source()
    facts: dict[str, Any] = {"architecture": source.architecture, "preprocessing": source.preprocessing}
    if source.folder is not None:
        facts["folder"] = hub.folder_digest(source.folder)
        tokenizer = hub.tokenizer_in(source.folder)
        if tokenizer not in (None, source.folder):
            facts["tokenizer"] = hub.folder_digest(tokenizer)
    if source.weights is None:
        facts["versions"] = {name: version(name) for name in ("torch", "open_clip_torch")}
    else:
        facts["weights"] = sha256_of(source.weights())
    return digest(facts)


def load(config: OpenClipConfig, device: torch.device) -> "OpenClipEncoder":
    import open_clip
    from open_clip.transform import PreprocessCfg, image_transform_v2

    source = config.source()
    path = source.weights() if source.weights else None  # first, so that errors precede a slow initialization
    with runtime.quiet_logging():
        model = _build(source, config)
        tokenizer = _tokenizer(source)
        if path is None:
            assert isinstance(config, FreshConfig)
            weights = config.initialized(model)
        else:
            weights = {"name": path.name, "sha256": sha256_of(path)}
            if source.published:
                with one_sentence(f"the weights {shown(path)} of {config.model} cannot be loaded"):
                    open_clip.load_checkpoint(model, str(path), weights_only=True)  # converts all layouts
            else:
                hub.load_state_dict(model, hub.read_state_dict(path), str(path))
    transform = image_transform_v2(PreprocessCfg(**model.visual.preprocess_cfg), is_train=False)
    runtime.set_mode(model, config)
    return OpenClipEncoder(config, model.to(device), transform, tokenizer, source.architecture, weights)


def _build(source: ModelSource, config: OpenClipConfig) -> Any:
    """Return the initialized model, on the CPU, so that a seed gives the same weights on every device."""
    import open_clip

    options: dict[str, Any] = {
        "load_weights": False,
        "pretrained_text": False,
        "precision": config.precision,
        "force_quick_gelu": source.quick_gelu,
        "force_preprocess_cfg": dict(source.preprocessing),
    }
    text = source.architecture["text_cfg"]
    with one_sentence(f"open_clip cannot build the 'model_cfg' of {config.model}"):
        if name := text.get("hf_model_name"):
            from transformers import AutoModel

            folder = hub.folder(name, ["config.json"])
            # open_clip does not refuse custom code in a model, and transformers would ask for it on the terminal
            with torch.device("meta"), runtime.bounded(name):
                AutoModel.from_config(read_settings(folder, name), trust_remote_code=False)
            options["text_cfg"] = {**text, "hf_model_name": str(folder), "hf_model_pretrained": False}
        if source.folder is not None:  # check sizes from a file on the meta device, which allocates nothing
            with torch.device("meta"), runtime.bounded(config.model):
                open_clip.create_model(source.name, device="meta", **options)
        with runtime.seeded(config.seed if isinstance(config, FreshConfig) else 0):
            return open_clip.create_model(source.name, **options)


def _tokenizer(source: ModelSource) -> Any:
    """Return open_clip's own tokenizer, or a transformers tokenizer from the folder or by the name in the config."""
    import open_clip

    text = source.architecture["text_cfg"]
    name = text.get("hf_tokenizer_name")
    if not name:
        with one_sentence(f"open_clip has no tokenizer for {source.name}"):
            return open_clip.get_tokenizer(source.name)
    bundled = None if source.folder is None else hub.tokenizer_in(source.folder)
    folder = bundled or hub.folder(name, hub.TOKENIZER_FILES)
    with one_sentence(f"{shown(folder)} has no tokenizer that transformers can load"):
        tokenizer = open_clip.tokenizer.HFTokenizer(
            str(folder),
            context_length=text.get("context_length", open_clip.tokenizer.DEFAULT_CONTEXT_LENGTH),
            tokenizer_mode=text.get("tokenizer_mode"),
            trust_remote_code=False,
            **(text.get("tokenizer_kwargs") or {}),
        )
        tokenizer(["a text"])  # fails without a padding token
    return tokenizer


def count_truncated(tokenizer: Any, texts: Sequence[str], ids: Tensor, context_length: int) -> int:
    """Return the number of texts with more than `context_length` tokens, including start and end.

    Only rows that are filled to the end can have been truncated, so only these texts are tokenized again, in full. A
    row counts as filled if one of its last two tokens is not padding; two, because T5 pads with its end token.

    Args:
        tokenizer: A tokenizer of open_clip.
        texts: The texts.
        ids: The output of the tokenizer for the texts.
        context_length: Largest number of tokens.
    """
    inner = getattr(tokenizer, "tokenizer", None)
    padding = 0 if inner is None else inner.pad_token_id
    filled = (ids[:, -2:] != padding).any(dim=1)

    def tokens(text: str) -> int:
        if inner is None:  # SimpleTokenizer
            return len(tokenizer.encode(text)) + 2
        is_clips = getattr(tokenizer, "tokenizer_mode", "") == "clips"  # adds start, end and class token itself
        full = inner(tokenizer.clean_fn(text), truncation=False, verbose=False, add_special_tokens=not is_clips)
        return len(full.input_ids) + (3 if is_clips else 0)

    suspects = [text for text, is_filled in zip(texts, filled.tolist(), strict=True) if is_filled]
    return sum(tokens(text) > context_length for text in suspects)


# --- towers

# either the module whose input is the pooled features, or parameters that turn the projection into the identity
Projection = nn.Module | Mapping[str, Tensor]


class TextTower(nn.Module):
    """The text tower of open_clip's CLIP as one module; open_clip keeps its parts on the model itself."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model.encode_text(tokens, normalize=False)  # pyright: ignore[reportCallIssue]


def projection(tower: Any) -> Projection | None:
    """Return the tower's final projection, or None if it has none."""
    if hasattr(tower, "attnpool"):  # ModifiedResNet
        weight = tower.attnpool.c_proj.weight
        identity = torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)
        return {"attnpool.c_proj.weight": identity, "attnpool.c_proj.bias": torch.zeros_like(identity[0])}
    if hasattr(tower, "trunk"):  # TimmModel
        classifier = tower.trunk.get_classifier()
        own = classifier if isinstance(classifier, nn.Linear) else None
        return getattr(tower.head, "proj", getattr(tower.head, "mlp", own))
    if isinstance(tower, TextTower):
        path = "model.text_projection"
    else:
        path = "text_projection" if hasattr(tower, "text_projection") else "proj"
    value = attrgetter(path)(tower)
    if isinstance(value, Tensor):
        return {path: torch.eye(len(value), dtype=value.dtype, device=value.device)}
    return None if isinstance(value, nn.Identity) else value


def pooled_width(proj: Projection) -> int:
    """Return the number of columns of the pooled features."""
    if isinstance(proj, nn.Module):
        return next(module for module in proj.modules() if isinstance(module, nn.Linear)).in_features
    return len(next(iter(proj.values())))


def pooled(tower: nn.Module, proj: Projection, inputs: Tensor) -> Tensor:
    """Return the features of the tower before `proj`, its projection."""
    if not isinstance(proj, nn.Module):
        features = functional_call(tower, dict(proj), (inputs,))
        return features[0] if isinstance(features, tuple) else features  # CoCa's towers also return their tokens
    captured: list[Tensor] = []
    handle = proj.register_forward_pre_hook(lambda _, arguments: captured.append(arguments[0]))
    try:
        tower(inputs)
    finally:
        handle.remove()
    return captured[0]


def linear_head(tower: Any, proj: Projection | None, what: str) -> Float[Tensor, "width d"]:
    """Return the matrix A of the tower's final projection, which maps pooled features f ↦ f A.

    If the projection has a bias, it is the last row of A, which is then applied to f followed by 1.
    """
    if proj is None:
        raise InputError(f"{what} ends without a projection, so it has no head")
    linear = tower.attnpool.c_proj if hasattr(tower, "attnpool") else proj
    if isinstance(linear, nn.Linear):
        return linear.weight.T if linear.bias is None else torch.cat([linear.weight.T, linear.bias[None]])
    if isinstance(linear, nn.Module):
        raise InputError(
            f"{what} ends in a {type(linear).__name__}, which is not a linear projection, so it has no head"
        )
    return tower.get_parameter(next(iter(linear)))


@dataclass(eq=False)
class OpenClipEncoder(Encoder):
    """A model of open_clip in eval mode with its own evaluation transform and tokenizer."""

    modalities = frozenset({"image", "text"})

    config: EncoderConfig
    model: Any
    transform: Any
    tokenizer: Any
    architecture: Mapping[str, Any]
    weights: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.device = self.model.logit_scale.device
        self.context_length = self.tokenizer.context_length
        self.pixels = Pixels.of(self.transform)
        text = self.model.text if hasattr(self.model, "text") else TextTower(self.model)
        self._towers = {"image": self.model.visual, "text": text}
        self._projections = {modality: projection(tower) for modality, tower in self._towers.items()}

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        with one_sentence(f"the tokenizer of {self.config.model} fails"):
            ids = self.tokenizer(list(texts))
        return Tokens(ids, count_truncated(self.tokenizer, texts, ids, self.tokenizer.context_length))

    def image_features(self, pixels: Tensor) -> Tensor:
        pixels = pixels.to(self.device, runtime.DTYPES[self.config.precision])
        return self._features("image", self.model.encode_image, pixels)

    def text_features(self, tokens: Tokens) -> Tensor:
        tower = getattr(self.model, "text", self.model)
        embedding = getattr(tower, "token_embedding", None)
        if embedding is None:
            embedding = tower.transformer.get_input_embeddings()
        check_ids(tokens.inputs, embedding, self.config.model)
        return self._features("text", self.model.encode_text, tokens.inputs.to(self.device))

    def _features(self, modality: str, encode: Any, inputs: Tensor) -> Tensor:
        """Return projected or pooled features, as the config requests, as float32 rows on the CPU."""
        proj = self._projections[modality]
        with runtime.inference():
            if self.config.features == "projected":
                rows = encode(inputs, normalize=False)  # CoCa normalizes by default
            elif proj is None:
                raise InputError(
                    f"the {modality} tower of {self.config.model} ends without a projection, so it has no pooled "
                    "features; use features=projected"
                )
            else:
                rows = pooled(self._towers[modality], proj, inputs)
            return rows.float().cpu()

    def heads(self) -> dict[str, np.ndarray]:
        """Return the linear projection of each tower, on which `IsoCLIP` is fitted.

        A projection A maps pooled features f to embeddings f A. If it has a bias, the bias is the last row of A.

        Returns:
            Modality → A, (width, d) float64.

        Raises:
            InputError: A tower ends without a projection, or in one that is not linear.
        """
        heads = {}
        for modality, tower in self._towers.items():
            head = linear_head(tower, self._projections[modality], f"the {modality} tower of {self.config.model}")
            heads[modality] = head.detach().double().cpu().numpy()
        return heads

    def dim(self) -> Mapping[str, int | None]:
        if self.config.features == "projected":
            return dict.fromkeys(self._towers, self.architecture["embed_dim"])
        projections = self._projections.items()
        return {modality: None if proj is None else pooled_width(proj) for modality, proj in projections}

    def describe(self) -> dict[str, Any]:
        facts = super().describe()
        inner = getattr(self.tokenizer, "tokenizer", None)
        if inner is not None:
            facts["tokenizer"] += f"({type(inner).__name__} {self.architecture['text_cfg']['hf_tokenizer_name']})"
        return facts


encoders.add("open_clip", EncoderEntry(NamedConfig, load, revision, NamedConfig.source))
encoders.add("hf-hub", EncoderEntry(HubConfig, load, revision, HubConfig.require_name))
encoders.add("local-dir", EncoderEntry(LocalConfig, load, revision, LocalConfig.source))
encoders.add("scenes-clip", EncoderEntry(ScenesClipConfig, load, revision))

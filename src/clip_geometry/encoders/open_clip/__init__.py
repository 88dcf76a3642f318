"""Encoders of open_clip: by name and tag, fresh, from a checkpoint, from the hub, from a folder."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from pydantic import Field, model_validator
from torch import Tensor, nn

from clip_geometry.config import digest
from clip_geometry.data.images import rgb
from clip_geometry.encoders import checkpoint, hub
from clip_geometry.encoders.base import Encoder, EncoderConfig, EncoderEntry, Tokens, encoders
from clip_geometry.encoders.hf.loading import one_sentence, read_settings
from clip_geometry.encoders.hf.tokens import check_ids
from clip_geometry.encoders.open_clip.source import (
    Source,
    check_repository,
    from_folder,
    from_hub,
    from_name,
    parse,
    scenes_folder,
)
from clip_geometry.encoders.pixels import halves
from clip_geometry.encoders.pooled import Projection, TextTower, pooled, pooled_width, projection
from clip_geometry.encoders.runtime import DTYPES, activations, bounded, inference, parameter_count, quiet_logging
from clip_geometry.encoders.shipped import model_path
from clip_geometry.encoders.truncation import count_truncated
from clip_geometry.files import sha256_of
from clip_geometry.registry import InputError, shown


class OpenClipConfig(EncoderConfig):
    """What all forms have in common.

    batch_norm: "eval" uses the running statistics (in a fresh model the identity), "batch" those of the batch at hand;
    then a row depends on its batch.
    """

    batch_norm: Literal["eval", "batch"] = "eval"

    @property
    def depends_on_batch(self) -> bool:
        return self.batch_norm == "batch"


class HubConfig(OpenClipConfig):
    """hf-hub:ORG/NAME."""


class FreshConfig(OpenClipConfig):
    """What can be initialised. seed: of that. zero_bias: all biases of both towers set to zero afterwards."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    zero_bias: bool = False

    @property
    def is_fresh(self) -> bool:
        return True

    @model_validator(mode="after")
    def _fresh_only(self):
        if not self.is_fresh and (self.seed or self.zero_bias):
            raise ValueError("seed and zero_bias are for freshly initialised models, this one has weights")
        return self


class ScenesConfig(FreshConfig):
    """scenes-clip/fresh."""

    model: Literal["scenes-clip/fresh"]  # pyright: ignore[reportIncompatibleVariableOverride]


class NamedConfig(FreshConfig):
    """open_clip:NAME/TAG, NAME/fresh or NAME@PATH. quick_gelu: the activation a checkpoint was trained with."""

    quick_gelu: bool | None = None

    @property
    def is_fresh(self) -> bool:
        return parse(self.model)[1] == "fresh"

    @model_validator(mode="after")
    def _checkpoint_only(self):
        if self.quick_gelu is not None and parse(self.model)[1] != "path":
            raise ValueError("quick_gelu is for open_clip:NAME@PATH, otherwise the architecture's name decides")
        return self


class FolderConfig(FreshConfig):
    """local-dir:PATH. fresh: initialise instead of loading the folder's weights."""

    fresh: bool = False

    @property
    def is_fresh(self) -> bool:
        return self.fresh


def find(config: OpenClipConfig) -> Source:
    """Where the model comes from. Only for hf-hub: is anything downloaded, before the weights are asked for."""
    rest = config.model.partition(":")[2]
    if isinstance(config, NamedConfig):
        return from_name(config.model, config.quick_gelu)
    if isinstance(config, FolderConfig):
        return from_folder(model_path(rest), config.fresh)
    if isinstance(config, ScenesConfig):
        return from_folder(scenes_folder(), fresh=True)
    return from_hub(rest)


def check(config: OpenClipConfig) -> None:
    """Raises InputError where the name, tag, activation, file or folder is wrong; needs no network."""
    if isinstance(config, HubConfig):
        check_repository(config.model.partition(":")[2])
    else:
        find(config)


def revision(config: OpenClipConfig) -> str:
    """Identifies architecture, weights and tokenizer: checksums of the files; for fresh models also the versions
    of torch and open_clip, on which the initialisation depends."""
    source = find(config)
    facts: dict[str, Any] = {"architecture": source.architecture, "preprocessing": source.preprocessing}
    if source.folder is not None:
        facts["folder"] = hub.folder_digest(source.folder)
    if source.weights is None:
        facts["versions"] = {name: version(name) for name in ("torch", "open_clip_torch")}
    else:
        facts["weights"] = sha256_of(source.weights())
    return digest(facts)


def load(config: OpenClipConfig, device: torch.device) -> "OpenClipEncoder":
    from open_clip.transform import PreprocessCfg, image_transform_v2

    source = find(config)
    path = source.weights() if source.weights else None  # fetched first: errors before minutes of initialisation
    with quiet_logging():
        model = _build(source, config)
        tokenizer = _tokenizer(source)
        weights = _fresh_weights(model, config) if path is None else _load_weights(model, path, source, config.model)
    transform = image_transform_v2(PreprocessCfg(**model.visual.preprocess_cfg), is_train=False)
    model.eval()
    if config.batch_norm == "batch":
        _use_batch_statistics(model, config.model)
    return OpenClipEncoder(config, model.to(device), transform, tokenizer, source, weights)


def _build(source: Source, config: OpenClipConfig) -> Any:
    """The model as initialised, on the CPU, so that a seed gives the same weights whatever the device."""
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
        if text.get("hf_model_name"):
            folder = _without_code(text["hf_model_name"])
            options["text_cfg"] = {**text, "hf_model_name": str(folder), "hf_model_pretrained": False}
        if source.folder is not None:  # sizes from a file: on the meta device they take nothing
            with torch.device("meta"), bounded(config.model):
                open_clip.create_model(source.name, device="meta", **options)
        with torch.random.fork_rng(devices=[]):
            # not torch.manual_seed, which would reseed the GPUs too
            torch.default_generator.manual_seed(config.seed if isinstance(config, FreshConfig) else 0)
            return open_clip.create_model(source.name, **options)


def _without_code(name: str) -> Path:
    """The folder with the config of a text tower of transformers, which open_clip builds without saying that the
    model's own code must not run: then transformers would ask on the terminal."""
    from transformers import AutoModel

    folder = hub.folder(name, ["config.json"])
    with torch.device("meta"), bounded(name):
        AutoModel.from_config(read_settings(folder, name), trust_remote_code=False)
    return folder


def _fresh_weights(model: nn.Module, config: OpenClipConfig) -> dict[str, Any]:
    assert isinstance(config, FreshConfig)
    if config.zero_bias:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # logit_bias shifts logits, it is in neither tower
                if name.endswith("bias") and name != "logit_bias":
                    parameter.zero_()
    return {"name": "fresh", "seed": config.seed, "zero_bias": config.zero_bias}


def _load_weights(model: Any, path: Path, source: Source, name: str) -> dict[str, Any]:
    import open_clip

    if source.published:
        with one_sentence(f"the weights {shown(path)} of {name} cannot be loaded"):
            open_clip.load_checkpoint(model, str(path), weights_only=True)  # knows the layouts of all its tags
    else:
        checkpoint.load_state_dict(model, checkpoint.read_state_dict(path), str(path))
    return {"name": path.name, "sha256": sha256_of(path)}


def _use_batch_statistics(model: nn.Module, name: str) -> None:
    layers = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if not layers:
        raise InputError(f"{name} has no batch norm layers; leave batch_norm at eval")
    for layer in layers:
        layer.train()
        layer.track_running_stats = False  # neither used nor updated


def _tokenizer(source: Source) -> Any:
    import open_clip

    text = source.architecture["text_cfg"]
    name = text.get("hf_tokenizer_name")
    if not name:
        with one_sentence(f"open_clip has no tokenizer for {source.name}"):
            return open_clip.get_tokenizer(source.name)
    in_folder = source.folder is not None and (source.folder / "tokenizer_config.json").is_file()
    folder = source.folder if in_folder else hub.folder(name, hub.TOKENIZER_FILES)
    with one_sentence(f"{shown(folder)} holds no tokenizer that transformers can load"):
        tokenizer = open_clip.tokenizer.HFTokenizer(
            str(folder),
            context_length=text.get("context_length", open_clip.tokenizer.DEFAULT_CONTEXT_LENGTH),
            tokenizer_mode=text.get("tokenizer_mode"),
            trust_remote_code=False,
            **(text.get("tokenizer_kwargs") or {}),
        )
        tokenizer(["a text"])  # it pads, so the token for that must be there
        return tokenizer


class OpenClipEncoder(Encoder):
    """A model of open_clip in eval mode with its own evaluation transform and tokenizer."""

    modalities = frozenset({"image", "text"})

    def __init__(
        self,
        config: OpenClipConfig,
        model: Any,
        transform: Any,
        tokenizer: Any,
        source: Source,
        weights: Mapping[str, Any],
    ):
        self.config = config
        self.model = model
        self.device = model.logit_scale.device
        self.transform = transform
        self.pixels = halves(transform)
        self.tokenizer = tokenizer
        self._architecture = source.architecture
        self._weights = weights
        self._towers = {"image": model.visual, "text": model.text if hasattr(model, "text") else TextTower(model)}
        self._projections = {modality: projection(tower) for modality, tower in self._towers.items()}

    def preprocess(self, image: Image.Image) -> Tensor:
        return self.transform(rgb(image))

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        with one_sentence(f"the tokenizer of {self.config.model} fails"):
            ids = self.tokenizer(list(texts))
        return Tokens(ids, count_truncated(self.tokenizer, texts, ids, self.tokenizer.context_length))

    def compile(self) -> None:
        self.model.visual.compile()
        text = self.model.text if hasattr(self.model, "text") else self.model.transformer
        text.compile()

    def image_features(self, pixels: Tensor) -> Tensor:
        pixels = pixels.to(self.device, DTYPES[self.config.precision])
        return self._features("image", self.model.encode_image, pixels)

    def text_features(self, tokens: Tokens) -> Tensor:
        tower = getattr(self.model, "text", self.model)
        own = hasattr(tower, "token_embedding")
        check_ids(
            tokens.inputs,
            tower.token_embedding if own else tower.transformer.get_input_embeddings(),
            self.config.model,
        )
        return self._features("text", self.model.encode_text, tokens.inputs.to(self.device))

    def _features(self, modality: str, encode: Any, inputs: Tensor) -> Tensor:
        with inference():
            if self.config.features == "projected":
                rows = encode(inputs, normalize=False)  # CoCa normalises unless told not to
            else:
                rows = pooled(self._towers[modality], self._pooled_projection(modality), inputs)
            return rows.float().cpu()

    def _pooled_projection(self, modality: str) -> Projection:
        place = self._projections[modality]
        if place is None:
            raise InputError(
                f"the {modality} tower of {self.config.model} ends without a projection, it has no pooled features; "
                "use features=projected"
            )
        return place

    def _dim(self) -> dict[str, int | None]:
        if self.config.features == "projected":
            return dict.fromkeys(self._towers, self._architecture["embed_dim"])
        return {modality: pooled_width(p) if p is not None else None for modality, p in self._projections.items()}

    def describe(self) -> Mapping[str, Any]:
        bias = self.model.logit_bias
        return {
            "weights": dict(self._weights),
            "dim": self._dim(),
            "parameters": parameter_count(self.model),
            "activation": activations(self.model),
            "preprocessing": repr(self.transform),
            "tokenizer": self._tokenizer_name(),
            "context_length": self.tokenizer.context_length,
            "logit_scale": self.model.logit_scale.exp().item(),
            "logit_bias": None if bias is None else bias.item(),
        }

    def _tokenizer_name(self) -> str:
        inner = getattr(self.tokenizer, "tokenizer", None)
        if inner is None:
            return type(self.tokenizer).__name__
        name = self._architecture["text_cfg"]["hf_tokenizer_name"]
        return f"{type(self.tokenizer).__name__}({type(inner).__name__} {name})"


def _register(prefix: str, kind: type[OpenClipConfig], pattern: str, summary: str) -> None:
    encoders.add(prefix, EncoderEntry(kind, load, revision, pattern, summary, check))


_register(
    "open_clip",
    NamedConfig,
    "open_clip:NAME/TAG | NAME/fresh | NAME@PATH",
    "published weights; random initialisation (seed, zero_bias); a checkpoint (quick_gelu)",
)
_register("hf-hub", HubConfig, "hf-hub:ORG/NAME", "a model on the Hugging Face hub in open_clip's layout")
_register("local-dir", FolderConfig, "local-dir:PATH", "a folder in open_clip's layout; fresh=true: initialised")
_register("scenes-clip", ScenesConfig, "scenes-clip/fresh", "the package's own small model, random initialisation")

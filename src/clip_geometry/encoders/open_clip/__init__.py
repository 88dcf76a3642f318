"""Encoders of open_clip: by name and tag, fresh, from a checkpoint, from the hub, from a folder."""

from importlib.metadata import version
from typing import Any, Literal

import torch
from pydantic import model_validator

from clip_geometry.config import digest
from clip_geometry.encoders import checkpoint, hub
from clip_geometry.encoders.base import BatchNormOption, EncoderEntry, FreshOption, SeededConfig, encoders
from clip_geometry.encoders.hf import one_sentence, read_settings
from clip_geometry.encoders.hub import model_path
from clip_geometry.encoders.open_clip.encoder import OpenClipEncoder
from clip_geometry.encoders.open_clip.source import (
    Source,
    check_repository,
    from_folder,
    from_hub,
    from_name,
    parse,
    scenes_folder,
)
from clip_geometry.encoders.runtime import bounded, quiet_logging, use_batch_statistics
from clip_geometry.files import sha256_of
from clip_geometry.registry import shown


class OpenClipConfig(BatchNormOption):
    """Options of every model of open_clip."""


class HubConfig(OpenClipConfig):
    """hf-hub:ORG/NAME."""


class FreshConfig(SeededConfig, OpenClipConfig):
    """A model that can be initialized."""

    @property
    def is_fresh(self) -> bool:
        return True


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


class FolderConfig(FreshOption, FreshConfig):
    """local-dir:PATH."""


def find(config: OpenClipConfig) -> Source:
    """The model's architecture, tokenizer and weights; only hf-hub: downloads anything before the weights are read."""
    if isinstance(config, NamedConfig):
        return from_name(config.model, config.quick_gelu)
    if isinstance(config, FolderConfig):
        return from_folder(model_path(config.name), config.fresh)
    if isinstance(config, ScenesConfig):
        return from_folder(scenes_folder(), fresh=True)
    return from_hub(config.name)


def check(config: OpenClipConfig) -> None:
    """Raises InputError where name, tag, activation, file or folder is wrong; needs no network."""
    if isinstance(config, HubConfig):
        check_repository(config.name)
    else:
        find(config)


def revision(config: OpenClipConfig) -> str:
    """Identifies architecture, weights and tokenizer by checksums of the files; for fresh models also by the versions
    of torch and open_clip, which the initialization depends on."""
    source = find(config)
    facts: dict[str, Any] = {"architecture": source.architecture, "preprocessing": source.preprocessing}
    if source.folder is not None:
        facts["folder"] = hub.folder_digest(source.folder)
    if source.weights is None:
        facts["versions"] = {name: version(name) for name in ("torch", "open_clip_torch")}
    else:
        facts["weights"] = sha256_of(source.weights())
    return digest(facts)


def load(config: OpenClipConfig, device: torch.device) -> OpenClipEncoder:
    import open_clip
    from open_clip.transform import PreprocessCfg, image_transform_v2

    source = find(config)
    path = source.weights() if source.weights else None  # fetched first: errors before minutes of initialization
    with quiet_logging():
        model = _build(source, config)
        text = source.architecture["text_cfg"]
        if name := text.get("hf_tokenizer_name"):
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
                tokenizer(["a text"])  # it pads, so it must have a padding token
        else:
            with one_sentence(f"open_clip has no tokenizer for {source.name}"):
                tokenizer = open_clip.get_tokenizer(source.name)
        if path is None:
            assert isinstance(config, FreshConfig)
            weights = config.initialized(model)
        else:
            weights = {"name": path.name, "sha256": sha256_of(path)}
            if source.published:
                with one_sentence(f"the weights {shown(path)} of {config.model} cannot be loaded"):
                    open_clip.load_checkpoint(model, str(path), weights_only=True)  # knows the layouts of all its tags
            else:
                checkpoint.load_state_dict(model, checkpoint.read_state_dict(path), str(path))
    transform = image_transform_v2(PreprocessCfg(**model.visual.preprocess_cfg), is_train=False)
    model.eval()
    if config.batch_norm == "batch":
        use_batch_statistics(model, config.model)
    return OpenClipEncoder(config, model.to(device), transform, tokenizer, source, weights)


def _build(source: Source, config: OpenClipConfig) -> Any:
    """The initialized model, on the CPU, so that a seed gives the same weights whatever the device."""
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
            # open_clip builds it without refusing the model's own code, and transformers would ask on the terminal
            with torch.device("meta"), bounded(name):
                AutoModel.from_config(read_settings(folder, name), trust_remote_code=False)
            options["text_cfg"] = {**text, "hf_model_name": str(folder), "hf_model_pretrained": False}
        if source.folder is not None:  # sizes from a file: on the meta device they take nothing
            with torch.device("meta"), bounded(config.model):
                open_clip.create_model(source.name, device="meta", **options)
        with torch.random.fork_rng(devices=[]):
            # not torch.manual_seed, which would reseed the GPUs too
            torch.default_generator.manual_seed(config.seed if isinstance(config, FreshConfig) else 0)
            return open_clip.create_model(source.name, **options)


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

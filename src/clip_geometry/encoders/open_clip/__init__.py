"""Encoders of open_clip: by name and tag, fresh, from a checkpoint, from the hub, from a folder."""

from importlib.metadata import version
from typing import Any

import torch

from clip_geometry.config import digest
from clip_geometry.encoders import checkpoint, hub
from clip_geometry.encoders.base import EncoderEntry, encoders
from clip_geometry.encoders.hf import one_sentence, read_settings
from clip_geometry.encoders.open_clip.encoder import OpenClipEncoder
from clip_geometry.encoders.open_clip.source import (
    FreshConfig,
    HubConfig,
    LocalConfig,
    NamedConfig,
    OpenClipConfig,
    ScenesClipConfig,
    Source,
)
from clip_geometry.encoders.runtime import bounded, quiet_logging, seeded, use_batch_statistics
from clip_geometry.files import sha256_of
from clip_geometry.registry import shown


def revision(config: OpenClipConfig) -> str:
    """Identifies architecture, weights and tokenizer by checksums of the files; for fresh models also by the versions
    of torch and open_clip, which the initialization depends on."""
    source = config.source()
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

    source = config.source()
    path = source.weights() if source.weights else None  # fetched first: errors before minutes of initialization
    with quiet_logging():
        model = _build(source, config)
        tokenizer = _tokenizer(source)
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
        with seeded(config.seed if isinstance(config, FreshConfig) else 0):
            return open_clip.create_model(source.name, **options)


def _tokenizer(source: Source) -> Any:
    """open_clip's own, or one of transformers: the folder's, or that of the name in the config."""
    import open_clip

    text = source.architecture["text_cfg"]
    if not (name := text.get("hf_tokenizer_name")):
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
        tokenizer(["a text"])  # it pads, so it must have a padding token
    return tokenizer


encoders.add("open_clip", EncoderEntry(NamedConfig, load, revision, NamedConfig.source))
encoders.add("hf-hub", EncoderEntry(HubConfig, load, revision, HubConfig.require_name))
encoders.add("local-dir", EncoderEntry(LocalConfig, load, revision, LocalConfig.source))
encoders.add("scenes-clip", EncoderEntry(ScenesClipConfig, load, revision))

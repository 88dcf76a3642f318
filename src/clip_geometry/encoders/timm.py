"""Image towers of timm: pooled features before a model's classifier, with timm's own evaluation transform."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clip_geometry.config import digest
from clip_geometry.encoders import base, hub, runtime
from clip_geometry.encoders.hf import one_sentence
from clip_geometry.files import sha256_of
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, did_you_mean, shown


class TimmConfig(base.NamedWeights, base.BatchNormOption):
    """timm:NAME/TAG | NAME/fresh | NAME@PATH: an image tower of timm: published weights, initialized, a checkpoint.

    NAME.TAG@PATH uses the preprocessing of a tag. Rows are the features before the classifier (`num_classes=0`). A
    classifier is not a projection, so features=pooled gives the same rows.
    """

    @property
    def full_name(self) -> str:
        """timm's NAME or NAME.TAG."""
        name, kind, tag = self.parts
        return f"{name}.{tag}" if kind == "tag" else name


def check(config: TimmConfig) -> None:
    """Raise InputError for an unknown architecture or tag and for a missing file, without using the network."""
    import timm
    from timm.models import get_pretrained_cfg

    full_name = config.full_name
    _, kind, rest = config.parts
    name, _, tag = full_name.partition(".")
    if not timm.is_model(name):
        near = did_you_mean(name, timm.list_models())
        raise InputError(f"timm has no model {shown(name)}{near or '; timm.list_models() names all'}")
    tags = [pretrained.partition(".")[2] for pretrained in timm.list_pretrained(f"{name}.*")]
    if tag and tag not in tags:
        known = [*tags, "fresh"]
        hint = did_you_mean(tag, known) or f"; it has {', '.join(known)}"
        raise InputError(f"timm's {name} has no weights {shown(tag)}{hint}")
    if kind == "path":
        existing_file(rest, "a checkpoint file")
    elif kind == "tag" and not getattr(get_pretrained_cfg(full_name), "hf_hub_id", None):
        raise InputError(
            f"the weights {shown(full_name)} of timm are not on the Hugging Face hub; give timm:{name}@PATH"
        )


def weights_of(config: TimmConfig) -> Path | None:
    """Return the weights file, downloaded if necessary; None for a fresh model."""
    from timm.models import get_pretrained_cfg

    _, kind, rest = config.parts
    if kind != "tag":
        return existing_file(rest, "a checkpoint file") if kind == "path" else None
    settings: Any = get_pretrained_cfg(config.full_name)
    pickled = settings.hf_hub_filename or "pytorch_model.bin"
    safe = Path(pickled).with_suffix(".safetensors").name if settings.hf_hub_filename else "model.safetensors"
    return hub.first_file(settings.hf_hub_id, [safe, pickled])


def revision(config: TimmConfig) -> str:
    path = weights_of(config)
    # the architecture, its transform and its initialization depend on the version of timm
    facts = {"weights": sha256_of(path)} if path else {"torch": version("torch")}
    return digest(facts | {"timm": version("timm")})


def load(config: TimmConfig, device: torch.device) -> "TimmEncoder":
    import timm
    from timm.data import create_transform, resolve_model_data_config  # pyright: ignore[reportPrivateImportUsage]

    check(config)
    path = weights_of(config)
    from_tag = config.parts[1] == "tag"
    options: dict[str, Any] = {"num_classes": 0}
    if from_tag:  # timm converts the layouts of its tags, but accepts missing weights without a classifier
        options = {"pretrained": True, "pretrained_cfg_overlay": {"file": str(path), "custom_load": False}}
    with runtime.seeded(config.seed), one_sentence(f"timm cannot load {config.model} from {shown(path)}"):
        model: Any = timm.create_model(config.full_name, **options)
    if from_tag:
        model.reset_classifier(0)
    elif path is not None:
        classifier = model.pretrained_cfg.get("classifier") or ()
        names = [classifier] if isinstance(classifier, str) else classifier
        state = hub.read_state_dict(path)
        state = {key: value for key, value in state.items() if key.rpartition(".")[0] not in names}
        hub.load_state_dict(model, state, str(path))
    weights = {"name": path.name, "sha256": sha256_of(path)} if path else config.initialized(model)
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    runtime.set_mode(model, config)
    return TimmEncoder(config, model.to(device, runtime.DTYPES[config.precision]), transform, weights)


@dataclass(eq=False)
class TimmEncoder(base.Encoder):
    """A model of timm without its classifier, in eval mode with its own evaluation transform."""

    modalities = frozenset({"image"})

    config: base.EncoderConfig
    model: Any
    transform: Any
    weights: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device
        self.pixels = base.Pixels.of(self.transform)

    def image_features(self, pixels: Tensor) -> Tensor:
        with runtime.inference():
            return self.model(pixels.to(self.device, runtime.DTYPES[self.config.precision])).float().cpu()

    def dim(self) -> Mapping[str, int]:
        return {"image": self.model.head_hidden_size}


base.encoders.add("timm", base.EncoderEntry(TimmConfig, load, revision, check))

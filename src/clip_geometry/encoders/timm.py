"""Image towers of timm: the pooled features before a model's classifier, through timm's own evaluation transform."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from clip_geometry.config import digest
from clip_geometry.data.images import rgb
from clip_geometry.encoders import checkpoint, hub
from clip_geometry.encoders.base import BatchNormOption, Encoder, EncoderEntry, SeededConfig, encoders
from clip_geometry.encoders.hf import one_sentence
from clip_geometry.encoders.pixels import halves
from clip_geometry.encoders.runtime import DTYPES, activations, inference, parameter_count, use_batch_statistics
from clip_geometry.files import sha256_of
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, did_you_mean, shown

EXPECTED = "timm:NAME/TAG, timm:NAME/fresh or timm:NAME@PATH"


class TimmConfig(SeededConfig, BatchNormOption):
    """timm:NAME/TAG, NAME/fresh or NAME@PATH; NAME.TAG@PATH takes the preprocessing of a tag.

    Rows are the features before the classifier (`num_classes=0`). A classifier is no projection, so features=pooled
    gives the same rows.
    """

    @property
    def is_fresh(self) -> bool:
        return parse(self.model)[1] == "fresh"


def parse(model: str) -> tuple[str, str, str]:
    """(timm's NAME or NAME.TAG, kind, path); kind is "tag", "fresh" or "path"."""
    text = model.partition(":")[2]
    name, at, path = text.partition("@")
    if at and name and path:
        return name, "path", path
    name, _, tag = text.rpartition("/")
    if not (name and tag):
        name, _, tag = text.partition(".")  # timm's own notation
        hint = f"; did you mean timm:{name}/{tag}?" if name and tag else ""
        raise InputError(f"{shown(model)} names no weights; expected {EXPECTED}{hint}")
    return (name, "fresh", "") if tag == "fresh" else (f"{name}.{tag}", "tag", "")


def check(config: TimmConfig) -> None:
    """Raises InputError for an unknown architecture or tag and for a missing file; needs no network."""
    import timm
    from timm.models import get_pretrained_cfg

    full, kind, path = parse(config.model)
    name, _, tag = full.partition(".")
    if not timm.is_model(name):
        near = did_you_mean(name, timm.list_models())
        raise InputError(f"timm has no model {shown(name)}{near or '; timm.list_models() names all'}")
    tags = [each.partition(".")[2] for each in timm.list_pretrained(f"{name}.*")]
    if tag and tag not in tags:
        known = [*tags, "fresh"]
        hint = did_you_mean(tag, known) or f"; it has {', '.join(known)}"
        raise InputError(f"timm's {name} has no weights {shown(tag)}{hint}")
    if kind == "path":
        existing_file(path, "a checkpoint file")
    elif kind == "tag" and not getattr(get_pretrained_cfg(full), "hf_hub_id", None):
        raise InputError(f"the weights {shown(full)} of timm are not on the Hugging Face hub; give timm:{name}@PATH")


def weights_of(config: TimmConfig) -> Path | None:
    """The weights file, downloaded if need be; None for a fresh model."""
    from timm.models import get_pretrained_cfg

    full, kind, path = parse(config.model)
    if kind == "fresh":
        return None
    if kind == "path":
        return existing_file(path, "a checkpoint file")
    settings: Any = get_pretrained_cfg(full)
    pickled = settings.hf_hub_filename or "pytorch_model.bin"
    safe = Path(pickled).with_suffix(".safetensors").name if settings.hf_hub_filename else "model.safetensors"
    return hub.first_file(settings.hf_hub_id, [safe, pickled])


def revision(config: TimmConfig) -> str:
    # the architecture and its transform are timm's code and settings, as the initialization is
    path, made_by = weights_of(config), {"timm": version("timm")}
    return digest({"weights": sha256_of(path)} | made_by if path else {"torch": version("torch")} | made_by)


def load(config: TimmConfig, device: torch.device) -> "TimmEncoder":
    import timm
    from timm.data import create_transform, resolve_model_data_config  # pyright: ignore[reportPrivateImportUsage]

    check(config)
    (full, kind, _), path = parse(config.model), weights_of(config)
    facts: dict[str, Any]
    if path is None:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(config.seed)
            model: Any = timm.create_model(full, num_classes=0)
        facts = config.initialized(model)
    else:
        facts = {"name": path.name, "sha256": sha256_of(path)}
        with torch.random.fork_rng(devices=[]):  # the initialization that the weights replace
            if kind == "tag":  # timm knows how to convert the layouts of its tags
                with one_sentence(f"the weights {shown(path)} of {config.model} cannot be loaded"):
                    given = {"file": str(path), "custom_load": False}
                    model = timm.create_model(full, pretrained=True, pretrained_cfg_overlay=given)
            else:
                state = checkpoint.read_state_dict(path)
                model = timm.create_model(full, num_classes=_classes(full, state))
                checkpoint.load_state_dict(model, state, str(path))
            model.reset_classifier(0)  # after it was loaded, so that nothing may be missing
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    model = model.eval().to(device, DTYPES[config.precision])
    if config.batch_norm == "batch":
        use_batch_statistics(model, config.model)
    return TimmEncoder(config, model, transform, facts)


def _classes(full: str, state: Mapping[str, Tensor]) -> int:
    """Number of classes of the classifier in a state dict, 0 without one."""
    from timm.models import get_pretrained_cfg

    names = getattr(get_pretrained_cfg(full), "classifier", None) or ()
    first = names if isinstance(names, str) else next(iter(names), "")
    weight = state.get(f"{first}.weight")
    return 0 if weight is None or weight.ndim == 0 else len(weight)


class TimmEncoder(Encoder):
    """A model of timm without its classifier, in eval mode with its own evaluation transform."""

    modalities = frozenset({"image"})

    def __init__(self, config: TimmConfig, model: Any, transform: Any, weights: Mapping[str, Any]):
        self.config = config
        self.model = model
        self.device = next(model.parameters()).device
        self.transform = transform
        self.pixels = halves(transform)
        self._weights = weights

    def preprocess(self, image: Image.Image) -> Tensor:
        return self.transform(rgb(image))

    def compile(self) -> None:
        self.model.compile()

    def image_features(self, pixels: Tensor) -> Tensor:
        with inference():
            return self.model(pixels.to(self.device, DTYPES[self.config.precision])).float().cpu()

    def describe(self) -> Mapping[str, Any]:
        return {
            "weights": dict(self._weights),
            "dim": {"image": self.model.head_hidden_size},
            "parameters": parameter_count(self.model),
            "activation": activations(self.model),
            "preprocessing": repr(self.transform),
            **dict.fromkeys(("tokenizer", "context_length", "logit_scale", "logit_bias")),
        }


encoders.add(
    "timm",
    EncoderEntry(
        config=TimmConfig,
        load=load,
        revision=revision,
        pattern="timm:NAME/TAG | NAME/fresh | NAME@PATH",
        summary="an image tower of timm, before its classifier: published weights, initialised (seed), a checkpoint",
        check=check,
    ),
)

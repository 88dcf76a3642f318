"""Names and options of open_clip's models, and where their architecture, weights and tokenizer come from."""

import importlib
import importlib.util
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from clip_geometry.encoders import hub
from clip_geometry.encoders.base import BatchNormOption, FreshOption, NamedWeights, SeededConfig
from clip_geometry.io.reading import checked, read_json
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, did_you_mean, shown

QUICKGELU = "-quickgelu"
CONFIG_FILE = "open_clip_config.json"
HUB_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
FOLDER_WEIGHTS = (*HUB_WEIGHTS, "model.safetensors", "pytorch_model.bin", "pytorch_model.pth", "model.pth")
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")


# --- the checks that a model's config in open_clip's format passes before open_clip sees it
#
# Sizes are limited, and keyword arguments that open_clip passes on to other libraries are whitelisted: tokenizer_kwargs
# reach AutoTokenizer.from_pretrained, where trust_remote_code would run the folder's own modules. All other keys are
# left to open_clip, which refuses unknown ones.

Size = Annotated[int, Field(ge=1, le=2**20)]
Layers = Annotated[int, Field(ge=0, le=1000)]


def _sides(value: Any) -> Any:
    sides = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    if not all(side is None or (isinstance(side, int) and 1 <= side <= 2**14) for side in sides):
        raise ValueError("sides of 1 to 16384 pixels were expected")
    return value


Sides = Annotated[Any, AfterValidator(_sides)]  # of an image: one number, a list, or a dictionary
# per channel, in pixels from 0 to 1; open_clip divides by the standard deviations
Mean = Annotated[list[Annotated[FiniteFloat, Field(ge=-1000, le=1000)]], Field(min_length=3, max_length=3)]
StandardDeviation = Annotated[list[Annotated[FiniteFloat, Field(ge=1e-6, le=1e6)]], Field(min_length=3, max_length=3)]


class _Tower(BaseModel):
    width: Size = 1
    layers: Layers | list[Layers] = 1
    act_kwargs: dict[Literal["approximate"], Literal["none", "tanh"]] | None = None
    norm_kwargs: dict[Literal["eps"], Annotated[FiniteFloat, Field(gt=0)]] | None = None


class _Vision(_Tower):
    image_size: Sides = 1
    # a name only: timm would also take hf-hub:ORG/NAME and local-dir:PATH, and read keyword arguments there
    timm_model_name: Annotated[str, Field(pattern=r"^[\w.]*$")] | None = None


class _Text(_Tower):
    context_length: Annotated[int, Field(ge=1, le=2**17)] = 1
    vocab_size: Size = 1
    hf_model_name: str | None = None
    hf_tokenizer_name: str | None = None
    tokenizer_mode: Literal["clips"] | None = None
    tokenizer_kwargs: dict[Literal["clean", "strip_sep_token", "language"], str | bool | None] | None = None


class ModelFields(BaseModel):
    """model_cfg."""

    embed_dim: Size
    vision_cfg: _Vision
    text_cfg: _Text
    multimodal_cfg: _Tower | None = None


class PreprocessingFields(BaseModel):
    """preprocess_cfg."""

    size: Sides = None
    mean: Mean | None = None
    std: StandardDeviation | None = None
    interpolation: Literal["bicubic", "bilinear", "random"] | None = None
    resize_mode: Literal["shortest", "longest", "squash"] | None = None
    fill_color: Annotated[int, Field(ge=0, le=255)] | None = None


class OpenClipFile(BaseModel):
    """open_clip_config.json."""

    model_config = ConfigDict(protected_namespaces=())

    model_cfg: ModelFields
    preprocess_cfg: PreprocessingFields | None = None


# --- sources


@dataclass(frozen=True)
class Source:
    """Where a model comes from. name: open_clip's own. weights: downloads their file; None for a fresh model."""

    name: str
    architecture: Mapping[str, Any]
    weights: Callable[[], Path] | None
    published: bool = False  # weights whose layout open_clip knows to convert; others must fit exactly
    quick_gelu: bool = False  # to be forced
    preprocessing: Mapping[str, Any] = field(default_factory=dict)  # what the tag adds
    folder: Path | None = None


def list_names() -> dict[str, tuple[str, ...]]:
    """open_clip's architectures and the tags of each, without importing all of open_clip (4 s)."""
    spec = importlib.util.find_spec("open_clip")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    # a package of another name over the same folder: its pretrained.py runs, its __init__ does not
    alias = "_clip_geometry_open_clip"
    if alias not in sys.modules:
        package = types.ModuleType(alias)
        package.__path__ = [str(folder)]
        sys.modules[alias] = package
    pairs = importlib.import_module(f"{alias}.pretrained").list_pretrained()
    names = sorted(path.stem for path in (folder / "model_configs").glob("*.json"))
    return {name: tuple(tag for owner, tag in pairs if owner == name) for name in names}


class OpenClipConfig(BatchNormOption):
    """Options of every model of open_clip."""

    def source(self) -> Source:
        """Its architecture, tokenizer and weights; InputError where name, tag, activation, file or folder is wrong.

        Only hf-hub: downloads anything before the weights are read.
        """
        raise NotImplementedError


class FreshConfig(SeededConfig, OpenClipConfig):
    """A model that can be initialized."""

    @property
    def is_fresh(self) -> bool:
        return True


class NamedConfig(NamedWeights, FreshConfig):
    """open_clip:NAME/TAG | NAME/fresh | NAME@PATH: published weights; random initialisation; a checkpoint.

    quick_gelu: the activation a checkpoint was trained with.
    """

    quick_gelu: bool | None = None

    @model_validator(mode="after")
    def _checkpoint_only(self) -> Self:
        if self.quick_gelu is not None and self.parts[1] != "path":
            raise ValueError("quick_gelu is for open_clip:NAME@PATH, otherwise the architecture's name decides")
        return self

    def source(self) -> Source:
        import open_clip

        name, kind, rest = self.parts
        architecture = open_clip.get_model_config(name) if name in open_clip.list_models() else None
        if architecture is None:
            near = did_you_mean(name, open_clip.list_models())
            raise InputError(f"open_clip has no model {shown(name)}{near or '; see clip-geometry list models'}")
        checked(architecture, f"open_clip's config of {name}", ModelFields)  # more can be registered from files
        if kind == "fresh":
            return Source(name, architecture, weights=None)
        if kind == "path":
            path = existing_file(rest, "a checkpoint file")
            forced = _activation(self.model, name, architecture, self.quick_gelu)
            return Source(name, architecture, weights=lambda: path, quick_gelu=forced)
        return _published(name, rest, architecture)


def _published(name: str, tag: str, architecture: Mapping[str, Any]) -> Source:
    import open_clip
    from open_clip.pretrained import get_pretrained_cfg

    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in tags:
        known = [*tags, "fresh"]
        hint = did_you_mean(tag, known) or f"; it has {', '.join(known)}"
        raise InputError(f"open_clip's {name} has no weights {tag!r}{hint}")
    settings = get_pretrained_cfg(name, tag)
    built, trained = architecture.get("quick_gelu", False), settings.get("quick_gelu", False)
    if built != trained:  # about which open_clip only warns
        other = name.removesuffix(QUICKGELU) if built else name + QUICKGELU
        remedy = f"load a downloaded file by open_clip:{name}@PATH with the activation it was trained with"
        if (other, tag) in open_clip.list_pretrained() and other != name:
            remedy = f"use open_clip:{other}/{tag}"
        words = {True: "QuickGELU", False: "GELU"}
        raise InputError(
            f"open_clip says the weights {tag!r} were trained with {words[trained]}, but the architecture {name} is "
            f"built with {words[built]}; {remedy}"
        )
    preprocessing = {k: settings[k] for k in ("mean", "std", "interpolation", "resize_mode") if k in settings}
    # hf_hub is "ORG/NAME/FILE", or "ORG/NAME/" for the usual file; safetensors are preferred
    repository, _, filename = settings["hf_hub"].rpartition("/")
    files = (str(Path(filename).with_suffix(".safetensors")), filename) if filename else HUB_WEIGHTS
    weights = partial(hub.first_file, repository, files)
    return Source(name, architecture, weights, published=True, preprocessing=preprocessing)


def _activation(model: str, name: str, architecture: Mapping[str, Any], quick_gelu: bool | None) -> bool:
    """Whether to build with QuickGELU: a state dict does not say, so the name or the option must."""
    by_name = architecture.get("quick_gelu", False)
    has_choice = "timm_model_name" not in architecture["vision_cfg"] or "hf_model_name" not in architecture["text_cfg"]
    if quick_gelu is None and has_choice and not by_name:
        raise InputError(
            f"{model}: a checkpoint does not tell its activation; add quick_gelu=true (OpenAI's weights, anything "
            f"trained as {name}{QUICKGELU}) or quick_gelu=false (trained as {name})"
        )
    if by_name and quick_gelu is False:
        plain = name.removesuffix(QUICKGELU)
        raise InputError(f"{model}: {name} is built with QuickGELU; for quick_gelu=false name {plain}")
    return bool(quick_gelu) or by_name


# --- folders in open_clip's layout: open_clip_config.json, tokenizer files where it needs them, weights unless fresh


class LocalConfig(FreshOption, FreshConfig):
    """local-dir:PATH: a folder in open_clip's layout; fresh=true: initialised."""

    def source(self) -> Source:
        folder = hub.model_path(self.name)
        source = in_folder(folder)
        if self.fresh:
            return source
        named = [folder / each for each in FOLDER_WEIGHTS if (folder / each).is_file()]  # in open_clip's order
        found = named[:1] or sorted(path for path in folder.iterdir() if path.suffix in WEIGHT_SUFFIXES)
        if not found:
            raise InputError(f"{shown(folder)} has no weights; add fresh=true for a freshly initialised model")
        if len(found) > 1:
            raise InputError(
                f"{shown(folder)} has several checkpoints ({', '.join(path.name for path in found[:3])}) and none of "
                f"open_clip's names; rename the one to be used to {HUB_WEIGHTS[0]} (or {HUB_WEIGHTS[1]} if it is "
                "pickled)"
            )
        return replace(source, weights=lambda: found[0])


class HubConfig(OpenClipConfig):
    """hf-hub:ORG/NAME: a model on the Hugging Face hub in open_clip's layout."""

    def require_name(self) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", self.name):
            raise InputError(f"{shown(self.name)} is no name on the Hugging Face hub; expected hf-hub:ORG/NAME")

    def source(self) -> Source:
        self.require_name()
        source = in_folder(hub.folder(self.name, [CONFIG_FILE, *hub.TOKENIZER_FILES]))
        return replace(source, weights=partial(hub.first_file, self.name, HUB_WEIGHTS), published=True)


class ScenesClipConfig(FreshConfig):
    """scenes-clip/fresh: the package's own small model, random initialisation."""

    model: Literal["scenes-clip/fresh"]  # pyright: ignore[reportIncompatibleVariableOverride]

    def source(self) -> Source:
        return in_folder(scenes_folder())


def scenes_folder() -> Path:
    """The package's own small architecture and tokenizer, in open_clip's layout."""
    return hub.folder_of("scenes-clip")


def in_folder(folder: Path) -> Source:
    """The fresh model of a folder."""
    if not folder.is_dir():
        raise InputError(f"model folder {shown(folder)} does not exist")
    path = hub.plain(folder) / CONFIG_FILE
    if not path.exists():
        raise InputError(f"{shown(folder)} has no {CONFIG_FILE}; a folder in open_clip's layout was expected")
    values = read_json(path, "a config of open_clip")
    checked(values, shown(path), OpenClipFile)
    return Source(f"local-dir:{folder}", values["model_cfg"], weights=None, folder=folder)

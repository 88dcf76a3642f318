"""Texts through a tokenizer of transformers: cut to what the model takes, and how many were cut."""

from collections.abc import Sequence
from typing import Any, Literal

import torch

from clip_geometry.encoders.base import Tokens
from clip_geometry.encoders.hf.loading import one_sentence
from clip_geometry.registry import InputError, shown

UNLIMITED = 10**6  # transformers writes 1e30 where a tokenizer states no limit


def tokenize(tokenizer: Any, texts: Sequence[str], limit: int, padding: Literal["longest", "max_length"]) -> Tokens:
    """Token ids and attention mask. limit: tokens of a text, start and end included; longer texts are cut, counted."""
    with one_sentence("the tokenizer fails, its files are damaged or incomplete"):
        encoded = tokenizer(list(texts), padding=padding, truncation=True, max_length=limit, return_tensors="pt")
    inputs = {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}
    lengths = inputs["attention_mask"].sum(dim=1)
    if not lengths.all():
        raise InputError(f"the text {shown(texts[int(lengths.argmin())])} has no tokens, so it has no embedding")
    # only texts that fill the limit can have been cut: those alone are tokenized again, uncut
    suspects = [text for text, length in zip(texts, lengths.tolist(), strict=True) if length >= limit]
    uncut = [len(tokenizer(text, truncation=False, verbose=False)["input_ids"]) for text in suspects]
    return Tokens(inputs, sum(length > limit for length in uncut))


def check_ids(ids: torch.Tensor, embedding: Any, name: str) -> None:
    """InputError where the tokens are not all in the model's own vocabulary, which torch says by an IndexError."""
    highest = int(ids.max())
    if highest >= embedding.num_embeddings:
        raise InputError(
            f"the tokenizer of {name} gives the token {highest}, but the model has {embedding.num_embeddings} tokens; "
            "its folder holds files of two models, or one is missing"
        )


def context_length(tokenizer: Any, model: Any, name: str) -> int:
    """The most tokens that both the tokenizer and the model's position embeddings take."""
    known = [limit for limit in (tokenizer.model_max_length, _positions(model)) if limit is not None]
    if not all(isinstance(limit, int | float) for limit in known):
        raise InputError(f"the files of {name} say that a text may have {shown(known[0])} tokens, which is no number")
    limits = [int(limit) for limit in known if 0 < limit < UNLIMITED]
    if not limits:
        raise InputError(
            f"neither the tokenizer nor the config of {name} says how many tokens a text may have; add "
            "model_max_length to its tokenizer_config.json"
        )
    return min(limits)


def _positions(model: Any) -> int | None:
    """RoBERTa and its kin count positions from padding_idx + 1, so two of their 514 cannot be used."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return getattr(model.config, "max_position_embeddings", None)

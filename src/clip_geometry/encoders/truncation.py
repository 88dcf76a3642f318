"""How many texts did not fit a tokenizer of open_clip."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor


def count_truncated(tokenizer: Any, texts: Sequence[str], ids: Tensor, context_length: int) -> int:
    """Texts whose tokens, start and end included, are more than context_length; `ids` is the tokenizer's own result.

    Only rows filled to the end (a real token in one of the last two places) can have been cut: those alone are
    tokenized again, uncut. Two places, since T5 pads with its end token.
    """
    inner = getattr(tokenizer, "tokenizer", None)
    padding = 0 if inner is None else inner.pad_token_id
    filled = (ids[:, -2:] != padding).any(dim=1)
    suspects = [text for text, full in zip(texts, filled.tolist(), strict=True) if full]
    return sum(_token_count(tokenizer, inner, text) > context_length for text in suspects)


def _token_count(tokenizer: Any, inner: Any, text: str) -> int:
    if inner is None:  # SimpleTokenizer
        return len(tokenizer.encode(text)) + 2
    if getattr(tokenizer, "tokenizer_mode", "") == "clips":  # it adds start, end and class token itself
        return len(_uncut(inner, tokenizer.clean_fn(text), add_special_tokens=False)) + 3
    return len(_uncut(inner, tokenizer.clean_fn(text)))


def _uncut(inner: Any, text: str, **options: Any) -> list[int]:
    return inner(text, truncation=False, verbose=False, **options).input_ids

"""Examples as the tokens that a transformer reads, one window after another for passages that are too long."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.encoders.hf.loading import context_length
from clip_geometry.experiments.rudman2024.finetune.data import Examples
from clip_geometry.registry import InputError

LENGTH, WINDOW = 128, 384  # tokens of an input, unless said otherwise
PARTS = ("input_ids", "token_type_ids")  # what a transformer is given besides the mask


@dataclass(frozen=True, eq=False)
class Inputs:
    """Tokens without padding, an entry for each window; an example of classes or scores is one window.

    parts: those of PARTS that model and tokenizer have. targets: (w,) of the example, or (w, 2) the first and the last
    token of the answer, both 0 (the first token, [CLS]) where the window lacks it. example: (w,) whose window it is.
    places: of spans, (t, 2) for each window, the characters of a token of the passage, -1 of any other token.
    cut: examples that lost tokens.
    """

    parts: dict[str, list[Tensor]]
    targets: Tensor
    example: np.ndarray
    padding: dict[str, int]
    places: list[np.ndarray] | None = None
    cut: int = 0
    max_length: int = LENGTH

    def __len__(self) -> int:
        return len(self.example)

    @property
    def lengths(self) -> np.ndarray:
        """(w,) tokens."""
        return np.array([len(ids) for ids in self.parts["input_ids"]])

    def batch(self, rows: Sequence[int] | np.ndarray, device: torch.device) -> tuple[dict[str, Tensor], Tensor]:
        """(what the transformer is given, padded on the right to the longest; targets)."""
        rows = [int(row) for row in rows]
        pad = torch.nn.utils.rnn.pad_sequence
        given = {
            name: pad([part[row] for row in rows], batch_first=True, padding_value=self.padding[name]).to(device)
            for name, part in self.parts.items()
        }
        ones = [torch.ones_like(self.parts["input_ids"][row]) for row in rows]
        given["attention_mask"] = pad(ones, batch_first=True).to(device)
        return given, self.targets[rows].to(device)

    def batches(self, rows: Sequence[int] | np.ndarray, size: int) -> Iterator[np.ndarray]:
        """Numbers of windows, the longest together, so that there is little padding; for what needs no order."""
        rows = np.asarray(rows)
        ordered = rows[np.argsort(-self.lengths[rows], kind="stable")]
        yield from (ordered[start : start + size] for start in range(0, len(ordered), size))

    def sample(self, tokens: int | None, rng: np.random.Generator) -> np.ndarray:
        """Random windows with at least so many tokens together; all, in their order, where there are fewer."""
        total = self.lengths.sum()
        if tokens is None or tokens >= total:
            return np.arange(len(self))
        order = rng.permutation(len(self))
        return np.sort(order[: int(np.searchsorted(np.cumsum(self.lengths[order]), tokens)) + 1])


def encode(
    examples: Examples, tokenizer: Any, model: Any, *, name: str, max_length: int | None, overlap: int
) -> Inputs:
    """Raises InputError for more tokens than the model takes, and for answers where no [CLS] stands for none."""
    limit = context_length(tokenizer, model, name)
    max_length = max_length or min(limit, WINDOW if examples.kind == "span" else LENGTH)
    if max_length > limit:
        raise InputError(f"max_length is {max_length}, but {name} takes {limit} tokens; lower max_length")
    if examples.kind == "span":
        return _windows(examples, tokenizer, model, name, max_length, overlap)
    first, *second = zip(*examples.texts, strict=True)
    encoded = tokenizer(list(first), *map(list, second), truncation=True, max_length=max_length)
    cut = _cut(tokenizer, examples, encoded["input_ids"], max_length)
    kind = torch.int64 if examples.kind == "class" else torch.float32
    targets = torch.as_tensor(examples.targets).to(kind)
    return Inputs(_parts(encoded, model), targets, np.arange(len(examples)), _padding(tokenizer), None, cut, max_length)


def require_cls(tokenizer: Any, name: str, hint: str) -> None:
    """Raises InputError where texts do not begin with [CLS], as those of decoders: what they begin with, the same word
    or none, sees nothing of what follows."""
    ids = tokenizer("a")["input_ids"]
    if tokenizer.cls_token_id is None or ids[:1] != [tokenizer.cls_token_id]:
        raise InputError(f"{name} has no [CLS]; {hint}")


def _parts(encoded: Any, model: Any) -> dict[str, list[Tensor]]:
    """Those that the model takes: DistilBERT has no token types, whatever its tokenizer says."""
    taken = [name for name in PARTS if name in encoded and name in signature(model.forward).parameters]
    return {name: [torch.tensor(ids) for ids in encoded[name]] for name in taken}


def _padding(tokenizer: Any) -> dict[str, int]:
    return {"input_ids": tokenizer.pad_token_id, "token_type_ids": getattr(tokenizer, "pad_token_type_id", 0)}


def _cut(tokenizer: Any, examples: Examples, ids: Sequence[Sequence[int]], limit: int) -> int:
    """Only texts that fill the limit can have been cut: those alone are tokenized again, uncut."""
    full = [texts for texts, each in zip(examples.texts, ids, strict=True) if len(each) >= limit]
    return sum(len(tokenizer(*texts, truncation=False, verbose=False)["input_ids"]) > limit for texts in full)


def _windows(examples: Examples, tokenizer: Any, model: Any, name: str, max_length: int, overlap: int) -> Inputs:
    if not tokenizer.is_fast:
        raise InputError("answers are found by their characters, which only a fast tokenizer tells; take another model")
    require_cls(tokenizer, name, "answers in a passage need one for windows without; take another model")
    questions, passages = (list(texts) for texts in zip(*examples.texts, strict=True))
    longest = max(len(ids) for ids in tokenizer(questions, add_special_tokens=False)["input_ids"])
    if longest + overlap + 8 > max_length:
        raise InputError(
            f"a question has {longest} tokens, which with overlap = {overlap} leaves no room for its passage in "
            f"max_length = {max_length}; raise max_length or lower overlap"
        )
    encoded = tokenizer(
        questions,
        passages,
        truncation="only_second",
        max_length=max_length,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    example = np.array(encoded["overflow_to_sample_mapping"])
    places = []
    for window, offsets in enumerate(encoded["offset_mapping"]):
        inside = np.array([part == 1 for part in encoded.sequence_ids(window)])
        places.append(np.where(inside[:, None], np.array(offsets), -1))
    spans = [
        answer_tokens(where, int(examples.targets[k]), examples.answers[k][0])
        for where, k in zip(places, example, strict=True)
    ]
    return Inputs(_parts(encoded, model), torch.tensor(spans), example, _padding(tokenizer), places, 0, max_length)


def answer_tokens(places: np.ndarray, start: int, answer: str) -> tuple[int, int]:
    """The first and the last token of the answer that begins at character `start`; (0, 0) where the window lacks some
    of it. A token that holds more than an end of the answer is one of its tokens."""
    end = start + len(answer)
    inside = np.flatnonzero(places[:, 0] >= 0)
    if not len(inside) or places[inside[0], 0] > start or places[inside[-1], 1] < end:
        return 0, 0
    first = inside[np.flatnonzero(places[inside, 1] > start)[0]]
    last = inside[np.flatnonzero(places[inside, 0] < end)[-1]]
    return int(first), int(last)

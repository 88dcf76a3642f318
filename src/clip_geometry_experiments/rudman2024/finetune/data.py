"""Training and validation data: texts with targets, the held-out split, and the tokens of both sets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from clip_geometry.encoders.hf import context_length
from clip_geometry.registry import InputError
from clip_geometry_experiments.tasks import Task, TaskConfig, load_task
from clip_geometry_experiments.tasks.items import held_out
from clip_geometry_experiments.tasks.targets import ScoredPairs

LENGTH, WINDOW = 128, 384  # default number of tokens per input
PARTS = ("input_ids", "token_type_ids")  # inputs of a transformer besides the mask


@dataclass(frozen=True, eq=False)
class Examples:
    """Texts and targets of a task.

    Args:
        name: Name of the task.
        kind: Kind of the targets: "class", "score" or "span".
        texts: One tuple per example: a sentence, or a pair of texts such as a question and its passage.
        targets: Class indices (n,), int64; scores (n,), float64; or for spans, the index of the first character of the
            first answer, (n,), int64.
        classes: Names of the classes; empty for scores and spans.
        revision: Revision of the files.
        split: Name of the split in the records.
        answers: For spans, the accepted answers to each question.
    """

    name: str
    kind: Literal["class", "score", "span"]
    texts: tuple[tuple[str, ...], ...]
    targets: np.ndarray
    classes: tuple[str, ...]
    revision: str
    split: str
    answers: tuple[tuple[str, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def outputs(self) -> int:
        """Number of outputs of the head: per example or, for spans, per token (begin, end)."""
        return {"class": len(self.classes), "score": 1, "span": 2}[self.kind]

    def take(self, rows: Sequence[int] | np.ndarray, split: str) -> "Examples":
        rows = [int(row) for row in rows]
        answers = tuple(self.answers[row] for row in rows) if self.answers else ()
        texts = tuple(self.texts[row] for row in rows)
        return replace(self, texts=texts, targets=self.targets[rows], answers=answers, split=split)


def load_examples(config: TaskConfig) -> Examples:
    """Load a task with classes, scores or spans."""
    name, split = config.name, config.split
    loaded = load_task(config)
    if isinstance(loaded, Task):
        texts = tuple(tuple(loaded.items[item] for item in example) for example in loaded.examples)
        return Examples(name, "class", texts, loaded.labels, loaded.class_names, loaded.revision, split)
    if isinstance(loaded, ScoredPairs):
        return Examples(name, "score", loaded.texts, loaded.scores, (), loaded.revision, split)
    texts = tuple((question.question, question.passage) for question in loaded.questions)
    starts = np.array([question.answers[0].start for question in loaded.questions], dtype=np.int64)
    answers = tuple(tuple(answer.text for answer in question.answers) for question in loaded.questions)
    return Examples(name, "span", texts, starts, (), loaded.revision, split, answers)


def hold_out(examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Split the examples into training examples and about a `share` to validate on, with no sentence in both.

    Examples that share a sentence, directly or through other examples, stay together. Raises InputError if the examples
    are linked so closely that none can be held out.
    """
    held = held_out(examples.texts, share, seed)
    name = f"{examples.split}, {share:g} held out"
    return examples.take(np.flatnonzero(~held), examples.split), examples.take(np.flatnonzero(held), name)


# --- tokens


@dataclass(frozen=True, eq=False)
class Windows:
    """Tokens without padding, one entry per window; an example with a class or a score is a single window.

    Args:
        parts: Those of PARTS that model and tokenizer both have, each with one tensor of token values per window.
        targets: Targets of the examples, (w,), or for spans the first and last token of the answer, (w, 2); both are 0
            (the first token, [CLS]) if the window lacks the answer.
        example: Index of the example that each window comes from, (w,).
        padding: Padding value of each part.
        places: For spans, the character offsets of each passage token, (t, 2) per window; -1 for other tokens.
    """

    parts: dict[str, list[Tensor]]
    targets: Tensor
    example: np.ndarray
    padding: dict[str, int]
    places: list[np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.example)

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens in each window, (w,)."""
        return np.array([len(ids) for ids in self.parts["input_ids"]])

    def batch(self, rows: Sequence[int] | np.ndarray, device: torch.device) -> tuple[dict[str, Tensor], Tensor]:
        """Return the inputs of the transformer, right-padded to the longest window, and the targets."""
        rows = [int(row) for row in rows]
        pad = torch.nn.utils.rnn.pad_sequence
        inputs = {
            name: pad([part[row] for row in rows], batch_first=True, padding_value=self.padding[name]).to(device)
            for name, part in self.parts.items()
        }
        ones = [torch.ones_like(self.parts["input_ids"][row]) for row in rows]
        inputs["attention_mask"] = pad(ones, batch_first=True).to(device)
        return inputs, self.targets[rows].to(device)

    def batches(self, rows: Sequence[int] | np.ndarray, size: int) -> Iterator[np.ndarray]:
        """Yield batches of window indices, sorted by length to reduce padding, for uses that need no order."""
        rows = np.asarray(rows)
        ordered = rows[np.argsort(-self.lengths[rows], kind="stable")]
        yield from (ordered[start : start + size] for start in range(0, len(ordered), size))

    def sample(self, tokens: int | None, rng: np.random.Generator) -> np.ndarray:
        """Return random windows that together have at least this many tokens, or all in order if there are fewer."""
        total = self.lengths.sum()
        if tokens is None or tokens >= total:
            return np.arange(len(self))
        order = rng.permutation(len(self))
        return np.sort(order[: int(np.searchsorted(np.cumsum(self.lengths[order]), tokens)) + 1])


def encode(
    examples: Examples, tokenizer: Any, model: Any, *, name: str, max_length: int | None, overlap: int
) -> Windows:
    """Tokenize examples.

    Raises InputError if max_length exceeds what the model accepts, or if the examples are spans and the model has no
    [CLS], which is the target of windows without an answer.
    """
    limit = context_length(tokenizer, model, name)
    max_length = max_length or min(limit, WINDOW if examples.kind == "span" else LENGTH)
    if max_length > limit:
        raise InputError(f"max_length is {max_length}, but {name} accepts at most {limit} tokens; lower max_length")
    places = None
    if examples.kind == "span":
        encoded = _windows(examples, tokenizer, name, max_length, overlap)
        example = np.array(encoded["overflow_to_sample_mapping"])
        places = []
        for window, offsets in enumerate(encoded["offset_mapping"]):
            inside = np.array([part == 1 for part in encoded.sequence_ids(window)])
            places.append(np.where(inside[:, None], np.array(offsets), -1))
        spans = [
            answer_tokens(offsets, int(examples.targets[k]), examples.answers[k][0])
            for offsets, k in zip(places, example, strict=True)
        ]
        targets = torch.tensor(spans)
    else:
        first, *second = zip(*examples.texts, strict=True)
        encoded = tokenizer(list(first), *map(list, second), truncation=True, max_length=max_length)
        example = np.arange(len(examples))
        targets = torch.as_tensor(examples.targets).to(torch.int64 if examples.kind == "class" else torch.float32)
    # only inputs that the model accepts: DistilBERT has no token types, although its tokenizer returns some
    used = [part for part in PARTS if part in encoded and part in signature(model.forward).parameters]
    parts = {part: [torch.tensor(ids) for ids in encoded[part]] for part in used}
    padding = {"input_ids": tokenizer.pad_token_id, "token_type_ids": getattr(tokenizer, "pad_token_type_id", 0)}
    return Windows(parts, targets, example, padding, places)


def _windows(examples: Examples, tokenizer: Any, name: str, max_length: int, overlap: int) -> Any:
    """Tokenize questions with their passages into windows."""
    require_cls(tokenizer, name, "it is needed for windows without an answer; choose another model")
    questions, passages = (list(texts) for texts in zip(*examples.texts, strict=True))
    return tokenizer(
        questions,
        passages,
        truncation="only_second",
        max_length=max_length,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


def require_cls(tokenizer: Any, name: str, hint: str) -> None:
    """Raise InputError if texts do not begin with [CLS], as for decoders.

    A decoder begins with the same token for every text, or with none, and that token does not see what follows it.
    """
    ids = tokenizer("a")["input_ids"]
    if tokenizer.cls_token_id is None or ids[:1] != [tokenizer.cls_token_id]:
        raise InputError(f"{name} has no [CLS]; {hint}")


def answer_tokens(places: np.ndarray, start: int, answer: str) -> tuple[int, int]:
    """Return the first and last token of the answer that begins at character `start`.

    The result is (0, 0) if the window lacks part of the answer. A token that contains one end of the answer together
    with other characters counts as part of it.
    """
    end = start + len(answer)
    inside = np.flatnonzero(places[:, 0] >= 0)
    if not len(inside) or places[inside[0], 0] > start or places[inside[-1], 1] < end:
        return 0, 0
    first = inside[np.flatnonzero(places[inside, 1] > start)[0]]
    last = inside[np.flatnonzero(places[inside, 0] < end)[-1]]
    return int(first), int(last)

"""Examples and their tokens, and fine-tuning with a penalty on isotropy or with all-but-the-top."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from clip_geometry.encoders.hf import context_length
from clip_geometry.registry import InputError
from clip_geometry.training.losses import CosReg, IStar
from clip_geometry.transforms import AllButTheTop
from clip_geometry_experiments.kit.training import ORDER, Trainer, learning_rate
from clip_geometry_experiments.rudman2024.finetune.model import (
    COSREG,
    I_STAR,
    TOP,
    FineTuned,
    FinetuneOptimizerConfig,
    Method,
    Output,
)
from clip_geometry_experiments.tasks import Task, TaskConfig, load_task
from clip_geometry_experiments.tasks.base import held_out

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
    kind = "span" if loaded.answers else "score"
    return Examples(name, kind, loaded.texts, loaded.targets, (), loaded.revision, split, loaded.answers)


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


# --- the training

HEAD_LR = 1e-3  # in the epoch in which all-but-the-top trains the head alone
FITTED_TOKENS = 20_000  # number of tokens that all-but-the-top is fitted on for spans


class FineTuningTrainer(Trainer):
    """Trains with one method and one seed.

    I-STAR adds λ (1 − IsoScore*) of all layers to the task loss, and CosReg adds λ × mean cosine of the last layer.
    all_but_the_top is plain training, followed by an epoch that trains only the head on post-processed rows, with the
    transformer fixed.

    Args:
        model: Transformer and head.
        inputs: Training windows.
        config: Config of the optimizer and the penalty.
        method: What is added to the loss, or done after the training.
        seed: Seed of batches, dropout and the samples for C_0.
        device: Device to train on.
    """

    DROPOUT, SAMPLE = 1, 2

    def __init__(
        self,
        model: FineTuned,
        inputs: Windows,
        config: FinetuneOptimizerConfig,
        method: Method,
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ):
        self.model, self.inputs, self.method = model, inputs, method
        self.penalty: IStar | CosReg | None = None
        if method.name == I_STAR:
            self.penalty = IStar(method.value, zeta=config.zeta)
        elif method.name == COSREG:
            self.penalty = CosReg(method.value)
        modules = {"model": model} if self.penalty is None else {"model": model, "penalty": self.penalty}
        self.epoch_steps = math.ceil(len(inputs) / config.batch_size)
        self.plain_steps = config.epochs * self.epoch_steps  # steps that train transformer and head
        steps = self.plain_steps + (self.epoch_steps if method.name == TOP else 0)
        super().__init__(modules, config, steps=steps, seed=seed, device=device)
        self.optimize(model.parameters(), weight_decay=config.weight_decay)

    def rate(self, number: int) -> float:
        if number >= self.plain_steps:
            return HEAD_LR
        config = self.config
        return learning_rate(number, steps=self.plain_steps, lr=config.lr, warmup=config.warmup, schedule="linear")

    def step(self) -> None:
        """Take a step, refreshing C_0 before each epoch and fitting all-but-the-top before the epoch of the head."""
        epoch, place = divmod(self.number, self.epoch_steps)
        if self.number == self.plain_steps:
            self._train_head(*self.fitted())
        elif place == 0 and isinstance(self.penalty, IStar):
            windows = self.sample(self.config.refresh_sample, epoch)
            self.penalty.refresh((list(output.hidden), mask) for output, mask in self._outputs(windows))
        super().step()

    def loss(self) -> tuple[Tensor, Tensor]:
        size = self.config.batch_size
        epoch, place = divmod(self.number, self.epoch_steps)
        rows = self.stream(ORDER, epoch).permutation(len(self.inputs))[place * size : (place + 1) * size]
        inputs, targets = self.inputs.batch(rows, self.device)
        self.model.train()
        if self.number >= self.plain_steps:
            self.model.transformer.eval()
        with self.autocast():
            output = self.model(inputs)
        mask = inputs["attention_mask"]
        loss = task_loss(output.scores.float(), targets, mask)
        if self.penalty is None:
            return loss, loss
        hidden = list(output.hidden) if isinstance(self.penalty, IStar) else output.hidden[-1]
        return loss, loss + self.penalty(hidden, mask)

    # --- what is computed on training sentences

    def sample(self, tokens: int | None, epoch: int) -> np.ndarray:
        """Return random windows with about this many tokens; None returns all."""
        return self.inputs.sample(tokens, self.stream(self.SAMPLE, epoch))

    def _outputs(self, windows: np.ndarray) -> Iterator[tuple[Output, Tensor]]:
        """Yield output and mask, batch by batch, without dropout."""
        self.model.eval()
        with torch.no_grad():
            for rows in self.inputs.batches(windows, self.config.batch_size):
                inputs, _ = self.inputs.batch(rows, self.device)
                with self.autocast():
                    output = self.model(inputs)
                yield output, inputs["attention_mask"]

    def fitted(self) -> tuple[Tensor, Tensor]:
        """Return (W, b) of all-but-the-top, fitted on the inputs of the head: all training sentences or, for spans, the
        tokens of random windows."""
        spans = self.model.spans
        rows = []
        for output, mask in self._outputs(self.sample(FITTED_TOKENS if spans else None, self.config.epochs)):
            head_inputs = output.hidden[-1][mask.bool()] if spans else output.sentences
            rows.append(head_inputs.float().cpu())
        weights, shift = AllButTheTop(int(self.method.value)).fit(torch.cat(rows).numpy()).weights()
        return torch.from_numpy(weights), torch.from_numpy(shift)

    def _train_head(self, weights: Tensor, shift: Tensor) -> None:
        """Post-process the hidden states by weights and shift, and train only the head on them."""
        self.model.post_process(weights, shift)
        self.model.transformer.requires_grad_(False)
        self.model.zero_grad(set_to_none=True)
        self.optimize(self.model.head.parameters())

    def restore(self, state: Mapping[str, Any]) -> None:
        if state["number"] > self.plain_steps:
            self._train_head(state["modules"]["model"]["weights"], state["modules"]["model"]["shift"])
        super().restore(state)


def task_loss(scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the cross-entropy for classes, the squared error for scores, or `span_loss` for spans."""
    if scores.ndim == 3:
        return span_loss(scores, targets, mask)
    if targets.is_floating_point():
        return functional.mse_loss(scores.squeeze(-1), targets)
    return functional.cross_entropy(scores, targets)


def span_loss(scores: Float[Tensor, "b t 2"], targets: Tensor, mask: Tensor) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the first and last token among the tokens of a window; targets: (b, 2)."""
    known = scores.masked_fill(mask[..., None] == 0, -1e4)
    return functional.cross_entropy(known, targets)  # over tokens, the second axis of (b, t, 2)

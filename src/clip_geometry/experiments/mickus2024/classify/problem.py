"""What is classified: items with their first embeddings, and examples that are an item or a pair of items."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry._core.rows import as_rows
from clip_geometry.registry import InputError
from clip_geometry.tasks.held_out import held_out


@dataclass(frozen=True, eq=False)
class Problem:
    """items: (m, d) float32, the first embeddings of distinct items. examples: (n, s), each of s items by number.

    targets: (n,) class numbers 0..k−1, or (n, k) of 0 and 1 where an example has any number of k labels.
    outputs: k, those of the classifier.
    """

    items: Float[Tensor, "m d"]
    examples: Int[Tensor, "n s"]
    targets: Tensor
    outputs: int

    @classmethod
    def of(cls, items: np.ndarray, examples: np.ndarray, labels: np.ndarray, outputs: int | None = None) -> "Problem":
        """labels: (n,) integers from 0, or (n, k) of 0 and 1. outputs: by default as many as the labels need."""
        rows = as_rows(np.array(items, dtype=np.float32), name="items")  # a copy: these are trained
        examples, labels = np.asarray(examples), np.asarray(labels)
        if examples.ndim != 2 or examples.dtype.kind not in "iu" or not len(examples):
            raise InputError(f"examples have shape {examples.shape}; expected (n, items of each), item numbers")
        if examples.min() < 0 or examples.max() >= len(rows):
            raise InputError(f"examples name items {examples.min()} to {examples.max()}; there are {len(rows)}")
        if len(labels) != len(examples) or labels.ndim not in (1, 2):
            raise InputError(f"labels have shape {labels.shape} for {len(examples)} examples; expected one for each")
        if labels.ndim == 1:
            if labels.dtype.kind not in "iu" or labels.min() < 0:
                raise InputError("labels are not whole numbers from 0; number the classes first")
            needed, targets = int(labels.max()) + 1, torch.from_numpy(labels.astype(np.int64))
        else:
            if not np.isin(labels, (0, 1)).all():
                raise InputError("labels of several columns are 0 or 1; other values were given")
            needed, targets = labels.shape[1], torch.from_numpy(labels.astype(np.float32))
        problem = cls(rows, torch.from_numpy(examples.astype(np.int64)), targets, outputs or needed)
        if problem.outputs < needed:
            raise InputError(f"the labels need {needed} outputs; {outputs} were asked for")
        return problem.of_several_classes("")

    def of_several_classes(self, name: str) -> "Problem":
        if len(self.classes.unique()) < 2:
            what = f"the {len(self.examples)} {name} examples".replace("  ", " ")
            raise InputError(f"{what} are of one class; a silhouette needs at least two")
        return self

    @property
    def multi_label(self) -> bool:
        return self.targets.ndim == 2

    @property
    def width(self) -> int:
        """Columns of the classifier's inputs: the embeddings of a pair side by side."""
        return self.examples.shape[1] * self.items.shape[1]

    @cached_property
    def classes(self) -> Int[Tensor, " n"]:
        """Of the silhouette, on the CPU: the label, or the distinct vector of labels."""
        targets = self.targets.cpu()
        return torch.unique(targets, dim=0, return_inverse=True)[1] if self.multi_label else targets

    def to(self, device: torch.device) -> "Problem":
        return Problem(self.items.to(device), self.examples.to(device), self.targets.to(device), self.outputs)

    def inputs(self, items: Float[Tensor, "m d"], chosen: Tensor | None = None) -> Float[Tensor, "n w"]:
        """The classifier's inputs, or some of them, the items being embedded so."""
        return items[self.examples if chosen is None else self.examples[chosen]].flatten(1)

    def part(self, examples: np.ndarray) -> "Problem":
        """Some of the examples, with the items of these."""
        chosen = self.examples[torch.from_numpy(examples)]
        items, numbers = torch.unique(chosen, return_inverse=True)
        return Problem(self.items[items], numbers, self.targets[torch.from_numpy(examples)], self.outputs)


def hold_out(problem: Problem, share: float, seed: int) -> tuple[Problem, Problem | None]:
    """The examples to train on, and about a `share` of all whose items occur in no other example; None for share 0.

    Examples that share an item, directly or through others, stay together. Raises InputError where so many hang
    together that none can be held out, and where either part lacks one of the classes.
    """
    if share == 0:
        return problem, None
    held, smallest = held_out(problem.examples.tolist(), share, seed)
    if not held.any():
        raise InputError(
            f"held_out = {share:g} of {len(held)} examples: none can be held out, the smallest group that shares "
            f"items has {smallest}; raise held_out, or set it to 0"
        )
    trained, unseen = problem.part(np.flatnonzero(~held)), problem.part(np.flatnonzero(held))
    return trained.of_several_classes("trained"), unseen.of_several_classes("held-out")

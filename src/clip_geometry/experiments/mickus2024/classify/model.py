"""What is trained: the embeddings themselves and a classifier on them, or the embeddings alone by triplets."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from clip_geometry.config import Config
from clip_geometry.geometry import objectives


class TrainingConfig(Config):
    """lr, betas: of Adam. loss: cross-entropy (of multi-hot labels binary, per label), or the triplet loss without
    margin, mean over all triplets, which has no classifier. bias: of the classifier's layers. hidden: width of the
    two-layer classifier. init_scale: its first weights and biases are those of torch.nn.Linear times this.
    """

    lr: float = Field(default=0.001, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    loss: Literal["cross-entropy", "triplet"] = "cross-entropy"
    classifier: Literal["linear", "two-layer"] = "linear"
    hidden: int = Field(default=128, ge=1)
    bias: bool = True
    init_scale: float = Field(default=1.0, gt=0)


class Classifier(nn.Module):
    """A linear layer on the embeddings of an example's items side by side, or two with a ReLU between."""

    def __init__(self, width: int, outputs: int, config: TrainingConfig, seed: int):
        super().__init__()
        deep = config.classifier == "two-layer"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # drawn on the CPU, so that they are the same on every device
            self.first = nn.Linear(width, config.hidden if deep else outputs, bias=config.bias)
            self.second = nn.Linear(config.hidden, outputs, bias=config.bias) if deep else None
        with torch.no_grad():
            for parameter in self.parameters():
                parameter *= config.init_scale

    def forward(self, items: Float[Tensor, "m d"], examples: Int[Tensor, "n s"]) -> Float[Tensor, "n k"]:
        """Scores of the examples."""
        return self._first(items, examples) if self.second is None else self.second(self.hidden(items, examples))

    def hidden(self, items: Float[Tensor, "m d"], examples: Int[Tensor, "n s"]) -> Float[Tensor, "n h"]:
        """After the ReLU of a two-layer classifier."""
        return self._first(items, examples).relu()

    def _first(self, items: Float[Tensor, "m d"], examples: Int[Tensor, "n s"]) -> Float[Tensor, "n k"]:
        """The layer on each item, added up by example: (n, s·d) inputs, and their gradient, are never made."""
        places = examples.shape[1]
        weight = self.first.weight.view(-1, items.shape[1])  # (k·s, d)
        scores = (weight @ items.T).view(-1, places, len(items))
        # of a gather by [], the gradient would be summed in no fixed order
        added = sum(functional.embedding(examples[:, place], scores[:, place].T) for place in range(places))
        return added if self.first.bias is None else added + self.first.bias  # pyright: ignore[reportReturnType]


def classification_loss(scores: Float[Tensor, "n k"], targets: Tensor) -> Float[Tensor, ""]:
    """Cross-entropy; of multi-hot targets (n, k) binary cross-entropy, mean over examples and labels."""
    if targets.ndim == 2:
        return functional.binary_cross_entropy_with_logits(scores, targets)
    return functional.cross_entropy(scores, targets)


def triplet_loss(rows: Float[Tensor, "n w"], classes: Int[Tensor, " n"]) -> Float[Tensor, ""]:
    """Mean of max(‖a − p‖ − ‖a − n‖, 0) over all triplets: −O_T by their number."""
    sizes = torch.bincount(classes).double()
    triplets = (sizes * (sizes - 1) * (len(rows) - sizes)).sum()
    return -objectives.triplet(rows, classes) / triplets.to(rows.device)


def share_right(scores: Float[Tensor, "n k"], targets: Tensor) -> float:
    """Examples whose highest score is their class; of multi-hot targets, whose labels are all right."""
    right = (scores.argmax(1) == targets) if targets.ndim == 1 else ((scores > 0) == (targets > 0)).all(1)
    return int(right.sum()) / len(right)

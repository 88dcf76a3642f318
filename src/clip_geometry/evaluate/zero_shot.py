"""Zero-shot classification by the class text nearest to an image, and ensembles of prompts."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.evaluate.base import Share, accuracies, add_evaluator, label_ranks
from clip_geometry.geometry.kinds import arrays_in_kind, in_kind
from clip_geometry.geometry.measure import Measure
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import one_of
from clip_geometry.rows.matrix import Rows, as_rows, blocks, class_indices, mean_row, unit_blocks, unit_rows

BLOCK = 1024  # images whose logits are in memory at a time


@in_kind
def zero_shot(image: Rows, labels: Any, class_text: Rows, *, logits: str = "cosine") -> dict[str, float]:
    """Return the accuracy of zero-shot classification: each image is assigned to the class text with the highest logit.

    If several classes have the same logit, the lowest class index is chosen; equal rows of class_text have exactly
    equal logits. Source: Radford et al. 2021; for the three kinds of logits, Tyshchuk et al. 2023.

    Args:
        image: (n, d) rows.
        labels: (n,) class of each image as a whole number 0..K−1: the correct row of class_text.
        class_text: (K, d), one row per class, K ≥ 2. Use `ensemble` to combine several prompts per class.
            `clip-geometry measure` does this before the pipeline, so the pipeline is applied to the unit-length means
            of the prompts.
        logits: "cosine", "dot" (inner product) or "neg_distance" (−‖x − t‖ for an image row x and a class row t). The
            last two use the rows without scaling them to unit length. All three give the same accuracy on unit rows.

    Returns:
        A dictionary of floats in [0, 1]: top_1, top_5 (for more than 5 classes) and mean_per_class, the mean of the
        accuracies of the classes that occur. Chance is 1/K for top_1.

    Raises:
        InputError: The labels are invalid, the dimensions differ or, with "cosine", a row is zero.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.evaluate import zero_shot
        >>> image = np.array([[1.0, 0.1, 0.0], [0.0, 1.0, 0.2], [0.6, 0.5, 0.0]])
        >>> result = zero_shot(image, [0, 1, 1], np.eye(3))
        >>> round(result["top_1"], 3), result["mean_per_class"]
        (0.667, 0.75)
    """
    ranks, codes, k = zero_shot_ranks(image, labels, class_text, logits=logits)
    return accuracies(ranks, codes, k)


def _shares(
    image: Rows, labels: Any, class_text: Rows, *, items: tuple[Int[Tensor, " n"]], logits: str = "cosine"
) -> dict[str, Share]:
    """Return the numbers that are means over images; the class texts are not a sample."""
    ranks, _, k = zero_shot_ranks(image, labels, class_text, logits=logits)
    tops = (1, 5) if k > 5 else (1,)
    return {f"top_{top}": Share((ranks < top).double(), items[0].to(ranks.device)) for top in tops}


@torch.no_grad()
def zero_shot_ranks(
    image: Rows, labels: Any, class_text: Rows, *, logits: str = "cosine"
) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"], int]:
    """Return how many classes precede the correct one for each image, the labels, and K."""
    logits = one_of(logits, "logits", ("cosine", "dot", "neg_distance"))
    image = as_rows(image, name="image", least=1)
    text = as_rows(class_text, name="class_text")
    if image.shape[1] != text.shape[1]:
        raise InputError(
            f"image has dimension {image.shape[1]} and class_text has {text.shape[1]}; expected the same dimension"
        )
    codes = class_indices(labels, len(image), len(text)).to(image.device)
    text = text.to(image.device)
    groups = torch.unique(text, dim=0, return_inverse=True)[1]
    indices = torch.arange(len(text), device=text.device)
    first = torch.full_like(indices, len(text)).scatter_reduce(0, groups, indices, "amin")[groups]  # of equal rows
    text = unit_rows(text, name="class_text") if logits == "cosine" else text.double()
    # subtract from the logits what all classes of an image share: near classes keep their precision relative to the
    # mean of the classes. −‖x − t‖² grows like ⟨x − t̄, c⟩ − ‖c‖²/2 with c = t − t̄, and ranks like −‖x − t‖
    mean = mean_row(text)
    centered = text - mean
    bias = centered.square().sum(1) / 2 if logits == "neg_distance" else 0
    origin = mean if logits == "neg_distance" else 0
    image_blocks = unit_blocks(image, name="image", size=BLOCK) if logits == "cosine" else blocks(image, BLOCK)
    ranks = []
    for block, own_codes in zip(image_blocks, codes.split(BLOCK), strict=True):
        scores = ((block - origin) @ centered.T - bias)[:, first]  # equal rows get bitwise equal scores
        ranks.append(label_ranks(scores, own_codes))
    return torch.cat(ranks), codes, len(text)


@arrays_in_kind
def ensemble(rows: Rows, classes: Any) -> Float[Tensor, "k d"]:
    """Average several prompts per class into one unit row per class.

    Each prompt is scaled to unit length, the prompts of a class are averaged, and the mean is scaled to unit length.
    Source: Prompt_Engineering_for_ImageNet.ipynb of github.com/openai/CLIP.

    Args:
        rows: (n, d) text embeddings of the prompts.
        classes: (n,) class of each prompt as a whole number 0..K−1; each class must occur.

    Returns:
        (K, d) unit rows, one per class.

    Raises:
        InputError: The classes are invalid, a row is zero, or the prompts of a class cancel out.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.evaluate import ensemble
        >>> ensemble(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]), [0, 0, 1]).round(3)
        array([[0.707, 0.707],
               [0.   , 1.   ]])
    """
    unit = unit_rows(as_rows(rows, name="rows", least=1), name="rows")
    n = len(unit)
    bound = f"classes, at most as many as the {n} prompts"
    codes = class_indices(classes, n, n, name="classes", rows="prompts", of=bound).to(unit.device)
    k = int(codes.max()) + 1
    counts = torch.bincount(codes, minlength=k)
    if (counts == 0).any():
        missing = int((counts == 0).nonzero()[0, 0])
        raise InputError(f"class {missing} of 0 to {k - 1} has no prompt; expected at least one prompt of each class")
    means = unit.new_zeros(k, unit.shape[1]).index_add(0, codes, unit) / counts[:, None]
    return unit_rows(means, name="the matrix of prompt means")


_COSINE = Measure("zero_shot", zero_shot, shares=_shares)
add_evaluator(_COSINE)
for _logits in ("dot", "neg_distance"):
    add_evaluator(replace(_COSINE, name=f"zero_shot[{_logits}]", options={"logits": _logits}))

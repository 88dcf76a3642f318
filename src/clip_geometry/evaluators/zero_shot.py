"""Zero-shot classification by the class text nearest to the image, and ensembles of prompts."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.evaluators.base import accuracies, add_evaluator, label_ranks
from clip_geometry.evaluators.shares import Share
from clip_geometry.geometry._core.arguments import one_of
from clip_geometry.geometry._core.kinds import arrays_in_kind, in_kind
from clip_geometry.geometry._core.rows import Rows, as_rows, blocks, class_indices, mean_row, unit_blocks, unit_rows
from clip_geometry.geometry.measure import Measure
from clip_geometry.registry import InputError

if TYPE_CHECKING:
    Logits: TypeAlias = Literal["cosine", "dot", "neg_distance"]
else:  # so that an unknown one is an InputError, not one of a type checker
    Logits = Any

BLOCK = 1024  # images whose logits are in memory at a time


@in_kind
def zero_shot(image: Rows, labels: Any, class_text: Rows, *, logits: Logits = "cosine") -> dict[str, float]:
    """Measure the accuracy of choosing the class with the highest logit.

    Of equal logits the lowest class index wins, for top_5 too; equal rows of class_text have exactly equal logits.
    Source: Radford et al. 2021; the three logits: Tyshchuk et al. 2023.

    Args:
        image: (n, d) rows.
        labels: (n,) whole numbers 0..K−1, the right row of class_text.
        class_text: (K, d), one row per class, K ≥ 2. Several prompts per class become one row by `ensemble`;
            `clip-geometry measure` and configs do so before the pipeline, which then sees unit-length means of prompts.
        logits: "cosine"; or "dot" and "neg_distance" (−‖x − t‖), which take the rows as given without making them unit
            length, so that they differ after a transform and agree on unit rows.

    Returns:
        top_1, top_5 (for more than 5 classes), and mean_per_class, the mean accuracy of the classes that occur; all in
        [0, 1], chance is 1/K.

    Raises:
        InputError: For other labels, for different dimensions and, with "cosine", for zero rows.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import zero_shot
        >>> image = np.array([[1.0, 0.1, 0.0], [0.0, 1.0, 0.2], [0.6, 0.5, 0.0]])
        >>> found = zero_shot(image, [0, 1, 1], np.eye(3))
        >>> round(found["top_1"], 3), found["mean_per_class"]
        (0.667, 0.75)
    """
    ranks, codes, k = zero_shot_ranks(image, labels, class_text, logits=logits)
    return accuracies(ranks, codes, k)


def _shares(
    image: Rows, labels: Any, class_text: Rows, *, items: tuple[Int[Tensor, " n"]], logits: Logits = "cosine"
) -> dict[str, Share]:
    """Return the numbers that are means over images; the class texts are no sample."""
    ranks, _, k = zero_shot_ranks(image, labels, class_text, logits=logits)
    tops = (1, 5) if k > 5 else (1,)
    return {f"top_{top}": Share((ranks < top).double(), items[0].to(ranks.device)) for top in tops}


@torch.no_grad()
def zero_shot_ranks(
    image: Rows, labels: Any, class_text: Rows, *, logits: Logits = "cosine"
) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"], int]:
    """Return how many classes precede the right one for each image, the labels, and K."""
    logits = one_of(logits, "logits", ("cosine", "dot", "neg_distance"))
    image, text = as_rows(image, name="image", least=1), as_rows(class_text, name="class_text")
    if image.shape[1] != text.shape[1]:
        raise InputError(
            f"image has dimension {image.shape[1]} and class_text has {text.shape[1]}; expected the same dimension"
        )
    codes = class_indices(labels, len(image), len(text)).to(image.device)
    text = text.to(image.device)
    groups = torch.unique(text, dim=0, return_inverse=True)[1]
    indices = torch.arange(len(text), device=text.device)
    first = torch.full_like(indices, len(text)).scatter_reduce(0, groups, indices, "amin")[groups]  # copy of each row
    text = unit_rows(text, name="class_text") if logits == "cosine" else text.double()
    # logits minus what is the same for all classes of an image: about the mean of the classes, near classes keep their
    # digits. −‖x − t‖² grows like ⟨x − t̄, c⟩ − ‖c‖²/2 with c = t − t̄, and ranks like −‖x − t‖
    mean = mean_row(text)
    centered = text - mean
    bias = centered.square().sum(1) / 2 if logits == "neg_distance" else 0
    origin = mean if logits == "neg_distance" else 0
    rows = unit_blocks(image, name="image", size=BLOCK) if logits == "cosine" else blocks(image, BLOCK)
    ranks = []
    for block, own in zip(rows, codes.split(BLOCK), strict=True):
        scores = ((block - origin) @ centered.T - bias)[:, first]  # equal rows: equal to the last digit
        ranks.append(label_ranks(scores, own))
    return torch.cat(ranks), codes, len(text)


@arrays_in_kind
def ensemble(rows: Rows, classes: Any) -> Float[Tensor, "k d"]:
    """Average several prompts per class: unit length each, their mean, unit length again (CLIP's notebook).

    Source: Prompt_Engineering_for_ImageNet.ipynb of github.com/openai/CLIP.

    Args:
        rows: (n, d) text embeddings.
        classes: (n,) whole numbers 0..K−1, each at least once.

    Returns:
        (K, d) unit rows.

    Raises:
        InputError: For other classes, for zero rows, and if the prompts of a class cancel.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import ensemble
        >>> ensemble(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]), [0, 0, 1]).round(3)
        array([[0.707, 0.707],
               [0.   , 1.   ]])
    """
    unit = unit_rows(as_rows(rows, name="rows", least=1), name="rows")
    most = f"classes, of which {len(unit)} prompts make at most {len(unit)}"
    codes = class_indices(classes, len(unit), len(unit), name="classes", rows="prompts", of=most).to(unit.device)
    k = int(codes.max()) + 1
    counts = torch.bincount(codes, minlength=k)
    if (counts == 0).any():
        missing = int((counts == 0).nonzero()[0, 0])
        raise InputError(f"class {missing} of 0 to {k - 1} has no prompt; expected at least one of each class")
    means = unit.new_zeros(k, unit.shape[1]).index_add(0, codes, unit) / counts[:, None]
    return unit_rows(means, name="the mean prompts")


_COSINE = Measure(
    name="zero_shot",
    better="higher",
    title="Zero-shot accuracy",
    brief="accuracy of images classified by class prompts",
    group="classification",
    function=zero_shot,
    takes="classes",
    summary="The share of images whose own class has the text of highest cosine.",
    reading="1 is right on every image, 1/K is chance level.",
    caveat="It depends on the prompt, and published prompts were often chosen by this same accuracy. One prompt per "
    "class and an ensemble of prompts (one unit-length row per class, before the pipeline) do not compare.",
    formula="share of images with argmax_k ⟨u_i, v_k⟩ = label",
    range=(0, 1),
    direction="higher classifies better",
    shares=_shares,
    at_gaussian=None,
    invariances=("rotation", "scale", "row scale"),
    reference="Radford et al. 2021, arXiv:2103.00020",
)


def _numbers(logit: str, superlative: str, title: str = "", as_given: str = "") -> dict[str, dict[str, Any]]:
    return {
        "top_1": {
            "title": f"Zero-shot accuracy{title}",
            "summary": f"The share of images whose own class has the text of {superlative}.",
            "formula": f"share of images with argmax_k {logit} = label{as_given}",
        },
        "top_5": {
            "title": f"Zero-shot accuracy, top 5{title}",
            "summary": f"The share of images whose own class is among the five of {superlative}.",
            "formula": f"share of images with label among the five largest {logit}{as_given}",
            "reading": "1 is right on every image, 5/K is chance level.",
        },
        "mean_per_class": {
            "title": f"Zero-shot accuracy, mean over classes{title}",
            "summary": f"The mean of the accuracies of the classes, by {superlative}; frequent classes weigh no more.",
            "smooth": False,  # near 1 its jackknife is 0
            "formula": f"mean over classes c of the share of images of label c with argmax_k {logit} = c{as_given}",
        },
    }


_AS_GIVEN = {
    "dot": ("⟨w_i, t_k⟩", "largest inner product", ("rotation", "scale")),
    "neg_distance": ("−‖w_i − t_k‖", "smallest distance", ("rotation", "translation", "scale")),
}
add_evaluator(_COSINE, _numbers("⟨u_i, v_k⟩", "highest cosine"))
for _logits, (_logit, _superlative, _invariances) in _AS_GIVEN.items():
    add_evaluator(
        replace(
            _COSINE,
            name=f"zero_shot[{_logits}]",
            options={"logits": _logits},
            invariances=_invariances,
            reference="Tyshchuk et al. 2023, doi:10.3390/info14070392, Table 3",
        ),
        _numbers(_logit, _superlative, f", {_superlative}", ", rows as given"),
    )

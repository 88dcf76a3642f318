"""CLIP's training objective (Radford et al. 2021), for any number of pairs: logits exist one block at a time."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.evaluators.base import add_evaluator
from clip_geometry.geometry._core.arguments import block_number, positive_number, whole_number
from clip_geometry.geometry._core.rows import Rows, as_aligned, unit_rows
from clip_geometry.geometry.measure import Measure

NEVER = -1e30  # a logit that adds nothing; finite, so that its gradient is 0 instead of NaN


def contrastive_loss(
    image: Rows,
    text: Rows,
    *,
    logit_scale: float | Tensor = 100.0,
    batch_size: int | None = None,
    block_size: int = 1024,
) -> dict[str, Tensor | float]:
    """Symmetric cross-entropy of the logits s⟨u_i, v_j⟩, u and v the unit rows, s = logit_scale (1/temperature).

    image_to_text = mean_i (log Σ_j exp(s⟨u_i, v_j⟩) − s⟨u_i, v_i⟩), text_to_image likewise over the images, loss =
    their mean; batch_size, which belongs to the number: more rivals make it larger. batch_size=None: all n pairs are
    one batch. Otherwise batches are consecutive rows as they come, and the mean is over all pairs, each in its own
    batch: a last, smaller batch (with fewer rivals) counts by its pairs, and a pair alone in it has loss 0.

    image, text: (n, d) aligned rows, n ≥ 2, every text the pair of one image only. Losses are ≥ 0, lower is better,
    log(batch size) where all rows coincide. Float64, exact to the last digits near 0 too; both directions from one
    pass over blocks of block_size² logits, differentiable (the graph keeps all blocks). Raises InputError for zero
    rows, unequal sets, logit_scale that is not positive and finite, and batch_size outside 2..n.
    Source: Radford et al. 2021, arXiv:2103.00020, figure 3; evaluated at temperature 100 by Tyshchuk et al. 2023.
    """
    image, text = as_aligned(image, text, ("image", "text"))
    number, block_size = positive_number(logit_scale, "logit_scale"), block_number(block_size)
    scale = logit_scale if isinstance(logit_scale, Tensor) else number  # a tensor may carry a gradient
    n = len(image)
    all_in_one = f", the pairs there are, or None for all {n} in one"
    size = n if batch_size is None else whole_number(batch_size, "batch_size", least=2, most=n, of=all_in_one)
    u, v = unit_rows(image, name="image"), unit_rows(text, name="text")
    batches = [_losses(a, b, scale, block_size) for a, b in zip(u.split(size), v.split(size), strict=True)]
    to_text, to_image = (torch.cat(each).mean() for each in zip(*batches, strict=True))
    return {
        "loss": (to_text + to_image) / 2,
        "image_to_text": to_text,
        "text_to_image": to_image,
        "batch_size": float(size),
    }


def _losses(
    u: Float[Tensor, "n d"], v: Float[Tensor, "n d"], scale: float | Tensor, block_size: int
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Of each pair of one batch, as an image among the texts and as a text among the images.

    log Σ_j exp(l_ij) − l_ii = log(1 + Σ_{j≠i} exp(l_ij − l_ii)), which keeps its digits where the pair wins by far.
    """
    own = (scale * (u * v).sum(1)).split(block_size)
    to_text: list[Tensor | None] = [None] * len(own)
    to_image: list[Tensor | None] = [None] * len(own)
    for i, a in enumerate(u.split(block_size)):
        for j, b in enumerate(v.split(block_size)):
            logits = scale * (a @ b.T)
            if i == j:
                itself = torch.eye(len(a), dtype=torch.bool, device=a.device)
                logits = logits.masked_fill(itself, NEVER)
            to_text[i] = _joined(to_text[i], (logits - own[i][:, None]).logsumexp(1))
            to_image[j] = _joined(to_image[j], (logits - own[j]).logsumexp(0))
    rivals = (torch.cat([part for part in parts if part is not None]) for parts in (to_text, to_image))
    to_text_all, to_image_all = (torch.logaddexp(each, torch.zeros_like(each)) for each in rivals)
    return to_text_all, to_image_all


def _joined(sum_so_far: Tensor | None, block: Tensor) -> Tensor:
    return block if sum_so_far is None else torch.logaddexp(sum_so_far, block)


add_evaluator(
    Measure(
        name="contrastive_loss",
        title="CLIP's loss",
        group="contrastive loss",
        function=contrastive_loss,
        takes="distinct pairs",
        summary="The cross-entropy of finding the pair among all others, both ways, as in CLIP's training.",
        reading="0 means that every pair stands alone far ahead; log n that nothing tells pairs from others.",
        trap="It grows with the number of rivals, so that only equal n (one batch of all pairs) compare; and the logit "
        "scale is 100, whatever the model's own.",
        formula="mean of −log softmax(100 ⟨u_i, v_j⟩)_ii over rows and over columns",
        range=(0, float("inf")),
        direction="lower finds more pairs",
        at_gaussian=None,
        invariances=("rotation", "scale", "row scale"),
        quadratic=True,
        reference="Radford et al. 2021, arXiv:2103.00020",
    ),
    {
        "loss": {"title": "CLIP's loss", "invariances": ("rotation", "scale", "row scale", "swap")},
        "image_to_text": {"title": "CLIP's loss, texts for an image"},
        "text_to_image": {"title": "CLIP's loss, images for a text"},
    },
)

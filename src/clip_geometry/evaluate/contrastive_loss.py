"""CLIP's training objective (Radford et al. 2021) for any number of pairs, in blocks of logits."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.evaluate.base import add_evaluator
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure
from clip_geometry.rows.arguments import positive_number, whole_number
from clip_geometry.rows.matrix import Rows, as_aligned, unit_rows

BLOCK = 1024  # rows and columns of logits at a time
NEVER = -1e30  # a logit that contributes nothing; since it is finite, its gradient is 0 instead of NaN


@in_kind
def contrastive_loss(
    image: Rows,
    text: Rows,
    *,
    logit_scale: float | Tensor = 100.0,
    batch_size: int | None = None,
) -> dict[str, Tensor | float]:
    """Return the loss with which CLIP is trained: the symmetric cross-entropy of the scaled cosines in a batch.

    The logits are s⟨u_i, v_j⟩, where u and v are the unit rows of images and texts and s is `logit_scale`.
    image_to_text = mean_i (log Σ_j exp(s⟨u_i, v_j⟩) − s⟨u_i, v_i⟩). text_to_image is the same with images and texts
    exchanged, and loss is the mean of both. The loss is at least 0; lower is better; it is log(batch size) if all rows
    coincide. It grows with the batch size, so compare only losses at the same batch size.

    It is computed in float64, in blocks, and is precise even near 0. It is differentiable. Source: Radford et al. 2021,
    arXiv:2103.00020, figure 3; Tyshchuk et al. 2023 evaluate it at logit scale 100.

    Args:
        image: (n, d) rows, n ≥ 2.
        text: (n, d) rows, aligned with the images: text i belongs to image i and to no other image.
        logit_scale: s, the inverse temperature, above 0.
        batch_size: Pairs per batch, from 2 to n; None uses all n pairs. Batches are consecutive rows. The loss is the
            mean over all pairs, so a smaller last batch counts by its number of pairs. A last batch of a single pair
            has loss 0.

    Returns:
        A dictionary with loss, image_to_text, text_to_image and batch_size; floats for arrays, 0-d float64 tensors for
        tensors.

    Raises:
        InputError: A row is zero, the sets differ in length, logit_scale is not positive and finite, or batch_size is
            outside 2..n.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.evaluate import contrastive_loss
        >>> rng = np.random.default_rng(0)
        >>> image = rng.normal(size=(6, 4))
        >>> result = contrastive_loss(image, image + 0.3 * rng.normal(size=(6, 4)))
        >>> round(result["loss"], 3), result["batch_size"]
        (0.013, 6.0)
    """
    image, text = as_aligned(image, text, ("image", "text"))
    number = positive_number(logit_scale, "logit_scale")
    scale = logit_scale if isinstance(logit_scale, Tensor) else number  # a tensor may carry a gradient
    n = len(image)
    bound = f", the number of pairs, or None for one batch of all {n}"
    size = n if batch_size is None else whole_number(batch_size, "batch_size", least=2, most=n, of=bound)
    u, v = unit_rows(image, name="image"), unit_rows(text, name="text")
    batches = [_losses(a, b, scale) for a, b in zip(u.split(size), v.split(size), strict=True)]
    to_text, to_image = (torch.cat(losses).mean() for losses in zip(*batches, strict=True))
    return {
        "loss": (to_text + to_image) / 2,
        "image_to_text": to_text,
        "text_to_image": to_image,
        "batch_size": float(size),
    }


def _losses(
    u: Float[Tensor, "n d"], v: Float[Tensor, "n d"], scale: float | Tensor
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the losses of each pair of one batch, image to text and text to image.

    log Σ_j exp(l_ij) − l_ii = log(1 + Σ_{j≠i} exp(l_ij − l_ii)) keeps its precision if the pair leads by far.
    """
    own = (scale * (u * v).sum(1)).split(BLOCK)
    to_text = [logits.new_full(logits.shape, -torch.inf) for logits in own]
    to_image = [logits.new_full(logits.shape, -torch.inf) for logits in own]
    for i, a in enumerate(u.split(BLOCK)):
        for j, b in enumerate(v.split(BLOCK)):
            logits = scale * (a @ b.T)
            if i == j:
                is_pair = torch.eye(len(a), dtype=torch.bool, device=a.device)
                logits = logits.masked_fill(is_pair, NEVER)
            to_text[i] = torch.logaddexp(to_text[i], (logits - own[i][:, None]).logsumexp(1))
            to_image[j] = torch.logaddexp(to_image[j], (logits - own[j]).logsumexp(0))
    zero = u.new_zeros(len(u))
    return torch.logaddexp(torch.cat(to_text), zero), torch.logaddexp(torch.cat(to_image), zero)


add_evaluator(Measure("contrastive_loss", contrastive_loss))

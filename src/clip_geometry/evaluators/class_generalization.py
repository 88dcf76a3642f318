"""Does a map that was fitted on some classes help, or harm, those it has not seen? (Tyshchuk et al. 2023, Table 4)"""

from collections.abc import Iterable
from typing import Any, cast

import torch
from jaxtyping import Bool
from torch import Tensor

from clip_geometry.evaluators.accuracy import class_indices, share
from clip_geometry.evaluators.zero_shot import zero_shot_ranks
from clip_geometry.geometry.rows import Rows, as_rows
from clip_geometry.registry import InputError
from clip_geometry.transforms import Compose, Transform
from clip_geometry.transforms.base import PairedTransform, as_matrix


def class_generalization(
    transform: Transform | None,
    fit_x: Rows,
    fit_labels: Any,
    image: Rows,
    labels: Any,
    class_text: Rows,
    *,
    known: float | Iterable[int] = 0.5,
    seed: int = 0,
) -> dict[str, float]:
    """Zero-shot accuracy (cosine, top-1) on known and on new classes, of a transform fitted on the known ones only.

    The candidates are always ALL classes. transform: an unfitted transform, which is left as it is; None for the
    identity. Maps from one set to another (Procrustes, LeastSquares, a Compose that holds one) are fitted from the
    known classes' texts to their images, row by row, and move the texts; others are fitted on the known classes'
    images and move images and texts alike.

    fit_x: (m, d) images and fit_labels (m,) to fit on; image: (n, d) and labels (n,) to classify; class_text: (K, d),
    labels whole numbers 0..K−1. known: the share of the classes that are known, drawn at random with `seed`, or their
    indices. Returns known, new, all: shares of right images in [0, 1], `all` of both together, and known_classes, how
    many there are. For the identity `all` is the zero-shot accuracy. Raises InputError where known or new classes
    have no test image, a known one no image to fit on, and for labels and shares out of range.
    """
    text = as_rows(class_text, name="class_text")
    fit_rows = as_rows(fit_x, name="fit_x", least=1)
    codes = class_indices(labels, len(as_rows(image, name="image", least=1)), len(text))
    fit_codes = class_indices(fit_labels, len(fit_rows), len(text), name="fit_labels", rows="fit_x")
    is_known = _known_classes(known, len(text), seed)
    _require_images(is_known, codes, fit_codes)
    if transform is not None:
        chosen = is_known[fit_codes]
        image, text = _moved(transform, fit_rows[chosen.to(fit_rows.device)], fit_codes[chosen], image, text)
    ranks, _, _ = zero_shot_ranks(image, codes, text)
    right, old = ranks.cpu() == 0, is_known[codes]
    return {
        "known": share(right[old]),
        "new": share(right[~old]),
        "all": share(right),
        "known_classes": float(is_known.sum()),
    }


def _moved(transform: Transform, fit_rows: Any, fit_codes: Tensor, image: Any, text: Any) -> tuple[Any, Any]:
    """Images and texts after the transform, fitted on these rows."""
    from sklearn.base import clone

    fitted = cast(Transform, clone(transform))
    prompts, targets = as_matrix(text), as_matrix(fit_rows)
    if _maps_between(transform):
        return image, fitted.fit(prompts[fit_codes.numpy()], targets).transform(prompts)
    fitted.fit(targets)
    return fitted.transform(as_matrix(image)), fitted.transform(prompts)


def _maps_between(transform: Transform) -> bool:
    """Whether it maps one set onto another."""
    if isinstance(transform, Compose):
        return any(_maps_between(step) for step in transform.steps)
    return isinstance(transform, PairedTransform)


def _known_classes(known: float | Iterable[int], k: int, seed: int) -> Bool[Tensor, " k"]:
    """Which classes are known: a seeded share of all, or those given."""
    if isinstance(known, int | float):
        count = round(known * k)
        if not 0 < count < k:
            raise InputError(
                f"known = {known} of {k} classes is {count}; expected a share that leaves known and new classes"
            )
        chosen = torch.randperm(k, generator=torch.Generator().manual_seed(seed))[:count]
    else:
        given = list(known)
        if not 0 < len(set(given)) < k:
            raise InputError(f"known has {len(set(given))} of {k} classes; expected some of them, not all")
        chosen = class_indices(given, len(given), k, name="known", rows="known classes")
    return torch.zeros(k, dtype=torch.bool).index_fill(0, chosen, True)


def _require_images(is_known: Tensor, codes: Tensor, fit_codes: Tensor) -> None:
    for name, classes in (("known", is_known), ("new", ~is_known)):
        if not classes[codes].any():
            raise InputError(f"no image has a label of the {int(classes.sum())} {name} classes; nothing to score there")
    present = torch.bincount(fit_codes, minlength=len(is_known)) > 0
    if (is_known & ~present).any():
        missing = int((is_known & ~present).nonzero()[0, 0])
        raise InputError(f"known class {missing} has no row in fit_x; what was not fitted on is not known")

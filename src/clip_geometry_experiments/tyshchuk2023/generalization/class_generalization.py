"""Zero-shot accuracy on known and on new classes after a map fitted on known ones (Tyshchuk et al. 2023, Table 4)."""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from clip_geometry.evaluators.base import share
from clip_geometry.evaluators.zero_shot import zero_shot_ranks
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import members, positive_number, seed_number
from clip_geometry.rows.matrix import Rows, as_rows, class_indices
from clip_geometry.transforms import Pipeline, Transform
from clip_geometry.transforms.base import as_matrix


@in_kind
def class_generalization(
    transform: Transform | Pipeline | str | None,
    fit_x: Rows,
    fit_labels: Any,
    image: Rows,
    labels: Any,
    class_text: Rows,
    *,
    known: float | Iterable[int] = 0.5,
    seed: int = 0,
) -> dict[str, float]:
    """Measure zero-shot accuracy (cosine, top-1) on known and on new classes of a transform fitted on known ones only.

    The candidates are always ALL classes. Maps from one set to another (Procrustes, LeastSquares, a Compose that
    contains one, whose other steps then transform only the texts) are fitted from the texts of the known classes to
    their images, row by row, and transform the texts. Other transforms are fitted on the images of the known classes
    and transform images and texts alike. A Pipeline says for each step what it is fitted on: the images and texts of
    the known classes are its "image" and "text" rows, and each image pairs with the text of its class.

    Args:
        transform: An unfitted transform, which is left as it is; a Pipeline, or its steps as a string
            ("normalize,center[each]"); None for the identity.
        fit_x: (m, d) images to fit on.
        fit_labels: (m,) whole numbers 0..K−1.
        image: (n, d) images to classify.
        labels: (n,) whole numbers 0..K−1.
        class_text: (K, d), one row per class.
        known: The share of the classes that are known, drawn at random, or their indices.
        seed: Of the draw.

    Returns:
        known, new, all: accuracies in [0, 1], `all` over both halves; for the identity it is the zero-shot accuracy.
        known_among_known, new_among_new: the same with only the classes of the image's own half as candidates.
        known_classes, known_images: their numbers.

    Raises:
        InputError: If known or new classes have no test image or a known class no image to fit on, for labels and
            shares out of range, and for what is no transform.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Procrustes
        >>> from clip_geometry_experiments.tyshchuk2023.generalization import class_generalization
        >>> rng = np.random.default_rng(0)
        >>> classes = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
        >>> labels = np.arange(40) % 4
        >>> image = classes[labels] + 0.1 * rng.normal(size=(40, 2))
        >>> turned = classes @ np.array([[0.0, 1.0], [-1.0, 0.0]])  # texts a quarter turn away from their images
        >>> sets = image[:20], labels[:20], image[20:], labels[20:], turned
        >>> for transform in (None, Procrustes()):
        ...     found = class_generalization(transform, *sets, known=[0, 1])
        ...     print(found["known"], found["new"])
        0.0 0.0
        1.0 1.0
    """
    if isinstance(transform, str):
        transform = Pipeline(transform)
    elif transform is not None and not isinstance(transform, Transform | Pipeline):
        what = f"the class {transform.__name__}" if isinstance(transform, type) else f"a {type(transform).__name__}"
        raise InputError(
            f"transform is {what}; expected a transform such as Center(), a Pipeline, its steps as a string"
        )
    text = as_rows(class_text, name="class_text")
    fit_rows = as_rows(fit_x, name="fit_x", least=1)
    codes = class_indices(labels, len(as_rows(image, name="image", least=1)), len(text))
    fit_codes = class_indices(fit_labels, len(fit_rows), len(text), name="fit_labels", rows="fit_x")
    is_known = _known_classes(known, len(text), seed)
    for name, classes in (("known", is_known), ("new", ~is_known)):
        if not classes[codes].any():
            raise InputError(f"no image has a label of the {int(classes.sum())} {name} classes; nothing to score there")
    without_rows = is_known & (torch.bincount(fit_codes, minlength=len(text)) == 0)
    if without_rows.any():
        missing = int(without_rows.nonzero()[0, 0])
        raise InputError(f"known class {missing} has no row in fit_x; what was not fitted on is not known")
    if transform is not None:
        chosen = is_known[fit_codes]
        image, text = _transformed(transform, fit_rows[chosen.to(fit_rows.device)], fit_codes[chosen], image, text)
    ranks, _, _ = zero_shot_ranks(image, codes, text)
    right, old = ranks.cpu() == 0, is_known[codes]
    return {
        "known": share(right[old]),
        "new": share(right[~old]),
        "all": share(right),
        "known_among_known": _within(image, codes, text, is_known),
        "new_among_new": _within(image, codes, text, ~is_known),
        "known_classes": float(is_known.sum()),
        "known_images": float(old.sum()),
    }


def _within(image: Any, codes: Tensor, text: Any, classes: Bool[Tensor, " k"]) -> float:
    """Return the accuracy on the images of some classes, with these classes as the only candidates."""
    if int(classes.sum()) == 1:
        return 1.0
    chosen, renumbered = classes[codes], (classes.cumsum(0) - 1)[codes]
    rows, texts = as_rows(image, name="image"), as_rows(text, name="class_text")
    ranks, _, _ = zero_shot_ranks(rows[chosen.to(rows.device)], renumbered[chosen], texts[classes.to(texts.device)])
    return share(ranks.cpu() == 0)


def _transformed(
    transform: Transform | Pipeline, fit_rows: Any, fit_codes: Tensor, image: Any, text: Any
) -> tuple[Any, Any]:
    """Return images and texts after the transform, fitted on the rows of known classes."""
    from sklearn.base import clone

    prompts, targets, codes = as_matrix(text), as_matrix(fit_rows), fit_codes.numpy()
    if isinstance(transform, Pipeline):  # texts of unknown classes are not among the rows it is fitted on
        known, of_target = np.unique(codes, return_inverse=True)
        sets = {"image": targets, "text": prompts[known]}
        fitted = transform.fit(sets, (np.arange(len(targets)), of_target), origin="known classes")
        if fitted.refusal:
            raise InputError(fitted.refusal)
        transformed = fitted.transform({"image": as_matrix(image), "text": prompts})
        return transformed["image"], transformed["text"]
    fitted = cast(Transform, clone(transform))
    if transform.joint:
        raise InputError(f"{transform.name} maps images and texts: give a Pipeline that has it")
    if transform.onto:
        rows = prompts[codes] if transform.paired else prompts[np.unique(codes)]
        return image, fitted.fit(rows, targets).apply(prompts)
    fitted.fit(targets)
    return fitted.apply(as_matrix(image)), fitted.apply(prompts)


def _known_classes(known: Any, k: int, seed: int) -> Bool[Tensor, " k"]:
    """Return which classes are known: a random share of all, or those given."""
    given = members(known)
    if given is None:
        share_known = positive_number(known, "known", of=": the share of the classes, or their indices")
        count = round(share_known * k)
        if not 0 < count < k:
            raise InputError(
                f"known = {share_known} of {k} classes is {count}; expected a share that leaves known and new classes"
            )
        chosen = torch.randperm(k, generator=torch.Generator().manual_seed(seed_number(seed)))[:count]
    else:
        none = torch.empty(0, dtype=torch.long)
        chosen = class_indices(given, len(given), k, name="known", rows="known classes") if given else none
        count = len(set(chosen.tolist()))
        if not 0 < count < k:
            raise InputError(f"known has {count} of {k} classes; expected some of them, not all")
    return torch.zeros(k, dtype=torch.bool).index_fill(0, chosen, True)

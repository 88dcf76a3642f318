"""Does a map that was fitted on some classes help, or harm, those it has not seen? (Tyshchuk et al. 2023, Table 4)"""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from clip_geometry.evaluators.accuracy import share
from clip_geometry.evaluators.base import add_evaluator
from clip_geometry.evaluators.zero_shot import zero_shot_ranks
from clip_geometry.geometry._core.arguments import members, positive_number, seed_number
from clip_geometry.geometry._core.rows import Rows, as_rows, class_indices
from clip_geometry.geometry.measure import Measure
from clip_geometry.registry import InputError
from clip_geometry.transforms import Compose, PairedTransform, Pipeline, Transform
from clip_geometry.transforms.base import as_matrix


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
    """Zero-shot accuracy (cosine, top-1) on known and on new classes, of a transform fitted on the known ones only.

    The candidates are always ALL classes. transform: an unfitted transform, which is left as it is; None for the
    identity. Maps from one set to another (Procrustes, LeastSquares, a Compose that holds one, whose other steps then
    move the texts only) are fitted from the known classes' texts to their images, row by row, and move the texts;
    others are fitted on the known classes' images and move images and texts alike. A Pipeline, or its steps in a
    string ("normalize,center[each]"), says for each step what it is fitted on: the known classes' images and texts are
    its "image" and "text" rows, each image a pair with the text of its class.

    fit_x: (m, d) images and fit_labels (m,) to fit on; image: (n, d) and labels (n,) to classify; class_text: (K, d),
    labels whole numbers 0..K−1. known: the share of the classes that are known, drawn at random with `seed`, or their
    indices. Returns known, new, all: shares of right images in [0, 1], `all` of both together; known_among_known and
    new_among_new, the same where only classes of the image's own half are candidates; and known_classes and
    known_images, how many there are. For the identity `all` is the zero-shot accuracy. Raises InputError where known
    or new classes have no test image, a known one no image to fit on, for labels and shares out of range, and for what
    is no transform.
    """
    transform = _as_transform(transform)
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
        "known_among_known": _within(image, codes, text, is_known),
        "new_among_new": _within(image, codes, text, ~is_known),
        "known_classes": float(is_known.sum()),
        "known_images": float(old.sum()),
    }


def _as_transform(given: Any) -> Transform | Pipeline | None:
    if isinstance(given, str):
        return Pipeline(given)
    if given is None or isinstance(given, Transform | Pipeline):
        return given
    what = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
    raise InputError(f"transform is {what}; expected a transform such as Center(), a Pipeline, its steps as a string")


def _within(image: Any, codes: Tensor, text: Any, classes: Bool[Tensor, " k"]) -> float:
    """Accuracy on the images of some classes, with these classes as the only candidates."""
    if int(classes.sum()) == 1:
        return 1.0
    chosen, renumbered = classes[codes], (classes.cumsum(0) - 1)[codes]
    rows, texts = as_rows(image, name="image"), as_rows(text, name="class_text")
    ranks, _, _ = zero_shot_ranks(rows[chosen.to(rows.device)], renumbered[chosen], texts[classes.to(texts.device)])
    return share(ranks.cpu() == 0)


def _moved(transform: Transform | Pipeline, fit_rows: Any, fit_codes: Tensor, image: Any, text: Any) -> tuple[Any, Any]:
    """Images and texts after the transform, fitted on these rows."""
    from sklearn.base import clone

    prompts, targets = as_matrix(text), as_matrix(fit_rows)
    if isinstance(transform, Pipeline):
        return _through(transform, targets, fit_codes.numpy(), as_matrix(image), prompts)
    fitted = cast(Transform, clone(transform))
    if _maps_between(transform):
        return image, fitted.fit(prompts[fit_codes.numpy()], targets).transform(prompts)
    fitted.fit(targets)
    return fitted.transform(as_matrix(image)), fitted.transform(prompts)


def _through(
    pipeline: Pipeline, targets: np.ndarray, codes: np.ndarray, image: np.ndarray, prompts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same by a pipeline; the texts of unknown classes are not among the rows it is fitted on."""
    known, of_target = np.unique(codes, return_inverse=True)
    sets = {"image": targets, "text": prompts[known]}
    fitted = pipeline.fit(sets, (np.arange(len(targets)), of_target), origin="known classes")
    if fitted.refusal:
        raise InputError(fitted.refusal)
    moved = fitted.transform({"image": image, "text": prompts})
    return moved["image"], moved["text"]


def _maps_between(transform: Transform) -> bool:
    """Whether it maps one set onto another."""
    if isinstance(transform, Compose):
        return any(_maps_between(step) for step in transform.steps)
    return isinstance(transform, PairedTransform)


def _known_classes(known: Any, k: int, seed: int) -> Bool[Tensor, " k"]:
    """Which classes are known: a seeded share of all, or those given."""
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


def _require_images(is_known: Tensor, codes: Tensor, fit_codes: Tensor) -> None:
    for name, classes in (("known", is_known), ("new", ~is_known)):
        if not classes[codes].any():
            raise InputError(f"no image has a label of the {int(classes.sum())} {name} classes; nothing to score there")
    present = torch.bincount(fit_codes, minlength=len(is_known)) > 0
    if (is_known & ~present).any():
        missing = int((is_known & ~present).nonzero()[0, 0])
        raise InputError(f"known class {missing} has no row in fit_x; what was not fitted on is not known")


add_evaluator(
    Measure(
        name="class_generalization",
        title="Zero-shot accuracy, map fitted on known classes",
        group="classification",
        function=class_generalization,
        takes="train, test and classes",
        summary="Zero-shot accuracy after a map that was fitted on some of the classes only.",
        reading="A map that learned the space lifts new classes as it lifts known ones; one that learned the classes "
        "lifts the known and ruins the new.",
        trap="All classes are candidates for every image, so that known and new are two halves of one accuracy; with "
        "few known classes the map is not determined, and its completion decides on the new ones.",
        formula="share of images with argmax_k ⟨u_i, v_k⟩ = label, rows after the map",
        range=(0, 1),
        direction="higher classifies better",
        at_gaussian=None,
        smooth=False,
        reference="Tyshchuk et al. 2023, doi:10.3390/info14070392, Table 4",
    ),
    {
        "known": {"title": "Zero-shot accuracy, images of known classes"},
        "new": {"title": "Zero-shot accuracy, images of new classes"},
        "all": {"title": "Zero-shot accuracy, all images"},
        "known_among_known": {"title": "Zero-shot accuracy, known classes the only candidates"},
        "new_among_new": {"title": "Zero-shot accuracy, new classes the only candidates"},
    },
)

"""The accuracy of linear classifiers of images against texts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from clip_geometry.evaluators.base import add_evaluator
from clip_geometry.evaluators.logistic import into_range
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure
from clip_geometry.rows.arguments import DRAWS, seed_number, whole_number
from clip_geometry.rows.matrix import Rows, as_two_sets, blocks, mean_row

SAME = 1e-3  # means of two sets that are nearer, relative to their standard error, were made equal


@in_kind
def modality_separability(
    image: Rows, text: Rows, *, folds: int = 5, draws: int = 3, seed: int = 0
) -> dict[str, float]:
    """Measure the accuracy with which logistic regression and a linear SVM separate the modalities.

    Both are scikit-learn's with default settings (L-BFGS with max_iter 1000), on the rows as given. Read .train beside
    .null_train: with few rows per dimension, shuffled labels are fitted far above chance too, while .null stays near
    the share of the larger set. Rows count as independent: captions of one image may fall into different folds, which
    raises .cross_validated above what new items would give; pass one caption per image. Rows transformed by a map that
    was fitted on all of them held nothing out: after centering each set by its own mean, held-out rows fall on the side
    of the other set, and .cross_validated falls far below .null (0.19 beside 0.5). Rows whose largest entry exceeds
    1e10 are scaled down to that, where the penalty no longer matters: the solvers would leave float64. A classifier
    that has not converged warns (ConvergenceWarning), and its accuracy counts.
    Source: Tyshchuk et al. 2023, on the training rows only.

    Args:
        image: (n, d) rows.
        text: (m, d) rows, which need not pair with the images.
        folds: Of the cross-validation, at most the rows of the smaller set.
        draws: Of shuffled labels.
        seed: Of folds and draws.

    Returns:
        For each of logistic_regression and linear_svc, in [0, 1], where 1 is fully separable: .train, on the rows it
        was fitted on (as published); .cross_validated, the mean over stratified, shuffled folds; .null_train and .null,
        the same two with shuffled modality labels, means of `draws`.

    Raises:
        InputError: For folds outside 2..min(n, m), draws < 1 and different dimensions.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import modality_separability
        >>> rng = np.random.default_rng(0)
        >>> found = modality_separability(rng.normal(size=(20, 3)), rng.normal(size=(20, 3)) + 3)
        >>> found["logistic_regression.cross_validated"], round(found["logistic_regression.null"], 1)
        (1.0, 0.5)
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.svm import LinearSVC

    image, text = as_two_sets(image, text, ("image", "text"))
    fewest = min(len(image), len(text))
    folds = whole_number(folds, "folds", least=2, most=fewest, of=", the rows of the smaller set")
    draws, seed = whole_number(draws, "draws", most=DRAWS), seed_number(seed)
    kind = torch.float64 if torch.float64 in (image.dtype, text.dtype) else torch.float32
    x = torch.cat([image.to(kind), text.to(kind)]).detach()
    x = (x * into_range(x)).cpu().numpy()
    modality = np.repeat([0, 1], [len(image), len(text)])
    rng = np.random.default_rng(seed)
    shuffled = [rng.permutation(modality) for _ in range(draws)]
    splits, found = StratifiedKFold(folds, shuffle=True, random_state=seed), {}
    classifiers: dict[str, Callable[[], Any]] = {
        "logistic_regression": lambda: LogisticRegression(max_iter=1000),
        "linear_svc": lambda: LinearSVC(random_state=seed),
    }
    for name, make in classifiers.items():
        train, held_out = [], []
        for labels in (modality, *shuffled):
            train.append(float(make().fit(x, labels).score(x, labels)))
            held_out.append(float(cross_val_score(make(), x, labels, cv=splits).mean()))
        found |= {f"{name}.train": train[0], f"{name}.null_train": float(np.mean(train[1:]))}
        found |= {f"{name}.cross_validated": held_out[0], f"{name}.null": float(np.mean(held_out[1:]))}
    return found


def _centered_together(image: Rows, text: Rows) -> str | None:
    """Return the remark for held-out rows that were not held out: independent sets never have the same mean."""
    image, text = as_two_sets(image, text, ("image", "text"))
    means = [mean_row(rows) for rows in (image, text)]
    chance = sum(
        float((block - mean).square().sum()) / len(rows) ** 2
        for rows, mean in zip((image, text), means, strict=True)
        for block in blocks(rows)
    )
    if float((means[0] - means[1]).square().sum()) >= SAME**2 * chance:
        return None
    return "image and text have one mean: centered with the rows held out, which puts these on the wrong side"


_HELD_OUT = ("logistic_regression.cross_validated", "linear_svc.cross_validated")
add_evaluator(
    Measure("modality_separability", modality_separability),
    {number: {"remark": _centered_together} for number in _HELD_OUT},
)

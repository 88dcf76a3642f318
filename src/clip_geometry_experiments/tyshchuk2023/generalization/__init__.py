"""Zero-shot accuracy on both halves of the classes after fitting maps on one half (Tyshchuk et al. 2023, Table 4)."""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from clip_geometry.evaluate import zero_shot
from clip_geometry.measuring.views import origin_of
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.transforms.pipeline import Pipeline
from clip_geometry_experiments.kit.base import experiments, read_explanations
from clip_geometry_experiments.kit.maps import MapConfig, ProbeExperiment, PromptedConfig


def class_generalization(
    pipeline: Pipeline,
    fit_x: NDArray,
    fit_labels: Any,
    image: NDArray,
    labels: Any,
    class_text: NDArray,
    *,
    known: float | Collection[int] = 0.5,
    seed: int = 0,
) -> dict[str, float]:
    """Measure zero-shot accuracy (cosine, top-1) on known and new classes of a pipeline fitted on the known ones.

    The candidates are always ALL classes. The steps are fitted on the images and texts of the known classes, and each
    image is paired with the text of its class.

    Args:
        pipeline: Pipeline whose steps are fitted, such as "normalize,procrustes[text-to-image]".
        fit_x: Images to fit on, (m, d).
        fit_labels: Labels of `fit_x`, (m,), integers 0..K−1.
        image: Images to classify, (n, d).
        labels: Labels of `image`, (n,), integers 0..K−1.
        class_text: Text embeddings of the classes, (K, d), one row per class.
        known: Share of the classes that are known, drawn at random, or the indices of the known classes.
        seed: Seed of the random draw of the known classes.

    Returns:
        known, new, all: Accuracies in [0, 1]; `all` covers both halves. For the identity, `all` is the zero-shot
            accuracy.
        known_among_known, new_among_new: Accuracies with only the classes of the image's own half as candidates.
        known_classes, known_images, new_images: Number of known classes, and of test images in each half.

    Raises:
        InputError: If fewer than two classes are known or fewer than two are new, if either half has no test image, if
            a known class has no image to fit on, or if the pipeline does not keep the modalities comparable.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Pipeline
        >>> from clip_geometry_experiments.tyshchuk2023.generalization import class_generalization
        >>> rng = np.random.default_rng(0)
        >>> classes = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
        >>> labels = np.arange(40) % 4
        >>> image = classes[labels] + 0.1 * rng.normal(size=(40, 2))
        >>> turned = classes @ np.array([[0.0, 1.0], [-1.0, 0.0]])  # texts a quarter turn away from their images
        >>> sets = image[:20], labels[:20], image[20:], labels[20:], turned
        >>> for steps in ("", "procrustes[text-to-image]"):
        ...     found = class_generalization(Pipeline(steps), *sets, known=[0, 1])
        ...     print(found["known"], found["new"])
        0.0 0.0
        1.0 1.0
    """
    codes = np.asarray(labels)
    fit_codes = np.asarray(fit_labels)
    texts = np.asarray(class_text)
    is_known = _known_classes(known, len(texts), seed)
    fit_on = is_known[fit_codes]
    fit_classes, class_of_row = np.unique(fit_codes[fit_on], return_inverse=True)
    missing = set(np.flatnonzero(is_known)) - set(fit_classes)
    if missing:
        raise InputError(f"known class {min(missing)} has no row in fit_x; expected rows of every known class")
    sets = {"image": np.asarray(fit_x)[fit_on], "text": texts[fit_classes]}  # texts of new classes are not fitted on
    fitted = pipeline.fit(sets, (np.arange(len(class_of_row)), class_of_row), origin="known classes")
    if fitted.refusal:
        raise InputError(fitted.refusal)
    moved = fitted.transform({"image": np.asarray(image), "text": texts})
    scores = {"all": zero_shot(moved["image"], codes, moved["text"])["top_1"], "known_classes": float(is_known.sum())}
    for name, classes in (("known", is_known), ("new", ~is_known)):
        of_half = classes[codes]
        if not of_half.any():
            raise InputError(f"no image has a label of the {int(classes.sum())} {name} classes; add images of them")
        rows = moved["image"][of_half]
        row_codes = codes[of_half]
        scores[name] = zero_shot(rows, row_codes, moved["text"])["top_1"]
        renumbered = np.cumsum(classes)[row_codes] - 1
        scores[f"{name}_among_{name}"] = zero_shot(rows, renumbered, moved["text"][classes])["top_1"]
        scores[f"{name}_images"] = float(of_half.sum())
    return scores


def _known_classes(known: float | Collection[int], k: int, seed: int) -> NDArray[np.bool_]:
    """Return a mask (k,) of the known classes: a random share of all classes, or the given ones."""
    if isinstance(known, Collection):
        chosen = sorted(known)
    else:
        chosen = torch.randperm(k, generator=torch.Generator().manual_seed(seed))[: round(known * k)].numpy()
    if not 2 <= len(chosen) <= k - 2:
        raise InputError(
            f"known = {known} of {k} classes is {len(chosen)}; expected at least two known and two new ones"
        )
    return np.isin(np.arange(k), chosen)


class GeneralizationConfig(PromptedConfig):
    """Config of the experiment `generalization`. The `fit_on` of a map is "train", meaning that split's known classes.

    Args:
        known: Share of the classes that the maps are fitted on, between 0 and 1.
        draws: Number of random choices of the known classes, at least 1. The experiment reports the numbers of the
            first draw (draw 0, as published) and, for several draws, the means over them.
    """

    ROLES: ClassVar = ("train",)
    SCORED: ClassVar = ("train", "test")

    known: float = Field(default=0.5, gt=0, lt=1)
    draws: int = Field(default=5, ge=1)


class Generalization(ProbeExperiment):
    Config = GeneralizationConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))
    drawn: ClassVar = {"class_generalization.known": "known classes", "class_generalization.new": "new classes"}
    in_brief: ClassVar = {
        "class_generalization.new": "zero-shot accuracy on new classes",
        "class_generalization.known": "zero-shot accuracy on known classes",
    }

    def rows(self, map_config: MapConfig) -> list[Row]:
        config = self.config
        fit_x, _ = self.labeled("train")
        image, text = self.labeled("test")
        labels = np.asarray(text.labels)
        if len(np.unique(labels)) < len(labels):
            raise InputError("generalization takes one prompt per class, but the probe has several; give one prompt")
        order = np.argsort(labels)  # row k of the texts is class k
        by_draw = [
            class_generalization(
                Pipeline(map_config.pipeline),
                fit_x.vectors,
                fit_x.labels,
                image.vectors,
                image.labels,
                text.vectors[order],
                known=config.known,
                seed=config.seed + draw,
            )
            for draw in range(config.draws)
        ]
        fitted_on = f"{origin_of({'image': fit_x})}: images and prompts of known classes" if map_config.learns else None

        def rows_of(draws: Sequence[Mapping[str, float]]) -> list[Row]:
            numbers = [name.partition(".")[2] for name in self.explanations]
            means = {key: float(np.mean([scores[key] for scores in draws])) for key in numbers}
            rows = self.share_rows(map_config, "class_generalization", means, {"image": image, "text": text}, fitted_on)
            return [_over_draws(row, draws) for row in rows]

        first: list[Row] = [{**row, "at": {**row["at"], "draw": 0}} for row in rows_of(by_draw[:1])]
        return first + (rows_of(by_draw) if len(by_draw) > 1 else [])


def _over_draws(row: Row, draws: Sequence[Mapping[str, float]]) -> Row:
    """Add the standard error of a mean over draws of the known classes; all draws share the test images.

    The squared error is s²/draws + p(1 − p)/n over the n test images, or p(1 − p)/m over the m images of a single draw.
    """
    number = row["measure"].partition(".")[2]
    p = row["value"]
    n = row["n"]
    count = len(draws)
    # the number of test images that the accuracy is averaged over
    half = number.partition("_")[0]
    images = n if half == "all" else float(np.mean([scores[f"{half}_images"] for scores in draws]))
    if count < 2:
        error = math.sqrt(p * (1 - p) / images)
        note = "one draw of the known classes; ± is of the images"
    else:
        spread = float(np.std([scores[number] for scores in draws], ddof=1))
        error = math.sqrt(spread**2 / count + p * (1 - p) / n)
        note = f"mean of {count} draws of the known classes, which scatter by {spread:.4f}"
    return {**row, "standard_error": error, "n": round(images), "note": note}


experiments.add("generalization", Generalization)

"""A short program of a user, which type checkers have to understand; scripts/release/check.sh runs it."""

import numpy as np

import clip_geometry as cg


def gap(image: np.ndarray, text: np.ndarray) -> float:
    """The modality gap after centering."""
    fitted = cg.Pipeline("normalize,center[each]").fit({"image": image, "text": text})
    moved = fitted.transform({"image": image, "text": text})
    return float(cg.geometry.modality_gap(moved["image"], moved["text"]))


rng = np.random.default_rng(0)
image, text = rng.normal(size=(60, 8)) + 1, rng.normal(size=(60, 8))
measured: cg.Measurement = cg.measure(image, text, measures=["modality_gap", "isoscore"])
estimate: cg.Estimate = measured["modality_gap"]
try:
    cg.measure(image, text, measures="isoscor")
except cg.InputError as error:
    print(error)
print(estimate.value > gap(image, text), cg.__version__)

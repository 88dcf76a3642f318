"""Repairs that change the rows: none, pipelines fitted per modality or on pairs, and separate means of queries."""

from functools import partial

import numpy as np

from clip_geometry.repairs.base import Entry, InnerProduct, Known, Term, View, repairs
from clip_geometry.transforms import Affine, Pipeline


class Mapped(InnerProduct):
    """The cosine of rows after a pipeline, fitted on the known rows and, if it needs pairs, on the known pairs.

    Args:
        pipeline: Such as "center[each]"; rows are made unit length before it and after it.
    """

    def __init__(self, pipeline: str):
        self.name = self.pipeline = pipeline

    def _learn(self, known: Known) -> None:
        self.views_ = [view_of(self.pipeline, known)]
        self.terms_ = dict.fromkeys(known.kinds, Term(0))


class SeparateMeans(InnerProduct):
    """GR-CLIP: rows less the mean of their modality; queries have means of their own."""

    name = "gr_clip"

    def _learn(self, known: Known) -> None:
        sides = [{name: rows[name] for name in known.rows} for rows in ({**known.rows, **known.queries}, known.rows)]
        self.views_ = [View(*({name: _centered(x) for name, x in side.items()} for side in sides))]
        self.terms_ = dict.fromkeys(known.kinds, Term(0))


def view_of(pipeline: str, known: Known) -> View:
    """Fit `normalize, pipeline, normalize` on the known rows; queries and items take the same map."""
    steps = ",".join(filter(None, ("normalize", pipeline, "normalize")))
    fitted = Pipeline(steps).fit(known.rows, known.pairs)
    maps = {name: fitted.affine(name) for name in known.rows}
    return View(maps, maps)


def _centered(x: np.ndarray) -> Affine:
    d = x.shape[1]
    mean = (x / np.linalg.norm(x, axis=1, keepdims=True)).mean(0)
    return Affine(np.eye(d), -mean, renormalise=True, unit_rows_in=True)


repairs.add("none", Entry(partial(Mapped, ""), "the cosine as it is", "cos(q, x)"))
repairs.add(
    "center",
    Entry(
        partial(Mapped, "center[each]"),
        "the mean of each modality subtracted",
        "cos(q − μ_a, x − μ_m)",
        "Liang et al. 2022, arXiv:2203.02053",
    ),
)
repairs.add(
    "gr_clip",
    Entry(
        SeparateMeans,
        "the mean of each modality subtracted, with means of their own for queries",
        "cos(q − μ_a of queries, x − μ_m of items)",
        "Li et al. 2025, arXiv:2507.19054",
    ),
)
repairs.add(
    "whiten",
    Entry(
        partial(Mapped, "whiten(64)[pooled]"),
        "the 64 principal directions of all rows at equal variance",
        "cos(W(q − μ), W(x − μ))",
        "Su et al. 2021, arXiv:2103.15316",
    ),
)
repairs.add(
    "procrustes",
    Entry(
        partial(Mapped, "procrustes[text-to-image]"),
        "texts rotated onto their images",
        "cos(q R, x)",
        "Schönemann 1966",
    ),
)
repairs.add(
    "least_squares",
    Entry(
        partial(Mapped, "least_squares[text-to-image]"),
        "texts mapped onto their images by least squares",
        "cos(q W, x)",
        "Tyshchuk et al. 2023",
    ),
)

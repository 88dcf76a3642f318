"""Repairs that change the rows: none, pipelines fitted per modality or on pairs, and separate means of queries."""

from collections.abc import Sequence

import numpy as np

from clip_geometry.search.repairs.base import InnerProduct, Known, Repair, RepairView, Term
from clip_geometry.transforms import Affine, Normalize

DETERMINED = ("whiten", "procrustes", "least_squares")  # by as many rows as dimensions, which they fit exactly


class Mapped(InnerProduct):
    """The cosine of rows after a pipeline, fitted on the known rows and, if it needs pairs, on the known pairs.

    Args:
        pipeline: Such as "center[each]"; rows are made unit length before it and after it.
    """

    name = "mapped"

    def __init__(self, pipeline: str):
        self.pipeline = pipeline
        self.name = pipeline or "none"
        self.memorizes = pipeline.startswith(DETERMINED)

    def _learn(self, known: Known) -> None:
        self.views_ = [known.view(self.pipeline)]
        self.terms_ = dict.fromkeys(known.kinds, Term(0))


class SeparateMeans(InnerProduct):
    """GR-CLIP: of queries, the mean of the queries of their modality is subtracted, and of items that of the items."""

    name = "gr_clip"

    def _learn(self, known: Known) -> None:
        asked = {name: known.asked(name) for name in known.modalities}
        self.views_ = [RepairView(*({name: _centered(x) for name, x in side.items()} for side in (asked, known.rows)))]
        self.terms_ = dict.fromkeys(known.kinds, Term(0))


class TwoViews(Repair):
    """Base of the repairs of cosines that may be centered: across modalities only, within one they are the raw ones.

    Args:
        centered: Across modalities, take the cosine without the mean of each modality, which may retrieve better.

    Attributes:
        views_: The maps before the cosines: the raw rows and, if centered, the rows without their means.
    """

    views_: Sequence[RepairView]

    def __init__(self, *, centered: bool = False):
        self.centered = centered

    def learn_views(self, known: Known) -> None:
        """Fit the views."""
        self.views_ = [known.view(pipeline) for pipeline in ("", "center[each]")[: 1 + self.centered]]

    def number_of(self, query: str, item: str) -> int:
        """Return the number of the view of a kind."""
        return int(self.centered and query != item)

    def view(self, query: str, item: str) -> RepairView:
        """Return the view of a kind."""
        view = self.views_[self.number_of(query, item)]
        self.require(view.items, query, item)
        return view

    @property
    def modalities(self) -> list[str]:
        return sorted(self.views_[0].items)


def _centered(x: np.ndarray) -> Affine:
    mean = Normalize().apply(x).mean(0)
    return Affine(np.eye(len(mean)), -mean, renormalise=True, unit_rows_in=True)

"""Repairs that rank by the cosine: of raw rows, of mapped rows, or fused from one list per modality."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from clip_geometry.search.repairs import InnerProduct, Known, Repair, RepairView, Sets, Term, cached

BEHIND = -4.0  # added to a cosine, this ranks an item below all others
CONSTANT = 60.0  # as in the paper; it does not affect the order, since each item is in one index only
TIE = 1e-6  # in ranks: separates equal ranks without reaching the next one
DETERMINED = ("whiten", "procrustes", "least_squares")  # they fit as many rows as dimensions exactly


class Mapped(InnerProduct):
    """The cosine of rows after a pipeline, fitted on the known rows or, if it needs pairs, on the known pairs.

    Args:
        pipeline: Steps, such as "center[each]"; rows are scaled to unit length before and after them.
    """

    name = "mapped"

    def __init__(self, pipeline: str):
        self.pipeline = pipeline
        self.name = pipeline or "none"
        self.memorizes = pipeline.startswith(DETERMINED)

    def _learn(self, known: Known) -> None:
        self.views_ = [known.view(self.pipeline)]
        self.terms_ = dict.fromkeys(known.kinds, Term(0))


class TwoViews(Repair):
    """Base class of the repairs that may center cosines across modalities; within a modality, they use raw rows.

    Args:
        centered: Whether to subtract the mean of each modality before cosines across modalities, which may retrieve
            better.

    Attributes:
        views_: The views before the cosines: the raw rows and, if `centered`, the rows without their means.
    """

    views_: Sequence[RepairView]

    def __init__(self, *, centered: bool = False):
        self.centered = centered

    def learn_views(self, known: Known) -> None:
        """Fit the views."""
        self.views_ = [known.view(pipeline) for pipeline in ("", "center[each]")[: 1 + self.centered]]

    def number_of(self, query: str, item: str) -> int:
        """Return the number of the view for a query and an item modality."""
        return int(self.centered and query != item)

    def view(self, query: str, item: str) -> RepairView:
        """Return the view for a query and an item modality."""
        view = self.views_[self.number_of(query, item)]
        self.require(view.maps, query, item)
        return view

    @property
    def modalities(self) -> list[str]:
        return sorted(self.views_[0].maps)


class OtherOnly(TwoViews, InnerProduct):
    """A search of the other modalities only, as with a filter: items of the query's own modality come last."""

    name = "other"

    def _learn(self, known: Known) -> None:
        """Fit the views; the offset BEHIND puts rows of the query's own modality after all others."""
        self.learn_views(known)
        self.terms_ = {
            kind: Term(self.number_of(*kind), offset=BEHIND if kind[0] == kind[1] else 0.0) for kind in known.kinds
        }


class ReciprocalRank(TwoViews):
    """Reciprocal-rank fusion of one index per modality: 1/(60 + rank), with ranks by cosine, starting at 1.

    Each item is in one index only, so the fused list takes one item of each modality in turn. Equal ranks in several
    modalities are ordered by modality: the query's own comes last and the others follow their names, so an item of
    another modality that is first in its index is first overall. With `own_first`, the query's own modality comes
    first. The scores encode this order by 10⁻⁶ of a rank. Equal cosines within a modality are ranked by the number of
    the item. The query itself takes no rank.

    Args:
        own_first: Whether items of the query's own modality come first among equal ranks.
        centered: Whether to rank across modalities by the cosine without the mean of each modality.
    """

    name = "rrf"

    def __init__(self, *, own_first: bool = False, centered: bool = False):
        super().__init__(centered=centered)
        self.own_first = own_first

    def _learn(self, known: Known) -> None:
        self.learn_views(known)

    def scores(self, query: str, q: np.ndarray, item: str, x: np.ndarray) -> np.ndarray:
        """Return the scores in an index of these items alone; for a mixed index, use `mixed`."""
        return self.mixed(query, q, {item: x})[item]

    def mixed(self, query: str, q: np.ndarray, items: Sets, itself: np.ndarray | None = None) -> dict[str, np.ndarray]:
        scores = {}
        order = sorted(items, key=lambda item: ((item == query) != self.own_first, item))
        for item, x in items.items():
            view = self.view(query, item)
            excluded = itself if item == query else None
            cosines = view.products(query, q, item, x)
            key = id(cosines), "ranks", excluded is None
            ranks = cached(view.kept, key, partial(ranked, cosines, excluded))
            scores[item] = 1 / (CONSTANT + ranks + TIE * order.index(item))
            if excluded is not None:
                scores[item][np.arange(len(q)), excluded] = -np.inf
        return scores


def ranked(cosines: np.ndarray, itself: np.ndarray | None) -> np.ndarray:
    """Return the rank of each item for each query, from 1, with ties in item order; `itself` is ranked last."""
    if itself is not None:
        cosines = cosines.copy()
        cosines[np.arange(len(cosines)), itself] = -np.inf
    best = np.argsort(-cosines, axis=1)  # twice as fast as a stable sort, which is left to the queries with ties
    ordered = np.take_along_axis(cosines, best, axis=1)
    tied = (ordered[:, 1:] == ordered[:, :-1]).any(1)
    best[tied] = np.argsort(-cosines[tied], axis=1, kind="stable")
    ranks = np.empty(cosines.shape, dtype=np.int32)
    np.put_along_axis(ranks, best, np.arange(1, cosines.shape[1] + 1, dtype=np.int32)[None], axis=1)
    return ranks

"""Maps from raw rows to rows of a repaired index, built from operations that other programs have as well."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.search.repairs import InnerProduct, RepairView, Term
from clip_geometry.search.repairs.neighborhoods import BankStatistic
from clip_geometry.transforms import Affine
from clip_geometry.transforms.pipeline import Pipeline

EMPTY = 1e-12  # weights of copies up to this, relative to the largest, are rounding errors


class Biased(NamedTuple):
    """A column of a repaired row that adds a statistic of the row after a view to its constant."""

    column: int
    view: int
    statistic: BankStatistic


class Copy(NamedTuple):
    """Columns of a repaired row that hold the row after a view, times a weight."""

    view: int
    weight: float


@dataclass(frozen=True, eq=False)
class RowMap:
    """Map from a raw row to a row of the index: weighted copies of the row after a few views, then constant columns.

    Args:
        views: Affine maps of the raw row.
        copies: Weighted copies, in the order of their columns.
        constants: (c,) values of the last columns.
        statistics: Statistics to add to some of the last columns.
    """

    views: Sequence[Affine]
    copies: Sequence[Copy]
    constants: np.ndarray
    statistics: Sequence[Biased] = ()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        viewed = [view(x) for view in self.views]
        constants = np.tile(self.constants, (len(x), 1))
        for column, view, statistic in self.statistics:
            constants[:, column] += statistic(viewed[view])
        return np.concatenate([*(weight * viewed[v] for v, weight in self.copies), constants], axis=1)

    @property
    def d_in(self) -> int:
        return len(self.views[0].W)

    @property
    def d_out(self) -> int:
        return sum(len(self.views[v].b) for v, _ in self.copies) + len(self.constants)

    @property
    def is_view(self) -> bool:
        """Whether the map is a single view of the row and nothing else."""
        return len(self.copies) == 1 and not len(self.constants) and bool(np.isclose(self.copies[0].weight, 1, 1e-12))

    def columns_of(self, copies: Sequence[int]) -> np.ndarray:
        """Return the mask of the columns that `keep` retains."""
        masks = [np.full(len(self.views[v].b), k in copies) for k, (v, _) in enumerate(self.copies)]
        return np.concatenate([*masks, np.full(len(self.constants), True)])

    def keep(self, copies: Sequence[int]) -> "RowMap":
        """Return the map without the columns of all other copies."""
        return replace(self, copies=[self.copies[k] for k in copies])


class SavedPipeline(InnerProduct):
    """A fitted pipeline as a repair whose score is the inner product of rows after the pipeline.

    Args:
        fitted: The pipeline.
        modalities: Modalities of the rows; default: those for which the pipeline was fitted.
        normalize: Whether to scale the rows to unit length afterwards, so that the inner product is the cosine.
    """

    def __init__(self, fitted: Pipeline, modalities: Iterable[str] | None = None, *, normalize: bool = True):
        names = list(fitted.chains if modalities is None else modalities)
        if len(names) > 1 and fitted.refusal:
            raise InputError(fitted.refusal)
        maps = {name: fitted.affine(name) for name in names}
        if normalize:
            maps = {name: replace(affine, renormalise=True) for name, affine in maps.items()}
        dimensions = {name: len(affine.b) for name, affine in maps.items()}
        if len(set(dimensions.values())) > 1:
            given = " and ".join(f"{name} rows have {d}" for name, d in dimensions.items())
            raise InputError(f"after the pipeline, {given} dimensions, but one index needs rows of one dimension")
        self.name = " → ".join(map(str, fitted.steps))
        self.views_ = [RepairView(maps)]
        self.terms_ = {(query, item): Term(0) for query in names for item in names}


def query_map(repair: InnerProduct, modality: str) -> RowMap:
    """Return the map from raw queries of a modality to rows with which to query an index."""
    return _row_map(repair, modality, is_query=True)


def item_map(repair: InnerProduct, modality: str) -> RowMap:
    """Return the map from raw items of a modality to rows of an index."""
    return _row_map(repair, modality, is_query=False)


def _row_map(repair: InnerProduct, modality: str, *, is_query: bool) -> RowMap:
    """Return the map from raw rows to index rows or query rows, whose inner product is the repaired score."""
    repair.term(modality, modality)  # raises InputError for an unknown modality
    copies = [
        Copy(v, for_queries[modality] if is_query else for_items[modality])
        for v, for_queries, for_items in repair.copies()
    ]
    views = [view.maps[modality] for view in repair.views_]
    columns: list[tuple[float, int, BankStatistic | None]] = []  # constant, view, statistic of the row after the view
    names = repair.modalities
    one_hot = [(float(modality == name), 0, None) for name in names]
    if any(term.offset or repair.item_statistic(*kind) for kind, term in repair.terms_.items()):
        terms = [(repair.terms_[query, modality], repair.item_statistic(query, modality)) for query in names]
        columns += one_hot if is_query else [(term.offset, term.view, statistic) for term, statistic in terms]
    if any(repair.query_statistic(*kind) for kind in repair.terms_):
        terms = [(repair.terms_[modality, item], repair.query_statistic(modality, item)) for item in names]
        columns += [(0.0, term.view, statistic) for term, statistic in terms] if is_query else one_hot
    statistics = [Biased(k, view, statistic) for k, (_, view, statistic) in enumerate(columns) if statistic is not None]
    return RowMap(views, copies, np.array([constant for constant, *_ in columns]), statistics)


class IndexRows(NamedTuple):
    """The rows of one index: modality → the map of its items, and the numbers of the copies that the index keeps."""

    items: Mapping[str, RowMap]
    kept: Sequence[int]


def indexes_of(repair: InnerProduct, names: Iterable[str]) -> list[IndexRows]:
    """Return one index per group of modalities that queries see through the same views, without empty columns."""
    groups: dict[tuple[int, ...], dict[str, RowMap]] = {}
    for item in names:
        mapped = item_map(repair, item)
        views = tuple(repair.terms_[query, item].view for query in repair.modalities)
        groups.setdefault(views, {})[item] = mapped
    indexes = []
    for maps in groups.values():
        weights = np.abs([[weight for _, weight in mapped.copies] for mapped in maps.values()])
        kept = np.flatnonzero((weights > EMPTY).any(0)).tolist()
        indexes.append(IndexRows({name: mapped.keep(kept) for name, mapped in maps.items()}, kept))
    return indexes

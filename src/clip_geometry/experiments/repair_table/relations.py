"""Which measures of geometry and mixing go with which of retrieval, over the maps of the rows."""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr

from clip_geometry.experiments.repair_table.measuring import MEASURES
from clip_geometry.experiments.repair_table.table import RepairTable

TARGETS = ("r_at_1", "cross_r_at_1", "neighbors")
FEWEST, DRAWS = 5, 2000  # maps, and bootstrap samples of them


class Relation(NamedTuple):
    """The rank correlation of two measures over maps, each map by its mean rank over the sets.

    Attributes:
        measure: Of geometry or mixing.
        target: Of retrieval.
        maps: Number of maps, without none.
        rho: Spearman's ρ; positive where a map that is better by the one is better by the other.
        low, high: Its 95% bootstrap interval over maps.
        p: Of ρ = 0, adjusted by Holm for all relations of the table. Like the interval it takes the maps as
            independent, which variants of one idea are not.
    """

    measure: str
    target: str
    maps: int
    rho: float
    low: float
    high: float
    p: float

    @property
    def title(self) -> str:
        return f"{MEASURES[self.measure].title.removesuffix(' ↓')} with {MEASURES[self.target].title}"

    @property
    def sure(self) -> bool:
        return self.p < 0.05


def relations(table: RepairTable) -> list[Relation]:
    """Relate every measure of geometry and mixing to `TARGETS`; empty for fewer than five maps."""
    sources = [name for name, each in MEASURES.items() if each.group in ("geometry", "mixing")]
    scored = {name: table.scores([name]) for name in (*sources, *TARGETS)}
    by_measure = {name: dict(zip(of, -ranks.mean(0), strict=True)) if len(ranks) else {}
                  for name, (of, ranks) in scored.items()}  # fmt: skip
    maps = [name for name in table.repairs if name != "none" and all(name in each for each in by_measure.values())]
    if len(maps) < FEWEST:
        return []
    picks = np.random.default_rng(0).integers(len(maps), size=(DRAWS, len(maps)))
    values = {measure: np.array([each[name] for name in maps]) for measure, each in by_measure.items()}
    # ranks as unit vectors, whose products are Spearman's ρ; NaN where a sample is constant
    ranks = {measure: rankdata(each[picks], axis=-1) - (len(maps) + 1) / 2 for measure, each in values.items()}
    with np.errstate(invalid="ignore"):
        drawn = {measure: each / np.linalg.norm(each, axis=-1, keepdims=True) for measure, each in ranks.items()}
    found = []
    for measure, target in itertools.product(sources, TARGETS):
        x, y = values[measure], values[target]
        if np.ptp(x) and np.ptp(y):  # else no map differs from the others
            low, high = np.nanpercentile((drawn[measure] * drawn[target]).sum(1), [2.5, 97.5])
            rho, p = spearmanr(x, y)
            found.append(Relation(measure, target, len(maps), *map(float, (rho, low, high, p))))  # pyright: ignore
    adjusted = holm(np.array([each.p for each in found]))
    return [each._replace(p=float(p)) for each, p in zip(found, adjusted, strict=True)]


def holm(p: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return p values adjusted for their number by Holm's method."""
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p)))), 1)
    return adjusted

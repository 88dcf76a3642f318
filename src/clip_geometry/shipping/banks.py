"""Columns of a repaired row that depend on a bank of known rows, as neighborhood repairs have them."""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from clip_geometry.registry import InputError
from clip_geometry.repairs import InnerProduct
from clip_geometry.repairs.neighborhoods import CSLS, NNN, InvertedSoftmax, nearest_mean, over_bank


@dataclass(frozen=True, eq=False)
class Statistic:
    """How near a row after its view is to a bank: factor · mean of its k highest cosines, or factor · log Σ exp(β cos).

    Args:
        column: Of the row's constants, to which it is added.
        view: Number of the view.
        bank: (m, d) unit rows.
        own: Whether a bank row that is the row itself is left out.
        factor: Of the statistic.
        k: Number of neighbors; None for the log sum.
        beta: β of the log sum.
    """

    column: int
    view: int
    bank: np.ndarray
    own: bool
    factor: float = -1.0
    k: int | None = None
    beta: float = 0.0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the column of viewed rows, (n,)."""
        if self.k is not None:
            return self.factor * nearest_mean(x, self.bank, self.k, own=self.own)

        def log_sum(cosines: np.ndarray) -> np.ndarray:
            return np.asarray(logsumexp(self.beta * cosines, axis=1))

        return self.factor * over_bank(x, self.bank, log_sum, own=self.own)

    @property
    def neighbors(self) -> int:
        """k, or all rows of a smaller bank; 0 for the log sum."""
        return min(self.k or 0, len(self.bank) - self.own)


def item_statistics(repair: InnerProduct, item: str) -> list[Statistic]:
    """Return the biases of items as columns, one for each modality of queries; none if the repair has no item bias."""
    if type(repair).item_bias is InnerProduct.item_bias:
        return []
    found = []
    for column, query in enumerate(repair.modalities):
        term, own = repair.terms_[query, item], query == item
        if isinstance(repair, CSLS):
            found.append(Statistic(column, term.view, repair.queries_[query], own, k=repair.k))
        elif isinstance(repair, NNN):
            found.append(Statistic(column, term.view, repair.queries_[query], own, -repair.alpha, k=repair.k))
        elif isinstance(repair, InvertedSoftmax):
            found.append(Statistic(column, term.view, repair.queries_[query], own, beta=term.slope))
        else:
            raise InputError(f"the item bias of {repair.name} has no form that can be shipped")
    return found


def query_statistics(repair: InnerProduct, query: str) -> list[Statistic]:
    """Return the biases of queries as columns, one for each modality of items; none if the repair has no query bias."""
    if type(repair).query_bias is InnerProduct.query_bias:
        return []
    if not isinstance(repair, CSLS):
        raise InputError(f"the query bias of {repair.name} has no form that can be shipped")
    names = repair.modalities
    first = len(names)  # after the columns of item biases
    return [
        Statistic(first + k, repair.terms_[query, item].view, repair.items_[item], query == item, k=repair.k)
        for k, item in enumerate(names)
    ]

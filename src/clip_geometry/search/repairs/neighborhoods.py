"""Repairs by neighborhoods: they lower the scores of hubs, items that are near many queries of a bank."""

from dataclasses import dataclass

import numpy as np
import torch

from clip_geometry.registry import InputError
from clip_geometry.search.repairs import InnerProduct, Known, Term
from clip_geometry.transforms import Normalize

SAME = 1e-6  # 1 − cosine up to which two rows count as the same, such as a row and its float16 copy
ENTRIES = 2**20  # entries of a block of cosines: 8 MB


@dataclass(frozen=True, eq=False)
class BankStatistic:
    """How near a row is to a bank: factor · mean of its k highest cosines, or factor · log Σ exp(β cos).

    Args:
        bank: (m, d) unit rows.
        own: Whether rows and bank are of one modality, so a bank row can be the row itself and must not count.
        factor: Factor of the statistic.
        k: Number of neighbors (all rows if the bank is smaller); None for the log sum.
        beta: β of the log sum.
    """

    bank: np.ndarray
    own: bool
    factor: float = -1.0
    k: int | None = None
    beta: float = 0.0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the statistic of unit rows, (n,)."""
        values = np.empty(len(x))
        k = self.neighbors
        step = max(1, ENTRIES // len(self.bank))
        for start in range(0, len(x), step):
            cosines = x[start : start + step] @ self.bank.T
            if self.own:
                nearest = cosines.argmax(1)
                itself = np.flatnonzero(np.take_along_axis(cosines, nearest[:, None], 1)[:, 0] > 1 - SAME)
                cosines[itself, nearest[itself]] = -np.inf
            if k:
                values[start : start + step] = np.partition(cosines, -k, axis=1)[:, -k:].mean(1)
            else:
                values[start : start + step] = torch.from_numpy(self.beta * cosines).logsumexp(1).numpy()
        return self.factor * values

    @property
    def neighbors(self) -> int:
        """k, or the number of all rows of a smaller bank; 0 for the log sum."""
        return min(self.k or 0, len(self.bank) - self.own)


class Neighborhood(InnerProduct):
    """Base class of the repairs that subtract from the cosine how near an item is to a bank of queries.

    There is one bank per query modality, and it serves items of every modality. The bias therefore depends on the kind
    (query modality × item modality). An image is near the bank of image queries and a text is not, and most of that
    difference is subtracted.

    Attributes:
        bank_: Modality → unit rows of its bank: the known rows. A bank row that is the item itself does not count; a
            copy of the item does.
    """

    memorizes = True
    slope = 1.0
    bank_: dict[str, np.ndarray]

    def _learn(self, known: Known) -> None:
        """Keep the unit rows of each modality as the bank with which scores are compared."""
        self.views_ = [known.view("")]
        self.terms_ = dict.fromkeys(known.kinds, Term(0, self.slope))
        for modality, rows in known.rows.items():
            if len(rows) < 2:
                raise InputError(
                    f"there is one {modality} row; {self.name} needs a bank of at least 2 rows of each modality"
                )
        self.bank_ = {modality: Normalize().apply(rows) for modality, rows in known.rows.items()}


class CSLS(Neighborhood):
    """Cross-domain similarity local scaling: 2 cos(q, x) − r(x) − r(q).

    For a query of modality a and an item of modality m, r(x) is the mean cosine of x to its k nearest rows in the bank
    of a, and r(q) is that of q to its k nearest rows in the bank of m. Within one item modality, r(q) has no effect; in
    a mixed index, it differs between modalities.
    """

    name = "csls"
    slope = 2.0
    k = 10

    def item_statistic(self, query: str, item: str) -> BankStatistic:
        return BankStatistic(self.bank_[query], query == item, k=self.k)

    def query_statistic(self, query: str, item: str) -> BankStatistic:
        return self.item_statistic(item, query)


class NNN(Neighborhood):
    """Nearest neighbor normalization: cos(q, x) − α r(x), with r(x) the mean cosine of x to its k nearest bank queries.

    k and α are the values that the authors recommend without tuning.
    """

    name = "nnn"
    k, alpha = 128, 0.75

    def item_statistic(self, query: str, item: str) -> BankStatistic:
        return BankStatistic(self.bank_[query], query == item, -self.alpha, k=self.k)


class InvertedSoftmax(Neighborhood):
    """The log of the inverted softmax: β cos(q, x) − log Σ_b exp(β cos(b, x)) over the bank queries b.

    The score is the log probability that the item was asked for by this query rather than by a query of the bank. The
    bank queries are of the query's modality, so items of all modalities share one scale. β is the logit scale of the
    model.
    """

    name = "inverted_softmax"

    def _learn(self, known: Known) -> None:
        self.slope = known.logit_scale
        super()._learn(known)

    def item_statistic(self, query: str, item: str) -> BankStatistic:
        return BankStatistic(self.bank_[query], query == item, beta=self.terms_[query, item].slope)

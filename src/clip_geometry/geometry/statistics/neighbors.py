"""The nearest neighbors of each row, within one set and within each of two paired sets."""

from functools import cached_property
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distances import nearest
from clip_geometry.geometry.statistics.statistic import Statistic
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Integer, whole_number
from clip_geometry.rows.matrix import Rows, as_aligned, as_matrix, as_unit_rows, require_spread
from clip_geometry.rows.streamed import StreamedRows

SHORT = 10  # length of the shortest list; most measures use its beginning

NeighborLists = tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]  # ascending distances, and indices; see `nearest`


class Neighbors(Statistic):
    """The nearest other rows of each row of a set, by Euclidean distance of the rows as given or of their directions.

    Attributes:
        rows: Rows as given, (n, d).
        n: Number of rows.
        unit: `Neighbors` of the unit rows, which is the search by cosine.
    """

    def __init__(self, x: Rows, *, name: str = "x"):
        self.rows: Any = as_matrix(x, name=name)
        self.name = name
        self.n = len(self.rows)
        self.streamed = isinstance(self.rows, StreamedRows)
        self._list: NeighborLists | None = None  # the longest list computed so far

    @cached_property
    def unit(self) -> "Neighbors":
        rows = as_unit_rows(self.rows, name=self.name)
        return self if rows is self.rows else Neighbors(rows, name=self.name)

    def require_spread(self) -> None:
        """Raise InputError if all rows are equal."""
        require_spread(self.rows, name=self.name)

    def by_cosine(self, k: Integer, *, least_k: int = 1) -> tuple["Neighbors", int]:
        """Return the `Neighbors` of the directions, which must not all be equal, and the checked k."""
        k = self.checked(k, least_d=2, least_k=least_k)
        self.unit.require_spread()
        return self.unit, k

    def checked(self, k: Integer, *, least_d: int = 1, least_k: int = 1) -> int:
        """Return k after checking that least_k ≤ k < n. Raises InputError also for fewer than least_d columns."""
        as_matrix(self.rows, name=self.name, least_d=least_d)
        k = whole_number(k, "k", least=least_k, of=", of neighbors")
        if self.n <= k:
            raise InputError(
                f"{self.name} has {self.n} rows; expected at least {k + 1} for k = {k} neighbors, or a smaller k"
            )
        return k

    def nearest(self, k: int) -> NeighborLists:
        """Return the distances to the k nearest other rows, ascending, and their indices; ties are in index order."""
        if self._list is None or self._list[0].shape[1] < k:
            self._list = nearest.nearest(self.rows, max(k, min(SHORT, self.n - 1)))
        distances, indices = self._list
        return distances[:, :k], indices[:, :k]


class PairedNeighbors(Statistic):
    """`Neighbors` within each of two sets of the same items, which may have different dimensions."""

    def __init__(self, x: Rows, y: Rows):
        x, y = as_aligned(x, y, ("image", "text"), one_space=False, streams=True)
        self.image = Neighbors(x, name="image")
        self.text = Neighbors(y, name="text")

    def unit(self, k: Integer, *, least_k: int = 1) -> tuple[Neighbors, Neighbors, int]:
        """Return the `Neighbors` by cosine of both sets, and the checked k."""
        image, k = self.image.by_cosine(k, least_k=least_k)
        text, k = self.text.by_cosine(k, least_k=least_k)
        return image, text, k

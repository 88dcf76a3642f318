"""Which items of an index are relevant to which queries: by labels or by pairs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from clip_geometry.registry import InputError, listed, shown
from clip_geometry.rows.arguments import members, whole_number
from clip_geometry.rows.matrix import Labels, as_codes, as_values


class Relevance:
    """The relevance of every item of an index to every query; each item is a query, and never relevant to itself.

    Made by `of_labels` or `of_pairs`. Items are numbered from 0 within their modality.

    Args:
        sizes: Modality → number of its items.
        codes: Modality → a number for each item; items with equal ones are relevant to each other.
        within: Whether this holds for items of one modality, too.
        pairs: (modality of the queries, modality of the items) → (n, m) sparse table of what is relevant, instead of
            codes.

    Example:
        >>> import clip_geometry as cg
        >>> relevance = cg.Relevance.of_labels(image=["cat", "cat", "dog"], text=["cat", "owl"])
        >>> relevance.dense("image", "text").astype(int).tolist()
        [[1, 0], [1, 0], [0, 0]]
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        codes: Mapping[str, np.ndarray] | None = None,
        *,
        within: bool = True,
        pairs: Mapping[tuple[str, str], csr_array] | None = None,
    ):
        self.sizes, self.codes, self.within, self.pairs = dict(sizes), codes, within, pairs or {}

    @classmethod
    def of_labels(cls, **labels: Labels) -> "Relevance":
        """Return the relevance of items with equal labels.

        Args:
            labels: Modality → one label for each of its items.

        Returns:
            The relevance.

        Raises:
            InputError: A label is missing or cannot be compared.

        Example:
            >>> import clip_geometry as cg
            >>> cg.Relevance.of_labels(image=[0, 1, 1], text=[1]).dense("text", "image").astype(int).tolist()
            [[0, 1, 1]]
        """
        values = {name: as_values(each, name=f"labels of {name}") for name, each in labels.items()}
        sizes = {name: len(each) for name, each in values.items()}
        together = [value for each in values.values() for value in each]
        codes = as_codes(together, len(together), least=1)[0].split(list(sizes.values()))
        return cls(sizes, {name: each.numpy() for name, each in zip(sizes, codes, strict=True)})

    @classmethod
    def of_pairs(cls, pairs: Any, **sizes: int) -> "Relevance":
        """Return the relevance of items that belong together, as an image and its captions do.

        Items of one modality are not relevant to each other.

        Args:
            pairs: (2, p) item numbers of the first and of the second modality, as in `retrieval`; for more than two
                modalities, (modality, modality) → (2, p). Items without a pair stay in the index.
            sizes: The modalities and the number of their items.

        Returns:
            The relevance.

        Raises:
            InputError: The pairs are not item numbers of two modalities.

        Example:
            >>> import clip_geometry as cg
            >>> relevance = cg.Relevance.of_pairs([[0, 0, 1], [0, 1, 2]], image=2, text=3)
            >>> relevance.dense("image", "text").astype(int).tolist()
            [[1, 1, 0], [0, 0, 1]]
        """
        sizes = {name: whole_number(size, name, of=", the number of its items") for name, size in sizes.items()}
        tables = {}
        for couple, both in (pairs if isinstance(pairs, Mapping) else {tuple(sizes): pairs}).items():
            columns = members(both) or ()
            if len(couple) != 2 or len(columns) != 2 or not sizes.keys() >= {*couple}:
                raise InputError(
                    f"pairs have {len(columns)} rows, of {listed(couple)} items; expected 2 rows, item numbers of two "
                    "modalities such as image=500, text=500"
                )
            i, j = (item_numbers(each, sizes[name], name) for each, name in zip(columns, couple, strict=True))
            if len(i) != len(j):
                raise InputError(f"pairs have rows of {len(i)} and {len(j)} numbers; expected one length")
            table = csr_array((np.ones(len(i), bool), (i, j)), shape=tuple(sizes[name] for name in couple))
            tables |= {couple: table, couple[::-1]: table.T.tocsr()}
        return cls(sizes, pairs=tables)

    def dense(self, query: str, item: str, queries: np.ndarray | None = None) -> np.ndarray:
        """Return which items of one modality are relevant to which queries of one.

        Args:
            query: Modality of the queries.
            item: Modality of the items.
            queries: (q,) numbers of the queries; default: all items of their modality.

        Returns:
            (q, m) True for relevant items.

        Example:
            >>> import clip_geometry as cg
            >>> cg.Relevance.of_labels(image=[0, 1], text=[1]).dense("image", "text").tolist()
            [[False], [True]]
        """
        numbers = np.arange(self.sizes[query]) if queries is None else queries
        if self.codes and (self.within or query != item):
            relevant = self.codes[query][numbers, None] == self.codes[item]
        elif (query, item) in self.pairs:
            relevant = self.pairs[query, item][numbers].toarray()
        else:
            relevant = np.zeros((len(numbers), self.sizes[item]), dtype=bool)
        if query == item:
            relevant[np.arange(len(numbers)), numbers] = False
        return relevant


def item_numbers(values: Any, size: int, name: str) -> np.ndarray:
    """Return numbers (p,) of items of a modality, which has `size` of them."""
    try:
        numbers = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    except ValueError:  # ragged
        numbers = np.asarray(None)
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        raise InputError(f"numbers of {name} items are {shown(values)}; expected a list of whole numbers from 0 on")
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < size:
        worst = numbers.min() if numbers.min() < 0 else numbers.max()
        raise InputError(f"{name} item {worst} does not exist; expected numbers from 0 to {size - 1}")
    return numbers.astype(np.int64)

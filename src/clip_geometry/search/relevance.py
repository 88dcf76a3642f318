"""Which items of an index are relevant to which queries: by labels or by pairs."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from clip_geometry.rows.matrix import Labels, as_codes, as_values


@dataclass(frozen=True, eq=False)
class Relevance:
    """Which items of an index are relevant to which queries. Each item is also a query, and never relevant to itself.

    Args:
        codes: Modality → a number for each item. Items with equal numbers are relevant to each other.
        within: Whether the numbers also say which items of the same modality are relevant to each other. Labels do;
            pairs do not, since they do not say which images resemble each other.

    Example:
        >>> import clip_geometry as cg
        >>> relevance = cg.search.Relevance.of_labels(image=["cat", "cat", "dog"], text=["cat", "owl"])
        >>> relevance.dense("image", "text").astype(int).tolist()
        [[1, 0], [1, 0], [0, 0]]
    """

    codes: Mapping[str, np.ndarray]
    within: bool

    @classmethod
    def of_labels(cls, *, within: bool = True, **labels: Labels) -> "Relevance":
        """Create the relevance from labels, or from item ids: items with equal labels are relevant to each other.

        Args:
            within: Whether equal items of the same modality are also relevant to each other; False for ids of paired
                items.
            labels: Modality → for each of its items a label, or the id of the item.

        Returns:
            The relevance.

        Raises:
            InputError: A label is missing or cannot be compared.

        Example:
            >>> import clip_geometry as cg
            >>> cg.search.Relevance.of_labels(image=[0, 1, 1], text=[1]).dense("text", "image").astype(int).tolist()
            [[0, 1, 1]]
        """
        values = {name: as_values(column, name=f"labels of {name}") for name, column in labels.items()}
        together = [value for column in values.values() for value in column]
        codes = as_codes(together, len(together), least=1)[0].split([len(column) for column in values.values()])
        return cls({name: numbers.numpy() for name, numbers in zip(values, codes, strict=True)}, within)

    @property
    def sizes(self) -> dict[str, int]:
        """Modality → number of its items."""
        return {name: len(numbers) for name, numbers in self.codes.items()}

    def dense(self, query: str, item: str, queries: np.ndarray | None = None) -> np.ndarray:
        """Return which items of one modality are relevant to which queries of another or the same modality.

        Args:
            query: Modality of the queries.
            item: Modality of the items.
            queries: (q,) numbers of the queries; default: all items of their modality.

        Returns:
            (q, m) mask, True where the item is relevant to the query.

        Example:
            >>> import clip_geometry as cg
            >>> cg.search.Relevance.of_labels(image=[0, 1], text=[1]).dense("image", "text").tolist()
            [[False], [True]]
        """
        numbers = np.arange(len(self.codes[query])) if queries is None else queries
        relevant = self.codes[query][numbers, None] == self.codes[item]
        if query == item:
            relevant[np.arange(len(numbers)), numbers] = False
            relevant &= self.within
        return relevant

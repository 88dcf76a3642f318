"""Which items of an index are relevant to which queries: by labels or by pairs."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.registry import InputError, listed, shown
from clip_geometry.rows.arguments import members, whole_number
from clip_geometry.rows.matrix import Labels, as_codes, as_values


class Relevance:
    """The relevance of every item of an index to every query; each item is a query, and never relevant to itself.

    Made by `of_labels` or `of_pairs`. Items are numbered from 0 within their modality.

    Args:
        tables: (modality of the queries, modality of the items) → which items are relevant to which queries.
        sizes: Modality → number of its items.
        words: What relevance means, for remarks.

    Example:
        >>> import clip_geometry as cg
        >>> relevance = cg.Relevance.of_labels(image=["cat", "cat", "dog"], text=["cat", "owl"])
        >>> relevance.counts("image")["text"].tolist(), relevance.counts("text")["image"].tolist()
        ([1, 1, 0], [2, 0])
    """

    def __init__(self, tables: Mapping[tuple[str, str], "_Labels | _Pairs"], sizes: Mapping[str, int], words: str):
        self.tables, self.sizes, self.words = dict(tables), dict(sizes), words

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
            >>> cg.Relevance.of_labels(image=[0, 1, 1], text=[1]).counts("image")
            {'image': tensor([0, 1, 1]), 'text': tensor([0, 1, 1])}
        """
        values = {name: as_values(each, name=f"labels of {name}") for name, each in labels.items()}
        sizes = {name: len(each) for name, each in values.items()}
        together = [value for each in values.values() for value in each]
        codes, _ = as_codes(together, len(together), least=1)
        coded = dict(zip(values, codes.split(list(sizes.values())), strict=True))
        tables = {(a, b): _Labels(coded[a], coded[b], itself=a == b) for a in coded for b in coded}
        return cls(tables, sizes, "equal labels")

    @classmethod
    def of_pairs(cls, pairs: Any, *, partners: bool = True, **sizes: int) -> "Relevance":
        """Return the relevance of items that belong together, as an image and its captions do.

        Args:
            pairs: (2, p) item numbers of the first and of the second modality, as in `retrieval`; for more than two
                modalities, (modality, modality) → (2, p). Items without a pair stay in the index.
            partners: Whether items of one modality are relevant to each other where they share a partner: captions of
                one image.
            sizes: The modalities and the number of their items.

        Returns:
            The relevance.

        Raises:
            InputError: The pairs are not item numbers of two modalities.

        Example:
            >>> import clip_geometry as cg
            >>> relevance = cg.Relevance.of_pairs([[0, 0, 1], [0, 1, 2]], image=2, text=3)
            >>> relevance.counts("text")
            {'image': tensor([1, 1, 1]), 'text': tensor([1, 1, 0])}
        """
        sizes = {name: whole_number(size, name, of=", the number of its items") for name, size in sizes.items()}
        couples = pairs if isinstance(pairs, Mapping) else {tuple(sizes): pairs}
        keys = {kind: [torch.zeros(0, dtype=torch.long)] for kind in product(sizes, repeat=2)}
        for couple, both in couples.items():
            columns = members(both) or ()
            if len(couple) != 2 or len(columns) != 2 or not sizes.keys() >= {*couple}:
                raise InputError(
                    f"pairs have {len(columns)} rows, of {listed(couple)} items; expected 2 rows, item numbers of two "
                    "modalities such as image=500, text=500"
                )
            (first, second), (n, m) = couple, (sizes[name] for name in couple)
            i, j = (item_numbers(each, sizes[name], name) for each, name in zip(columns, couple, strict=True))
            if len(i) != len(j):
                raise InputError(f"pairs have rows of {len(i)} and {len(j)} numbers; expected one length")
            keys[first, second].append(i * m + j)
            keys[second, first].append(j * n + i)
            if partners:
                keys[first, first].append(_sharing(i, j, n, m))
                keys[second, second].append(_sharing(j, i, m, n))
        tables = {(a, b): _Pairs(torch.cat(each), sizes[a], sizes[b]) for (a, b), each in keys.items()}
        return cls(tables, sizes, "pairs, and rows of one modality that share a partner" if partners else "pairs")

    def counts(self, query: str) -> dict[str, Int[Tensor, " n"]]:
        """Return for each modality how many of its items are relevant to each query.

        Args:
            query: Modality of the queries.

        Returns:
            Modality → (n,) counts.

        Example:
            >>> import clip_geometry as cg
            >>> cg.Relevance.of_labels(image=[0, 0, 0], text=[0]).counts("image")["image"].tolist()
            [2, 2, 2]
        """
        return {item: self.tables[query, item].counts for item in self.sizes}

    def dense(self, query: str, item: str) -> Float[Tensor, "n m"]:
        """Return which items of one modality are relevant to which queries of one.

        Args:
            query: Modality of the queries.
            item: Modality of the items.

        Returns:
            (n, m) 1 for relevant items, else 0.

        Example:
            >>> import clip_geometry as cg
            >>> cg.Relevance.of_labels(image=[0, 1], text=[1]).dense("image", "text").tolist()
            [[0.0], [1.0]]
        """
        n, m = self.sizes[query], self.sizes[item]
        grades = self.tables[query, item].grades(torch.arange(n), torch.arange(m).expand(n, m))
        if query == item:
            grades.fill_diagonal_(0)
        return grades


class _Labels:
    """Relevant iff the codes are equal: never written out, since a class of n/10 items has n²/100 relevant pairs."""

    def __init__(self, queries: Int[Tensor, " n"], items: Int[Tensor, " m"], *, itself: bool):
        self.queries, self.items = queries, items
        codes = 1 + int(torch.cat([queries, items]).amax())
        self.counts = torch.bincount(items, minlength=codes)[queries] - int(itself)

    def grades(self, rows: Int[Tensor, " r"], columns: Int[Tensor, "r c"]) -> Float[Tensor, "r c"]:
        """Return 1 for relevant items, else 0."""
        items, queries = self.items.to(rows.device), self.queries.to(rows.device)
        return (items[columns] == queries[rows, None]).double()


class _Pairs:
    """The relevant items of n queries among m items, as keys query · m + item."""

    def __init__(self, keys: Int[Tensor, " p"], n: int, m: int):
        keys = keys.unique()
        self.keys, self.m = (
            torch.cat([keys, torch.tensor([torch.iinfo(torch.long).max])]),
            m,
        )  # so that each has a place
        self.counts = torch.bincount(keys // m, minlength=n)

    def grades(self, rows: Int[Tensor, " r"], columns: Int[Tensor, "r c"]) -> Float[Tensor, "r c"]:
        """Return 1 for relevant items, else 0."""
        keys, wanted = self.keys.to(rows.device), rows[:, None] * self.m + columns
        return (keys[torch.searchsorted(keys, wanted)] == wanted).double()


def _sharing(i: Int[Tensor, " p"], j: Int[Tensor, " p"], n: int, m: int) -> Int[Tensor, " k"]:
    """Keys of the rows i that share a partner j."""
    from scipy.sparse import csr_array

    pairs = csr_array((np.ones(len(i)), (i.numpy(), j.numpy())), shape=(n, m))
    a, b = (torch.from_numpy(np.asarray(each)).long() for each in (pairs @ pairs.T).tocoo().coords)
    return (a * n + b)[a != b]


def item_numbers(values: Any, size: int, name: str) -> Int[Tensor, " p"]:
    """Return numbers of items of a modality, which has `size` of them."""
    try:
        numbers = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    except ValueError:  # ragged
        numbers = np.asarray(None)
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        raise InputError(f"numbers of {name} items are {shown(values)}; expected a list of whole numbers from 0 on")
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < size:
        worst = numbers.min() if numbers.min() < 0 else numbers.max()
        raise InputError(f"{name} item {worst} does not exist; expected numbers from 0 to {size - 1}")
    return torch.from_numpy(numbers.astype(np.int64))

"""Which items of an index are relevant to which queries: by labels, by pairs, or by graded tables."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.registry import InputError, did_you_mean, listed, shown
from clip_geometry.rows.arguments import members, whole_number
from clip_geometry.rows.matrix import Labels, as_codes, as_values


class Relevance:
    """The relevance of every item of an index to every query; each item is a query, and never relevant to itself.

    Made by `of_labels`, `of_pairs` or `of_grades`. Items are numbered from 0 within their modality. What a query could
    have found at best is computed once, so that one `Relevance` serves many sets of scores.

    Args:
        tables: (modality of the queries, modality of the items) → their grades.
        sizes: Modality → number of its items.
        words: What relevance means, for remarks.

    Example:
        >>> import clip_geometry as cg
        >>> relevance = cg.Relevance.of_labels(image=["cat", "cat", "dog"], text=["cat", "owl"])
        >>> relevance.counts("image")["text"].tolist(), relevance.counts("text")["image"].tolist()
        ([1, 1, 0], [2, 0])
    """

    def __init__(self, tables: Mapping[tuple[str, str], "GradeTable"], sizes: Mapping[str, int], words: str):
        self.tables, self.sizes, self.words = dict(tables), dict(sizes), words
        self._ideal: dict[tuple[str, int], Tensor] = {}

    @classmethod
    def of_labels(cls, **labels: Labels) -> "Relevance":
        """Return the relevance of items with equal labels.

        Args:
            labels: Modality → one label for each of its items.

        Returns:
            The relevance, with grades 0 and 1.

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
            pairs: (2, p) item numbers of the first and of the second modality, as in `retrieval`. Items without a pair
                stay in the index.
            partners: Whether items of one modality are relevant to each other where they share a partner: captions of
                one image.
            sizes: The two modalities and the number of their items.

        Returns:
            The relevance, with grades 0 and 1.

        Raises:
            InputError: There are not two modalities, or the pairs are not item numbers of them.

        Example:
            >>> import clip_geometry as cg
            >>> relevance = cg.Relevance.of_pairs([[0, 0, 1], [0, 1, 2]], image=2, text=3)
            >>> relevance.counts("text")
            {'image': tensor([1, 1, 1]), 'text': tensor([1, 1, 0])}
        """
        sizes = _sizes(sizes)
        if len(sizes) != 2:
            raise InputError(
                f"pairs of {listed(sizes)} were given; expected two modalities, such as image=500, text=500"
            )
        (first, n), (second, m) = sizes.items()
        columns = members(pairs) or ()
        if len(columns) != 2:
            raise InputError(f"pairs have {len(columns)} rows; expected 2, item numbers of {first} and of {second}")
        i, j = item_numbers(columns[0], n, first), item_numbers(columns[1], m, second)
        ones = torch.ones(len(i), dtype=torch.float64)
        across = _Graded(i, j, ones, n, m, "pairs")
        found = {(first, second): across, (second, first): across.transposed()}
        if partners:
            found |= {(first, first): _through_partners(i, j, n, m), (second, second): _through_partners(j, i, m, n)}
        else:
            found |= {(name, name): _nothing(size, size) for name, size in sizes.items()}
        return cls(found, sizes, "pairs, and rows of one modality that share a partner" if partners else "pairs")

    @classmethod
    def of_grades(cls, grades: Any, **sizes: int) -> "Relevance":
        """Return graded relevance from tables.

        Args:
            grades: (modality of the queries, modality of the items) → three columns: query, item, grade ≥ 0. What is
                not in a table has grade 0. Without a table for (b, a), that of (a, b) is transposed.
            sizes: Modality → number of its items.

        Returns:
            The relevance.

        Raises:
            InputError: A table is of another modality, has other columns, or names an item that does not exist.

        Example:
            >>> import clip_geometry as cg
            >>> tables = {("image", "text"): ([0, 0, 1], [0, 1, 1], [3, 1, 2])}
            >>> relevance = cg.Relevance.of_grades(tables, image=2, text=2)
            >>> relevance.ideal("image", 2).tolist(), relevance.ideal("text", 2).tolist()
            ([[3.0, 1.0], [2.0, 0.0]], [[3.0, 0.0], [2.0, 1.0]])
        """
        sizes = _sizes(sizes)
        if not isinstance(grades, Mapping):
            raise InputError(f"grades are {shown(grades)}; expected tables by couple of modalities")
        found: dict[tuple[str, str], GradeTable] = {}
        for couple, columns in grades.items():
            query, item = _couple(couple, sizes)
            what, three = f"grades of {item} for {query} queries", members(columns) or ()
            if len(three) != 3:
                raise InputError(f"{what} have {len(three)} columns; expected 3: query, item and grade")
            i, j = item_numbers(three[0], sizes[query], query), item_numbers(three[1], sizes[item], item)
            try:
                each = torch.as_tensor(three[2], dtype=torch.float64).detach().cpu()
            except (TypeError, ValueError, RuntimeError):
                each = torch.full((1,), torch.nan)
            if each.ndim != 1 or not ((each >= 0) & each.isfinite()).all():
                raise InputError(f"{what} are {shown(three[2])}; expected finite numbers from 0 on")
            found[query, item] = _Graded(i, j, each, sizes[query], sizes[item], what, query == item)
        for (query, item), table in list(found.items()):
            if (item, query) not in found and isinstance(table, _Graded):
                found[item, query] = table.transposed()
        every = [(query, item) for query in sizes for item in sizes]
        return cls({c: found.get(c) or _nothing(sizes[c[0]], sizes[c[1]]) for c in every}, sizes, "graded")

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

    def ideal(self, query: str, k: int) -> Float[Tensor, "n k"]:
        """Return the k highest grades of each query, best first: the order of a perfect index.

        Args:
            query: Modality of the queries.
            k: Number of places.

        Returns:
            (n, k) grades, 0 where fewer items are relevant.

        Example:
            >>> import clip_geometry as cg
            >>> cg.Relevance.of_labels(image=[0, 0, 1], text=[1]).ideal("image", 2).tolist()
            [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
        """
        if (query, k) not in self._ideal:
            best = [self.tables[query, item].ideal(k) for item in self.sizes]
            self._ideal[query, k] = torch.cat(best, dim=1).topk(k, dim=1).values
        return self._ideal[query, k]

    def dense(self, query: str, item: str) -> Float[Tensor, "n m"]:
        """Return the grades of all items of one modality for all queries of one.

        Args:
            query: Modality of the queries.
            item: Modality of the items.

        Returns:
            (n, m) grades.

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

    def without(self, query: str) -> int:
        """Return how many queries have no relevant item in any modality.

        Args:
            query: Modality of the queries.

        Returns:
            Their number.

        Example:
            >>> import clip_geometry as cg
            >>> cg.Relevance.of_labels(image=[0, 0, 1], text=[2]).without("image")
            1
        """
        return int((torch.stack(list(self.counts(query).values())).sum(0) == 0).sum())


class GradeTable(Protocol):
    """The grades of the items of one modality for the queries of one."""

    counts: Int[Tensor, " n"]

    def ideal(self, k: int) -> Float[Tensor, "n k"]: ...

    def grades(self, rows: Int[Tensor, " r"], columns: Int[Tensor, "r c"]) -> Float[Tensor, "r c"]: ...


class _Labels:
    """Relevant iff the codes are equal: never written out, since a class of n/10 items has n²/100 relevant pairs."""

    def __init__(self, queries: Int[Tensor, " n"], items: Int[Tensor, " m"], *, itself: bool):
        self.queries, self.items = queries, items
        codes = 1 + int(torch.cat([queries, items]).amax())
        self.counts = torch.bincount(items, minlength=codes)[queries] - int(itself)

    def ideal(self, k: int) -> Float[Tensor, "n k"]:
        return (torch.arange(k) < self.counts[:, None]).double()

    def grades(self, rows: Int[Tensor, " r"], columns: Int[Tensor, "r c"]) -> Float[Tensor, "r c"]:
        items, queries = self.items.to(rows.device), self.queries.to(rows.device)
        return (items[columns] == queries[rows, None]).double()


class _Graded:
    """The positive grades, sorted by query and item."""

    def __init__(
        self,
        i: Int[Tensor, " p"],
        j: Int[Tensor, " p"],
        grades: Float[Tensor, " p"],
        n: int,
        m: int,
        what: str,
        itself: bool = False,
    ):
        if not len(i) == len(j) == len(grades):
            raise InputError(f"{what} have columns of {len(i)}, {len(j)} and {len(grades)} values; expected one length")
        kept = (grades > 0) & ((i != j) | (not itself))
        keys, order = (i * m + j)[kept].sort(stable=True)
        values = grades[kept][order]
        self.keys, number = keys.unique_consecutive(return_inverse=True)
        self.values = torch.zeros(len(self.keys), dtype=torch.float64).scatter_reduce(0, number, values, "amax")
        if len(self.keys) < len(keys) and not torch.equal(self.values[number], values):
            raise InputError(f"{what} have two different grades for one query and item; give each once")
        self.n, self.m, self.what = n, m, what
        self.counts = torch.bincount(self.keys // m, minlength=n)

    def transposed(self) -> "_Graded":
        return _Graded(self.keys % self.m, self.keys // self.m, self.values, self.m, self.n, self.what)

    def ideal(self, k: int) -> Float[Tensor, "n k"]:
        query = self.keys // self.m
        order = self.values.argsort(descending=True, stable=True)
        order = order[query[order].argsort(stable=True)]
        place = torch.arange(len(order)) - (self.counts.cumsum(0) - self.counts)[query]
        best = torch.zeros((self.n, k), dtype=torch.float64)
        best[query[place < k], place[place < k]] = self.values[order][place < k]
        return best

    def grades(self, rows: Int[Tensor, " r"], columns: Int[Tensor, "r c"]) -> Float[Tensor, "r c"]:
        if not len(self.keys):
            return torch.zeros(columns.shape, dtype=torch.float64, device=columns.device)
        keys, values = self.keys.to(rows.device), self.values.to(rows.device)
        wanted = rows[:, None] * self.m + columns
        place = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
        return torch.where(keys[place] == wanted, values[place], 0.0)


def _nothing(n: int, m: int) -> _Graded:
    empty = torch.zeros(0, dtype=torch.long)
    return _Graded(empty, empty, empty.double(), n, m, "no grades")


def _through_partners(i: Int[Tensor, " p"], j: Int[Tensor, " p"], n: int, m: int) -> _Graded:
    """Rows i that share a partner j."""
    from scipy.sparse import csr_array

    pairs = csr_array((np.ones(len(i)), (i.numpy(), j.numpy())), shape=(n, m))
    shared = (pairs @ pairs.T).tocoo()
    a, b = (torch.from_numpy(np.asarray(each)).long() for each in shared.coords)
    return _Graded(a, b, torch.ones(len(a), dtype=torch.float64), n, n, "partners", itself=True)


def _sizes(sizes: Mapping[str, Any]) -> dict[str, int]:
    return {name: whole_number(size, name, of=", the number of its items") for name, size in sizes.items()}


def item_numbers(values: Any, size: int, name: str) -> Int[Tensor, " p"]:
    """Return numbers of items of a modality, which has `size` of them."""
    try:
        numbers = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    except ValueError:  # ragged
        numbers = np.zeros(0)
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        raise InputError(f"numbers of {name} items are {shown(values)}; expected a list of whole numbers from 0 on")
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < size:
        worst = numbers.min() if numbers.min() < 0 else numbers.max()
        raise InputError(f"{name} item {worst} does not exist; expected numbers from 0 to {size - 1}")
    return torch.from_numpy(numbers.astype(np.int64))


def _couple(couple: Any, sizes: Mapping[str, int]) -> tuple[str, str]:
    names = couple if isinstance(couple, tuple) else (couple,)
    for name in names:
        if name not in sizes:
            hint = did_you_mean(str(name), sizes, listed_by="the number of items of each modality")
            raise InputError(f"grades of {shown(couple)} were given{hint}")
    if len(names) != 2:
        raise InputError(f"grades of {shown(couple)} were given; expected the modalities of queries and of items")
    return names[0], names[1]

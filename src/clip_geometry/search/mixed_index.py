"""A mixed index: rows by modality, what is relevant to what, and splits into halves or folds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from clip_geometry.embeddings import Embeddings, pair
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import is_missing
from clip_geometry.search.relevance import Relevance
from clip_geometry.search.repairs import LOGIT_SCALE, Known

RelevantBy: TypeAlias = Literal["labels", "pairs"]
RowNumbers: TypeAlias = Mapping[str, np.ndarray]  # modality → numbers of rows

BLOCKS = 50  # blocks of items in the jackknife


class Split(NamedTuple):
    """Row numbers by modality: the rows to fit on, the index to search, and the rows of the index that are queries."""

    fit: RowNumbers
    searched: RowNumbers
    queries: RowNumbers


@dataclass(frozen=True, eq=False)
class MixedIndex:
    """The rows of an index of several modalities, and what a query should find in it.

    Attributes:
        sets: Modality → `Embeddings`.
        by: What makes items relevant to each other. "labels": equal labels, in any modality. "pairs": rows of the same
            item in different modalities. None: unknown.
        groups: Modality → number of the item of each row. Random halves of the index are halves of the items. None for
            a modality that is used as a whole in both halves, such as class prompts, which belong to no single item.
        codes: Modality → number of the label of each row; a row without a label has a number of its own.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 6, 4))
        >>> sets = {"image": cg.Embeddings(image, "image"), "text": cg.Embeddings(text, "text")}
        >>> index = cg.search.MixedIndex.of(sets)
        >>> index.by, index.items.tolist()
        ('pairs', [0, 1, 2, 3, 4, 5])
    """

    sets: Mapping[str, Embeddings]
    by: RelevantBy | None
    groups: Mapping[str, np.ndarray | None]
    codes: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, sets: Mapping[str, Embeddings], by: RelevantBy | None = None) -> "MixedIndex":
        """Create an index from sets, and determine what makes their items relevant.

        Args:
            sets: Modality → `Embeddings`.
            by: What makes items relevant; default: labels if every modality has them, otherwise pairs.

        Returns:
            The index.

        Raises:
            InputError: The sets lack what `by` asks for, or the modalities have no label in common.
        """
        names = sorted(sets)
        labeled = all(embeddings.labels is not None for embeddings in sets.values())
        groups = _groups(sets, names)
        paired = len(names) > 1 and all(group is not None for group in groups.values())
        if by == "labels" and not labeled:
            lacking = next(name for name in names if sets[name].labels is None)
            raise InputError(f"relevance by labels was asked for, but {lacking} rows have no labels; give one per row")
        if by == "pairs" and not paired:
            raise InputError("relevance by pairs was asked for, but the rows do not pair; give common item ids")
        if by is None and (labeled or paired):
            by = "labels" if labeled else "pairs"
        codes = _codes(sets) if labeled else {}
        common = set.intersection(*(set(numbers.tolist()) for numbers in codes.values())) if codes else set()
        if by == "labels" and len(names) > 1 and not common:
            examples = " and ".join(f"{shown(sets[name].labels.tolist()[0])} of {name} rows" for name in names)  # pyright: ignore
            raise InputError(
                f"the {' and '.join(names)} rows have no label in common ({examples}); give equal labels to rows that "
                "are relevant to each other, or no labels"
            )
        return cls({name: sets[name] for name in names}, by, groups, codes)

    @property
    def modalities(self) -> list[str]:
        """The names of the modalities, in the order of `sets`."""
        return list(self.sets)

    @property
    def complete(self) -> bool:
        """Whether relevance is known for all pairs of items, as labels define it."""
        return self.by == "labels"

    @property
    def logit_scale(self) -> float:
        """The logit scale of the model according to the provenance of the rows, or 100."""
        encoders = (embeddings.provenance.get("encoder") or {} for embeddings in self.sets.values())
        scales = (dict(encoder).get("logit_scale") for encoder in encoders)
        return float(next(filter(None, scales), LOGIT_SCALE))

    @cached_property
    def items(self) -> np.ndarray:
        """Numbers of the items that are split."""
        return np.unique(np.concatenate([group for group in self.groups.values() if group is not None]))

    @property
    def block_count(self) -> int:
        """The number of blocks of items in the jackknife."""
        return min(BLOCKS, len(self.items))

    @cached_property
    def blocks(self) -> dict[str, np.ndarray]:
        """Modality → the random block of each row; all rows of one item are in the same block."""
        generator = np.random.default_rng(0)
        number = np.empty(1 + int(self.items.max()), dtype=int)
        number[self.items] = generator.permutation(len(self.items)) % self.block_count
        return {
            name: generator.permutation(len(self.sets[name])) % self.block_count if group is None else number[group]
            for name, group in self.groups.items()
        }

    def splits(self, count: int, *, seed: int, most_fit: int, most_searched: int, most_queries: int) -> Iterator[Split]:
        """Yield random halves of the items: one to fit on and one to search.

        A modality without groups is in both halves as a whole.

        Args:
            count: Number of splits.
            seed: Seed of the first split; the others are derived from it.
            most_fit: Largest number of items to fit on, and of rows of a modality that is not split.
            most_searched: Largest number of items in the index.
            most_queries: Largest number of queries per modality.
        """
        for number in range(count):
            generator = np.random.default_rng([seed, number])
            order = generator.permutation(self.items)
            half = len(order) // 2
            fit = self.rows_of(order[: min(half, most_fit)])
            index = self.rows_of(order[half : half + most_searched])
            for name in self.whole:
                if len(fit[name]) > most_fit:
                    fit[name] = np.sort(generator.choice(fit[name], most_fit, replace=False))
            queries = {
                name: np.sort(generator.choice(rows, min(len(rows), most_queries), replace=False))
                for name, rows in index.items()
            }
            yield Split(fit, index, queries)

    def folds(self, count: int, *, seed: int, most_fit: int, most_searched: int, most_queries: int) -> Iterator[Split]:
        """Yield folds of the items: the rows of a fold query an index of all items, and the other items are fitted on.

        Rows of a modality without groups are queries in one fold each, and all folds fit on them.
        """
        generator = np.random.default_rng([seed, len(self.items)])
        order = generator.permutation(self.items)
        for number, query_items in enumerate(np.array_split(order, min(count, len(order)))):
            others = generator.permutation(np.setdiff1d(order, query_items))
            query_items = query_items[:most_queries]
            fit = self.rows_of(others[:most_fit])
            queries = self.rows_of(query_items)
            index = self.rows_of(np.concatenate([query_items, others[: most_searched - len(query_items)]]))
            for name in self.whole:
                fit[name] = np.sort(generator.permutation(index[name])[:most_fit])
                queries[name] = index[name][number::count][:most_queries]
            yield Split(fit, index, queries)

    @property
    def whole(self) -> list[str]:
        """The modalities that are not split."""
        return [name for name, group in self.groups.items() if group is None]

    def rows_of(self, items: np.ndarray) -> dict[str, np.ndarray]:
        """Return the row numbers of some items, and of all rows of a modality that is not split."""
        return {
            name: np.arange(len(self.sets[name])) if group is None else np.flatnonzero(np.isin(group, items))
            for name, group in self.groups.items()
        }

    def sampled(self, most: int, seed: int = 0) -> RowNumbers:
        """Return the row numbers of at most `most` random items, and at most `most` rows of each unsplit modality."""
        generator = np.random.default_rng(seed)
        rows = self.rows_of(generator.permutation(self.items)[:most])
        return rows | {name: np.sort(generator.permutation(rows[name])[:most]) for name in self.whole}

    @property
    def all_rows(self) -> RowNumbers:
        """Numbers of all rows."""
        return self.rows_of(self.items)

    def rows(self, numbers: RowNumbers) -> dict[str, np.ndarray]:
        """Return the selected rows in float64."""
        return {name: np.asarray(self.sets[name].vectors[rows], dtype=np.float64) for name, rows in numbers.items()}

    def relevance(self, numbers: RowNumbers) -> Relevance | None:
        """Return what is relevant to what among the selected rows; None if nothing is known."""
        if self.by is None:
            return None
        codes = self.codes if self.complete else self.groups
        return Relevance({name: np.asarray(codes[name])[rows] for name, rows in numbers.items()}, within=self.complete)

    def known(self, numbers: RowNumbers | None = None, *, kept: dict[Any, Any] | None = None) -> Known:
        """Return data to fit a repair: the selected rows (default: all) and their relevance; `kept` as in `Known`."""
        numbers = self.all_rows if numbers is None else numbers
        return Known(self.rows(numbers), self.relevance(numbers), logit_scale=self.logit_scale, kept=kept)


def require_one_space(sets: Mapping[str, Embeddings], what: str) -> None:
    """Raise InputError unless each modality has at least two rows and all have one dimension, as `what` requires."""
    for name, embeddings in sets.items():
        n = len(embeddings)
        if n < 2:
            raise InputError(f"{name} has {n} row{'s' * (n != 1)}; expected at least 2")
    if len({embeddings.dim for embeddings in sets.values()}) > 1:
        given = " and ".join(f"{name} rows have {embeddings.dim}" for name, embeddings in sets.items())
        raise InputError(f"{given} dimensions; {what} needs rows of one dimension, from one model")


def _groups(sets: Mapping[str, Embeddings], names: list[str]) -> dict[str, np.ndarray | None]:
    """Return the item of each row as a number; None for modalities that do not pair with the first one."""
    first = sets[names[0]]
    first_items = np.arange(len(first))
    if len(names) > 1 and first.item_id is not None:  # rows with equal ids are one item
        first_items = np.unique(first.item_id, return_inverse=True)[1]
    groups: dict[str, np.ndarray | None] = {names[0]: first_items}
    unused = len(first)  # the next unused number, for rows without a partner: each is an item of its own
    for name in names[1:]:
        try:
            if "label" in (first.pair_on, sets[name].pair_on):
                raise InputError("prompts belong to a class and not to an item")
            i, j = pair(first, sets[name])
        except InputError:
            groups[name] = None
            continue
        group = np.arange(unused, unused + len(sets[name]))
        group[j] = first_items[i]
        unused += len(group)
        groups[name] = group
    return groups


def label_names(embeddings: Embeddings) -> list[str | None]:
    """Return the labels as text, None for missing ones; 1, 1.0 and "1" are the same label, as they are in files."""
    names: list[str | None] = [None] * len(embeddings)
    for row, label in enumerate(() if embeddings.labels is None else embeddings.labels.tolist()):
        if not (is_missing(label) or label == ""):
            names[row] = str(int(label) if isinstance(label, float) and label.is_integer() else label)
    return names


def _codes(sets: Mapping[str, Embeddings]) -> dict[str, np.ndarray]:
    """Return the labels as numbers."""
    names = [name for embeddings in sets.values() for name in label_names(embeddings)]
    codes = pd.factorize(np.array(names, dtype=object))[0]
    codes[codes < 0] = -1 - np.arange((codes < 0).sum())
    ends = np.cumsum([len(embeddings) for embeddings in sets.values()])
    return dict(zip(sets, np.split(codes, ends[:-1]), strict=True))

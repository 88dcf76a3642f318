"""Multi-vector rows, one vector per token or patch, and MaxSim, the score of late interaction."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.registry import InputError, instance, shown
from clip_geometry.rows.arguments import whole_number

BLOCK = 2**25  # scores of tokens in memory
TINY = 1e-30


class TokenRows:
    """Items of several vectors each, one per token or patch, as ColBERT and ColPali return them.

    `cg.compress` takes them, and `max_sim` compares them; other functions take one vector per item. An index selects
    items: a slice, a mask or indices.

    Args:
        tokens: (n, t, d) floating point, of which the first `lengths` tokens of each item count, or (sum of lengths, d)
            without padding, one item after the other.
        lengths: (n,) numbers of tokens, from 1. Default: all tokens count.

    Attributes:
        rows: (sum of lengths, d), the tokens of one item after the other.
        lengths: (n,) numbers of tokens.

    Raises:
        InputError: The tokens have another shape or type, or the lengths do not fit.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> tokens = cg.search.TokenRows(np.random.default_rng(0).normal(size=(3, 8, 16)), [8, 5, 2])
        >>> tokens
        <TokenRows: 3 items, 15 tokens × 16 float64>
        >>> tokens.pooled(2).lengths.tolist()
        [4, 2, 1]
    """

    ndim = 2  # of `shape`

    def __init__(self, tokens: Any, lengths: Any = None):
        if isinstance(tokens, Tensor):
            tokens = (tokens.float() if tokens.dtype == torch.bfloat16 else tokens).detach().cpu()
        array = np.asarray(tokens)
        if array.dtype.kind != "f" or array.ndim not in (2, 3) or not array.size:
            raise InputError(f"tokens are {shown(tokens)}; expected floats of the shape (n, tokens, d)")
        n, most = array.shape[0], array.shape[1] if array.ndim == 3 else 1
        counts = np.full(n, most) if lengths is None else np.asarray(lengths)
        fits = counts.ndim == 1 and counts.dtype.kind in "iu" and counts.size > 0 and counts.min() >= 1
        if array.ndim == 3 and not (fits and len(counts) == n and counts.max() <= most):
            raise InputError(
                f"lengths are {shown(lengths)}; expected a whole number from 1 to {most} for each of {n} items"
            )
        if array.ndim == 2 and not (fits and counts.sum() == n):
            raise InputError(f"lengths are {shown(lengths)}; expected whole numbers from 1 whose sum is {n}")
        self.lengths = counts.astype(np.int64)
        self.rows = array if array.ndim == 2 else array[np.arange(most) < counts[:, None]]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of items and the dimension."""
        return len(self.lengths), self.rows.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.rows.dtype

    @property
    def starts(self) -> np.ndarray:
        """The number of the first token of each item, (n,)."""
        return np.cumsum(self.lengths) - self.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        return f"<TokenRows: {len(self)} items, {len(self.rows)} tokens × {self.rows.shape[1]} {self.dtype}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise InputError(
            "rows of several vectors per item are given, which only compress takes; give one vector per item, such as "
            "the mean of its tokens"
        )

    def __getitem__(self, items: Any) -> "TokenRows":
        chosen = np.atleast_1d(np.arange(len(self))[items])
        lengths = self.lengths[chosen]
        before = np.repeat(np.cumsum(lengths) - lengths, lengths)  # tokens of earlier items, for each token
        return TokenRows(self.rows[np.repeat(self.starts[chosen], lengths) + np.arange(len(before)) - before], lengths)

    def pooled(self, factor: int) -> "TokenRows":
        """Return about 1/factor of the tokens of each item: the directions of the means of clusters of similar tokens.

        The clusters of the unit vectors are Ward's, at least one per item. Source: Clavié et al. 2024, "Reducing the
        footprint of multi-vector retrieval with minimal performance impact via token pooling", where the means keep
        their lengths.

        Args:
            factor: Tokens per stored vector, from 1.
        """
        from scipy.cluster.hierarchy import fcluster, linkage

        if whole_number(factor, "factor", least=1) == 1 or self.lengths.max() == 1:
            return self
        unit = _unit(self.rows)
        clusters = np.zeros(len(unit), dtype=np.int64)  # of all items, in their order
        lengths = np.ones_like(self.lengths)
        for k, (start, length) in enumerate(zip(self.starts, self.lengths, strict=True)):
            if length > 1:
                tree = linkage(unit[start : start + length], "ward")
                clusters[start : start + length] = fcluster(tree, max(length // factor, 1), "maxclust") - 1
                lengths[k] = clusters[start : start + length].max() + 1
        clusters += np.repeat(np.cumsum(lengths) - lengths, self.lengths)
        order = np.argsort(clusters, kind="stable")
        first = np.searchsorted(clusters[order], np.arange(lengths.sum()))
        return TokenRows(_unit(np.add.reduceat(unit[order], first, axis=0)), lengths)

    def max_sim(self, items: "TokenRows") -> np.ndarray:
        """Return the score of each item for these queries: the sum of the largest inner products of a query's tokens.

        For each token of the query, it is the largest with a token of the item. The vectors are compared as they are;
        scale them to unit length for cosines. Source: Khattab and Zaharia 2020, "ColBERT".

        Args:
            items: n items of the same dimension.

        Returns:
            (q, n) scores.

        Raises:
            InputError: The items are not `TokenRows`, or have another dimension.

        Example:
            >>> import numpy as np, clip_geometry as cg
            >>> queries = cg.search.TokenRows(np.eye(2)[None])
            >>> items = cg.search.TokenRows(np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [5.0, 5.0]]]), [2, 1])
            >>> queries.max_sim(items)
            array([[2., 1.]])
        """
        if instance(items, TokenRows, "items", "TokenRows").shape[1] != self.shape[1]:
            raise InputError(
                f"the queries have {self.shape[1]} columns and the items {items.shape[1]}; expected equal numbers"
            )
        dtype = np.result_type(self.dtype, items.dtype, np.float32)
        transposed = torch.from_numpy(items.rows.astype(dtype, copy=False)).T
        blocks = min(len(self), -(-len(self.rows) * len(items.rows) // BLOCK))
        scores = []
        for numbers in np.array_split(np.arange(len(self)), blocks):
            queries = self if blocks == 1 else self[numbers]
            of_tokens = (torch.from_numpy(queries.rows.astype(dtype, copy=False)) @ transposed).numpy()
            best = np.maximum.reduceat(of_tokens, items.starts, axis=1) if items.lengths.max() > 1 else of_tokens
            scores.append(np.add.reduceat(best, queries.starts, axis=0) if queries.lengths.max() > 1 else best)
        return scores[0] if blocks == 1 else np.concatenate(scores)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), TINY)

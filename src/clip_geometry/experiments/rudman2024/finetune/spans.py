"""Answers from a span head, and what they are worth: exact match and F1 of SQuAD (Rajpurkar et al. 2016)."""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)

Best = tuple[float, int, int]  # score, first and last character (not among them)


def span_loss(scores: Float[Tensor, "b t 2"], targets: Tensor, mask: Tensor) -> Float[Tensor, ""]:
    """Mean of the cross-entropies of first and last token among the tokens of a window; targets: (b, 2)."""
    known = scores.masked_fill(mask[..., None] == 0, -1e4)
    return functional.cross_entropy(known, targets)  # over tokens, which is the second of (b, t, 2)


def best_span(scores: np.ndarray, places: np.ndarray, longest: int) -> Best | None:
    """The span of the passage with the highest sum of scores, (t, 2), of its first and last token; None where the
    window holds none of the passage. longest: tokens of an answer."""
    inside = np.flatnonzero(places[:, 0] >= 0)
    if not len(inside):
        return None
    begin, end = scores[inside].astype(np.float64).T
    sums = begin[:, None] + end[None, :]
    allowed = np.tril(np.triu(np.ones_like(sums, bool)), longest - 1)
    first, last = np.unravel_index(np.where(allowed, sums, -np.inf).argmax(), sums.shape)
    return float(sums[first, last]), int(places[inside[first], 0]), int(places[inside[last], 1])


def answers(passages: Sequence[str], example: Sequence[int], found: Iterable[Best | None]) -> list[str]:
    """The best answer of each passage over its windows, as it stands there; "" where there is none."""
    best: dict[int, Best] = {}
    for k, span in zip(example, found, strict=True):
        if span is not None and (k not in best or span[0] > best[k][0]):
            best[k] = span
    return [passage[best[k][1] : best[k][2]] if k in best else "" for k, passage in enumerate(passages)]


def normalised(text: str) -> str:
    """Lower case, without punctuation and articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(predicted: str, accepted: Sequence[str]) -> float:
    """1 where the prediction is one of the accepted answers once both are normalised, else 0."""
    return float(any(normalised(predicted) == normalised(answer) for answer in accepted))


def token_f1(predicted: str, accepted: Sequence[str]) -> float:
    """Harmonic mean of precision and recall of the words, each as often as it occurs; the best over the answers."""
    return max(_f1(normalised(predicted).split(), normalised(answer).split()) for answer in accepted)


def _f1(predicted: list[str], accepted: list[str]) -> float:
    shared = sum((Counter(predicted) & Counter(accepted)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(accepted)
    return 2 * precision * recall / (precision + recall)

"""What the classification experiment says beyond the measures of a state: correlations, spread, sizes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clip_geometry.experiments.kit.explained import INFINITY, explainer

SOURCE = "Mickus et al. 2024, arXiv:2402.03191"
KINDS = ("silhouette", "isoscore")

Values = NDArray[np.float64]


def compared(names: Sequence[str]) -> list[tuple[str, str]]:
    """(silhouette, isoscore): every variant of the one that was measured with the first of the other."""
    silhouettes, scores = ([name for name in names if name.partition("[")[0] == kind] for kind in KINDS)
    return [
        (silhouette, score)
        for silhouette in silhouettes
        for score in scores
        if silhouette == silhouettes[0] or score == scores[0]
    ]


def correlations(x: Values, y: Values) -> Iterator[tuple[str, float | None]]:
    """(name, value) of the correlations of x and y, and of x and log y; None where one of them does not vary or is
    not defined."""
    from scipy import stats

    positive = bool((y > 0).all())
    yield "classify.pearson", _defined(stats.pearsonr, x, y)
    yield "classify.spearman", _defined(stats.spearmanr, x, y)
    yield "classify.pearson_log", _defined(stats.pearsonr, x, np.log(y)) if positive else None


def _defined(correlate: Callable[..., Any], x: Values, y: Values) -> float | None:
    usable = np.isfinite(x).all() and np.isfinite(y).all() and len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
    return float(correlate(x, y).statistic) if usable else None


def deviations(values: NDArray[np.float64]) -> dict[str, float]:
    """Standard deviation over seeds (ddof 1) of (seeds, states) values: the largest of all states, and their mean."""
    spread = values.std(axis=0, ddof=1)
    return {"classify.largest_deviation": float(spread.max()), "classify.mean_deviation": float(spread.mean())}


_number = explainer("classify", reference=SOURCE, group="training")


_STATES = (
    "States of one training are no independent sample: it has no error, and leaving out states, the first above all, "
    "changes it."
)
NUMBERS = (
    _number(
        "pearson",
        "Pearson correlation of silhouette and IsoScore",
        "How far silhouette and IsoScore lie on one line over the states of the training.",
        "Near −1: as clusters form, isotropy falls in proportion.",
        _STATES,
        "cov(s, i)/(σ_s σ_i) over all recorded states, of all seeds pooled or of one",
        -1,
        1,
    ),
    _number(
        "spearman",
        "Spearman correlation of silhouette and IsoScore",
        "How far the order of the states by silhouette is that by IsoScore.",
        "−1: whenever the one rises, the other falls.",
        "Near −1 for any two numbers that change steadily, whatever they are.",
        "Pearson correlation of the ranks",
        -1,
        1,
    ),
    _number(
        "pearson_log",
        "Pearson correlation of silhouette and log IsoScore",
        "How far the silhouette is linear in the logarithm of IsoScore.",
        "Nearer to −1 than the plain one: the silhouette rises with every division of IsoScore by the same factor.",
        _STATES,
        "cov(s, log i)/(σ_s σ_log i)",
        -1,
        1,
    ),
    _number(
        "largest_deviation",
        "Spread over seeds, at most",
        "Standard deviation over seeds in the state where it is largest.",
        "Small: the first weights of the classifier do not matter.",
        "Of few seeds it is rough.",
        "max over states of the standard deviation over seeds (n − 1)",
        0,
        INFINITY,
    ),
    _number(
        "mean_deviation",
        "Spread over seeds, on average",
        "Standard deviation over seeds, mean of all states.",
        "Small: the first weights of the classifier do not matter.",
        "It counts the first state, in which seeds do not differ yet.",
        "mean over states of the standard deviation over seeds (n − 1)",
        0,
        INFINITY,
    ),
    _number(
        "loss",
        "Loss",
        "The mean loss that the training lowers: cross-entropy, binary for several labels, or of triplets.",
        "0: every example is certain; log k: nothing is known of k classes.",
        "The embeddings themselves are trained, so it can go to 0 for any labels, random ones too.",
        "−mean log softmax(scores)[label]",
        0,
        INFINITY,
        direction="lower fits better",
        unit="nats",
    ),
    _number(
        "accuracy",
        "Accuracy of the classifier",
        "The share of examples whose class has the highest score; of several labels, whose labels are all right.",
        "1 for what is trained; for held-out examples what the classifier makes of embeddings it has not moved.",
        "Of trained examples it says nothing: free embeddings fit any labels.",
        "share of right examples",
        0,
        1,
        direction="higher is better",
    ),
    _number(
        "parameters",
        "Trained numbers",
        "Entries of all embeddings that are trained, and weights and biases of the classifier.",
        "Equal to the published count where items and classifier are the published ones.",
        "It counts distinct items: each is trained once, in however many examples it occurs.",
        "items × d + weights + biases",
        0,
        INFINITY,
    ),
    _number(
        "items",
        "Distinct items",
        "Texts, words or images whose embeddings are trained.",
        "IsoScore is taken over them.",
        "Fewer than the places in the examples where texts repeat.",
        "number of distinct items of the trained examples",
        0,
        INFINITY,
    ),
    _number(
        "examples",
        "Examples",
        "Items, or pairs of items, with a label.",
        "The silhouette is taken over them.",
        "Those without a label are not among them.",
        "number of trained examples",
        0,
        INFINITY,
    ),
)
EXPLANATIONS = {each.name: each for each in NUMBERS}

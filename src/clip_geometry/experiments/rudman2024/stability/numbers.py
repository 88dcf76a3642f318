"""What the numbers of the stability study mean, and which estimate to use when, for the report."""

from typing import Any

from clip_geometry.experiments.kit.explained import INFINITY, Explained

SOURCE = "Rudman & Eickhoff 2024, arXiv:2305.19358, figure 4"
WHEN = (
    "To report isotropy from fewer rows than some ten times the dimension, take isoscore[unbiased]: it needs nothing "
    "but the rows, and from about d/2 rows on little is left of its bias; below that it scatters widely, above all "
    "with heavy tails. Plain IsoScore does not even compare sets of equal n: its bias depends on spectrum and tails. "
    "IsoScore* is for training, where a batch has to be scored and its gradient taken: it scatters little, but with a "
    "small ζ it is nearly as biased as the plain score, and with a large one it is the plain score of the sample "
    "behind C_0, which says nothing of the rows and had better be corrected itself."
)


def _number(name: str, title: str, summary: str, reading: str, trap: str, formula: str, **rest: Any) -> Explained:
    rest = {"range": (0, INFINITY), "direction": "lower is better", "reference": SOURCE, "group": "stability"} | rest
    return Explained(f"stability.{name}", title, summary, reading, trap, formula, **rest)


NUMBERS = (
    _number(
        "bias",
        "Bias of an estimate of isotropy",
        "The mean of the estimate over many samples, less the true score of the cloud they are drawn from.",
        "0: right on average; negative: few rows look less isotropic than the cloud is.",
        "It depends on n, d, the spectrum and the tails: the bias on one cloud does not correct another's.",
        "mean over draws of the estimate − IsoScore of the true covariance",
        range=(-INFINITY, INFINITY),
        direction="nearer to 0 is better",
    ),
    _number(
        "standard_deviation",
        "Scatter of an estimate of isotropy",
        "The standard deviation of the estimate over many samples.",
        "Small: two samples of this size give about the same value, right or wrong.",
        "Small says stable, not true: plain IsoScore of few rows scatters least where it is biased most.",
        "standard deviation over draws (n − 1)",
    ),
    _number(
        "rmse",
        "Error of an estimate of isotropy",
        "Root mean square distance of the estimate from the true score: bias and scatter together.",
        f"The number to choose by. {WHEN}",
        "Averaging over batches lowers the scatter in it and leaves the bias.",
        "√mean (estimate − truth)² = √(bias² + variance)",
    ),
    _number(
        "ratio_bias",
        "Remaining bias of the corrected score",
        "What dividing two unbiased estimates adds: the corrected score less that of a and b averaged before they are "
        "divided.",
        "Near the whole bias of isoscore[unbiased], since a and b themselves have none.",
        "It falls with 1/n, and heavy tails make it larger: a row that outweighs the others is in both parts.",
        "mean (a/b) − mean a / mean b, divided by d − 1",
        range=(-INFINITY, INFINITY),
        direction="nearer to 0 is better",
        reference="Himeno & Yamada 2014, Journal of Multivariate Analysis 130, for a and b",
    ),
)
EXPLANATIONS = {each.name: each for each in NUMBERS}

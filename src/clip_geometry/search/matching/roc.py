"""Right and wrong first results in the order of a score: cutoffs for false accepts, and what they keep."""

import numpy as np


class Roc:
    """The receiver operating characteristic of a score, for any weights of the results.

    Args:
        scores: (r,) a score of each first result.
        right: (r,) whether it is right, or the probability that it is.
    """

    def __init__(self, scores: np.ndarray, right: np.ndarray):
        self.order = np.argsort(-scores, kind="stable")
        self.scores, self.right = scores[self.order], right[self.order].astype(float)

    def _shares(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the shares of the right and of the wrong results that come no later than each result, (r,)."""
        weights = weights[self.order]
        both = [np.cumsum(weights * chosen) for chosen in (self.right, 1 - self.right)]
        right, wrong = (each / max(each[-1], 1e-300) for each in both)
        return right, wrong

    def cutoffs(self, weights: np.ndarray, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the score beyond which a share of the wrong results lies, and the share of the right ones beyond it.

        Args:
            weights: (r,) weights of the results.
            rates: (l,) shares of the wrong results.

        Returns:
            Cutoffs and shares, (l,) each.
        """
        right, wrong = self._shares(weights)
        count = np.searchsorted(wrong, rates, side="right")  # results beyond the cutoff
        kept = np.concatenate([[0.0], right])[count]
        return self.scores[np.minimum(count, len(self.scores) - 1)], kept

    def auc(self, weights: np.ndarray) -> float:
        """Return the probability that a right result has a higher score than a wrong one."""
        right, wrong = self._shares(weights)
        return float(np.sum(np.diff(wrong, prepend=0.0) * right))

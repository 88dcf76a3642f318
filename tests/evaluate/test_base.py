import numpy as np
import pytest
import torch

from clip_geometry.evaluate.base import accuracies, label_ranks

NAN = float("nan")


@pytest.mark.parametrize("seed", range(3))
def test_ranks_count_what_comes_before(seed):
    """Higher scores, and equal ones of a lower index: scores of few values tie often."""
    rng = np.random.default_rng(seed)
    scores, labels = rng.integers(4, size=(50, 7)).astype(float), rng.integers(7, size=50)
    keys = [[(-score, index) for index, score in enumerate(row)] for row in scores]
    expected = [sorted(row).index(row[label]) for row, label in zip(keys, labels, strict=True)]
    assert label_ranks(torch.from_numpy(scores), torch.from_numpy(labels)).tolist() == expected


def test_nan_is_never_right():
    scores = torch.tensor([[NAN] * 6, [NAN, 1, 2, 3, 4, 5], [5, NAN, 0, 0, 0, 0], [5, 4, NAN, NAN, NAN, NAN]])
    labels = torch.tensor([2, 0, 0, 1])
    ranks = label_ranks(scores, labels)
    assert ranks[0] >= 5 and ranks[1] >= 5  # its own score is unknown: behind all others
    assert ranks[2:].tolist() == [1, 5]  # an unknown one may be higher
    assert accuracies(ranks, labels, 6)["top_1"] == 0

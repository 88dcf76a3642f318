"""Rows from every class: at random, as many as asked for, two or more from each stratum."""

import numpy as np
import pytest
import torch

from clip_geometry.geometry.clusters.sampled_silhouette import in_proportion, random_ranks, strata

SIZES = {"even": [10] * 7, "uneven": [500, 1, 1, 80, 3, 3, 1, 200], "one large": [1000, 1], "tiny": [1] * 30 + [2]}


def test_ranks_count_the_rows_of_each_class_in_a_random_order():
    codes = torch.tensor([2, 0, 2, 2, 0, 1, 2])
    seen = {tuple(random_ranks(codes, torch.Generator().manual_seed(seed)).tolist()) for seed in range(300)}
    assert len(seen) == 2 * 24  # every order of two and of four rows
    for ranks in seen:
        for c, size in enumerate((2, 1, 4)):
            assert sorted(np.array(ranks)[codes == c]) == list(range(size))


@pytest.mark.parametrize("of", [2, 5, 31])
@pytest.mark.parametrize("sizes", SIZES)
def test_two_rows_or_more_fall_to_each_stratum(sizes, of):
    sizes = torch.tensor(SIZES[sizes])
    stratum = strata(sizes, of)
    assert sorted(set(stratum.tolist())) == list(range(int(stratum.max()) + 1))
    sums = torch.zeros(int(stratum.max()) + 1, dtype=torch.long).index_add(0, stratum, sizes)
    drawn = in_proportion(sums, of)
    assert drawn.sum() == of
    assert (drawn >= 2).all() and (drawn <= sums).all()
    assert ((drawn - sums * of / sums.sum()).abs() < 1).all()


def test_large_classes_are_strata_of_their_own():
    stratum = strata(torch.tensor([500, 1, 1, 80, 3, 3, 1, 200]), 40)
    assert len(set(stratum[[0, 3, 7]].tolist())) == 3
    assert in_proportion(torch.tensor([500, 280, 9]), 789).tolist() == [500, 280, 9]

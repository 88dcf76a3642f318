"""Cosines within clusters: the definition cluster by cluster, and what subtracting the means reveals."""

import numpy as np
import pytest

from clip_geometry.geometry import inter_type_cosine, intra_type_cosine
from clip_geometry.registry import InputError
from clip_geometry_experiments.cai2021.contextual.measures import AdjustedCosines, adjusted_type_cosines
from support.clouds import cone


def naive(x, types, clusters):
    """(inter, intra) of every cluster by loops over pairs of rows."""
    found = []
    for c in dict.fromkeys(clusters.tolist()):
        rows, kinds = x[clusters == c] - x[clusters == c].mean(0), types[clusters == c]
        u = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        cosines, names = u @ u.T, np.unique(kinds)
        between = [cosines[np.ix_(kinds == s, kinds == t)].mean() for s in names for t in names if s != t]
        within = []
        for t in names:
            own = cosines[np.ix_(kinds == t, kinds == t)]
            if len(own) > 1:
                within.append((own.sum() - np.trace(own)) / (len(own) * (len(own) - 1)))
        found.append((np.mean(between) if between else np.nan, np.mean(within) if within else np.nan))
    return np.array(found).T


@pytest.mark.parametrize("seed", range(5))
def test_each_cluster_by_the_definition(seed):
    rng = np.random.default_rng(seed)
    x, types, clusters = cone(80, 5, rng), rng.integers(9, size=80), rng.integers(4, size=80)
    found, (inter, intra) = adjusted_type_cosines(x, types, clusters), naive(x, types, clusters)
    assert found.inter == pytest.approx(inter, abs=1e-12)
    assert found.intra == pytest.approx(intra, abs=1e-12)
    list(dict.fromkeys(clusters.tolist()))
    assert found.left_out == 0
    assert found.mean("inter") == pytest.approx(inter.mean(), abs=1e-12)
    assert found.mean("intra") == pytest.approx(intra.mean(), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_isolated_clusters_hide_isotropy(seed):
    """The claim of the paper, as a theorem: clusters of isotropic rows far out look like a cone until centered.

    Every type lies in one cluster, and has rows of the cluster's Gaussian at random there, so that both cosines have
    the expectation 0; of 3 × 700 rows in 40 dimensions their standard deviation is below .003.
    """
    rng = np.random.default_rng(seed)
    clusters, types = np.arange(2100) % 3, np.arange(2100) % 60
    centres = 30 * np.ones(40) + 4 * rng.normal(size=(3, 40))
    x = centres[clusters] + rng.normal(size=(2100, 40))
    assert float(inter_type_cosine(x, types)) > 0.95 and float(intra_type_cosine(x, types)) > 0.95
    found = adjusted_type_cosines(x, types, clusters)
    assert abs(found.mean("inter")) < 0.01 and abs(found.mean("intra")) < 0.01
    apart = adjusted_type_cosines(x, types, np.zeros(2100))
    assert apart.mean("intra") > 0.5  # of the clusters' means, which one mean does not take away


def test_clusters_without_a_value_do_not_count():
    """One type alone has no inter, types of a single row no intra, a row that is its cluster's mean no direction."""
    x = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0], [5.0, 0.0], [4.0, 3.0], [7.0, 8.0], [9.0, 9.0], [9.0, 9.0]])
    types, clusters = ["a", "a", "a", "a", "b", "c", "a", "a"], np.array([0, 0, 0, 1, 1, 2, 3, 3])
    found = adjusted_type_cosines(x, types, clusters)
    assert np.isnan(found.inter).tolist() == [True, False, True, True]
    assert np.isnan(found.intra).tolist() == [False, True, True, True]
    assert found.left_out == 3
    assert found.mean("inter") == pytest.approx(-1) == float(found.inter[1])  # two rows about their mean
    assert found.mean("intra") == pytest.approx(float(found.intra[0]))


@pytest.mark.parametrize(("which", "needed"), [("inter", "rows of two types"), ("intra", "two rows of one type")])
def test_no_cluster_has_a_value(which, needed):
    nothing = np.full(2, np.nan)
    with pytest.raises(InputError, match=f"none of the 2 clusters has {needed}"):
        AdjustedCosines(nothing, nothing, 2).mean(which)

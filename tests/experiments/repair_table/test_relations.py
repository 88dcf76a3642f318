"""Relations of measures over maps."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from clip_geometry.experiments.repair_table.measuring import MEASURES
from clip_geometry.experiments.repair_table.relations import holm, relations
from clip_geometry.experiments.repair_table.table import RepairTable, Value


def table(changes, sets="ab"):
    """A table of the same changes on all sets: repair → measure → value."""
    values = {
        (of, name, measure): Value(found.get(measure, 0.0), 0.1, 0.0, 0.1, "tie")
        for of in sets for name, found in {"none": {}, **changes}.items() for measure in MEASURES
    }  # fmt: skip
    return RepairTable(values, {}, dict.fromkeys(sets, (100, 8)), (), {}, splits=10)


def test_rank_correlations_are_signed_by_what_is_better_and_have_intervals_over_maps():
    generator = np.random.default_rng(0)
    gap, noise = np.arange(20.0), generator.normal(size=20)
    recall = -gap + 6 * generator.normal(size=20)
    of = table({f"pca({k})": {"gap": gap[k], "r_at_1": recall[k], "neighbors": noise[k]} for k in range(20)})
    first, second = relations(of)  # no other measure differs between maps
    assert (first.measure, first.target, second.target) == ("gap", "r_at_1", "neighbors")
    assert first.rho == pytest.approx(-spearmanr(gap, recall).statistic) and first.maps == 20
    assert first.low < first.rho < first.high <= 1 and first.sure and not second.sure
    assert first.p == pytest.approx(2 * spearmanr(gap, recall).pvalue)
    assert second.low < 0 < second.high


def test_fewer_than_five_maps_are_not_related():
    assert relations(table({f"pca({k})": {"gap": k, "r_at_1": -k} for k in range(4)})) == []


def test_holm_adjusts_step_by_step():
    assert holm(np.array([0.04, 0.01, 0.03, 0.9])) == pytest.approx([0.09, 0.04, 0.09, 0.9])

import numpy as np
import pytest
import torch

from clip_geometry.geometry import isoscore, measures, modality_gap, null_value, silhouette
from clip_geometry.registry import InputError


def gaussian(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_is_the_measure_on_a_seeded_gaussian():
    assert float(null_value("isoscore", 50, 8, seed=3)) == float(isoscore(gaussian(50, 8, 3)))
    assert float(null_value(measures["isoscore"], 50, 8, seed=4)) == float(isoscore(gaussian(50, 8, 4)))


def test_draws_are_averaged():
    single = [float(null_value("isoscore", 50, 8, seed=seed)) for seed in (5, 6, 7)]
    assert len(set(single)) == 3
    assert float(null_value("isoscore", 50, 8, seed=5, draws=3)) == pytest.approx(np.mean(single))


def test_two_sets_have_their_own_sizes():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (40, 25))
    assert float(null_value("modality_gap", 40, 6, n_text=25, scale=1.0)) == float(modality_gap(x, y))


def test_labels_of_the_data_are_used():
    labels = [0, 0, 0, 1, 1, 2] * 5
    assert float(null_value("silhouette", 30, 4, labels=labels)) == float(silhouette(gaussian(30, 4, 0), labels))


def test_scale_and_preparation():
    doubled = float(null_value("modality_gap", 30, 4, scale=2.0))
    assert doubled == pytest.approx(2 * float(null_value("modality_gap", 30, 4, scale=1.0)))
    prepared = null_value("average_cosine", 30, 4, prepare=lambda rows: rows + 100)
    assert float(prepared) > 0.99


def test_unit_rows_where_the_measure_needs_them():
    """Otherwise the null of CLIP's modality gap would be that of rows of length √d."""
    assert float(null_value("modality_gap", 500, 512)) == pytest.approx(np.sqrt(2 / 500), rel=0.1)
    x, y = (part / part.norm(dim=1, keepdim=True) for part in gaussian(80, 6, 0).split(40))
    assert float(null_value("modality_gap", 40, 6)) == pytest.approx(float(modality_gap(x, y)), rel=1e-12)


@pytest.mark.parametrize("sizes", [{"n": 0}, {"d": 0}, {"draws": 0}, {"n_text": -1}])
def test_nothing_to_draw_is_an_error(sizes):
    with pytest.raises(InputError, match=r" = (0|-1); expected a whole number from 1"):
        null_value("modality_gap", **{"n": 5, "d": 3, **sizes})


def test_of_a_number_of_an_evaluator():
    """By name or Measure: retrieval of nothing is K/n, of unit rows; three classes are guessed a third of the time."""
    found = null_value("retrieval.image_to_text.r_at_5", 50, 8, draws=20)
    assert float(found) == pytest.approx(5 / 50, abs=0.03)  # 1000 queries: ± 3 · .0095
    zero_shot = measures["zero_shot.top_1"]
    assert float(null_value(zero_shot, 900, 8, n_text=3)) == pytest.approx(1 / 3, abs=0.05)
    assert float(null_value(zero_shot, 900, 8, labels=[0, 1, 2] * 300)) == pytest.approx(1 / 3, abs=0.05)
    with pytest.raises(
        InputError, match=r"linear_probe\.top_1 needs train and test sets; its null value is that of shuf"
    ):
        null_value(measures["linear_probe.top_1"], 50, 8)

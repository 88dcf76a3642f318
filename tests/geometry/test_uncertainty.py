import numpy as np
import pytest
import torch

from clip_geometry.evaluate.base import Z
from clip_geometry.geometry import (
    isoscore,
    measures,
    modality_gap,
    null_value,
    permutation_test,
    silhouette,
    standard_error,
)
from clip_geometry.geometry.uncertainty import assign_blocks
from clip_geometry.registry import InputError
from support.clouds import MEASURES, arguments, cone


def test_error_of_a_mean_is_the_textbook_one():
    """One block for each row: the jackknife of a mean is s/√n exactly, whatever the dealing."""
    x = np.random.default_rng(0).exponential(size=(30, 1))
    for seed in (0, 1):
        result = standard_error(lambda rows: rows.mean(), torch.from_numpy(x), blocks=30, seed=seed)
        assert float(result) == pytest.approx(x.std(ddof=1) / np.sqrt(30), rel=1e-12)


def test_labels_and_pairs_stay_with_their_rows():
    x = cone(40, 4, np.random.default_rng(0))
    labels = [str(k % 3) for k in range(40)]
    for each in (labels, np.array(labels)):
        without = [float(silhouette(x[keep], list(np.array(labels)[keep]))) for keep in masks(40, 8)]
        expected = np.sqrt(7 / 8 * np.square(without - np.mean(without)).sum())
        assert float(standard_error("silhouette", x, each, blocks=8)) == pytest.approx(expected, rel=1e-9)
    y = x + 1e-3
    assert float(standard_error("matching_cosine", x, y)) < 1e-4 < float(standard_error("random_cosine", x, y))


def masks(n, blocks):
    block_of = assign_blocks(n, blocks, 0).numpy()
    assert sorted(np.bincount(block_of)) == sorted(len(part) for part in np.array_split(np.arange(n), blocks))
    return [block_of != block for block in range(blocks)]


@pytest.mark.parametrize("name", [name for name, m in MEASURES.items() if m.smooth])
def test_every_smooth_measure_has_an_error(name):
    """It is finite, small against the range of the value over clouds, and depends on the seed only by chance."""
    sets = arguments(measures[name], "plain")
    first, second = (float(standard_error(name, *sets, blocks=10, seed=seed)) for seed in (0, 1))
    assert 0 < first < np.inf and 0 < second < np.inf
    assert first != second
    assert max(first, second) < 6 * min(first, second)


@pytest.mark.parametrize("name", [name for name, m in MEASURES.items() if not m.smooth])
def test_extremes_have_none(name):
    with pytest.raises(InputError, match="gives no standard error of it"):
        standard_error(name, *arguments(measures[name], "plain"))


# --- permutation tests


@pytest.mark.usefixtures("no_type_checker")
def test_every_arrangement_of_six_rows():
    """Three against three: 20 splits, two of which are the data's own; p is their share, up to the sampling."""
    x = np.array([[0.0], [0.1], [0.3], [1.0], [1.2], [1.1]])
    result = permutation_test("silhouette", x, [0, 0, 0, 1, 1, 1], draws=2000, alternative="greater")
    assert float(result.value) == float(silhouette(x, [0, 0, 0, 1, 1, 1]))
    assert float(result.p_value) == pytest.approx(2 / 20, abs=0.02)  # ± 3 standard errors of 2000 draws


@pytest.mark.parametrize("name", ["matching_cosine", "modality_gap", "silhouette"])
def test_what_belongs_together_is_found(name):
    rng = np.random.default_rng(0)
    x = cone(40, 5, rng)
    other = [0, 1] * 20 if name == "silhouette" else x + (2.0 if name == "modality_gap" else 0.1)
    if name == "silhouette":
        x[::2] += 4
    result = permutation_test(name, x, other, draws=199)
    assert float(result.p_value) == pytest.approx(2 / 200)
    assert float(result.value) > float(result.null_mean) + 4 * float(result.null_std)
    assert float(permutation_test(name, x, other, draws=199, alternative="greater").p_value) == pytest.approx(1 / 200)
    assert float(permutation_test(name, x, other, draws=199, alternative="less").p_value) == 1


def test_two_sets_of_any_layout_and_precision_are_pooled_in_the_wider_one():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)) + 1000, rng.normal(size=(20, 4)) + 1000
    plain = permutation_test("modality_gap", x, y, draws=20)
    turned = permutation_test("modality_gap", x[:, ::-1], np.asfortranarray(y)[:, ::-1], draws=20)
    assert float(turned.null_mean) == pytest.approx(float(plain.null_mean), rel=1e-9)
    half = torch.from_numpy(x).bfloat16()
    mixed = permutation_test("modality_gap", half, y, draws=20)
    exact = permutation_test("modality_gap", half.double(), y, draws=20)
    assert float(mixed.null_mean) == pytest.approx(float(exact.null_mean), rel=1e-12)


R_AT_1 = "retrieval.image_to_text.r_at_1"


def test_a_number_of_an_evaluator_by_its_name():
    rng = np.random.default_rng(0)
    image = rng.normal(size=(60, 5))
    text = image + rng.normal(size=(60, 5))
    share = measures[R_AT_1].shares(image, text)["image_to_text.r_at_1"]
    low, high = share.interval
    assert float(standard_error(R_AT_1, image, text)) == pytest.approx((high - low) / (2 * Z), rel=1e-9)
    assert float(standard_error(R_AT_1, image, image)) > 0  # all are found
    assert float(permutation_test(R_AT_1, image, text, draws=99).p_value) == pytest.approx(0.02)


def test_class_texts_stay_whole():
    """The error of a mean of right and wrong: that of Wilson's interval of n − 1 images."""
    rng = np.random.default_rng(0)
    class_text, labels = rng.normal(size=(4, 6)), np.arange(40) % 4
    image = class_text[labels] + 1.5 * rng.normal(size=(40, 6))
    measure = measures["zero_shot.top_1"]
    p = float(measure(image, labels, class_text))
    assert 0.2 < p < 0.9
    expected = np.sqrt(p * (1 - p) / 39 + (Z / (2 * 39)) ** 2) / (1 + Z**2 / 39)
    assert float(standard_error(measure, image, labels, class_text)) == pytest.approx(expected, rel=1e-9)
    with pytest.raises(
        InputError, match=r"zero_shot.top_1 takes image, labels and class_text; 2 instead of 3 arguments were given"
    ):
        standard_error(measure, image, labels)
    with pytest.raises(
        InputError, match=r"zero_shot.top_1 needs labels and class prompts; expected a measure of label"
    ):
        permutation_test(measure, image, labels)


def test_the_error_of_huge_values_is_that_of_small_ones_or_none(x=np.random.default_rng(5).normal(size=(40, 3))):
    """Squares of the values leave float64 from 1e154 on."""
    small = standard_error(lambda rows: torch.as_tensor(rows).sum(), x)
    huge = standard_error(lambda rows: torch.as_tensor(rows).sum() * 1e200, x)
    assert float(huge) == pytest.approx(float(small) * 1e200, rel=1e-12)
    with pytest.raises(InputError, match="the standard error exceeds float64"):
        standard_error(lambda rows: 1.6e308 * torch.sign(torch.as_tensor(rows.sum() - x.sum())), x, blocks=40)


def test_a_set_without_values_is_named():
    """A function of the caller's would raise an error of its own for it."""
    with pytest.raises(InputError, match=r"set 2 is a torch\.sparse_coo tensor"):
        standard_error(lambda x, y: 0.0, torch.eye(4), torch.eye(4).to_sparse())


def gaussian(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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


def test_the_null_value_of_a_number_of_an_evaluator():
    """By name or Measure: retrieval of nothing is K/n, of unit rows; three classes are guessed a third of the time."""
    result = null_value("retrieval.image_to_text.r_at_5", 50, 8, draws=20)
    assert float(result) == pytest.approx(5 / 50, abs=0.03)  # 1000 queries: ± 3 · .0095
    zero_shot = measures["zero_shot.top_1"]
    assert float(null_value(zero_shot, 900, 8, n_text=3)) == pytest.approx(1 / 3, abs=0.05)
    assert float(null_value(zero_shot, 900, 8, labels=[0, 1, 2] * 300)) == pytest.approx(1 / 3, abs=0.05)
    with pytest.raises(InputError, match=r"linear_probe\.top_1 needs train and test sets; for its null value"):
        null_value(measures["linear_probe.top_1"], 50, 8)


SMALL = cone(10, 3, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: standard_error("isoscore", SMALL),
            "blocks = 20; expected a whole number from 2 to 10, the number of rows",
        ),
        (lambda: standard_error("isoscore", SMALL, blocks=1), "blocks = 1; expected a whole number from 2 to 10"),
        (
            lambda: standard_error("modality_gap", SMALL),
            "modality_gap takes image and text; 1 instead of 2 arguments were given",
        ),
        (lambda: standard_error("silhouette", SMALL), "silhouette takes x and labels"),
        (
            lambda: permutation_test("isoscore", SMALL, [0, 1] * 5),
            "isoscore takes one set of rows, without labels or pairs",
        ),
        (
            lambda: permutation_test("silhouette", SMALL, [0, 1] * 5, alternative="larger"),
            "alternative 'larger' is unknown",
        ),
        (lambda: permutation_test("silhouette", SMALL, [0, 1] * 5, draws=0), "draws = 0; expected a whole number"),
        (lambda: null_value("modality_gap", 5, 3, n_text=-1), "n_text = -1; expected a whole number from 1"),
        (lambda: null_value("modality_gap", 0, 3), "n = 0; expected a whole number from 1"),
    ],
)
def test_errors(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


@pytest.mark.usefixtures("no_type_checker")
def test_error_is_the_scatter_over_fresh_samples():
    """Of isoscore[unbiased], 200 rows in 5 dimensions: mean jackknife error against the scatter over 60 samples."""
    draws = [cone(200, 5, np.random.default_rng([1, seed])) for seed in range(60)]
    cloud = np.random.default_rng(0)
    shape = cloud.normal(size=(5, 5))
    values = [float(isoscore(x @ shape, unbiased=True)) for x in draws]
    errors = [float(standard_error("isoscore[unbiased]", x @ shape, seed=3)) for x in draws]
    # scatter of 60 values: ± 9 %; mean error of 20 blocks each: ± 2 %
    assert np.mean(errors) == pytest.approx(np.std(values, ddof=1), rel=0.3)


@pytest.mark.usefixtures("no_type_checker")
def test_p_values_of_meaningless_labels_are_uniform():
    p = [
        float(
            permutation_test(
                "silhouette[sqeuclidean]", cone(20, 3, np.random.default_rng(seed)), [0, 1] * 10, draws=39, seed=seed
            ).p_value
        )
        for seed in range(100)
    ]
    assert min(p) >= 2 / 40
    assert 1 <= sum(value <= 0.1 for value in p) <= 20  # ten expected, ± 3

import numpy as np
import pytest
import torch

from clip_geometry.evaluators.base import Z
from clip_geometry.geometry import isoscore, measures, permutation_test, silhouette, standard_error
from clip_geometry.geometry.uncertainty import deal
from clip_geometry.registry import InputError
from support.clouds import MEASURES, arguments, cone


def test_error_of_a_mean_is_the_textbook_one():
    """One block for each row: the jackknife of a mean is s/√n exactly, whatever the dealing."""
    x = np.random.default_rng(0).exponential(size=(30, 1))
    for seed in (0, 1):
        found = standard_error(lambda rows: rows.mean(), torch.from_numpy(x), blocks=30, seed=seed)
        assert float(found) == pytest.approx(x.std(ddof=1) / np.sqrt(30), rel=1e-12)


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
    dealt = deal(n, blocks, 0).numpy()
    assert sorted(np.bincount(dealt)) == sorted(len(part) for part in np.array_split(np.arange(n), blocks))
    return [dealt != block for block in range(blocks)]


def test_two_sets_of_different_sizes():
    x, y = (cone(n, 4, np.random.default_rng(n)) for n in (50, 30))
    assert 0 < float(standard_error("modality_gap", x, y)) < 1


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


def test_errors_of_the_jackknife():
    x = cone(10, 3, np.random.default_rng(0))
    with pytest.raises(InputError, match="blocks = 20; expected a whole number from 2 to 10, one for each row"):
        standard_error("isoscore", x)
    with pytest.raises(InputError, match="blocks = 1; expected a whole number from 2 to 10"):
        standard_error("isoscore", x, blocks=1)


# --- permutation tests


@pytest.mark.usefixtures("no_type_checker")
def test_every_arrangement_of_six_rows():
    """Three against three: 20 splits, two of which are the data's own; p is their share, up to the sampling."""
    x = np.array([[0.0], [0.1], [0.3], [1.0], [1.2], [1.1]])
    found = permutation_test("silhouette", x, [0, 0, 0, 1, 1, 1], draws=2000, alternative="greater")
    assert float(found.value) == float(silhouette(x, [0, 0, 0, 1, 1, 1]))
    assert float(found.p_value) == pytest.approx(2 / 20, abs=0.02)  # ± 3 standard errors of 2000 draws


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


@pytest.mark.parametrize("name", ["matching_cosine", "modality_gap", "silhouette"])
def test_what_belongs_together_is_found(name):
    rng = np.random.default_rng(0)
    x = cone(40, 5, rng)
    other = [0, 1] * 20 if name == "silhouette" else x + (2.0 if name == "modality_gap" else 0.1)
    if name == "silhouette":
        x[::2] += 4
    found = permutation_test(name, x, other, draws=199)
    assert float(found.p_value) == pytest.approx(2 / 200)
    assert float(found.value) > float(found.null_mean) + 4 * float(found.null_std)
    assert float(permutation_test(name, x, other, draws=199, alternative="greater").p_value) == pytest.approx(1 / 200)
    assert float(permutation_test(name, x, other, draws=199, alternative="less").p_value) == 1


def test_seed_decides():
    x, labels = cone(20, 3, np.random.default_rng(0)), [0, 1] * 10
    a, b, c = (permutation_test("silhouette", x, labels, draws=20, seed=seed) for seed in (1, 1, 2))
    assert float(a.null_mean) == float(b.null_mean) != float(c.null_mean)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": "isoscore"}, "isoscore takes one set of rows; there are no labels"),
        ({"alternative": "larger"}, "alternative 'larger' is unknown"),
        ({"draws": 0}, "draws = 0; expected a whole number"),
    ],
)
def test_errors_of_the_permutation_test(options, message):
    options = {"measure": "silhouette", "x": np.eye(4), "labels_or_y": [0, 0, 1, 1], **options}
    with pytest.raises(InputError, match=message):
        permutation_test(**options)


def test_p_values_are_exact_shares():
    """In float32 a p-value of 1/20 would lie above .05."""
    x, y = np.eye(20), np.eye(20)
    test = permutation_test("matching_cosine", x, y, draws=19, alternative="greater")
    assert float(test.p_value) == 1 / 20


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


def test_where_nothing_can_differ_every_draw_ties():
    """All rows equal: the gap is 0 in every split, p = 1 on both sides and not 2, and the null has no spread."""
    found = permutation_test("modality_gap", np.ones((6, 3)), np.ones((5, 3)), draws=20)
    assert float(found.p_value) == 1
    assert float(found.null_std) == 0


def test_null_spread_is_that_of_the_draws():
    x, labels = np.random.default_rng(0).normal(size=(12, 3)), np.arange(12) % 3
    few = permutation_test("silhouette", x, labels, draws=2, seed=1)
    one = permutation_test("silhouette", x, labels, draws=1, seed=1)
    other = 2 * float(few.null_mean) - float(one.null_mean)
    assert float(few.null_std) == pytest.approx(np.std([float(one.null_mean), other]), rel=1e-9)


def test_wrong_number_of_sets_is_one_sentence():
    with pytest.raises(InputError, match="modality_gap takes image and text; 1 sets were given"):
        standard_error("modality_gap", np.eye(30))
    with pytest.raises(InputError, match="silhouette takes x and labels"):
        standard_error("silhouette", np.eye(30))


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
    with pytest.raises(InputError, match=r"zero_shot.top_1 takes image, labels and class_text; 2 sets were given"):
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

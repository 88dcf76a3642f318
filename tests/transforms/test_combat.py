"""ComBat: neuroCombat as oracle, and what empirical Bayes promises of means and variances."""

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry.transforms import ComBat, Pipeline
from support.clouds import cone

# of rows 0 and 49 of a and 0 and 29 of b by neuroCombat 0.2.12, whose stopping rule is 1e-4 as published:
#   np.int = int; sys.modules["neuroCombat.neuroCombat"].it_sol.__defaults__ = (1e-13,)
#   neuroCombat(np.concatenate([a, b]).T, pd.DataFrame({"m": ["a"] * 50 + ["b"] * 30}), "m", ref_batch=None or "a")
WITHOUT = [
    [1.753123446, 0.6600932109, 2.2746547492, 0.1125241391],
    [0.26944594, 0.0555272863, 1.1113029491, 0.6578188556],
    [1.042065449, 0.2080024323, 0.4834314335, 0.6240043323],
    [0.9154205312, 0.7067065593, 1.1040638519, 0.5780316934],
]
REFERENCE = [
    [1.4911479642, 0.6046929111, -0.1728266035, 0.5517420165],
    [1.3682604358, 0.9322499753, 0.436384443, 0.5118682727],
]


def two_sets():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(50, 4)) + np.array([2, 1, 1, 0])
    return a, rng.normal(size=(30, 4)) * [1, 2, 1, 1] + [1, 1, 3, 0]


def test_reference_implementation():
    a, b = two_sets()
    moved = [each.transform(x) for each, x in zip(ComBat().fit_sets([a, b]), (a, b), strict=True)]
    assert np.allclose(np.concatenate([moved[0][[0, -1]], moved[1][[0, -1]]]), WITHOUT, atol=1e-9)
    assert np.allclose(ComBat().fit(b, a).transform(b)[[0, -1]], REFERENCE, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_equations_of_the_posterior(seed):
    """γ* and δ* solve the fixed point of Johnson et al., equations 3.1 and 3.2, written out for each column."""
    rng = np.random.default_rng(seed)
    a, b = cone(25, 7, rng), cone(40, 7, rng) * 1.5 + 1
    fitted = ComBat().fit_sets([a, b])
    alpha = np.concatenate([a, b]).mean(0)
    sigma = np.sqrt((np.square(a - a.mean(0)).sum(0) + np.square(b - b.mean(0)).sum(0)) / 65)
    for each, x in zip(fitted, (a, b), strict=True):
        s = (x - alpha) / sigma
        gamma, delta = s.mean(0), s.var(0, ddof=1)
        tau, m, v = gamma.var(ddof=1), delta.mean(), delta.var(ddof=1)
        star = (each.location_[each.set_] - alpha) / sigma
        spread = each.spread_[each.set_] ** 2
        for g in range(7):
            assert star[g] == pytest.approx(
                (len(x) * tau * gamma[g] + spread[g] * gamma.mean()) / (len(x) * tau + spread[g]), rel=1e-9
            )
            rest = np.square(s[:, g] - star[g]).sum() / 2
            posterior = (m * (v + m**2) / v + rest) / (len(x) / 2 + (2 * v + m**2) / v - 1)
            assert spread[g] == pytest.approx(posterior, rel=1e-9)


def gap(sets):
    return np.abs(sets[0].mean(0) - sets[1].mean(0)).max(), np.abs(np.log(sets[0].var(0) / sets[1].var(0))).max()


def test_means_and_variances_agree_up_to_shrinkage():
    rng = np.random.default_rng(0)
    gaps = []
    for n in (20, 200, 2000):  # more rows, less shrinkage
        sets = cone(n, 8, rng), cone(n, 8, rng) * np.linspace(0.5, 3, 8) + np.arange(8)
        for fitted in (ComBat().fit_sets(sets), [None, ComBat().fit(sets[1], sets[0])]):
            moved = [x if each is None else each.transform(x) for each, x in zip(fitted, sets, strict=True)]
            gaps.append(gap(moved))
            assert all(after < before / 1.5 for after, before in zip(gap(moved), gap(sets), strict=True))
    assert np.all(np.array(gaps[:2]) > 10 * np.array(gaps[4:]))


def test_one_distribution_is_left_almost_alone_and_the_same_rows_entirely():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3000, 5))
    moved = ComBat().fit_sets([a, b])[1].transform(b)
    assert np.abs(moved - b).max() < 0.15  # four times 1/√3000, on rows up to 4 standard deviations
    same = ComBat().fit(a[::-1], a).transform(a)
    assert np.abs(same - a).max() < 2e-3  # δ̂² has n − 1 below, σ² has n


def test_scale_and_shift_of_columns_pass_through():
    a, b = two_sets()
    scale, shift = np.array([2.0, 0.5, 3.0, 10.0]), np.array([1.0, -5.0, 100.0, 0.0])
    moved = ComBat().fit_sets([a, b])[0].transform(a)
    again = ComBat().fit_sets([a * scale + shift, b * scale + shift])[0].transform(a * scale + shift)
    assert np.allclose(again, moved * scale + shift, rtol=1e-9)


def test_columns_that_do_not_vary_are_shifted_and_do_not_count():
    a, b = two_sets()
    constant = [np.column_stack([x, np.full(len(x), value)]) for x, value in ((a, 3.1), (b, -1.3))]
    plain, more = ComBat().fit_sets([a, b]), ComBat().fit_sets(constant)
    for each, wide, x in zip(plain, more, constant, strict=True):
        moved = wide.transform(x)
        assert np.allclose(moved[:, :4], each.transform(x[:, :4]), rtol=1e-12)
        assert np.allclose(moved[:, 4], (50 * 3.1 - 30 * 1.3) / 80)
    flat = ComBat().fit(np.full((3, 2), 1.7), np.full((4, 2), 0.3))
    assert np.allclose(flat.transform(np.full((1, 2), 1.7)), 0.3)


def test_one_column_and_one_row():
    a, b = (x[:, :1] for x in two_sets())
    moved = [each.transform(x) for each, x in zip(ComBat().fit_sets([a, b]), (a, b), strict=True)]
    assert np.abs(moved[0].mean() - moved[1].mean()) < 1e-12  # nothing to shrink to: means agree exactly
    with pytest.raises(InputError, match="combat needs at least 2 rows of each modality, but one has 1 sample"):
        ComBat().fit(a, b[:1])


def test_affine():
    a, b = two_sets()
    fitted = Pipeline("combat").fit({"image": a, "text": b})
    for name, x in (("image", a), ("text", b)):
        assert np.allclose(fitted.affine(name)(x), fitted.transform({name: x})[name], rtol=1e-12)

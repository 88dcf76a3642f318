from fractions import Fraction

import numpy as np
import pytest
import torch

from clip_geometry import Moments
from clip_geometry.geometry import isoscore, isoscore_star, participation_ratio
from clip_geometry.registry import InputError
from support.clouds import cone, rotation


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_isoscore_package(seed):
    from IsoScore import IsoScore

    x = cone(300, 12, np.random.default_rng(seed))
    published = float(IsoScore.IsoScore(x.astype("float32")))
    assert float(isoscore(x)) == pytest.approx(published, abs=1e-5)  # the package works in float32


# --- the correction for small samples

SEEDS = range(20)


@pytest.mark.parametrize(("n", "plain"), [(64, 0.108), (512, 0.499), (2048, 0.799)])
def test_unbiased_is_1_on_an_isotropic_gaussian_where_the_plain_one_is_not(n, plain):
    """d = 512, twenty seeds: the mean within four of its standard errors of 1."""
    moments = [Moments.of(torch.randn(n, 512, generator=torch.Generator().manual_seed(seed))) for seed in SEEDS]
    scores = np.array([float(isoscore(m, unbiased=True)) for m in moments])
    assert abs(scores.mean() - 1) < 4 * scores.std(ddof=1) / np.sqrt(len(scores))
    assert scores.std(ddof=1) < 0.1  # or the line above would hold for anything
    assert np.mean([float(isoscore(m)) for m in moments]) == pytest.approx(plain, abs=0.0015)


# --- shrinkage


def score_of(covariance):
    values = np.linalg.eigvalsh(covariance)
    return (values.sum() ** 2 / (values**2).sum() - 1) / (len(values) - 1)


@pytest.mark.parametrize("zeta", [0, 0.2, 0.9, 1])
@pytest.mark.parametrize("seed", range(3))
def test_star_is_the_score_of_the_shrunken_covariance(zeta, seed):
    rng = np.random.default_rng(seed)
    x, y = cone(20, 6, rng), cone(500, 6, rng)
    shrunken = (1 - zeta) * np.cov(x.T) + zeta * np.cov(y.T)
    result = isoscore_star(x, torch.from_numpy(np.cov(y.T)), zeta=zeta)
    assert float(result) == pytest.approx(score_of(shrunken), abs=1e-12)
    if zeta == 0:
        assert float(result) == pytest.approx(float(isoscore(x)), abs=1e-15)


# --- gradients


def graph(node, seen):
    if node is not None and node not in seen:
        seen[node] = node.name()
        for parent, _ in node.next_functions:
            graph(parent, seen)
    return set(seen.values())


@pytest.mark.parametrize("unbiased", [False, True])
def test_backward_decomposes_nothing_and_is_finite_at_repeated_eigenvalues(unbiased):
    x = (torch.cat([torch.eye(5), -torch.eye(5)]).double() + 0.3).requires_grad_()  # all eigenvalues are equal
    score = isoscore(x, unbiased=unbiased)
    names = graph(score.grad_fn, {})
    assert any("Mm" in name for name in names)  # the graph has been walked
    assert not [name for name in names if any(part in name for part in ("Eig", "Svd", "SVD", "Qr", "Cholesky"))]
    score.backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()
    assert float(score.detach()) > 0.99


@pytest.mark.parametrize("giant", [1e3, 1e8, 1e12])
def test_unbiased_of_one_giant_row_is_right_or_refused(giant):
    """What outweighs all others leaves nothing but rounding of ‖C‖²."""
    x = np.random.default_rng(0).normal(size=(40, 6))
    x[3] *= giant
    if giant > 1e6:
        with pytest.raises(InputError, match="not positive beyond rounding"):
            isoscore(x, unbiased=True)
        return
    exact = np.vectorize(Fraction)(x)
    assert float(isoscore(x, unbiased=True)) == pytest.approx(float(unbiased_in_fractions(exact)), abs=1e-9)


def unbiased_in_fractions(x):
    """From the formula, without rounding."""
    n, d = x.shape
    c = x - x.sum(0) / n
    s = c.T.dot(c) / (n - 1)
    square, trace = (s * s).sum(), np.trace(s)
    q = ((c * c).sum(1) ** 2).sum() / (n - 1)
    a = 2 * square + (n * n - 3 * n + 1) * trace**2 - n * q
    b = (n - 1) * (n - 2) * square + trace**2 - n * q
    return (a / b - 1) / (d - 1)


def test_unbiased_of_rows_whose_fourth_powers_leave_the_range():
    x = np.random.default_rng(0).normal(size=(40, 6))
    for scale in (1e-75, 1e-81):
        with pytest.raises(InputError, match="rescale the rows"):
            isoscore(scale * x, unbiased=True)
    assert float(isoscore(1e-70 * x, unbiased=True)) == pytest.approx(float(isoscore(x, unbiased=True)), abs=1e-12)


def test_star_takes_a_covariance_of_any_kind_and_no_nan():
    x, c = np.random.default_rng(0).normal(size=(40, 3)), np.diag([3.0, 2.0, 1.0])
    assert float(isoscore_star(x, c, zeta=0.5)) == float(isoscore_star(x, torch.from_numpy(c), zeta=0.5))
    c[0, 1] = np.nan
    with pytest.raises(InputError, match="covariance has NaN"):
        isoscore_star(x, c, zeta=0.5)


FOUR = np.random.default_rng(0).normal(size=(4, 2))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: isoscore(np.eye(3), unbiased=True), "3 rows; expected at least 4"),
        # the rows of a regular simplex are less alike than independent ones: the estimate of ‖C‖² is 0 or below
        (lambda: isoscore(np.eye(6), unbiased=True), "estimate of ‖C‖² from 6 rows is not positive"),
        (lambda: isoscore_star(FOUR, torch.eye(3), zeta=0.5), r"shape \(3, 3\); expected \(2, 2\)"),
        (lambda: isoscore_star(FOUR, torch.eye(2), zeta=1.5), "zeta = 1.5; expected a share from 0"),
        (lambda: isoscore_star(FOUR, torch.zeros(2, 2), zeta=1), "is not positive, so its isotropy"),
        (lambda: isoscore_star(FOUR, torch.ones(2, 2).triu(), zeta=1), "the covariance is not symmetric"),
    ],
)
def test_errors(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def test_the_gradient_of_the_star():
    x = torch.from_numpy(FOUR).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: isoscore_star(rows, torch.eye(2).double(), zeta=0.2), (x,))


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_rank_r_with_equal_variances_has_ratio_r(rank):
    d = 8
    basis = rotation(d, np.random.default_rng(rank))[:rank]
    x = np.concatenate([basis, -basis]) * 3.7 + 11.0
    assert float(participation_ratio(x)) == pytest.approx(rank, rel=1e-12)
    assert float(isoscore(x)) == pytest.approx((rank - 1) / (d - 1), abs=1e-12)


def estimates(x):
    """a and b of the definition, and of the correction that assumes a Gaussian."""
    m = Moments.of(x)
    n, s, q = m.n, m.covariance, float(m.Q) / (m.n - 1)
    square, trace = float(s.square().sum()), float(s.trace())
    f = (n - 1) / (n * (n - 2) * (n - 3))
    b = f * ((n - 1) * (n - 2) * square + trace**2 - n * q)
    a = f * (2 * square + (n * n - 3 * n + 1) * trace**2 - n * q)
    gaussian_b = (n - 1) ** 2 / ((n - 2) * (n + 1)) * (square - trace**2 / (n - 1))
    assert float(isoscore(m, unbiased=True)) == pytest.approx((a / b - 1) / (m.d - 1), rel=1e-10)
    return a, b, gaussian_b


def scale_mixture(n, d, rng):
    """Rows of N(0, diag(i^−1/2)), one in ten of them multiplied by 5; its tr(C)² and ‖C‖²."""
    variances = np.arange(1, d + 1) ** -0.5
    rows = rng.normal(size=(n, d)) * np.sqrt(variances)
    factor = np.where(rng.random(n) < 0.1, 5.0, 1.0)
    covariance = variances * (0.9 + 0.1 * 25)
    return rows * factor[:, None], covariance.sum() ** 2, (covariance**2).sum()


def gaussian(n, d, rng):
    return rng.normal(size=(n, d)), float(d) ** 2, float(d)


def errors_of_the_means(draw):
    """(mean − truth) in standard errors of the mean of 400 draws, n = d = 64: a, b and the Gaussian correction's b."""
    result, truths = [], None
    for seed in range(400):
        x, a, b = draw(64, 64, np.random.default_rng(seed))
        result.append(estimates(x))
        truths = np.array([a, b, b])
    result = np.array(result)
    return (result.mean(0) - truths) / (result.std(0, ddof=1) / np.sqrt(len(result)))


def test_both_parts_are_unbiased_whatever_the_distribution():
    a, b, assuming = errors_of_the_means(gaussian)
    assert abs(a) < 4 and abs(b) < 4 and abs(assuming) < 4
    a, b, assuming = errors_of_the_means(scale_mixture)
    assert abs(a) < 4 and abs(b) < 4
    assert assuming > 10  # the correction that assumes a Gaussian is far off for heavy tails

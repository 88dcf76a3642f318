"""AnisoAlign: the paper's global initialization in plain numpy, and what it promises."""

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry.transforms import AnisoAlign
from support.clouds import cone


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture(params=range(3))
def sets(request):
    rng = np.random.default_rng(request.param)
    return unit(cone(40, 6, rng)), unit(cone(70, 6, rng) + 1)


def by_the_paper(new, y, x, k):
    """arXiv:2605.07825, sections 4.1 and 4.4.1 and the calibration of 4.4.2, row by row; R = I, λ = ε = 0."""
    values, vectors = np.linalg.eigh(np.cov(y.T, bias=True) + np.cov(x.T, bias=True))
    q = vectors[:, np.argsort(-values)[:k]]
    outside = np.eye(len(q)) - q @ q.T
    shift = x.mean(0) - y.mean(0)
    radius = lambda z, b: np.hypot(z @ q[:, 2 * b], z @ q[:, 2 * b + 1])  # noqa: E731
    spread = (x @ outside).std(0) / (y @ outside).std(0)

    def initialized(z):
        c = q.T @ (z + shift)
        for b in range(k // 2):
            rho, theta = np.hypot(*c[2 * b : 2 * b + 2]), np.arctan2(c[2 * b + 1], c[2 * b])
            sorted_y, sorted_x = np.sort(radius(y + shift, b)), np.sort(radius(x, b))
            level = np.interp(rho, sorted_y, (np.arange(len(y)) + 0.5) / len(y))
            rho = np.interp(level, (np.arange(len(x)) + 0.5) / len(x), sorted_x)
            c[2 * b : 2 * b + 2] = rho * np.cos(theta), rho * np.sin(theta)
        e = q @ c + outside @ x.mean(0) + spread * (outside @ z - outside @ y.mean(0))
        return e / np.linalg.norm(e)

    centroid = np.mean([initialized(z) for z in y], axis=0)
    return unit(np.array([initialized(z) for z in new]) - centroid + x.mean(0))


@pytest.mark.parametrize("k", [2, 4])
def test_formula(sets, k):
    new = unit(cone(9, 6, np.random.default_rng(9)))
    for rows in (sets[0], new):
        assert np.allclose(AnisoAlign(k).fit(*sets).transform(rows), by_the_paper(rows, *sets, k), atol=1e-10)


def test_radii_are_those_of_the_target_and_angles_stay(sets):
    """With all directions in planes and as many rows of both sets, but for the unit length of the result."""
    source, target = sets[0], sets[1][:40]
    fitted = AnisoAlign(6).fit(source, target)
    shifted, before = fitted._planes(source + target.mean(0) - source.mean(0))
    ranks = before.argsort(0).argsort(0)
    wanted = np.take_along_axis(np.sort(fitted._planes(target)[1], axis=0), ranks, axis=0)
    planes, radii = fitted._planes(fitted._initialized(source))
    assert np.allclose(radii, unit(wanted), atol=1e-10)
    assert np.allclose(planes / radii[..., None], shifted / before[..., None], atol=1e-9)


def test_equal_sets_give_the_identity(sets):
    source = sets[0]
    assert np.allclose(AnisoAlign(4).fit(source, source[::-1]).transform(source), source, atol=1e-10)


def test_the_centroid_is_the_target_s(sets):
    source, target = sets
    moved = AnisoAlign(2).fit(source, target).transform(source)
    left, before = (np.linalg.norm(x.mean(0) - target.mean(0)) for x in (moved, source))
    assert left < 0.1 * before
    assert np.allclose(np.linalg.norm(moved, axis=1), 1)


def test_radii_beyond_the_fitting_rows_become_the_last(sets):
    fitted = AnisoAlign(6).fit(sets[0], sets[1][:40])
    _, radii = fitted._planes(fitted._initialized(1e6 * sets[0]))
    assert np.allclose(radii, unit(fitted.target_radii_[-1:]), atol=1e-12)


def test_degenerate_rows(sets):
    source, target = sets
    two = AnisoAlign(2).fit(source[:2], target)
    assert np.allclose(np.linalg.norm(two.transform(source), axis=1), 1)
    constant = AnisoAlign(2).fit(np.tile(source[0], (5, 1)), target).transform(source)
    assert np.allclose(np.linalg.norm(constant, axis=1), 1)
    flat = source * [1, 1, 0, 0, 0, 0]
    assert np.isfinite(AnisoAlign(4).fit(flat, target).transform(source)).all()


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (3, "k of aniso_align = 3; expected an even number"),
        (0, "k of aniso_align = 0"),
        (8, r"aniso_align\(8\) needs 8 dimensions, but the rows have 6 dimensions"),
    ],
)
def test_parameters(sets, k, message):
    with pytest.raises(InputError, match=message):
        AnisoAlign(k).fit(*sets)

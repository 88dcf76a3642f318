"""ReAlign: the authors' formulas in plain numpy, and what they promise of means and traces."""

import numpy as np
import pytest

from clip_geometry import Pipeline
from clip_geometry.registry import InputError
from clip_geometry.transforms import ReAlign
from support.clouds import cone, unit


@pytest.fixture(params=range(3))
def sets(request):
    rng = np.random.default_rng(request.param)
    return unit(cone(40, 6, rng)), unit(cone(70, 6, rng) + 1)


def by_the_paper(new, source, target):
    """arXiv:2602.07026v3, sections 4.1 to 4.3, with ε = 0: anchor, trace, sphere, centroid, sphere."""
    traces = [np.trace(np.cov(x.T, bias=True)) for x in (source, target)]
    affine = [target.mean(0) + np.sqrt(traces[1] / traces[0]) * (x - source.mean(0)) for x in (source, new)]
    on_sphere = [unit(x) for x in affine]
    return affine[1], unit(on_sphere[1] - on_sphere[0].mean(0) + target.mean(0))


def test_formula(sets):
    source, target = sets
    new = unit(cone(9, 6, np.random.default_rng(9)))
    affine, whole = by_the_paper(new, source, target)
    assert np.allclose(ReAlign(centroid=False).fit(source, target).transform(new), affine, rtol=1e-12, atol=1e-13)
    assert np.allclose(ReAlign().fit(source, target).transform(new), whole, rtol=1e-12, atol=1e-13)


def test_without_a_centroid_it_is_affine(sets):
    fitted = Pipeline("normalize,realign(centroid=false)[text-to-image],normalize").fit(
        {"text": sets[0], "image": sets[1]}
    )
    assert np.allclose(fitted.affine("text")(sets[0]), fitted.transform({"text": sets[0]})["text"], atol=1e-12)
    with pytest.raises(InputError, match="realign is not an affine map"):
        ReAlign().fit(*sets).weights()


@pytest.mark.parametrize("value", [1.0, 0.1, 1e-9, 1e6])
def test_no_spread(sets, value):
    rows, words = np.full((9, 6), value), "its 9 rows are equal"
    with pytest.raises(InputError, match=f"realign compares the spread of both sets, but the source has none: {words}"):
        ReAlign().fit(rows, sets[1])
    with pytest.raises(InputError, match=f"the target has none: {words}"):
        ReAlign().fit(sets[0], rows)


def test_means_and_traces_agree(sets):
    source, target = sets
    moved = ReAlign(centroid=False).fit(source, target).transform(source)
    assert np.allclose(moved.mean(0), target.mean(0), atol=1e-13)
    assert moved.var(0).sum() == pytest.approx(target.var(0).sum(), rel=1e-12)
    spectra = [np.linalg.eigvalsh(np.cov(x.T)) for x in (source, moved)]
    assert np.allclose(spectra[0] / spectra[0].sum(), spectra[1] / spectra[1].sum(), rtol=1e-9)  # the shape stays


def test_the_centroid_step_corrects_what_the_sphere_moves(sets):
    source, target = sets
    whole = ReAlign().fit(source, target).transform(source)
    without = unit(ReAlign(centroid=False).fit(source, target).transform(source))
    assert np.allclose(np.linalg.norm(whole, axis=1), 1, rtol=1e-12)
    left, drift = (np.linalg.norm(x.mean(0) - target.mean(0)) for x in (whole, without))
    assert left < 0.5 * drift

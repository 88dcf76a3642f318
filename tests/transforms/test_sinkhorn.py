"""The entropic map: POT's, and what theory says of it."""

import numpy as np
import ot
import pytest
from sklearn.exceptions import ConvergenceWarning

from clip_geometry.registry import InputError
from clip_geometry.transforms import FittedPipeline, Pipeline, Sinkhorn
from support.clouds import cone, rotation


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return cone(40, 4, rng), 2 * cone(55, 4, rng) + 7


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 3.0])
def test_the_map_is_pots(sets, epsilon):
    source, target = sets
    fitted = Sinkhorn(epsilon).fit(source, target)
    theirs = ot.da.SinkhornTransport(reg_e=fitted.epsilon_, max_iter=10_000, tol=1e-13).fit(Xs=source, Xt=target)
    others = cone(9, 4, np.random.default_rng(1))  # out of sample
    assert np.abs(fitted.transform(others) - theirs.transform(Xs=others)).max() < 1e-6
    # in sample, the barycentric projection of the plan
    assert np.abs(fitted.transform(source) - len(source) * theirs.coupling_ @ target).max() < 1e-6


def test_epsilon_is_relative_to_the_spread(sets):
    source, target = sets
    cost = ot.dist(source - source.mean(0), target - target.mean(0)).mean()
    assert Sinkhorn(0.3).fit(source, target).epsilon_ == pytest.approx(0.3 * cost, rel=1e-12)


def test_the_map_moves_with_the_sets(sets):
    source, target = sets
    plain, turn = Sinkhorn(0.2).fit(source, target).transform(source), rotation(4, np.random.default_rng(1))
    moved = Sinkhorn(0.2).fit(3 * source @ turn - 50, 3 * target @ turn + 900).transform(3 * source @ turn - 50)
    assert np.allclose(moved, 3 * plain @ turn + 900, atol=1e-6)
    order = np.random.default_rng(2).permutation(55)
    assert np.allclose(Sinkhorn(0.2).fit(source, target[order]).transform(source), plain, atol=1e-9)


@pytest.mark.filterwarnings("ignore:sinkhorn. after 2000 iterations")  # near a matching, they never end
def test_limits_of_epsilon(sets):
    source, target = sets
    assert np.allclose(Sinkhorn(1e6).fit(source, target).transform(source), target.mean(0), atol=1e-4)
    source, target = source[:10], target[:10]
    plan = ot.emd([], [], ot.dist(source, target))  # a matching
    near = Sinkhorn(0.005).fit(source, target).transform(source)
    assert np.abs(near - target[plan.argmax(1)]).max() < 0.1
    same = Sinkhorn(0.01).fit(source, source + 5).transform(source)
    assert np.abs(same - source - 5).max() < 0.1


def test_every_target_row_gets_its_share(sets):
    """Columns of the plan sum to 1/m, so that the mean of the mapped rows is the target's."""
    source, target = sets
    assert np.allclose(Sinkhorn(0.1).fit(source, target).transform(source).mean(0), target.mean(0), atol=1e-7)


def test_few_rows():
    """Between two rows each there are two plans; little regularization takes the cheaper."""
    x, y = np.array([[1.0, 2.0], [0.0, 9.0]]), np.array([[0.0, 8.0], [1.0, 1.0]])
    assert np.allclose(Sinkhorn(0.01).fit(x, y).transform(x), y[::-1])
    with pytest.raises(InputError, match="sinkhorn needs at least 2 rows of each modality, but one has 1 sample"):
        Sinkhorn().fit(x[:1], y)


def test_too_few_iterations_are_said(sets):
    with pytest.warns(ConvergenceWarning, match=r"sinkhorn: after 2 iterations the margins .* are still off by 0\.\d"):
        Sinkhorn(0.01, iterations=2).fit(*sets)


def test_a_saved_map_and_held_out_rows(sets, tmp_path):
    """It is fitted on unpaired rows, applied to others, and saved with the target's rows."""
    source, target = sets
    fitted = Pipeline("sinkhorn(0.1)[text-to-image]").fit({"image": target, "text": source}, origin="train")
    fitted.save(tmp_path / "map.safetensors")
    others = cone(9, 4, np.random.default_rng(1))
    mapped = FittedPipeline.load(tmp_path / "map.safetensors").transform({"text": others, "image": target})
    assert (mapped["text"] == Sinkhorn(0.1).fit(source, target).transform(others)).all()
    assert (mapped["image"] == target).all() and fitted.fitted_on == "train:text-to-image"

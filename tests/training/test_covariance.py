"""The covariance that IsoScore* shrinks towards: of a sample in batches, averaged, saved, moved."""

import numpy as np
import pytest
import torch

from clip_geometry.registry import InputError
from clip_geometry.training.losses import IStar, RunningCovariance, second_moments


def batches(count=5, seed=0):
    """(b, t, 4) with masks, of unequal lengths and means."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for k in range(count):
        rows = torch.randn(3, 4 + k, 4, dtype=torch.float64, generator=generator) + k
        found.append((rows, torch.rand(3, 4 + k, generator=generator) < 0.7))
    return found


def test_a_sample_in_batches_is_one_sample():
    given = batches()
    rows = torch.cat([hidden[mask] for hidden, mask in given])
    expected = np.cov(rows.numpy().T)
    running = RunningCovariance()
    for sample in (rows, iter(given), [hidden[mask] for hidden, mask in given]):
        running.refresh(sample)
        assert running.covariance is not None
        assert np.allclose(running.covariance, expected, rtol=1e-12, atol=1e-12)


def test_a_batch_may_be_layers_and_a_sample_may_have_a_mask():
    (hidden, mask), running = batches(1)[0], RunningCovariance()
    running.refresh([([hidden, 2 * hidden], mask)])
    expected = np.cov(torch.cat([hidden[mask], 2 * hidden[mask]]).numpy().T)
    assert np.allclose(running.covariance, expected, rtol=1e-12, atol=1e-12)
    running.refresh([(hidden, 2 * hidden)])  # two tensors of numbers are two layers, no mask
    assert np.allclose(running.covariance, np.cov(torch.cat([hidden, 2 * hidden]).view(-1, 4).numpy().T))
    running.refresh(hidden, mask)
    assert np.allclose(running.covariance, np.cov(hidden[mask].numpy().T))
    for batch in ([hidden, mask], [hidden, mask.long()], [[hidden, 2 * hidden], mask], [hidden, None]):
        running.refresh([tuple(batch)])
        expected = running.covariance
        running.refresh([batch])  # a list, as a DataLoader gives them
        assert torch.equal(running.covariance, expected)
    running.refresh([[hidden, 2 * hidden]])
    assert np.allclose(running.covariance, np.cov(torch.cat([hidden, 2 * hidden]).view(-1, 4).numpy().T))


def test_no_gradient_goes_through_c_0():
    rows = torch.randn(9, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    istar = IStar(1.0, momentum=0.5)
    istar.refresh(rows)
    assert istar.running.covariance is not None and not istar.running.covariance.requires_grad
    istar(rows).backward()
    assert not istar.running.covariance.requires_grad


def test_momentum_averages_the_batches_of_training():
    istar = IStar(1.0, momentum=0.25)
    parts = [np.cov(hidden[mask].numpy().T) for hidden, mask in batches(3)]
    expected = None
    for (hidden, mask), part in zip(batches(3), parts, strict=True):
        istar(hidden, mask)
        expected = part if expected is None else 0.75 * expected + 0.25 * part
        assert np.allclose(istar.running.covariance, expected, rtol=1e-12)
    istar.eval()(batches(1)[0][0])
    assert np.allclose(istar.running.covariance, expected, rtol=1e-12)  # as batch norm does


def test_a_batch_is_scored_against_those_before_it():
    istar = IStar(1.0, zeta=1.0, momentum=0.5)
    first, second = batches(2)
    istar(*first)
    found = istar(*second)
    before = IStar(1.0, zeta=1.0)
    before.refresh(*first)
    assert float(found) == pytest.approx(float(before(*second)), abs=1e-14)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("at", [0, 1])
def test_a_batch_that_is_not_finite_leaves_c_0_as_it_is(value, at):
    """As in half precision, where GradScaler skips such a step and the buffers go on."""
    istar, without = IStar(1.0, momentum=0.5), IStar(1.0, momentum=0.5)
    given = batches(3)
    for k, (hidden, mask) in enumerate(given):
        if k == at:
            broken = hidden.clone()
            broken[0, 0, 1] = value
            assert not torch.isfinite(istar(broken))
        found, expected = istar(hidden, mask), without(hidden, mask)
        assert torch.isfinite(found) and float(found) == float(expected)
    assert torch.equal(istar.state_dict()["running.covariance"], without.state_dict()["running.covariance"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_sample_that_is_not_finite_is_refused_and_c_0_kept(value):
    istar = IStar(1.0)
    istar.refresh(batches())
    before = istar.state_dict()["running.covariance"].clone()
    rows = torch.ones(5, 4)
    rows[2, 1] = value
    with pytest.raises(InputError, match="the sample has entries that are not finite, or too large to be squared"):
        istar.refresh([torch.ones(3, 4), rows])
    assert torch.equal(istar.state_dict()["running.covariance"], before)


def test_without_momentum_only_refresh_sets_c_0():
    istar = IStar(1.0)
    istar(batches(1)[0][0])
    assert istar.running.covariance is None


def test_state_dict_round_trip():
    istar = IStar(1.0)
    assert istar.state_dict() == {}
    istar.refresh(batches())
    state = istar.state_dict()
    assert list(state) == ["running.covariance"]
    again = IStar(1.0)
    again.load_state_dict(state)  # strictly
    hidden = batches(1, seed=3)[0][0]
    assert float(again(hidden)) == float(istar(hidden))
    other = IStar(1.0)
    other.refresh(torch.eye(7))  # another dimension
    other.load_state_dict(state)
    assert torch.equal(other.state_dict()["running.covariance"], state["running.covariance"])
    other.load_state_dict(IStar(1.0).state_dict())
    assert other.running.covariance is None


def test_inside_a_model_it_goes_to_its_device_but_keeps_its_precision():
    model = torch.nn.ModuleDict({"layer": torch.nn.Linear(4, 4), "istar": IStar(1.0)})
    model["istar"].refresh(batches())
    before = model["istar"].running.covariance.clone()
    model.to(torch.bfloat16).half().float()
    assert torch.equal(model["istar"].running.covariance, before)
    assert model.to("meta")["istar"].running.covariance.device.type == "meta"


def test_a_buffer_elsewhere_follows_the_rows():
    running = RunningCovariance()
    running.refresh(batches())
    assert running.covariance is not None
    running.covariance = running.covariance.float()
    moments = second_moments([torch.randn(5, 4)])
    found = running.like(moments)
    assert found is not None and found.dtype == moments.M2.dtype == torch.float64


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ([], "there are no batches"),
        (torch.ones(1, 3), "sample has 1 row; expected at least 2"),
        ([torch.ones(5, 3), torch.ones(5, 4)], "dimension 3 and 4 cannot be merged"),
        ([torch.ones(2)], r"shape \(2,\); expected floating point"),
        ([(torch.ones(2, 3, 4), torch.ones(2, 3))], r"the mask is float32 of shape \(2, 3\); expected \(2, 3\), true"),
        ([[torch.ones(2, 3, 4), torch.ones(2, 3)]], r"the mask is float32 of shape \(2, 3\); expected"),
        ([[torch.ones(2, 3, 4), torch.ones(2, 2).bool()]], r"the mask is bool of shape \(2, 2\); expected"),
        ([([torch.ones(2, 3, 4)] * 2, torch.ones(2, 3))], r"the mask is float32 of shape \(2, 3\); expected"),
    ],
)
def test_errors(sample, message):
    with pytest.raises(InputError, match=message):
        RunningCovariance().refresh(sample)

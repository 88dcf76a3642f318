"""The covariance that IsoScore* shrinks towards: of a sample in batches, averaged, saved, moved."""

import numpy as np
import pytest
import torch

from clip_geometry.registry import InputError
from clip_geometry.training.losses import IStar


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
    istar = IStar(1.0)
    for sample in (rows, iter(given), [hidden[mask] for hidden, mask in given]):
        istar.refresh(sample)
        assert istar.covariance is not None
        assert np.allclose(istar.covariance, expected, rtol=1e-12, atol=1e-12)


def test_a_batch_may_be_layers_and_a_sample_may_have_a_mask():
    (hidden, mask), istar = batches(1)[0], IStar(1.0)
    istar.refresh([([hidden, 2 * hidden], mask)])
    expected = np.cov(torch.cat([hidden[mask], 2 * hidden[mask]]).numpy().T)
    assert np.allclose(istar.covariance, expected, rtol=1e-12, atol=1e-12)
    istar.refresh([(hidden, 2 * hidden)])  # two tensors of numbers are two layers, no mask
    assert np.allclose(istar.covariance, np.cov(torch.cat([hidden, 2 * hidden]).view(-1, 4).numpy().T))
    istar.refresh(hidden, mask)
    assert np.allclose(istar.covariance, np.cov(hidden[mask].numpy().T))
    for batch in ([hidden, mask], [hidden, mask.long()], [[hidden, 2 * hidden], mask], [hidden, None]):
        istar.refresh([tuple(batch)])
        expected = istar.covariance
        istar.refresh([batch])  # a list, as a DataLoader gives them
        assert torch.equal(istar.covariance, expected)
    istar.refresh([[hidden, 2 * hidden]])
    assert np.allclose(istar.covariance, np.cov(torch.cat([hidden, 2 * hidden]).view(-1, 4).numpy().T))


def test_momentum_averages_the_batches_of_training():
    istar = IStar(1.0, momentum=0.25)
    parts = [np.cov(hidden[mask].numpy().T) for hidden, mask in batches(3)]
    expected = None
    for (hidden, mask), part in zip(batches(3), parts, strict=True):
        istar(hidden, mask)
        expected = part if expected is None else 0.75 * expected + 0.25 * part
        assert np.allclose(istar.covariance, expected, rtol=1e-12)
    istar.eval()(batches(1)[0][0])
    assert np.allclose(istar.covariance, expected, rtol=1e-12)  # as batch norm does


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
    assert torch.equal(istar.state_dict()["covariance"], without.state_dict()["covariance"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_sample_that_is_not_finite_is_refused_and_c_0_kept(value):
    istar = IStar(1.0)
    istar.refresh(batches())
    before = istar.state_dict()["covariance"].clone()
    rows = torch.ones(5, 4)
    rows[2, 1] = value
    with pytest.raises(InputError, match="or entries that are not finite or too large to be squared"):
        istar.refresh([torch.ones(3, 4), rows])
    assert torch.equal(istar.state_dict()["covariance"], before)


def test_state_dict_round_trip():
    istar = IStar(1.0)
    assert istar.state_dict() == {}
    istar.refresh(batches())
    state = istar.state_dict()
    assert list(state) == ["covariance"]
    again = IStar(1.0)
    again.load_state_dict(state)  # strictly
    hidden = batches(1, seed=3)[0][0]
    assert float(again(hidden)) == float(istar(hidden))
    other = IStar(1.0)
    other.refresh(torch.eye(7))  # another dimension
    other.load_state_dict(state)
    assert torch.equal(other.state_dict()["covariance"], state["covariance"])
    other.load_state_dict(IStar(1.0).state_dict())
    assert other.covariance is None


def test_inside_a_model_it_goes_to_its_device_but_keeps_its_precision():
    model = torch.nn.ModuleDict({"layer": torch.nn.Linear(4, 4), "istar": IStar(1.0)})
    model["istar"].refresh(batches())
    before = model["istar"].covariance.clone()
    model.to(torch.bfloat16).half().float()
    assert torch.equal(model["istar"].covariance, before)
    assert model.to("meta")["istar"].covariance.device.type == "meta"


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ([], "the sample has no batches"),
        (torch.ones(1, 3), "the sample has fewer than 2 rows, or entries that are not finite"),
        ([torch.ones(5, 3), torch.ones(5, 4)], "dimension 3 and 4 cannot be merged"),
        ([torch.ones(2)], r"float32 \(2,\); expected floating point"),
        ([(torch.ones(2, 3, 4), torch.ones(2, 3))], "the same for every layer"),
        ([[torch.ones(2, 3, 4), torch.ones(2, 2).bool()]], r"the mask is \(2, 2\); expected \(2, 3\)"),
        (3, "the sample is a int; expected a tensor, or batches, each with its own mask"),
    ],
)
def test_errors(sample, message):
    with pytest.raises(InputError, match=message):
        IStar(1.0).refresh(sample)

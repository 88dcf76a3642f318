"""IStar against eigenvalues, the authors' package, finite differences and itself on several processes."""

import doctest
import warnings

import numpy as np
import pytest
import torch

from clip_geometry.geometry import isoscore, isoscore_star
from clip_geometry.registry import InputError
from clip_geometry.training import losses
from clip_geometry.training.losses import CosReg, IStar
from support.clouds import cone, rotation
from support.distributed import run_several
from support.distributed_losses import istar_of_several, layers_of, network, tokens


def cloud(n, d, seed):
    """Rows with a mean away from the origin, and the covariance of a larger, rotated cloud."""
    rng = np.random.default_rng([seed, n, d])
    return cone(n, d, rng), np.cov((cone(20 * d, d, rng) @ rotation(d, rng)).T)


def by_eigenvalues(x, c_0, zeta):
    """The published algorithm, steps 3 to 9, in float64."""
    d = x.shape[1]
    values = np.linalg.eigvalsh((1 - zeta) * np.cov(x.T) + zeta * c_0)
    scaled = np.sqrt(d) * values / np.linalg.norm(values)
    defect = np.linalg.norm(scaled - 1) / np.sqrt(2 * (d - np.sqrt(d)))
    phi = (d - defect**2 * (d - np.sqrt(d))) ** 2 / d**2
    return (d * phi - 1) / (d - 1)


def with_c_0(c_0, **options):
    loss = IStar(1.0, **options)
    loss.covariance = torch.as_tensor(c_0)
    return loss


@pytest.mark.parametrize(
    ("zeta", "n", "d", "seed"), [(0.0, 50, 16, 0), (0.2, 7, 20, 1), (0.2, 400, 9, 2), (0.7, 50, 16, 1), (1.0, 7, 20, 0)]
)
def test_agrees_with_eigenvalues_and_with_the_authors_package(zeta, n, d, seed):
    from IsoScore.IsoScore import IsoScore_star

    x, c_0 = cloud(n, d, seed)
    expected = by_eigenvalues(x, c_0, zeta)
    assert float(isoscore_star(x, c_0, zeta=zeta)) == pytest.approx(expected, abs=1e-9)
    assert 1 - float(with_c_0(c_0, zeta=zeta)(torch.from_numpy(x))) == pytest.approx(expected, abs=1e-9)
    # the package takes its square roots in float32
    assert expected == pytest.approx(float(IsoScore_star(x, torch.from_numpy(c_0), zeta)), abs=1e-6)


@pytest.mark.parametrize("c_0", [None, torch.diag(torch.tensor([1.0, 2, 3, 4]).double())])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients(c_0, masked):
    generator = torch.Generator().manual_seed(0)
    layers = [torch.randn(3, 4, 4, dtype=torch.float64, generator=generator, requires_grad=True) for _ in range(2)]
    mask = torch.arange(4) < torch.tensor([[4], [2], [3]]) if masked else None
    loss = IStar(-1.5, zeta=0.3)
    loss.covariance = c_0
    assert torch.autograd.gradcheck(lambda *layers: loss(layers, mask), layers)
    loss(layers, mask).backward()
    grad = layers[0].grad
    assert grad is not None and (grad[1, 2:] == 0).all() == masked


def test_layers_are_stacked_and_padding_is_left_out():
    generator = torch.Generator().manual_seed(0)
    layers = [torch.randn(2, 5, 3, dtype=torch.float64, generator=generator) * k for k in (1, 2, 3)]
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]])
    rows = torch.cat([layer[mask.bool()] for layer in layers])
    loss = IStar(1.0)
    assert float(loss(layers, mask)) == pytest.approx(1 - float(isoscore(rows)), abs=1e-13)
    assert float(loss(tuple(layers))) == pytest.approx(1 - float(isoscore(torch.cat(layers).view(-1, 3))), abs=1e-13)
    assert float(loss(layers[0][0])) == pytest.approx(1 - float(isoscore(layers[0][0])), abs=1e-13)


@pytest.mark.parametrize("offset", [0, 100])
def test_float32_rows_far_from_the_origin(offset):
    """Spread 1 at a mean of 100: an uncentered float32 product would keep three digits of the covariance."""
    x, c_0 = cloud(500, 40, 1)
    rows = torch.from_numpy(x + offset).float()
    expected = float(isoscore_star(rows.double(), c_0, zeta=0.2))
    assert 1 - float(with_c_0(c_0)(rows)) == pytest.approx(expected, abs=2e-7)


@pytest.mark.parametrize("offset", [0, 1000])
@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_of_float32_rows_far_from_the_origin(offset, masked):
    """Against float64 for the same float32 rows, in more than one block. A product with rows that are not centered has
    an error of 3e-5 at an offset of 1000."""
    x, c_0 = cloud(3000, 20, 1)
    rows = torch.from_numpy(x + offset).float()
    mask = torch.arange(3000) % 3 > 0 if masked else None
    single, double = rows.clone().requires_grad_(), rows.double().requires_grad_()
    with_c_0(c_0)(single, mask).backward()
    with_c_0(c_0)(double, mask).backward()
    assert single.grad is not None and double.grad is not None
    assert float((single.grad - double.grad).norm() / double.grad.norm()) < 1e-6
    if mask is not None:
        assert not single.grad[~mask].any()


def test_many_columns_and_rows_cross_blocks_and_strips():
    """More rows than a block and more columns than two strips, no multiples of either."""
    x, c_0 = cloud(4500, 150, 0)
    assert 1 - float(with_c_0(c_0)(torch.from_numpy(x))) == pytest.approx(by_eigenvalues(x, c_0, 0.2), abs=1e-12)


def test_a_first_block_far_from_the_rest_costs_no_digits():
    """Rows are centered near the first block's mean, which sorted rows put at the edge of the cloud."""
    x, c_0 = cloud(9000, 8, 2)
    rows = torch.from_numpy(x[np.argsort(x[:, 0])]).float() + 50
    expected = float(isoscore_star(rows.double(), c_0, zeta=0.2))
    assert 1 - float(with_c_0(c_0)(rows)) == pytest.approx(expected, abs=1e-6)


def test_half_precision_and_autocast_are_computed_in_float32():
    x, c_0 = cloud(300, 20, 0)
    rows = torch.from_numpy(x).bfloat16()
    expected = 1 - float(isoscore_star(rows.double(), c_0, zeta=0.2))
    given = rows.clone().requires_grad_()
    value = with_c_0(c_0)(given)
    value.backward()
    assert value.dtype == torch.float32 and given.grad is not None and given.grad.dtype == torch.bfloat16
    assert float(value.detach()) == pytest.approx(expected, abs=1e-6)
    single = rows.float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = with_c_0(c_0)(single)
        value.backward()
    assert float(value.detach()) == pytest.approx(expected, abs=1e-6)
    double = rows.double().requires_grad_()
    with_c_0(c_0)(double).backward()
    assert single.grad is not None and double.grad is not None
    assert float((single.grad - double.grad).norm() / double.grad.norm()) < 1e-5  # a bfloat16 product: 1e-3


def test_nothing_is_decomposed():
    """Gradients where all eigenvalues are equal, which those of a decomposition are not."""
    x = torch.cat([torch.eye(5), -torch.eye(5)]).double().requires_grad_()
    IStar(1.0)(x).backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()


def test_a_second_derivative_is_refused_rather_than_wrong():
    x = torch.randn(9, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    (gradient,) = torch.autograd.grad(IStar(1.0)(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.slow
def test_two_processes_give_the_value_and_the_gradient_of_one(tmp_path):
    """Unequal batches and masks through DistributedDataParallel, against one process with all rows: 1e-12."""
    world = 2
    found = run_several(istar_of_several, world, tmp_path)
    model, loss = network(), IStar(-2.0, zeta=0.3, momentum=0.25)
    given = [tokens(rank) for rank in range(world)]
    with torch.no_grad():
        loss.refresh([(layers_of(model, rows), mask) for rows, mask in given])
    c_0 = loss.covariance
    assert c_0 is not None
    leaves = [rows.requires_grad_() for rows, _ in given]
    parts = [layers_of(model, rows) for rows in leaves]
    together = [torch.cat([part[k][mask] for part, (_, mask) in zip(parts, given, strict=True)]) for k in range(2)]
    value = loss(together)
    value.backward()
    for rank, part in enumerate(found):
        assert close(part["refreshed"], c_0)
        assert float(part["value"]) == pytest.approx(float(value.detach()), rel=1e-12)
        assert close(part["running"], loss.covariance)
        for ours, parameter in zip(part["parameters"], model.parameters(), strict=True):
            assert close(ours, parameter.grad, leaves[0].grad.norm())  # DDP has averaged; a bias has no gradient
        # each process had the loss, so the gradient of rows is that of their sum
        assert close(part["rows"] / world, leaves[rank].grad)
    assert float(model.weight.grad.norm()) > 1e-3
    # in eval mode one process is by itself
    rows, mask = given[0]
    loss.covariance = found[0]["running"]
    alone = loss.eval()(layers_of(model, rows.detach()), mask)
    assert float(found[0]["alone"]) == pytest.approx(float(alone.detach()), rel=1e-12)
    assert abs(float(alone.detach()) - float(value.detach())) > 1e-3


def close(found, expected, scale=None):
    """Within 1e-12 of the norm, of the expected value unless another is given."""
    scale = expected.norm() if scale is None else scale
    return float((found - expected).norm()) <= 1e-12 * float(scale)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: IStar(float("nan")), "lambda_ = nan; expected a finite weight"),
        (lambda: IStar(1.0, zeta=1.2), "zeta = 1.2; expected a share from 0"),
        (lambda: IStar(1.0, momentum=0.0), "momentum = 0.0; expected the weight"),
        (lambda: IStar(1.0)(None), "hidden states are a NoneType; expected a tensor, or a list"),
        (lambda: IStar(1.0)(torch.eye(3).to_sparse()), "a layer of hidden states is a torch.sparse_coo tensor on cpu"),
        (lambda: IStar(1.0)(torch.eye(3), [1, 1, 1]), r"the mask is list; expected \(3,\), true or 1"),
        (lambda: IStar(1.0).refresh(3), "the sample is a int; expected a tensor, or batches"),
        (lambda: IStar(1.0)(torch.ones(4, 3)), "all 4 hidden states are equal"),
        (lambda: IStar(1.0)(torch.eye(3)[:1]), "are 1 × 3 numbers; expected at least 2 rows"),
        (lambda: IStar(1.0)([]), "hidden states are an empty list; expected floating point"),
        (lambda: IStar(1.0)(torch.ones(3)), r"hidden states are float32 \(3,\); expected floating point"),
        (lambda: IStar(1.0)([torch.eye(3), torch.eye(2)]), r"\(3, 3\), float32 \(2, 2\); expected"),
        (lambda: IStar(1.0)(torch.ones(0, 2)), r"float32 \(0, 2\); expected"),
        (lambda: IStar(1.0)(torch.ones(2, 3, 4), torch.ones(2, 4)), r"mask is \(2, 4\); expected \(2, 3\)"),
        (lambda: IStar(1.0)(torch.ones(2, 3, 4), torch.zeros(2, 3).bool()), "mask leaves out all 6 rows"),
        (lambda: with_c_0(np.eye(4))(torch.eye(3)), "C_0 has dimension 4, but the hidden states have 3"),
    ],
)  # fmt: skip
def test_errors(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("bad", [float("inf"), float("nan"), 1e25])
@pytest.mark.parametrize("make", [lambda: IStar(-1.0, momentum=0.5), lambda: CosReg(1.0)], ids=["i_star", "cosreg"])
def test_a_step_that_overflows_is_skipped_by_the_grad_scaler(make, bad):
    """As in half precision: the weights, the optimizer and C_0 stay as they were, and the scale is halved."""
    if bad == 1e25 and isinstance(make(), CosReg):
        return  # which has a value for rows of any scale
    torch.manual_seed(0)
    model, penalty, x = torch.nn.Linear(4, 4), make(), torch.randn(8, 4)
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(rows):
        optimizer.zero_grad()
        loss = penalty(model(rows))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    assert step(x).isfinite() and scaler.get_scale() == 1024
    before = {name: value.clone() for name, value in [*model.state_dict().items(), *penalty.state_dict().items()]}
    spoilt = x.clone()
    spoilt[2, 1] = bad
    assert step(spoilt).isnan() and scaler.get_scale() == 512
    after = {**model.state_dict(), **penalty.state_dict()}
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert step(x).isfinite() and scaler.get_scale() == 512
    assert not torch.equal(model.weight, before["weight"])


def test_the_examples_in_the_docstrings_run():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = doctest.testmod(losses)
    assert result.attempted > 3 and result.failed == 0


def test_the_gradient_is_that_of_isoscore_star():
    x, c_0 = cloud(40, 6, 0)
    ours, theirs = (torch.from_numpy(x).requires_grad_() for _ in range(2))
    with_c_0(c_0, zeta=0.2)(ours).backward()
    (1 - isoscore_star(theirs, c_0, zeta=0.2)).backward()
    assert ours.grad is not None and theirs.grad is not None
    assert float((ours.grad - theirs.grad).norm() / theirs.grad.norm()) < 1e-12

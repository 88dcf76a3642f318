"""What the processes of a distributed test of the losses run; importable where pytest's own modules are not."""

import torch
from torch.nn.parallel import DistributedDataParallel

from clip_geometry.training import IStar

LAYERS = 2


def tokens(rank):
    """Unequal batches: (3, 7, 5) and (2, 4, 5) tokens, with unequal masks."""
    shape, generator = ((3, 7), (2, 4))[rank], torch.Generator().manual_seed(rank)
    rows = torch.randn(*shape, 5, dtype=torch.float64, generator=generator) + 3.0
    lengths = torch.tensor([7, 2, 4] if rank == 0 else [4, 1])
    return rows, torch.arange(shape[1]) < lengths[:, None]


def network():
    generator = torch.Generator().manual_seed(9)
    layer = torch.nn.Linear(5, 5, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return layer


def layers_of(model, rows):
    """Two layers, so that there is something to stack."""
    return [rows, model(rows)]


def istar_of_several(rank, world):
    """A step of DistributedDataParallel: C_0 from both processes' samples, value, gradients of rows and parameters."""
    model, istar = DistributedDataParallel(network()), IStar(-2.0, zeta=0.3, momentum=0.25)
    rows, mask = tokens(rank)
    found = {}
    with torch.no_grad():
        istar.refresh([(layers_of(network(), rows), mask)])
    found["refreshed"] = istar.covariance.clone()
    rows.requires_grad_()
    value = istar(layers_of(model, rows), mask)
    value.backward()
    found |= {"value": value.detach(), "rows": rows.grad, "running": istar.covariance}
    found["parameters"] = [parameter.grad for parameter in model.parameters()]
    if rank == 0:  # of this process alone: nobody waits
        found["alone"] = istar.eval()(layers_of(network(), rows), mask).detach()
    return found

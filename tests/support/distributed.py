"""What the processes of a distributed test run; importable where pytest's own modules are not."""

import os

import numpy as np
import torch

from clip_geometry import Moments
from clip_geometry.geometry import isoscore

FIELDS = ("mean", "M2", "T", "Q")


def leave():
    """Ends the process, together with the others; without the destructors of torch's threads, which were seen to
    abort a process that had done its work ("terminate called without an active exception")."""
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    os._exit(0)


def reduce_moments(rank, world, port, x, folder):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    rows = torch.from_numpy(np.array_split(x, [70])[rank]).requires_grad_()
    moments = Moments.of(rows).all_reduce()
    score = isoscore(moments, unbiased=True)
    score.backward()
    fields = {name: getattr(moments, name).detach() for name in FIELDS}
    torch.save({"n": moments.n, "score": score.detach(), "grad": rows.grad, **fields}, f"{folder}/{rank}.pt")
    leave()

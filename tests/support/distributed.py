"""Tests of several processes: starts them, and what one of them runs; importable where pytest's own modules are not."""

import os
import socket
from pathlib import Path

import numpy as np
import torch

from clip_geometry import Moments
from clip_geometry.geometry import isoscore

FIELDS = ("mean", "M2", "T", "Q")


def run_several(job, world, folder, *given):
    """What `job(rank, world, *given)` returns in each of so many processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_joined, (job, world, port, str(folder), *given), nprocs=world)
    return [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(world)]


def _joined(rank, job, world, port, folder, *given):
    """Ends together with the others; without the destructors of torch's threads, which were seen to abort a process
    that had done its work ("terminate called without an active exception")."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    torch.save(job(rank, world, *given), f"{folder}/{rank}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    os._exit(0)


def reduce_moments(rank, world, x):
    rows = torch.from_numpy(np.array_split(x, [70])[rank]).requires_grad_()
    moments = Moments.of(rows).all_reduce()
    score = isoscore(moments, unbiased=True)
    score.backward()
    fields = {name: getattr(moments, name).detach() for name in FIELDS}
    return {"n": moments.n, "score": score.detach(), "grad": rows.grad, **fields}

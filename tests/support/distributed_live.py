"""What the processes of a distributed test of the live metric run; importable where pytest's own modules are not."""

import warnings

import torch

from clip_geometry.training import EmbeddingGeometry, GeometryMonitor

EMPTY = 3  # the process that has no rows in the second metric


def pairs(n=330, d=24):
    """Aligned rows with a gap, a cone and unequal variances, one of them invalid."""
    generator = torch.Generator().manual_seed(4)
    image, noise = torch.randn(2, n, d, dtype=torch.float64, generator=generator)
    scale = torch.linspace(0.2, 2, d, dtype=torch.float64)
    image, text = image * scale + 1, image * scale + 0.8 * noise - 0.3
    text[17] = 0
    return image, text


def share(rank, world, rows):
    """Unequal parts: process r has every row whose number leaves a remainder that belongs to it."""
    numbers = torch.arange(len(rows)) % 10
    bounds = torch.linspace(0, 10, world + 1).round().long()
    return rows[(numbers >= bounds[rank]) & (numbers < bounds[rank + 1])]


def measured(metric, image, text, size=23):
    for start in range(0, len(image), size):
        metric.update(image=image[start : start + size], text=text[start : start + size])
    return {name: float(value) for name, value in metric.compute().items()}


def metrics():
    """The default, and one with a small sample."""
    return {"default": EmbeddingGeometry(), "few": EmbeddingGeometry(kept=40, seed=3)}


def metric_of_several(rank, world):
    warnings.simplefilter("ignore", UserWarning)  # of compute before update, in the process without rows
    image, text = pairs()
    found = {}
    for name, metric in metrics().items():
        found[name] = measured(metric, share(rank, world, image), share(rank, world, text))
        found[f"{name}, alone again"] = {"n": float(metric.sums.n)}
    part = (share(rank, EMPTY, image), share(rank, EMPTY, text)) if rank != EMPTY else (image[:0], text[:0])
    found["a process without rows"] = measured(EmbeddingGeometry(), *part)
    logged = {}
    monitor = GeometryMonitor(lambda scalars, step: logged.update(scalars), every=1, batches=1)
    monitor.step(1, image=share(rank, world, image), text=share(rank, world, text))
    found["monitor"] = {name.removeprefix("geometry/"): value for name, value in logged.items()}
    return found

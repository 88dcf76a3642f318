"""The runtime of encoders: device, exact float32, seeded initialization, quiet logs and a memory limit."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from clip_geometry.encoders.base import BatchNormOption
from clip_geometry.memory import memory
from clip_geometry.registry import InputError, instance

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MAX_TENSORS = 50_000  # per model


def resolve_device(device: str = "auto") -> torch.device:
    """Return the device with this name; "auto" is the first GPU if there is one, else the CPU."""
    instance(device, str | torch.device, "device", "auto, cpu, cuda or cuda:NUMBER")
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError:
        raise InputError(f"device is {device!r}; expected auto, cpu, cuda or cuda:NUMBER") from None
    gpus = torch.cuda.device_count() if resolved.type == "cuda" else 0
    if resolved.type == "cuda" and (resolved.index or 0) >= gpus:
        raise InputError(f"device {device!r} was requested, but PyTorch sees {gpus} GPUs; use auto or cpu")
    return resolved


@contextmanager
def inference() -> Iterator[None]:
    """Disable gradients and TF32, so that float32 is exact; the caller's settings are restored afterwards."""
    backends: Any = torch.backends
    operations = (backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul, backends.mkldnn.conv)
    precisions = [operation.fp32_precision for operation in operations]
    try:
        for operation in operations:
            operation.fp32_precision = "ieee"
        with torch.no_grad():
            yield
    finally:
        for operation, precision in zip(operations, precisions, strict=True):
            operation.fp32_precision = precision


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Seed the initialization of weights, which always happens on the CPU; global generators are left unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also reseed the GPUs
        yield


def set_mode(model: torch.nn.Module, config: BatchNormOption) -> None:
    """Put a model into eval mode; if the config says so, its batch norm layers use the statistics of each batch."""
    model.eval()
    if config.batch_norm == "eval":
        return
    layers = [module for module in model.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    if not layers:
        raise InputError(f"{config.model} has no batch norm layers; leave batch_norm at eval")
    for layer in layers:
        layer.train()
        layer.track_running_stats = False  # running statistics are neither used nor updated


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Silence open_clip, which logs that a model is fresh to the root logger and thereby configures it."""
    root = logging.getLogger()
    handler = logging.NullHandler()
    disabled = root.manager.disable
    root.addHandler(handler)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)
        root.removeHandler(handler)


@contextmanager
def bounded(name: str) -> Iterator[None]:
    """Raise InputError if a model that is built on the meta device in the block would not fit into memory.

    No memory has been allocated at that point. A config of a few bytes can declare a model of terabytes, or of a
    billion layers.
    """
    from torch.nn.modules import module

    count = size = 0
    limit = memory()

    def add(owner: torch.nn.Module, key: str, tensor: Any) -> None:
        nonlocal count, size
        if isinstance(tensor, torch.Tensor) and tensor.is_meta:
            count += 1
            size += tensor.numel() * tensor.element_size()
        if count > MAX_TENSORS or size > limit:
            raise InputError(
                f"the config of {name} declares a model of at least {count} tensors and {size / 1e9:.3g} GB, more than "
                f"fits into {limit / 1e9:.3g} GB of memory"
            )

    hooks = [module.register_module_parameter_registration_hook(add)]
    hooks.append(module.register_module_buffer_registration_hook(add))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()

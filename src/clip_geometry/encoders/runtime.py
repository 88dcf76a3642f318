"""What every encoder needs of the machine: a device, exact float32, RGB pixels."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from PIL import Image

from clip_geometry.registry import InputError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_device(device: str = "auto") -> torch.device:
    """ "auto": the first GPU if there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise InputError(f"device is {device!r}; expected auto, cpu, cuda or cuda:NUMBER") from None
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {device!r} was asked for, but PyTorch sees {torch.cuda.device_count()} GPUs; use auto or cpu"
        )
    return chosen


def _float32_switches() -> list[tuple[Any, str, Any]]:
    """(where, name, value) of the settings that allow TF32 or bfloat16 inside float32 products."""
    backends: Any = torch.backends
    if hasattr(backends.cuda.matmul, "fp32_precision"):  # PyTorch 2.9; mixing it with allow_tf32 is an error there
        places = (backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul, backends.mkldnn.conv)
        return [(place, "fp32_precision", "ieee") for place in places]
    return [(backends.cuda.matmul, "allow_tf32", False), (backends.cudnn, "allow_tf32", False)]


@contextmanager
def inference() -> Iterator[None]:
    """No gradients and float32 that is float32: TF32 is off inside, the caller's settings are back outside."""
    switches = _float32_switches()
    before = [getattr(place, name) for place, name, _ in switches]
    try:
        for place, name, value in switches:
            setattr(place, name, value)
        with torch.no_grad():
            yield
    finally:
        for (place, name, _), value in zip(switches, before, strict=True):
            setattr(place, name, value)


def rgb(image: Image.Image) -> Image.Image:
    """Any PIL mode as RGB. First of all, because resizing a palette image would not interpolate."""
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def parameter_count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def activations(model: torch.nn.Module) -> str:
    """The activation functions in a model by the names of their classes: "QuickGELU", "GELU, ReLU"."""
    names = {type(module).__name__.removesuffix("Activation") for module in model.modules()}
    return ", ".join(sorted(name for name in names if name.lower().endswith(("gelu", "relu", "silu"))))


@contextmanager
def quiet_logging() -> Iterator[None]:
    """open_clip logs to the root logger, which would configure it and print that a fresh model is fresh."""
    root, silent = logging.getLogger(), logging.NullHandler()

    def errors_only(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    root.addHandler(silent)
    root.addFilter(errors_only)
    try:
        yield
    finally:
        root.removeFilter(errors_only)
        root.removeHandler(silent)

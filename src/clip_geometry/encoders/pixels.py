"""open_clip's evaluation transform in two halves: the steps on a PIL image, and the arithmetic on its pixels.

Between the halves an image is bytes, a quarter of its size as float32, to be sent to another process or a GPU.
"""

from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from clip_geometry.data.images import rgb


@dataclass(frozen=True)
class Pixels:
    """`normalize(cut(image))` equals the transform bit for bit, on any device.

    Pillow resizes: torch's interpolation rounds otherwise, in about 15 % of the pixels of CIFAR-100.

    steps: of the transform, on a PIL image. size: (height, width) of their result.
    """

    steps: tuple[Any, ...]
    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def cut(self, image: Image.Image) -> Tensor:
        """(3, height, width) uint8."""
        from torchvision.transforms.functional import pil_to_tensor

        image = rgb(image)
        for step in self.steps:
            image = step(image)
        return pil_to_tensor(rgb(image)).contiguous()

    def normalize(self, pixels: Tensor) -> Tensor:
        """uint8 → float32. Divides by tensors, since a GPU turns division by a number into an inexact product."""
        whole, mean, std = (
            torch.tensor(values, dtype=torch.float32, device=pixels.device)
            for values in ((255.0,), self.mean, self.std)
        )
        return pixels.to(torch.float32).div_(whole).sub_(mean[:, None, None]).div_(std[:, None, None])


def halves(transform: Any) -> Pixels | None:
    """The halves of open_clip's evaluation transform; None for a transform with other steps."""
    steps: list[Any] = list(getattr(transform, "transforms", ()))
    names = [type(step).__name__ for step in steps]
    if len(steps) < 4 or names[-3:] != ["MaybeConvertMode", "MaybeToTensor", "Normalize"]:
        return None
    if not set(names[:-3]) <= {"Resize", "CenterCrop", "ResizeKeepRatio", "CenterCropOrPad", "SquareCrop"}:
        return None
    size = steps[-4].size  # both of the steps that may come last give exactly this size
    if isinstance(size, int) or len(size) != 2:
        return None
    mean, std = (tuple(float(value) for value in values) for values in (steps[-1].mean, steps[-1].std))
    return Pixels(tuple(steps[:-3]), (int(size[0]), int(size[1])), mean, std)

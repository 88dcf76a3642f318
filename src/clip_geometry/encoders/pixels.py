"""The evaluation transform of open_clip or timm in two halves: the steps on a PIL image, the arithmetic on pixels.

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
    """The halves of an evaluation transform of open_clip or timm; None for a transform with other steps."""
    steps: list[Any] = list(getattr(transform, "transforms", ()))
    if len(steps) > 2 and type(steps[-3]).__name__ == "MaybeConvertMode":  # of open_clip; the images are RGB
        del steps[-3]
    names = [type(step).__name__ for step in steps]
    if len(steps) < 3 or names[-2:] != ["MaybeToTensor", "Normalize"]:
        return None
    if not set(names[:-2]) <= {"Resize", "CenterCrop", "ResizeKeepRatio", "CenterCropOrPad", "SquareCrop"}:
        return None
    size = steps[-3].size  # both of the steps that may come last give exactly this size
    if isinstance(size, int) or len(size) != 2:
        return None
    mean, std = (tuple(float(value) for value in values) for values in (steps[-1].mean, steps[-1].std))
    return Pixels(tuple(steps[:-2]), (int(size[0]), int(size[1])), mean, std)

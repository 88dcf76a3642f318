"""What CLIP training and text-tower distillation share: options, measured states, the cell, and the saved folder."""

import math
import shutil
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from clip_geometry.config import Config
from clip_geometry.data.base import DatasetConfig
from clip_geometry.encoders.open_clip import scenes_folder
from clip_geometry.evaluate import zero_shot
from clip_geometry.files import write_atomically
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit.base import Cell, Experiment, data_options
from clip_geometry_experiments.kit.training import Checkpoint, context, means_between, trajectory

LR = 8e-3
ZERO_SHOT = "zero_shot.top_1"


class OptimizerConfig(Config):
    """Options of AdamW with betas 0.9 and `beta2`. Vectors (biases, norms) and the temperature do not decay.

    Args:
        steps: Number of training steps.
        batch_size: Pairs or texts per step.
        lr: Peak learning rate. It rises from 0 during the warmup and falls to 0 along a cosine.
        warmup: Fraction of the steps that are warmup.
        weight_decay: Weight decay of matrices.
        beta2: The second beta of AdamW.
        clip: Largest norm of a gradient; null for no limit.
        precision: Precision of the forward pass; auto is bf16 on a GPU and fp32 on a CPU.
        class_captions: Fraction of captions that only name the class, using one of the prompts, so that shapes are
            learned before position, size and background.
    """

    steps: int = Field(default=1000, ge=1)
    batch_size: int = Field(default=256, ge=2)
    lr: float = Field(default=LR, gt=0)
    warmup: float = Field(default=0.05, ge=0, lt=1)
    weight_decay: float = Field(default=0.1, ge=0)
    beta2: float = Field(default=0.98, gt=0, lt=1)
    clip: float | None = Field(default=1.0, gt=0)
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    class_captions: float = Field(default=0.0, ge=0, le=1)


def with_a_place(prompts: Iterable[str]) -> tuple[str, ...]:
    """Return the prompts as a tuple.

    Raises:
        InputError: If a prompt does not contain the placeholder of the class name, {}, exactly once.
    """
    for prompt in prompts:
        if prompt.count("{}") != 1:
            raise InputError(f"prompt {prompt!r} contains {{}} {prompt.count('{}')} times; expected once")
    return tuple(prompts)


def measured_steps(steps: int, measurements: int) -> list[int]:
    """Return about `measurements` steps, from 0 to the last step, after which states are measured.

    These are 0 and the powers of two (1, 2, 4, 8, …) while their spacing is below that of the evenly spaced steps, then
    the evenly spaced steps, and the last step. With two measurements, they are the first and the last step.

    Args:
        steps: Number of training steps.
        measurements: Number of measured states.

    Returns:
        The steps in ascending order.
    """
    if measurements == 2:
        return [0, steps]
    best: list[int] = []
    for even in range(1, measurements):
        width = max(1, steps // even)
        powers = [0, *(2**k for k in range(width.bit_length()) if 2**k <= min(width, steps))]
        chosen = sorted({*powers, *range(width, steps + 1, width), steps})
        if len(chosen) > measurements and best:
            return best
        best = chosen
    return best


def zero_shot_by_class(image: Tensor, classes: Tensor, labels: np.ndarray, seen: np.ndarray) -> dict[str, float]:
    """Return top-1 accuracy among all classes, on images of classes "seen" in training and of classes "held out".

    Args:
        image: (n, d) image embeddings.
        classes: Embeddings of the class prompts.
        labels: (n,) class of each image.
        seen: Classes seen in training.

    Returns:
        "seen" and "held out" → accuracy in [0, 1]. A group without images is left out.
    """
    known = np.isin(labels, seen)
    groups = {name: mask for name, mask in (("seen", known), ("held out", ~known)) if mask.any()}
    return {
        name: float(zero_shot(image[torch.from_numpy(mask)], labels[mask], classes)["top_1"])
        for name, mask in groups.items()
    }


def copy_tokenizer(folder: Path) -> None:
    """Copy the tokenizer of scenes-clip, which every tower trained here uses, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(scenes_folder() / name, folder / name)


def save_half(model: nn.Module, path: Path) -> Path:
    """Save the weights in float16, except for counts and for tensors with values beyond its range.

    Args:
        model: The model.
        path: The file, in the safetensors format.

    Returns:
        The path of the file.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        value = value.detach().cpu().contiguous()
        half = value.half()
        tensors[name] = half if value.is_floating_point() and bool(half.isfinite().all()) else value
    write_atomically(path, save(tensors))
    return path


# --- the experiment and its records


class Place(NamedTuple):
    """Identifies a measured number.

    Args:
        measure: Name of the measure.
        of: What was measured: image, text, both, or the language of the texts.
        classes: "all", or for zero-shot accuracy the classes of the images: "seen" in training or "held out".
    """

    measure: str
    of: str = "both"
    classes: str = "all"


class TrainingStudy(Experiment):
    """An experiment with one cell: the training with all its states. The model is saved to `model_folder`."""

    def cells(self) -> Iterator[Cell]:
        yield self.cell

    @cached_property
    @abstractmethod
    def cell(self) -> Cell:
        """The only cell. Its name for readers also names the progress bar and the model's folder."""

    @cached_property
    def model_folder(self) -> Path:
        """The folder of the trained model."""
        return self.workspace.folder / "models" / f"{self.cell.what.replace(' ', '-')}-{self.cell.key[:8]}"

    @property
    def steps(self) -> list[int]:
        """The steps after which a state is measured; 0 is the state before the first step."""
        return measured_steps(self.config.steps, self.config.measurements)

    @abstractmethod
    def trainer(self) -> Any:
        """Return the trainer before its first step."""

    def trained(self, callback: Any, checkpoint: Checkpoint | None = None) -> Any:
        """Return the trainer after its last step.

        Args:
            callback: Callback that measures a state, see `Trainer.run`.
            checkpoint: Checkpoint to resume from; None to start from scratch.
        """
        trainer = self.trainer()
        trainer.run(self.steps, callback, checkpoint=checkpoint, name=self.cell.what)
        return trainer

    def context(self, data: DatasetConfig, *, without: Sequence[str] = (), **own: Any) -> Row:
        """Return the fields that all records of a data set share.

        Args:
            data: The data set.
            without: Options to leave out because they are in the `at` of the records.
            **own: Fields to replace or add.
        """
        return context(data.name, data.split, data_options(data, *without), self.config.seed, **own)


def state_record(place: Place, values: Sequence[float], steps: list[int], **fields: Any) -> Record:
    """Return one record with all states of a number.

    Its `trajectory` holds the values at `steps`, None where a value is undefined. Its value is the last one.

    Args:
        place: What the number measures.
        values: The value in each state.
        steps: The steps of the states.
        **fields: More fields of the record.
    """
    curve = trajectory(values)
    note = {"note": "not defined in the last state"} if curve[-1] is None else {}
    return Record(place.measure, curve[-1], trajectory=curve, steps=steps, **note, **fields)


def loss_record(
    measure: str, losses: Sequence[float], steps: list[int], at: Mapping[str, Any], **fields: Any
) -> Record:
    """Return a record of the mean loss of the training batches between measured states; None at the first state.

    Args:
        measure: Name of the measure.
        losses: The loss of each step.
        steps: The steps of the states.
        at: Fields of `at`; the last step is added.
        **fields: More fields of the record.
    """
    means = means_between(losses, steps)
    at = {**at, "step": steps[-1]}
    return Record(measure, means[-1], n=None, d=None, at=at, trajectory=means, steps=steps, **fields)


def share_record(measure: str, value: float, n: int, **fields: Any) -> Record:
    """Return a record of a share of n images, with its binomial standard error.

    Args:
        measure: Name of the measure.
        value: The share in [0, 1].
        n: Number of images.
        **fields: More fields of the record.
    """
    return Record(measure, value, math.sqrt(value * (1 - value) / n), n=n, **fields)

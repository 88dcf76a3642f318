"""What training a CLIP and distilling its text tower share: one cell for a training, and records of its states."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from clip_geometry.data.base import DatasetConfig
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit import trajectories
from clip_geometry_experiments.kit.base import Cell, Experiment
from clip_geometry_experiments.kit.clip_training import measured_steps
from clip_geometry_experiments.kit.training import Checkpoint, context


class Place(NamedTuple):
    """What a number is of.

    Args:
        measure: its name.
        of: image, text, both, or the language of the texts.
        classes: "all", or for zero-shot the classes of the images: "seen" in training or "held out".
    """

    measure: str
    of: str = "both"
    classes: str = "all"


class TrainingStudy(Experiment):
    """One cell: the training with all its states. The trained model is saved to `model_folder`."""

    def cells(self) -> Iterator[Cell]:
        yield self.cell

    @cached_property
    def cell(self) -> Cell:
        return self.planned()

    @abstractmethod
    def planned(self) -> Cell:
        """The cell, whose name for a person is also that of the progress bar and of the model's folder."""

    @cached_property
    def model_folder(self) -> Path:
        """Where the trained model is saved."""
        return self.workspace.folder / "models" / f"{self.cell.what.replace(' ', '-')}-{self.cell.key[:8]}"

    @property
    def steps(self) -> list[int]:
        """Steps after which a state is measured; 0 is before the first."""
        return measured_steps(self.config.steps, self.config.measurements)

    @abstractmethod
    def trainer(self) -> Any:
        """Before its first step."""

    def trained(self, callback: Any, checkpoint: Checkpoint | None = None) -> Any:
        """After its last step, resumed from the checkpoint if there is one."""
        trainer = self.trainer()
        trainer.run(self.steps, callback, checkpoint=checkpoint, name=self.cell.what)
        return trainer

    def context(self, data: DatasetConfig, *, without: Sequence[str] = (), **own: Any) -> Row:
        """What all records of a data set have in common. without: options that are in the `at` of the records."""
        options = data.model_dump(
            mode="json", serialize_as_any=True, exclude_defaults=True, exclude={"name", "split", *without}
        )
        return context(data.name, data.split, options, self.config.seed, **own)


def state_record(place: Place, values: Sequence[float], steps: list[int], **fields: Any) -> Record:
    """All states of a number in one record: `trajectory` at `steps`, None where it is undefined; its value is the
    last."""
    curve = trajectories.trajectory(values)
    note = {"note": "not defined in the last state"} if curve[-1] is None else {}
    return Record(place.measure, curve[-1], trajectory=curve, steps=steps, **note, **fields)


def loss_record(
    measure: str, losses: Sequence[float], steps: list[int], at: Mapping[str, Any], **fields: Any
) -> Record:
    """Mean loss of the training batches between two measured states; None at the first."""
    means = trajectories.means_between(losses, steps)
    at = {**at, "step": steps[-1]}
    return Record(measure, means[-1], n=None, d=None, at=at, trajectory=means, steps=steps, **fields)


def share_record(measure: str, value: float, n: int, **fields: Any) -> Record:
    """A share of n images with its standard error."""
    return Record(measure, value, math.sqrt(value * (1 - value) / n), n=n, **fields)

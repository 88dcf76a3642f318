"""What CLIP training and text-tower distillation share: one cell per training, and records of its states."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from clip_geometry.data.base import DatasetConfig
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit import trajectories
from clip_geometry_experiments.kit.base import Cell, Experiment, data_options
from clip_geometry_experiments.kit.clip_training import measured_steps
from clip_geometry_experiments.kit.training import Checkpoint, context


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
    def cell(self) -> Cell:
        """The only cell."""
        return self.planned()

    @abstractmethod
    def planned(self) -> Cell:
        """Return the cell. Its name for readers also names the progress bar and the model's folder."""

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
    curve = trajectories.trajectory(values)
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
    means = trajectories.means_between(losses, steps)
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

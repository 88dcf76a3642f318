"""A training that is measured on its way, and goes on where it stopped."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from clip_geometry.experiments.kit.checkpoint import Checkpoint, Resumable, save_measured

Place = TypeVar("Place", bound=tuple[Any, ...])


class Stepwise(Resumable, Protocol):
    """config.steps: how many there are; number: how many were taken."""

    number: int

    @property
    def config(self) -> Any: ...

    def step(self) -> None: ...


Kind = TypeVar("Kind", bound=Stepwise)


def train(
    training: Kind,
    steps: list[int],
    observe: Callable[[Kind], Mapping[Place, float]],
    checkpoint: Checkpoint | None = None,
    advance: Callable[[int], object] = lambda done: None,
    trajectory: dict[Place, list[float]] | None = None,
) -> dict[Place, list[float]]:
    """Place → its values in the states of `steps`, 0 being the one before the first step.

    trajectory: of the states before training.number, as `resume` has them. checkpoint: written when it is due, and not
    removed at the end. advance: called with 1 after each step.
    """
    trajectory = {} if trajectory is None else trajectory
    wanted = set(steps)
    while True:
        if training.number in wanted:
            for place, value in observe(training).items():
                trajectory.setdefault(place, []).append(value)
        if training.number == training.config.steps:
            return trajectory
        training.step()
        advance(1)
        if checkpoint is not None and checkpoint.is_due():
            save_measured(checkpoint, training, trajectory)

"""The one training loop of the experiments: seeded streams, measured states, and resumption bit for bit.

It is our own because exact resumption needs every random number and every learning rate to be a function of the seed
and the step number; the loops of transformers and accelerate carry both as state. For the same reason the learning
rate is a function here: the schedules of transformers also give the first step a rate of 0.
"""

import io
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import TypedDict  # pydantic takes the standard one from Python 3.12 on

from clip_geometry.files import write_atomically
from clip_geometry.io.reading import checked, first_line, read_checkpoint
from clip_geometry.progress import note, progress
from clip_geometry.registry import InputError, library_versions, shown
from clip_geometry.results import Results, Row

SECONDS = 30.0  # between checkpoints at least
SHARE = 0.05  # of the time that writing checkpoints may take
FOLDER = "checkpoints"  # of a run folder
FULL = "fp32"
ORDER = 0  # purpose of the stream that shuffles an epoch; a training numbers its other purposes from 1


def learning_rate(
    number: int, *, steps: int, lr: float, warmup: float, schedule: Literal["cosine", "linear"] = "cosine"
) -> float:
    """Learning rate of step `number`, counted from 0: linear warmup to `lr`, then the schedule, which ends at 0. warmup
    is a fraction of the steps."""
    warm = round(warmup * steps)
    if number < warm:
        return lr * (number + 1) / warm
    if schedule == "cosine":
        return lr * (1 + math.cos(math.pi * (number - warm) / (steps - warm))) / 2
    return lr * (steps - number) / (steps - warm)


def context(dataset: str, split: str | None, options: Mapping[str, Any], seed: int, **own: Any) -> Row:
    """What all records of a training have in common; `own` replaces some of it, or adds to it."""
    return {
        "model": "trained here",
        "model_options": {},
        "dataset": dataset,
        "data_options": options,
        "split": split,
        "dtype": "float32",
        "pipeline": [],
        "fitted_on": None,
        "seed": seed,
        "versions": library_versions(),
        **own,
    }


def resolve_precision(precision: str, device: torch.device) -> str:
    """Precision of the forward pass: `auto` is bf16 on a GPU and fp32 elsewhere."""
    if precision != "auto":
        return precision
    return "bf16" if device.type == "cuda" else FULL


class Checkpoint:
    """A file with the state of a training, written atomically.

    Args:
        path: the file; `of` names it after a cell of a run.
    """

    def __init__(self, path: Path):
        self.path = path
        self._next = time.monotonic() + SECONDS

    @classmethod
    def of(cls, run: Path, key: str) -> Self:
        """The checkpoint of a cell in a run folder, where `remove_finished` finds it."""
        return cls(run / FOLDER / f"{key}.pt")

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def save(self, state: Mapping[str, Any]) -> None:
        """state: tensors, numbers, strings, lists, tuples and dicts."""
        started = time.monotonic()
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, buffer.getvalue())
        ended = time.monotonic()
        self._next = ended + max(SECONDS, (ended - started) / SHARE)

    def load(self) -> dict[str, Any] | None:
        """The state, or None without a readable file."""
        if not self.path.exists():
            return None
        try:
            return checked(read_checkpoint(self.path), shown(self.path), dict[str, Any])
        except InputError:
            note(f"{shown(self.path)} cannot be read, the training begins again")
            return None


def remove_finished(run: Path) -> None:
    """Removes the checkpoints of cells whose records are written; until then they are needed."""
    folder = run / FOLDER  # not glob(), to which a folder that may not be read is an empty one
    paths = [path for path in folder.iterdir() if path.suffix == ".pt"] if folder.is_dir() else []
    finished = Results(run / "results.jsonl").finished() if paths else set()
    for path in paths:
        if path.stem in finished:
            path.unlink()


class _TrainingState(TypedDict):
    number: int
    losses: list[float]
    trajectory: list[tuple[tuple[str | int | None, ...], list[float]]]
    modules: dict[str, dict[str, Any]]
    optimizer: dict[str, Any]


class Trainer(ABC):
    """A training whose steps depend on the seed and their number only, so that it resumes bit for bit.

    A subclass builds its modules, calls `optimize`, and defines `loss`; and `rate`, unless it is a cosine.

    Args:
        modules: what a checkpoint holds, by name; moved to the device.
        config: settings of the subclass: `lr`; `precision` (fp32, bf16 or auto) of what runs under `autocast`, while
            parameters stay float32; `clip`, the largest norm of the gradient, None for any.
        steps: how many there are; default: those of the config.
        seed: of all streams; default: that of the config.
        device: where the modules are.

    Attributes:
        number: steps taken.
        losses: the loss of each step, without penalties.
        trajectory: place → its values in the recorded states.
        measuring_share: fraction of the time of `run` spent in its callback.
    """

    Place: ClassVar[Callable[..., Any]]  # the named tuple that says what a measured value is of
    DROPOUT: ClassVar[int | None] = None  # purpose of the stream behind the dropout of a step

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        config: Any,
        *,
        steps: int | None = None,
        seed: int | None = None,
        device: torch.device | str = "cpu",
    ):
        self.device = torch.device(device)
        self.modules = {name: module.to(self.device) for name, module in modules.items()}
        self.config = config
        self.steps: int = config.steps if steps is None else steps
        self.seed: int = config.seed if seed is None else seed
        self.clip: float | None = getattr(config, "clip", None)
        self.precision = resolve_precision(getattr(config, "precision", FULL), self.device)
        self.number, self.losses = 0, list[float]()
        self.trajectory: dict[Any, list[float]] = {}
        self.measuring_share = 0.0

    def optimize(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        """Trains these parameters from now on by AdamW, which is Adam without decay; vectors (biases, norms) and
        scalars (a temperature) do not decay."""
        self.parameters = list(parameters)
        groups = [
            {"params": [each for each in self.parameters if each.ndim > 1], "weight_decay": weight_decay},
            {"params": [each for each in self.parameters if each.ndim <= 1], "weight_decay": 0.0},
        ]
        # fused: one pass over all numbers
        self.optimizer = torch.optim.AdamW(groups, lr=self.rate(self.number), betas=betas, fused=True)

    @abstractmethod
    def loss(self) -> tuple[Tensor, Tensor]:
        """(the loss of this step, the same with penalties, which is minimized)."""

    def rate(self, number: int) -> float:
        """The learning rate of a step."""
        return learning_rate(number, steps=self.steps, lr=self.config.lr, warmup=self.config.warmup)

    def step(self) -> None:
        """Takes one step. Raises InputError if the loss is not finite."""
        with self.seeded_dropout():
            loss, total = self.loss()
        self.require_finite(loss, f"the loss of step {self.number + 1}")
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.number)
        self.optimizer.step()
        self.losses.append(float(loss.detach()))
        self.number += 1

    def run(
        self,
        recorded: Iterable[int] = (),
        measure: Callable[[Any], Mapping[Any, float]] = lambda trainer: {},
        *,
        checkpoint: Checkpoint | None = None,
        name: str = "training",
    ) -> dict[Any, list[float]]:
        """Trains to the last step.

        Args:
            recorded: steps after which `measure` is called; 0 is the state before the first.
            measure: callback that takes this trainer and returns place → value.
            checkpoint: where to resume from, written when it is due, and kept at the end.
            name: of the progress bar.

        Returns:
            The trajectory.
        """
        if checkpoint is not None:
            self.resume(checkpoint)
        recorded, begin, measuring = frozenset(recorded), time.monotonic(), 0.0
        with progress(name, total=self.steps, done=self.number) as advance:
            while True:
                if self.number in recorded:
                    before = time.monotonic()
                    for place, value in measure(self).items():
                        self.trajectory.setdefault(place, []).append(value)
                    measuring += time.monotonic() - before
                if self.number == self.steps:
                    self.measuring_share = measuring / max(time.monotonic() - begin, 1e-9)
                    return self.trajectory
                self.step()
                advance(1)
                if checkpoint is not None and checkpoint.is_due():
                    checkpoint.save(self.state())

    # --- what a step depends on

    def stream(self, purpose: int, *number: int) -> np.random.Generator:
        """The random numbers of a purpose in a step or an epoch."""
        return np.random.default_rng([self.seed, purpose, *number])

    def shuffled(self, number: int, n: int, size: int, *purpose: int) -> np.ndarray:
        """The rows of n in the batch of a step, ascending; batches are whole, so the rest of an epoch is not
        used in it."""
        epoch, place = divmod(number, n // size)
        order = self.stream(ORDER, *purpose, epoch).permutation(n)
        return np.sort(order[place * size : (place + 1) * size])

    @contextmanager
    def seeded_dropout(self) -> Iterator[None]:
        """Dropout that depends on the step only, and leaves torch's generators as they were."""
        if self.DROPOUT is None:
            yield
            return
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(self.stream(self.DROPOUT, self.number).integers(2**62)))
            yield

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def require_finite(self, values: Tensor, what: str) -> None:
        """Raises InputError if the training has diverged."""
        if not bool(values.isfinite().all()):
            more = " or more warmup" if hasattr(self.config, "warmup") else ""
            lr = f"choose a lr below {self.config.lr:g}"
            raise InputError(f"the training has diverged: {what} is not finite; {lr}{more}")

    # --- its state

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {
            "number": self.number,
            "losses": self.losses,
            "trajectory": [(tuple(place), values) for place, values in self.trajectory.items()],
            "modules": {name: module.state_dict() for name, module in self.modules.items()},
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.number, self.losses = state["number"], list(state["losses"])
        self.trajectory = {self.Place(*place): list(values) for place, values in state["trajectory"]}
        for name, module in self.modules.items():
            module.load_state_dict(state["modules"][name])
        self.optimizer.load_state_dict(state["optimizer"])

    def resume(self, checkpoint: Checkpoint) -> None:
        """Restores the state in a checkpoint, if there is one. Raises InputError for that of another training."""
        if (found := checkpoint.load()) is None:
            return
        state: Any = checked(found, shown(checkpoint.path), _TrainingState)
        try:
            self.restore(state)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            what = f"is the checkpoint of another training ({first_line(error)})"
            raise InputError(f"{shown(checkpoint.path)} {what}; remove it to begin again") from None

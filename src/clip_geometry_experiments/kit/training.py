"""The training loop of all experiments: seeded random streams, records of its states, and bit-exact resumption.

The loop is our own because exact resumption requires that every random number and every learning rate is a function of
the seed and the step number. The loops of transformers and accelerate carry both as state. For the same reason, the
learning rate is a function here. The schedules of transformers also give the first step a rate of 0.
"""

import io
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import TypedDict  # pydantic accepts typing.TypedDict only from Python 3.12 on

from clip_geometry.files import write_atomically
from clip_geometry.io.reading import checked, first_line, read_checkpoint
from clip_geometry.progress import note, progress
from clip_geometry.registry import InputError, library_versions, shown
from clip_geometry.results import Results, Row

Key = TypeVar("Key", bound=Hashable)
Values = NDArray[np.float64]


# --- the values of recorded states


def trajectory(values: Iterable[float]) -> list[float | None]:
    """Convert the values of the recorded states to JSON: None where a value is not finite."""
    return [float(value) if math.isfinite(value) else None for value in values]


def states_of(row: Mapping[str, Any]) -> Values:
    """Return the (states,) values of a row's `trajectory`, NaN where a value is missing."""
    return np.array([math.nan if value is None else value for value in row["trajectory"]])


def curves_by(key: Callable[[Row], Key], rows: Iterable[Mapping[str, Any]]) -> dict[Key, Values]:
    """Group the trajectories of rows.

    Args:
        key: Function that returns the group of a row.
        rows: Result rows; those without a `trajectory` are skipped.

    Returns:
        Group → (rows, states) values in the order of the rows, NaN where a value is missing.
    """
    groups: dict[Key, list[Values]] = {}
    for row in rows:
        if "trajectory" in row:
            groups.setdefault(key(dict(row)), []).append(states_of(row))
    return {group: np.array(values) for group, values in groups.items()}


def curves_of(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[tuple[str, str, str], Values], NDArray[np.integer]]:
    """Return the curves of one CLIP training.

    Args:
        rows: Result rows. Rows without a `trajectory` and the training loss are skipped.

    Returns:
        (curves, steps), where curves maps (measure, modality, classes) to (states,) values, NaN where undefined, and
        steps holds the steps of the states.
    """
    curves, steps = {}, []
    for row in rows:
        if "trajectory" in row and row["measure"] != "train_clip.training_loss":
            at, steps = row["at"], row["steps"]
            curves[row["measure"], at["modality"], at.get("classes", "all")] = states_of(row)
    return curves, np.array(steps)


def means_between(losses: Sequence[float], steps: Sequence[int]) -> list[float | None]:
    """Return the mean training loss between consecutive measured steps.

    Args:
        losses: The loss of each step.
        steps: The measured steps in ascending order.

    Returns:
        One mean per measured step; None for the first, which has no step before it.
    """
    return [None, *(float(np.mean(losses[start:end])) for start, end in pairwise(steps))]


def correlations(x: Values, y: Values) -> dict[str, float | None]:
    """Return correlations of two curves: `pearson`, `spearman`, and `pearson_log`, which correlates x with log y.

    Args:
        x: (n,) values.
        y: (n,) values.

    Returns:
        Name → correlation. It is None if a curve is constant or not finite; `pearson_log` is also None if a value of y
        is not positive.
    """
    from scipy import stats

    def defined(correlate: Callable[..., Any], y: Values) -> float | None:
        usable = np.isfinite(x).all() and np.isfinite(y).all() and len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
        return float(correlate(x, y).statistic) if usable else None

    return {
        "pearson": defined(stats.pearsonr, y),
        "spearman": defined(stats.spearmanr, y),
        "pearson_log": defined(stats.pearsonr, np.log(y)) if bool((y > 0).all()) else None,
    }


def correlation_rows(
    experiment: str, x: Values, y: Values, names: Sequence[str] = ("pearson", "spearman"), **fields: Any
) -> Iterator[Row]:
    """Yield one row, `experiment.name`, for each named correlation; an undefined one has a note instead of a value.

    Args:
        experiment: Prefix of the measure names.
        x: (n,) values.
        y: (n,) values.
        names: Names of the correlations, as in `correlations`.
        **fields: More fields of the rows.
    """
    by_name = correlations(x, y)
    for name in names:
        row = {"measure": f"{experiment}.{name}", "value": by_name[name], "standard_error": None, "n": len(x), **fields}
        yield row if by_name[name] is not None else {**row, "note": "one of them is constant or not defined"}


# --- the loop

SECONDS = 30.0  # shortest time between checkpoints
SHARE = 0.05  # largest fraction of the time that is spent on writing checkpoints
FOLDER = "checkpoints"  # folder inside a run folder
FULL = "fp32"
ORDER = 0  # purpose of the stream that shuffles an epoch; a training numbers its other streams from 1


def learning_rate(
    number: int, *, steps: int, lr: float, warmup: float, schedule: Literal["cosine", "linear"] = "cosine"
) -> float:
    """Return the learning rate of a step: a linear warmup to `lr`, then a schedule that ends at 0.

    Args:
        number: The step, counted from 0.
        steps: Number of steps.
        lr: The peak learning rate.
        warmup: Fraction of the steps that are warmup.
        schedule: "cosine" or "linear".
    """
    warm = round(warmup * steps)
    if number < warm:
        return lr * (number + 1) / warm
    if schedule == "cosine":
        return lr * (1 + math.cos(math.pi * (number - warm) / (steps - warm))) / 2
    return lr * (steps - number) / (steps - warm)


def context(dataset: str, split: str | None, options: Mapping[str, Any], seed: int, **own: Any) -> Row:
    """Return the fields that all records of a training share.

    Args:
        dataset: Name of the data set.
        split: Split of the data set.
        options: Options of the data set.
        seed: Seed of the training.
        **own: Fields to replace or add.
    """
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
    """Return the precision of the forward pass; `auto` is bf16 on a GPU and fp32 elsewhere."""
    if precision != "auto":
        return precision
    return "bf16" if device.type == "cuda" else FULL


class Checkpoint:
    """A file with the state of a training, written atomically.

    Args:
        path: The file. `Checkpoint.of` names it after a cell of a run.
    """

    def __init__(self, path: Path):
        self.path = path
        self._next = time.monotonic() + SECONDS

    @classmethod
    def of(cls, run: Path, key: str) -> Self:
        """Return the checkpoint of a cell in a run folder, where `remove_finished_checkpoints` finds it.

        Args:
            run: The run folder.
            key: Key of the cell.
        """
        return cls(run / FOLDER / f"{key}.pt")

    def is_due(self) -> bool:
        """Return whether it is time to write the next checkpoint."""
        return time.monotonic() >= self._next

    def save(self, state: Mapping[str, Any]) -> None:
        """Write the state.

        Args:
            state: Tensors, numbers, strings, lists, tuples and dicts.
        """
        started = time.monotonic()
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, buffer.getvalue())
        ended = time.monotonic()
        self._next = ended + max(SECONDS, (ended - started) / SHARE)

    def load(self) -> dict[str, Any] | None:
        """Return the state, or None if there is no readable file."""
        if not self.path.exists():
            return None
        try:
            return checked(read_checkpoint(self.path), shown(self.path), dict[str, Any])
        except InputError:
            note(f"{shown(self.path)} cannot be read, so the training begins again")
            return None


def remove_finished_checkpoints(run: Path) -> None:
    """Remove the checkpoints of cells whose records are written; until then, they are needed."""
    folder = run / FOLDER  # not glob(), which treats an unreadable folder as empty
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
    """A training whose steps depend only on the seed and the step number, so that it resumes bit for bit.

    A subclass builds its modules, calls `optimize` and defines `loss`. It also defines `rate` if the learning rate is
    not the cosine of `learning_rate`.

    Args:
        modules: Name → module. Checkpoints hold these modules, and they are moved to the device.
        config: Settings of the subclass. `lr` is the learning rate. `precision` (fp32, bf16 or auto) applies to code
            under `autocast`; parameters stay in float32. `clip` is the largest norm of the gradient, None for no limit.
        steps: Number of steps. Default: the steps of the config.
        seed: Seed of all random streams. Default: the seed of the config.
        device: The device of the modules.

    Attributes:
        number: Number of steps taken.
        losses: The loss of each step, without penalties.
        trajectory: Place → its values in the recorded states.
        measuring_share: Fraction of the time of `run` that was spent in its callback.
    """

    Place: ClassVar[Callable[..., Any]]  # named tuple that identifies a measured value
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
        self.number = 0
        self.losses: list[float] = []
        self.trajectory: dict[Any, list[float]] = {}
        self.measuring_share = 0.0

    def optimize(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        """Train these parameters from now on with AdamW, which is Adam if there is no weight decay.

        Vectors (biases, norms) and scalars (a temperature) do not decay.

        Args:
            parameters: The parameters.
            weight_decay: Weight decay of matrices.
            betas: Betas of AdamW.
        """
        self.parameters = list(parameters)
        groups = [
            {"params": [values for values in self.parameters if values.ndim > 1], "weight_decay": weight_decay},
            {"params": [values for values in self.parameters if values.ndim <= 1], "weight_decay": 0.0},
        ]
        # fused: one pass over all parameters
        self.optimizer = torch.optim.AdamW(groups, lr=self.rate(self.number), betas=betas, fused=True)

    @abstractmethod
    def loss(self) -> tuple[Tensor, Tensor]:
        """Return the loss of this step, and that loss with penalties, which is minimized."""

    def rate(self, number: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        return learning_rate(number, steps=self.steps, lr=self.config.lr, warmup=self.config.warmup)

    def step(self) -> None:
        """Take one step.

        Raises:
            InputError: If the loss is not finite.
        """
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
        """Train to the last step.

        Args:
            recorded: Steps after which `measure` is called; 0 is the state before the first step.
            measure: Callback that takes this trainer and returns place → value.
            checkpoint: Checkpoint to resume from. It is written when it is due, and kept at the end.
            name: Name of the progress bar.

        Returns:
            The trajectory: place → its values in the recorded states.
        """
        if checkpoint is not None:
            self.resume(checkpoint)
        recorded = frozenset(recorded)
        begin = time.monotonic()
        measuring = 0.0
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
        """Return the random generator of a purpose in a step or an epoch."""
        return np.random.default_rng([self.seed, purpose, *number])

    def shuffled(self, number: int, n: int, size: int, *purpose: int) -> np.ndarray:
        """Return the rows in the batch of a step, in ascending order.

        All batches are complete, so the remaining rows of an epoch are not used in that epoch.

        Args:
            number: The step, counted from 0.
            n: Number of rows.
            size: Rows per batch.
            *purpose: Distinguishes streams that shuffle different data.
        """
        epoch, place = divmod(number, n // size)
        order = self.stream(ORDER, *purpose, epoch).permutation(n)
        return np.sort(order[place * size : (place + 1) * size])

    @contextmanager
    def seeded_dropout(self) -> Iterator[None]:
        """Make dropout depend only on the step, and leave the state of torch's generators unchanged."""
        if self.DROPOUT is None:
            yield
            return
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(self.stream(self.DROPOUT, self.number).integers(2**62)))
            yield

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of the forward pass, which uses bfloat16 if the precision is bf16."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def require_finite(self, values: Tensor, what: str) -> None:
        """Check that the training has not diverged.

        Args:
            values: The values to check.
            what: Name of the values, for the message.

        Raises:
            InputError: If a value is not finite.
        """
        if not bool(values.isfinite().all()):
            more = " or more warmup" if hasattr(self.config, "warmup") else ""
            remedy = f"choose a lr below {self.config.lr:g}{more}"
            raise InputError(f"the training has diverged: {what} is not finite; {remedy}")

    # --- its state

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint holds."""
        return {
            "number": self.number,
            "losses": self.losses,
            "trajectory": [(tuple(place), values) for place, values in self.trajectory.items()],
            "modules": {name: module.state_dict() for name, module in self.modules.items()},
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state` returned."""
        self.number = state["number"]
        self.losses = list(state["losses"])
        self.trajectory = {self.Place(*place): list(values) for place, values in state["trajectory"]}
        for name, module in self.modules.items():
            module.load_state_dict(state["modules"][name])
        self.optimizer.load_state_dict(state["optimizer"])

    def resume(self, checkpoint: Checkpoint) -> None:
        """Restore the state of a checkpoint, if there is one.

        Raises:
            InputError: If the checkpoint belongs to another training.
        """
        saved = checkpoint.load()
        if saved is None:
            return
        state: Any = checked(saved, shown(checkpoint.path), _TrainingState)
        try:
            self.restore(state)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            what = f"is the checkpoint of another training ({first_line(error)})"
            raise InputError(f"{shown(checkpoint.path)} {what}; remove it to begin again") from None

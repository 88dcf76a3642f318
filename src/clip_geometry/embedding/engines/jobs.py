"""Jobs on a Ray cluster: values are sent, results come back, and a failure is one sentence."""

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from clip_geometry.progress import note
from clip_geometry.reading import first_line
from clip_geometry.registry import InputError

PATIENCE = 60.0  # seconds without an answer until the user is notified

Described = tuple[str, str, tuple[int, ...], int] | np.ndarray


def send(ray: Any, value: Any, what: str) -> Any:
    """Puts a value where any worker can get it and returns its reference; memory maps are sent as file names.

    Args:
        ray: The module.
        value: Anything that can be pickled.
        what: What it is, for messages.
    """
    # Ray has one table of serializers for all that this process sends, so ours is registered for a moment only
    ray.util.register_serializer(np.memmap, serializer=described, deserializer=opened)
    try:
        return ray.put(value)
    except ray.exceptions.RayError as error:
        raise InputError(f"{what} cannot be sent to the workers ({first_line(error)}); leave engine ray out") from None
    except Exception as error:  # pickle raises TypeError, AttributeError, PicklingError, …
        why = first_line(error if error.__cause__ is None else error.__cause__)  # type: ignore[arg-type]
        raise InputError(f"{what} cannot be sent to other processes ({why}); leave engine ray out") from None
    finally:
        ray.util.deregister_serializer(np.memmap)


def note_waiting(ray: Any, jobs: list[Any]) -> None:
    """Notifies the user where no job begins, for example because others hold the cluster's processors."""
    done, _ = ray.wait(jobs, num_returns=1, timeout=PATIENCE)
    if not done:
        note(f"no worker has answered for {PATIENCE:.0f} s; others may have the cluster's processors: ray status tells")


def result(ray: Any, job: Any, worker: str, deaths: int, advice: str) -> Any:
    """The result of a job. InputError and OSError are raised as in the worker; any other error of the job is a bug and
    keeps its traceback.

    Args:
        ray: The module.
        job: Reference to the result.
        worker: Name of the worker for messages.
        deaths: Number of deaths of the worker after which Ray gives up.
        advice: End of the message in that case.
    """

    def reason(error: Exception) -> str:
        return " ".join(str(error).partition("traceback:")[0].split())[:200]

    try:
        return ray.get(job)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError | OSError):
            raise error.cause from None
        if isinstance(error.cause, ray.exceptions.RayError):  # of what came with the job
            raise InputError(f"{worker} could not begin ({reason(error.cause)})") from None
        raise
    except ray.exceptions.RayError as error:
        raise InputError(f"{worker} died {deaths} times ({reason(error)}): {advice}") from None


def described(mapped: np.memmap) -> Described:
    """(file, dtype, shape, offset in bytes), or the values if the map is not a run of rows of a file that has them."""
    base = getattr(mapped, "_mmap", None)
    if base is None or mapped.filename is None or not mapped.flags.c_contiguous or mapped.size == 0:
        return np.array(mapped)
    if mapped.mode == "c":  # copy on write: changes are in this process only
        return np.array(mapped)
    # a slice of a map keeps the offset of the whole map, which starts at the beginning of its page
    begin = np.frombuffer(base, np.uint8).ctypes.data
    page = mapped.offset - mapped.offset % mmap.ALLOCATIONGRANULARITY
    return str(mapped.filename), mapped.dtype.str, mapped.shape, page + mapped.ctypes.data - begin


def opened(description: Described) -> Any:
    """The memory map or array that `described` was given."""
    if isinstance(description, np.ndarray):
        return description
    name, dtype, shape, offset = description
    try:
        return np.memmap(name, dtype=dtype, mode="r", offset=offset, shape=shape)
    except (OSError, ValueError) as error:
        return Unreadable(f"a worker cannot read {name} ({error}): all machines of the cluster need it under this name")


@dataclass(frozen=True)
class Unreadable:
    """Stands for a map that cannot be opened and raises InputError when rows are read. An error on arrival would be
    printed by Ray as a traceback that does not say what it was."""

    why: str

    def __getitem__(self, rows: Any) -> Any:
        raise InputError(self.why)

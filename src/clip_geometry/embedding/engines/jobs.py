"""What every job on a Ray cluster has: something is sent, something comes back, and a failure is one sentence."""

from typing import Any

import numpy as np

from clip_geometry.embedding.engines.mapped import described, opened
from clip_geometry.progress import note
from clip_geometry.reading import first_line
from clip_geometry.registry import InputError

PATIENCE = 60.0  # seconds, after which it is told that nothing has come back yet


def send(ray: Any, value: Any, what: str) -> Any:
    """A reference to the value, which any number of workers can ask for; memory maps travel by the names of their
    files. what: it is made of, for messages."""
    # Ray's table is one for all that this process sends, so that ours is in it for a moment only
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


def told_to_wait(ray: Any, jobs: list[Any]) -> None:
    """Says so where nothing begins: a cluster whose processors others hold lets everybody wait."""
    done, _ = ray.wait(jobs, num_returns=1, timeout=PATIENCE)
    if not done:
        note(f"no worker has answered for {PATIENCE:.0f} s; others may have the cluster's processors: ray status tells")


def result(ray: Any, job: Any, worker: str, deaths: int, advice: str) -> Any:
    """What the job gives. What the user did wrong, or the disk, rises as it did in the worker; another error of the job
    is a bug and keeps its traceback. worker: its name for messages; deaths: how many of it are too many."""
    try:
        return ray.get(job)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError | OSError):
            raise error.cause from None
        if isinstance(error.cause, ray.exceptions.RayError):  # of what came with the job
            raise InputError(f"{worker} could not begin ({_said(error.cause)})") from None
        raise
    except ray.exceptions.RayError as error:
        raise InputError(f"{worker} died {deaths} times ({_said(error)}): {advice}") from None


def _said(error: Exception) -> str:
    return " ".join(str(error).partition("traceback:")[0].split())[:200]

"""A pass over rows as an aggregation: spans of rows on the workers, their sums put together here, in order."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from clip_geometry.geometry.streamed import Accumulate, StreamedRows, aggregate_blocks
from clip_geometry.progress import Throughput
from clip_geometry.registry import InputError
from clip_geometry.shards.workers import in_order

SPANS = 1024  # at most: a worker that dies has little to be done again
LEAST = 2**25  # bytes of a span's rows, as stored: its sum, too, takes time to come back
AHEAD = 2  # spans a processor under way: a few sums lie in memory, not those of all spans
RETRIES = 3  # of a span whose worker died: what kills four of them will kill the next


def aggregate(
    ray: Any,
    x: StreamedRows,
    zero: Callable[[], Any],
    accumulate: Accumulate,
    merge: Callable[[Any, Any], Any],
    size: int,
    along: Tensor | None,
) -> Any:
    """`x.aggregate`, whose arguments these are. The spans are the same for every number of workers, and so are the
    sums, bit for bit. A span whose worker died is read again by another one."""
    row_bytes = x.shape[1] * x.stored.itemsize
    sent, step = ray.put((x, zero, accumulate, size)), _span(len(x), size, row_bytes)
    spans = [range(start, min(start + step, len(x))) for start in range(0, len(x), step)]
    task = ray.remote(max_retries=RETRIES, num_cpus=1)(_of_span)

    def submit(span: range) -> Any:
        return span, task.remote(sent, span, None if along is None else along[span.start : span.stop])

    def result(job: Any) -> Any:
        return job[0], _result(ray, x, *job)

    tell = Throughput(x.name, len(x), row_bytes)
    total, ahead = None, AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    for span, found in in_order(submit, spans, ahead, result):
        total = found if span.start == 0 else merge(total, found)
        tell(len(span))
    return total


def _result(ray: Any, x: StreamedRows, span: range, job: Any) -> Any:
    try:
        return ray.get(job)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, InputError) else error) from None
    except ray.exceptions.WorkerCrashedError:
        raise InputError(
            f"the worker of rows {span.start} to {span.stop} of {x.name} died {RETRIES + 1} times: give it more memory"
        ) from None


def _span(rows: int, size: int, row_bytes: int) -> int:
    """Whole blocks: their sums are those of one machine."""
    return max(-(-rows // (SPANS * size)), -(-LEAST // (size * row_bytes))) * size


def _of_span(job: tuple, span: range, along: Tensor | None) -> Any:
    x, zero, accumulate, size = job
    return aggregate_blocks(x, zero, accumulate, size, along, span)

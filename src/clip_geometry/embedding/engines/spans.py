"""A pass over rows as an aggregation: spans of rows on the workers, their sums put together here, in order."""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor

from clip_geometry.embedding.engines.jobs import result, send, told_to_wait
from clip_geometry.embedding.shards.workers import in_order
from clip_geometry.geometry._core.streamed import Accumulate, StreamedRows, aggregate_blocks
from clip_geometry.progress import Throughput

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
    sent, step = send(ray, (x, zero, accumulate, size), f"the rows of {x.name}"), _span(len(x), size, row_bytes)
    spans = [range(start, min(start + step, len(x))) for start in range(0, len(x), step)]
    task = _task(ray).options(max_retries=RETRIES, num_cpus=1)

    def submit(span: range) -> Any:
        return span, task.remote(sent, span, _of(along, span))

    def found(job: Any) -> Any:
        span, reference = job
        if span.start == 0:
            told_to_wait(ray, [reference])
        worker = f"the worker of rows {span.start} to {span.stop} of {x.name}"
        return span, result(ray, reference, worker, RETRIES + 1, "give it more memory")

    tell = Throughput(x.name, len(x), row_bytes)
    total, ahead = None, AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    for span, part in in_order(submit, spans, ahead, found):
        total = part if span.start == 0 else merge(total, part)
        tell(len(span))
    return total


@cache
def _task(ray: Any) -> Any:
    """Made once: Ray keeps each remote function that a process makes."""
    return ray.remote(_of_span)


def _of(along: Tensor | None, span: range) -> Tensor | None:
    """A copy: pickle takes the memory that a part of a tensor lies in, which is that of all rows."""
    return None if along is None else along[span.start : span.stop].clone()


def _span(rows: int, size: int, row_bytes: int) -> int:
    """Whole blocks: their sums are those of one machine."""
    return max(-(-rows // (SPANS * size)), -(-LEAST // (size * row_bytes))) * size


def _of_span(job: tuple, span: range, along: Tensor | None) -> Any:
    x, zero, accumulate, size = job
    return aggregate_blocks(x, zero, accumulate, size, along, span)

"""A pass over rows as an aggregation: workers sum spans of rows, and this process merges the sums in order."""

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor

from clip_geometry.embedding.engines.jobs import note_waiting, result, send
from clip_geometry.geometry._core.streamed import Accumulate, StreamedRows, aggregate_blocks
from clip_geometry.progress import Throughput

MAX_SPANS = 1024  # a worker that dies has little to do again
MIN_BYTES = 2**25  # of a span's rows as stored: its sum takes time to come back as well
AHEAD = 2  # spans per processor under way: memory holds a few sums, not those of all spans
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
    """`x.aggregate` with these arguments. Spans, and so the sums bit for bit, do not depend on the number of workers.
    A span whose worker died is read again by another one."""
    row_bytes = x.shape[1] * x.stored.itemsize
    sent = send(ray, (x, zero, accumulate, size), f"the rows of {x.name}")
    task = _task(ray).options(max_retries=RETRIES, num_cpus=1)
    throughput = Throughput(x.name, len(x), row_bytes)
    total, ahead = None, AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting, under_way = deque(spans_of(len(x), size, row_bytes)), deque()
    while waiting or under_way:
        while waiting and len(under_way) <= ahead:
            span = waiting.popleft()
            # a copy: pickle would take the memory of all rows, of which a slice is a view
            own = None if along is None else along[span.start : span.stop].clone()
            under_way.append((span, task.remote(sent, span, own)))
        span, job = under_way.popleft()
        if span.start == 0:
            note_waiting(ray, [job])
        worker = f"the worker of rows {span.start} to {span.stop} of {x.name}"
        part = result(ray, job, worker, RETRIES + 1, "give it more memory")
        total = part if span.start == 0 else merge(total, part)
        throughput(len(span))
    return total


def spans_of(rows: int, size: int, row_bytes: int) -> list[range]:
    """Spans of whole blocks of `size` rows, whose sums are those of one machine."""
    step = max(-(-rows // (MAX_SPANS * size)), -(-MIN_BYTES // (size * row_bytes))) * size
    return [range(start, min(start + step, rows)) for start in range(0, rows, step)]


@cache
def _task(ray: Any) -> Any:
    """Made once: Ray keeps each remote function that a process makes."""

    def sum_span(job: tuple, span: range, along: Tensor | None) -> Any:
        x, zero, accumulate, size = job
        return aggregate_blocks(x, zero, accumulate, size, along, span)

    return ray.remote(sum_span)

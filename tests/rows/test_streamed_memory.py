"""What streamed rows take at their peak does not grow with their number but for some numbers a row."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

N, D, TIMES = 20_000, 64, 5
MATRIX = (TIMES - 1) * N * D * 8  # bytes that a matrix in float64 grows by: 41 MB
LIMIT = MATRIX // 2

PEAKS = """
import json, sys
from pathlib import Path

import numpy as np
import torch

from clip_geometry.geometry import measures
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry import Pipeline


def status(key):
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return 1024 * int(line.split()[1])


def peak(function, n):
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    function(n)
    return status("VmHWM") - before


def taken(measure):
    def function(n):
        sets = [StreamedRows.of(part[:n]) for part in maps[: 1 + measure.inputs.across]]
        measure(*sets, *([np.arange(n) % 10] if measure.takes == "labeled rows" else []))

    return function


def moved(n):
    sets = {name: StreamedRows.of(part[:n]) for name, part in zip(("image", "text"), maps)}
    pipeline = Pipeline("normalize,whiten(8)[pooled],all_but_the_top(2)[each],least_squares[text-to-image]")
    moved = pipeline.fit(sets, (np.arange(n), np.arange(n))).transform(sets)
    for rows in moved.values():
        for block in rows.split(4096):
            pass


torch.set_num_threads(1)
maps = [np.load(path, mmap_mode="r") for path in sys.argv[1:3]]
*sizes, limit = (int(size) for size in sys.argv[3:])
linear = [each for each in measures.values() if each.streams and not each.quadratic and each.by_default]
once = {(each.function, *each.options): each for each in linear}.values()
functions = {"pipeline": moved, **{each.name: taken(each) for each in once}}
peaks = {}
for name, each in functions.items():
    peaks[name] = [peak(each, n) for n in sizes]
    if peaks[name][1] - peaks[name][0] > limit:
        # the lesser of two: what the allocator happens to keep of the functions before differs from run to run
        peaks[name] = [min(peak(each, n), before) for n, before in zip(sizes, peaks[name])]
print(json.dumps(peaks))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a part")
def test_the_peak_does_not_grow_with_the_rows(tmp_path):
    """One after the other in one process, where each takes what the ones before it have left."""
    import numpy as np

    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{k}.npy" for k in range(2)]
    for path in paths:
        np.save(path, (1 + rng.standard_normal((TIMES * N, D), dtype=np.float32)).astype(np.float16))
    command = [sys.executable, "-c", PEAKS, *paths, N, TIMES * N, LIMIT]
    # glibc then gives every large block back at once, instead of keeping some by a threshold that it moves
    own = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, env=os.environ | own)
    peaks = json.loads(done.stdout)
    assert len(peaks) > 15
    grown = {name: (after - before) / MATRIX for name, (before, after) in peaks.items() if after - before > LIMIT}
    assert not grown

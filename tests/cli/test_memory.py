"""Memory that runs out is one sentence that says what would fit."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from clip_geometry.memory import is_out_of_memory, out_of_memory

LIMITED = """
import resource, sys
from pathlib import Path

import clip_geometry.cli.maps, clip_geometry.cli.measure_files, scipy.linalg, sklearn.cluster
from clip_geometry.cli import main

(line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (1024 * int(line.split()[1]) + int(sys.argv.pop(1)),) * 2)
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux limits a process so")
@pytest.mark.parametrize("command", [("measure", "rows.npz"), ("fit", "center", "rows.npz", "-o", "m.safetensors")])
def test_too_little_memory_is_a_sentence(tmp_path, command):
    np.savez(tmp_path / "rows.npz", np.ones((20_000, 256), np.float32) + np.eye(20_000, 256, dtype=np.float32))
    given = [sys.executable, "-c", LIMITED, str(30 * 2**20), *command]  # the rows alone take 20 MB, in float64 40
    done = subprocess.run(given, capture_output=True, text=True, cwd=tmp_path, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and len(line) <= 400
    assert "memory ran out, " in line and " more were asked for: this process may take " in line
    assert not (tmp_path / "m.safetensors").exists()


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes. Error"), "64 bytes"),
        (MemoryError("Unable to allocate 1.50 GiB for an array with shape (3, 4) and data type float64"), "1.50 GiB"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total"), "20.00 MiB"),
        (MemoryError("malloc of size 4096 failed"), "4096"),
        (OSError(12, "Cannot allocate memory"), None),
        (RuntimeError("std::bad_alloc"), None),
    ],
    ids=str,
)  # fmt: skip
def test_what_libraries_say(error, asked):
    assert is_out_of_memory(error)
    assert (f"memory ran out, {asked} more were asked for: " if asked else "memory ran out: ") in out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))

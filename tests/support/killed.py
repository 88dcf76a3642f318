"""A run that is killed on its way, as a machine that goes down does it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from clip_geometry.results import Results

RUN = """
import sys
from pathlib import Path
from clip_geometry_experiments.kit import training
from clip_geometry_experiments.run.runner import run
training.SECONDS, training.SHARE = 0, float("inf")
run(Path(sys.argv[1]), {}, runs=Path(sys.argv[2]), device="cpu")
"""


def kill_after_a_checkpoint(folder: Path, settings: Mapping[str, Any]) -> int:
    """Starts the run in folder/runs in a process of its own, with as many threads, and kills it once there is a
    checkpoint; after how many steps that was taken. No rows are written by then."""
    config, runs = folder / "tiny.yaml", folder / "runs"
    config.write_text(json.dumps(settings))
    started = subprocess.Popen(
        [sys.executable, "-c", RUN, str(config), str(runs)],
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 150  # on a busy machine
    while not (found := list(runs.glob("*/checkpoints/*.pt"))) and time.monotonic() < until:
        assert started.poll() is None
        time.sleep(0.01)
    started.send_signal(signal.SIGKILL)
    started.wait()
    assert found and not Results(found[0].parents[1] / "results.jsonl").read()
    return torch.load(found[0], weights_only=True)["number"]

"""The command line in a process that has imported nothing slow, which forks a child for each command."""

import os
import sys
from pathlib import Path

from clip_geometry.cli import main
from support.forks import serve

SLOW = ("torch", "numpy", "sklearn", "pandas", "open_clip", "transformers", "matplotlib", "scipy.stats")


def run(job):
    """Writes what the command prints to the job's files `out` and `err`, and last what it imported that is slow."""
    os.chdir(job["folder"])
    os.environ.update(job["environment"])
    for stream, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(Path(job["output"]) / stream, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    sys.argv = ["clip-geometry", *job["arguments"]]
    try:
        main()
    finally:
        print([name for name in SLOW if name in sys.modules])


if __name__ == "__main__":
    serve(run)

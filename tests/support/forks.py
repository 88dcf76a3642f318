"""A warm process that forks a child for each job: a tenth of a second where importing torch takes several."""

import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]


class Server:
    """The process that runs `script`, which calls `serve`. defaults: of the jobs."""

    def __init__(self, script: str, *arguments: str, **defaults: Any):
        self.defaults = defaults
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        command = [sys.executable, script, *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def start(self, *jobs):
        """The ids of a child for each job."""
        self.process.stdin.write(json.dumps([{**self.defaults, **job} for job in jobs]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def wait(self):
        """Their exit statuses."""
        return json.loads(self.process.stdout.readline())

    def run(self, **job):
        self.start(job)
        return self.wait()[0]

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=10)


def serve(work: Callable[[dict[str, Any]], None]) -> None:
    """For each line, a JSON list of jobs: forks a child for each, prints their ids, then their exit statuses."""
    gc.collect()
    gc.freeze()  # else each child copies what it only looks through
    for line in sys.stdin:
        children = []
        for job in json.loads(line):
            child = os.fork()
            if child == 0:
                os._exit(_status(work, job))
            children.append(child)
        print(json.dumps(children), flush=True)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)


def _status(work: Callable[[dict[str, Any]], None], job: dict[str, Any]) -> int:
    try:
        work(job)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0

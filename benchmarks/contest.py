"""Compare our code with a peer: alternating fresh processes, the same data and value, median time and peak memory.

A benchmark file lists its contests and calls `main`. A process imports, warms up on the small size and makes the data
before the measurement starts. Memory is the peak above what the process held before.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

WHO = ("ours", "peer")
FORMS = {"seconds": "10.4f", "megabytes": "8.0f"}


@dataclass(frozen=True)
class Contest:
    """A comparison. setup(**size) makes the arguments of ours and peer, which return a number or an array.

    Args:
        name: contests with the same name differ in sizes and claims only.
        sizes: sizes of the full run.
        quick: size of --quick and of the warm-up.
        tolerance: largest allowed difference of the two values.
        faster: claimed speedup over the peer.
        memory: claimed share of the peer's memory, at most.
        rounds: runs of each.
    """

    name: str
    setup: Callable[..., tuple]
    ours: Callable[..., Any]
    peer: Callable[..., Any]
    peer_package: str
    sizes: list[dict[str, int | str]]
    quick: dict[str, int | str]
    tolerance: float
    faster: float | None = None
    memory: float | None = None
    rounds: int = 3


def main(contests: list[Contest]) -> None:
    """Run the contests, print a table and write --json. The exit status is 1 if values differ or a claim fails."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: tiny sizes, one round, one process")
    parser.add_argument("--only", default="", help="run only contests whose name contains this")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)  # one run of one contestant, in its own process
    given = parser.parse_args()
    if given.run:
        name, size, who = given.run
        contest = next(contest for contest in contests if contest.name == name)
        print(json.dumps(_watch(contest, json.loads(size), who)))
        return
    if given.quick:  # one contest per name
        once = {contest.name: contest for contest in contests}.values()
        contests = [replace(contest, sizes=[contest.quick], rounds=1) for contest in once]
    rows, load = [], os.getloadavg()[0]
    print(
        f"{'contest':26}{'size':28}{'ours':>10}{'peer':>10}{'ratio':>8}{'MB ours':>9}{'peer':>7}{'differ':>9}  claims"
    )
    for contest in contests:
        if given.only in contest.name:
            for size in contest.sizes:
                runs = {who: [_watch(contest, size, who)] for who in WHO} if given.quick else _rounds(contest, size)
                rows.append(_row(contest, size, runs))
                _print(rows[-1], quick=given.quick)
    if given.json:
        machine = _machine(contests) | {"load": round(load, 2)}
        given.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    agree = all(row["difference"] <= row["tolerance"] for row in rows)
    if not agree or (not given.quick and not all(row["held"] for row in rows)):
        sys.exit(1)


def _rounds(contest: Contest, size: dict) -> dict[str, list[dict]]:
    runs: dict[str, list[dict]] = {who: [] for who in WHO}
    for _ in range(contest.rounds):
        for who in WHO:
            command = [sys.executable, sys.argv[0], "--run", contest.name, json.dumps(size), who]
            runs[who].append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    return runs


def _watch(contest: Contest, size: dict, who: str) -> dict:
    function = getattr(contest, who)
    if size != contest.quick:
        function(*contest.setup(**contest.quick))
    arguments = contest.setup(**size)
    before = _memory(reset=True)
    start = time.perf_counter()
    value = function(*arguments)
    seconds = time.perf_counter() - start
    value = getattr(value, "flatten", lambda: [value])()
    return {"seconds": seconds, "megabytes": _memory() - before, "value": [float(part) for part in value]}


def _memory(*, reset: bool = False) -> float:
    """Peak resident memory of this process in MB; since the last reset where the system supports it (Linux)."""
    if sys.platform == "linux":
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def _row(contest: Contest, size: dict, runs: dict[str, list[dict]]) -> dict:
    seconds, megabytes = (
        {who: statistics.median(run[key] for run in runs[who]) for who in WHO} for key in ("seconds", "megabytes")
    )
    pairs = zip(runs["ours"][0]["value"], runs["peer"][0]["value"], strict=True)
    ratio = seconds["peer"] / seconds["ours"]
    fast = contest.faster is None or ratio >= contest.faster
    small = contest.memory is None or megabytes["ours"] <= contest.memory * megabytes["peer"]
    return {
        "contest": contest.name,
        "size": size,
        "peer": contest.peer_package,
        "seconds": seconds,
        "all_seconds": {who: [run["seconds"] for run in runs[who]] for who in WHO},
        "ratio": ratio,
        "megabytes": megabytes,
        "difference": max(abs(a - b) for a, b in pairs),
        "tolerance": contest.tolerance,
        "claims": {"faster": contest.faster, "memory": contest.memory},
        "held": fast and small,
    }


def _print(row: dict, *, quick: bool) -> None:
    size = " ".join(f"{key}={value}" for key, value in row["size"].items())
    seconds, megabytes = ("".join(f"{row[key][who]:{form}}" for who in WHO) for key, form in FORMS.items())
    claims = [f"≥ {row['claims']['faster']} ×"] if row["claims"]["faster"] else []
    claims += [f"≤ {row['claims']['memory']} of its memory"] if row["claims"]["memory"] else []
    held = ", ".join(claims) + (": held" if row["held"] else ": NOT held") if claims and not quick else ""
    start = f"{row['contest']:26}{size:28}{seconds}{row['ratio']:8.1f}"
    print(f"{start}{megabytes}{row['difference']:9.0e}  {held}", flush=True)


def _machine(contests: list[Contest]) -> dict:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    packages = {"clip-geometry", "torch", "numpy", *(contest.peer_package for contest in contests)}
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS", "unset"),
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in sorted(packages)},
    }

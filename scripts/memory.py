"""Peak memory and processor time of the commands, by the size of two sets of rows.

    python scripts/memory.py [--only measure,fit] [--sizes 50000x512] [--dtype float16] [--json FILE]

Each command runs in a process of its own, on image.npy and text.npy in the temporary directory (TMPDIR): 200 clusters
with a gap between the modalities and pairs that agree in part. The peak is ru_maxrss of the process, so that Python and
torch are part of it; the time is that of its threads together. The table is what docs/memory.md shows.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SIZES = ("50000x512", "100000x512", "200000x256", "200000x512")
# the map and the repair that later commands take are made by earlier ones
COMMANDS = {
    "measure": ["measure", "rows"],
    "fit": ["fit", "normalize,whiten(128)[pooled]", "rows", "-o", "map.safetensors"],
    "apply": ["apply", "map.safetensors", "rows", "-o", "applied"],
    "diagnose": ["diagnose", "rows"],
    "explore": ["explore", "rows", "-o", "page.html"],
    "ship": ["ship", "map.safetensors", "rows", "-o", "shipped", "--to", "faiss"],
    "export": ["export", "rows", "-o", "exported", "--to", "parquet"],
}


def write_rows(folder: Path, n: int, d: int, dtype: str) -> None:
    """image.npy and text.npy of n rows, 4096 at a time."""
    rng = np.random.default_rng(0)
    centers, gap = rng.standard_normal((200, d), np.float32), rng.standard_normal(d, np.float32)
    files = [np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, (n, d)) for name in ("image", "text")]
    for start in range(0, n, 4096):
        count = min(4096, n - start)
        shared = centers[rng.integers(0, 200, count)] + rng.standard_normal((count, d), np.float32)
        for sign, rows in zip((1, -1), files, strict=True):
            block = shared + sign * gap + rng.standard_normal((count, d), np.float32)
            rows[start : start + count] = block / np.linalg.norm(block, axis=1, keepdims=True)


def run(command: list[str], folder: Path) -> dict:
    """The peak in MB and the seconds of one command; its standard output goes to a file."""
    with (folder / f"{command[0]}.txt").open("w") as out:
        main = [sys.executable, "-c", "from clip_geometry.cli import main; main()"]
        process = subprocess.Popen([*main, *command], cwd=folder, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        print((folder / f"{command[0]}.txt").read_text()[-2000:], file=sys.stderr)
    record = {
        "command": " ".join(command),
        "megabytes": round(usage.ru_maxrss * 1024 / 1e6),
        "seconds": round(usage.ru_utime, 1),
        "status": process.returncode,
    }
    print(json.dumps(record), file=sys.stderr, flush=True)
    return record


def table(by_size: dict[str, list[dict]]) -> str:
    """MB and seconds of every command, a column for each size."""
    lines = [f"| command | {' | '.join(by_size)} |", f"|---|{'---|' * len(by_size)}"]
    for rows in zip(*by_size.values(), strict=True):
        cells = [f"{row['megabytes']} MB, {row['seconds']} s{' (failed)' * bool(row['status'])}" for row in rows]
        lines.append(f"| `{rows[0]['command']}` | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(COMMANDS))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    for size in options.sizes.split(","):
        n, d = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "rows").mkdir()
            # what this process has held would count as the peak of the processes that it starts
            writing = multiprocessing.get_context("spawn").Process(
                target=write_rows, args=(folder / "rows", n, d, options.dtype)
            )
            writing.start()
            writing.join()
            wanted = options.only.split(",")
            if "map.safetensors" in str([COMMANDS[name] for name in wanted]) and "fit" not in wanted:
                run(COMMANDS["fit"], folder)
            found[f"2 × {n:,} × {d}"] = [run(COMMANDS[name], folder) for name in wanted]
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")

"""The Euclidean silhouette on one GPU: the fused kernel alone at a million rows, and against torch.cdist in blocks.

Prints seconds, the share of the matrix rate that torch.matmul reaches on the same device, and the error against float64
on a sample of the rows. The exit status is 1 if a million rows of 512 take ten seconds or more, or if values differ.
--tune: times other block shapes. --quick: tiny sizes; without a GPU, in Triton's interpreter.
"""

import argparse
import json
import os
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from contest import _machine

GOAL = 10.0  # seconds, for
MILLION = {"n": 1_000_000, "d": 512, "k": 100}
BESIDE = {"n": 100_000, "d": 512, "k": 100}  # with the peer
TINY = {"n": 150, "d": 24, "k": 4}
TOLERANCE = 1e-6
PRODUCTS = 3  # of float16 numbers for each of the rows
SHAPES = [(128, 128, 32, 8, 2), (128, 128, 32, 8, 3), (128, 128, 32, 8, 4), (128, 128, 64, 8, 2), (128, 128, 64, 8, 3)]
SHAPES += [(64, 128, 64, 4, 3), (64, 256, 32, 8, 3), (128, 256, 32, 8, 3), (128, 256, 64, 8, 3), (256, 128, 32, 8, 3)]


def setup(device, n, d, k):
    """Gaussian classes whose centers are as far apart as their rows."""
    import torch

    generator = torch.Generator(device).manual_seed(0)
    labels = torch.randint(k, (n,), generator=generator, device=device)
    centres = torch.randn(k, d, generator=generator, device=device)
    return torch.randn(n, d, generator=generator, device=device).add_(centres[labels]), labels


def peer(rows, labels, block=4096):
    """Plain torch: distances of a block of rows to all rows, times the class indicators."""
    import torch

    indicators = torch.nn.functional.one_hot(labels).float()
    sizes = indicators.sum(0)
    values = []
    for part, mine in zip(rows.split(block), labels.split(block), strict=True):
        sums = torch.cdist(part, rows) @ indicators
        own = sums.gather(1, mine[:, None])[:, 0] / (sizes[mine] - 1)
        nearest = (sums / sizes).scatter(1, mine[:, None], torch.inf).amin(1)
        values.append((nearest - own) / torch.maximum(own, nearest))
    return torch.cat(values).mean()


def errors(rows, labels, of=64, block=4096):
    """Of random rows: the distance of their silhouettes from those of exact float64 distances."""
    import torch

    from clip_geometry.geometry import silhouette_samples

    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:of].to(rows.device)
    mine, sizes = labels[chosen], torch.bincount(labels).double()
    sums = rows.new_zeros((len(sizes), len(chosen)), dtype=torch.float64)
    for part, codes in zip(rows.split(block), labels.split(block), strict=True):
        exact = {"compute_mode": "donot_use_mm_for_euclid_dist"}
        sums.index_add_(0, codes, torch.cdist(part.double(), rows[chosen].double(), **exact))
    own = sums.gather(0, mine[None])[0] / (sizes[mine] - 1)
    nearest = (sums / sizes[:, None]).scatter(0, mine[None], torch.inf).amin(0)
    expected = (nearest - own) / torch.maximum(own, nearest)
    return (silhouette_samples(rows, labels)[chosen] - expected).abs()


def timed(function, *arguments, **options):
    """Seconds, megabytes of device memory, and the value."""
    import torch

    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if gpu else 0
    start = time.perf_counter()
    value = float(function(*arguments, **options))  # waits for the device
    seconds = time.perf_counter() - start
    return seconds, ((torch.cuda.max_memory_allocated() - before) if gpu else 0) / 2**20, value


def rate(size):
    """Operations per second of torch.matmul on this device, in float16."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = (torch.randn(size, size, device=device).half() for _ in range(2))
    wait = torch.cuda.synchronize if device == "cuda" else int
    for _ in range(3):
        a @ b
    wait()
    start = time.perf_counter()
    for _ in range(10):
        a @ b
    wait()
    return 20 * size**3 / (time.perf_counter() - start)


def alone(size, device, matrix_size):
    """Ours, its share of the matrix rate, and its error."""
    from clip_geometry.geometry import silhouette

    rows, labels = setup(device, **size)
    silhouette(rows[: size["n"] // 50 + 20], labels[: size["n"] // 50 + 20])  # compiles
    seconds, megabytes, value = timed(silhouette, rows, labels)
    operations = 2 * PRODUCTS * size["n"] ** 2 * size["d"]
    reached = rate(matrix_size)
    error = errors(rows, labels)
    row = {
        "size": size,
        "seconds": seconds,
        "megabytes": megabytes,
        "value": value,
        "operations_per_second": operations / seconds,
        "matmul_operations_per_second": reached,
        "share": operations / seconds / reached,
        "error": float(error.square().mean().sqrt()),
        "largest_error": float(error.amax()),
        "checked": len(error),
    }
    rest = f"{row['share']:6.1%} of {reached / 1e12:.4g} TFLOP/s"
    print(
        f"{_words(size):30}{seconds:9.3f} s{megabytes:8.0f} MB  {rest}  "
        f"error {row['error']:.0e}, at most {row['largest_error']:.0e} of {row['checked']} rows",
        flush=True,
    )
    return row


def note(row):
    """What docs/performance.md says of a row that has no peer."""
    rows, peak = row["size"]["n"], row["matmul_operations_per_second"] / 1e12
    return (
        f"{rows:,} rows, alone: {row['seconds']:.3g} s and {row['megabytes']:.0f} MB, {row['share']:.0%} of "
        f"torch.matmul's {peak:.0f} TFLOP/s; error of a row {row['error']:.0e}, at most {row['largest_error']:.0e}"
    )


def beside(size, device):
    """Ours and the peer alternately, on the same rows."""
    from clip_geometry.geometry import silhouette

    rows, labels = setup(device, **size)
    runs = {"ours": [], "peer": []}
    for _ in range(2):  # the first warms up
        runs["ours"].append(timed(silhouette, rows, labels))
        runs["peer"].append(timed(peer, rows, labels))
    ours, other = runs["ours"][-1], runs["peer"][-1]
    row = {
        "contest": "silhouette",
        "size": size,
        "peer": "torch",
        "seconds": {"ours": ours[0], "peer": other[0]},
        "ratio": other[0] / ours[0],
        "megabytes": {"ours": ours[1], "peer": other[1]},
        "difference": abs(ours[2] - other[2]),
        # the peer's distances are float32 products about the origin
        "tolerance": 1e-5,
        "claims": {"faster": None, "memory": None},
        "held": True,
    }
    print(
        f"{_words(size):30}{ours[0]:9.3f} s  torch.cdist{other[0]:9.3f} s  {row['ratio']:.1f} × "
        f"difference {row['difference']:.0e}",
        flush=True,
    )
    return row


def tune(size, device):
    """Seconds of other block shapes; a shape that does not fit the device prints its error."""
    from clip_geometry.geometry.distances._fused import Tiles, fused_mean_distances
    from clip_geometry.geometry.distances.by_class import _sort

    rows, labels = setup(device, **size)
    data = _sort(rows, labels, size["k"], single=True)

    def total(tiles):
        own, nearest = fused_mean_distances(data.rows, data.codes, data.bounds, tiles=tiles)
        return (own.sum() + nearest.sum()).item()

    for shape in SHAPES:
        try:
            total(Tiles(*shape))
            seconds, _, value = timed(total, Tiles(*shape))
            print(f"{_words(size):30}{seconds:9.3f} s  {Tiles(*shape)}  sum {value:.8g}", flush=True)
        except Exception as error:  # Triton's: too many registers, too much shared memory
            print(f"{Tiles(*shape)}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)


def _words(size):
    return " ".join(f"{key}={value}" for key, value in size.items())


def machine():
    import torch

    found = _machine([]) | {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"}
    return found | {"versions": {package: version(package) for package in ("clip-geometry", "torch", "triton")}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", "--smoke", action="store_true", help="tiny sizes; in the interpreter without a GPU")
    parser.add_argument("--tune", action="store_true", help="only time other block shapes")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    import torch

    gpu = torch.cuda.is_available()
    if not gpu and not given.quick:
        sys.exit("no NVIDIA GPU was found; expected one, or --quick, which runs tiny sizes in Triton's interpreter")
    if find_spec("triton") is None:
        sys.exit("Triton, which the kernel needs, was not found; expected it to be installed with torch, as on Linux")
    if not gpu:
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    device = "cuda" if gpu else "cpu"
    large, small = (TINY, TINY) if given.quick else (MILLION, BESIDE)
    if given.tune:
        tune(small, device)
        return
    print(machine()["device"])
    row, found = beside(small, device), alone(large, device, 128 if given.quick else 8192)
    row["notes"] = [note(found)]
    if given.json:
        given.json.write_text(json.dumps({"machine": machine(), "rows": [row], "alone": [found]}, indent=1) + "\n")
    agree = row["difference"] <= row["tolerance"]
    agree &= found["error"] <= 10 * TOLERANCE  # per row, not of their mean
    fast = given.quick or found["seconds"] < GOAL
    if not given.quick:
        print(f"{_words(MILLION)} under {GOAL:g} s: {'held' if fast else 'NOT held'}")
    sys.exit(not (agree and fast))


if __name__ == "__main__":
    main()

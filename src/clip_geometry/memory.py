"""How much memory this process may take, and whether it has run out."""

import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")  # where Linux tells what a container, or a job of a cluster, may take
OWN_CGROUPS = Path("/proc/self/cgroup")  # which of them this process is in


def memory() -> int:
    """Bytes that this machine has, or that the container or job in which this process runs may take."""
    if not hasattr(os, "sysconf"):
        return 2**34
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits()])


def _limits() -> Iterator[int]:
    """ulimit -v, and those of the process's groups and of all groups around them, of either version of cgroups."""
    import resource

    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY:
        yield allowed
    for file in _limit_files():
        try:
            limit = file.read_text().strip()
        except OSError:  # there is none, or it is not ours to read
            continue
        if limit.isdecimal():  # "max" is none
            yield int(limit)


def _limit_files() -> Iterator[Path]:
    lines = OWN_CGROUPS.read_text().splitlines() if OWN_CGROUPS.is_file() else []
    for _, controllers, group in (line.split(":", 2) for line in lines):
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (CGROUPS, "memory.max")
        # inside a container the path may be the host's, where nothing is: its own group is then the root
        path = Path("/", group)
        for part in (path, *path.parents):
            yield root / part.relative_to("/") / name


def give_back() -> None:
    """Returns freed memory to the system where the C library can (glibc), which otherwise keeps most of the blocks that
    lay between small live ones: of a streamed set as much as its largest blocks take, after each kind of pass."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def is_out_of_memory(error: Exception) -> bool:
    """Of whatever device: torch has a class for CUDA only; on the CPU and on Apple's GPUs the message tells."""
    signs = ("not enough memory", "allocate memory", "out of memory", "bad_alloc", "malloc of size")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def out_of_memory(error: Exception) -> str:
    """What an error of running out says: how much was asked for, what there is, and what takes less."""
    asked = re.search(r"(?:allocate|of size) (\d[\d.]* [KMGT]?i?B|\d+ bytes|\d+)", str(error))
    return (
        f"memory ran out{f', {asked[1]} more were asked for' if asked else ''}: this process may take "
        f"{memory() / 1e9:.3g} GB, into which the libraries and up to 9 times the rows in float64, 8 bytes a number, "
        "have to fit; give fewer rows, or a .npy file or a store, which are read in blocks if large, name fewer "
        "--measures, or make batches smaller"
    )

"""The memory that this process may use, and errors of exhausted memory."""

import ctypes
import os
import re
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")  # limits of containers and cluster jobs on Linux
KEPT = 2**30  # bytes of a process up to which returning memory is not worth the cost of new pages
OWN_PAGES = Path("/proc/self/statm")
OWN_CGROUPS = Path("/proc/self/cgroup")  # the groups of this process


def memory() -> int:
    """Return the bytes of memory that this process may use: all of the machine, or the limit of a container or job."""
    if not hasattr(os, "sysconf"):
        return 2**34
    import resource

    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]  # ulimit -v
    if allowed != resource.RLIM_INFINITY:
        limits.append(allowed)
    # the cgroups of the process (version 1 or 2) and all groups that contain them
    lines = OWN_CGROUPS.read_text().splitlines() if OWN_CGROUPS.is_file() else []
    for _, controllers, group in (line.split(":", 2) for line in lines):
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (CGROUPS, "memory.max")
        # inside a container the path may be that of the host and not exist; the container's own group is then the root
        path = Path("/", group)
        for part in (path, *path.parents):
            try:
                limit = (root / part.relative_to("/") / name).read_text().strip()
            except OSError:  # the file does not exist or is not readable
                continue
            if limit.isdecimal():  # "max" means no limit
                limits.append(int(limit))
    return min(limits)


# measures and steps that need all rows at once get them up to this many bytes in float64; see docs/memory.md
MOST_HELD = min(memory() // 12, 10**9)


def can_be_held(*shapes: tuple[int, int]) -> bool:
    """Return whether rows of these shapes fit in memory, for measures and steps that need all of them at once."""
    return sum(n * d * 8 for n, d in shapes) <= MOST_HELD


def return_large_blocks() -> None:
    """Make the C library (glibc) return every freed block of 8 MB or more to the system immediately.

    By default, glibc raises this threshold up to 32 MB as blocks are freed and keeps smaller blocks between others:
    a gigabyte of them in `diagnose` and `explore`. A lower threshold costs time, because each returned block needs new
    pages when the next one is allocated: at 1 MB, a third of the time of `diagnose` with 2,000 pairs.
    """
    if hasattr(os, "sysconf") and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(-3, 2**23)  # M_MMAP_THRESHOLD


def give_back() -> None:
    """Return freed memory to the system if the process holds more than `KEPT` bytes and the C library (glibc) can.

    Without this, most freed blocks stay between small live ones: for a streamed set, as many bytes as its largest
    blocks after each kind of pass.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None and resident() > KEPT:
        trim(0)


def resident() -> int:
    """Return the resident memory of this process in bytes; outside Linux, a number larger than any memory."""
    pages = OWN_PAGES.read_text().split()[1] if OWN_PAGES.is_file() else 2**50
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means that the memory of some device ran out.

    torch has an error class only for CUDA; other errors are recognized by their message.
    """
    signs = ("not enough memory", "allocate memory", "out of memory", "bad_alloc", "malloc of size")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def out_of_memory(error: Exception) -> str:
    """Return a message about exhausted memory: how much was requested, how much there is, and what needs less."""
    requested = re.search(r"(?:allocate|of size) (\d[\d.]* [KMGT]?i?B|\d+ bytes|\d+)", str(error))
    problem = f"memory ran out when {requested[1]} more were requested" if requested else "memory ran out"
    return (
        f"{problem}: this process may use {memory() / 1e9:.3g} GB; give fewer rows, or a .npy file or a store, which "
        "are read in blocks if large, name fewer --measures, or make batches smaller"
    )

"""How much memory this process may use, and whether it ran out."""

import ctypes
import os
import re
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")  # limits of containers and cluster jobs on Linux
KEPT = 2**30  # bytes of a process below which giving memory back costs more than it is worth: new pages
OWN_PAGES = Path("/proc/self/statm")
OWN_CGROUPS = Path("/proc/self/cgroup")  # the groups of this process


def memory() -> int:
    """Bytes of memory of this machine, or what the container or job in which this process runs may use."""
    if not hasattr(os, "sysconf"):
        return 2**34
    import resource

    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]  # ulimit -v
    if allowed != resource.RLIM_INFINITY:
        limits.append(allowed)
    # the process's cgroups (either version) and all groups around them
    lines = OWN_CGROUPS.read_text().splitlines() if OWN_CGROUPS.is_file() else []
    for _, controllers, group in (line.split(":", 2) for line in lines):
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (CGROUPS, "memory.max")
        # inside a container the path may be the host's, where nothing is: its own group is then the root
        path = Path("/", group)
        for part in (path, *path.parents):
            try:
                limit = (root / part.relative_to("/") / name).read_text().strip()
            except OSError:  # it does not exist, or may not be read
                continue
            if limit.isdecimal():  # "max" means no limit
                limits.append(int(limit))
    return min(limits)


# bytes of float64 rows up to which measures and steps that need all of them at once get them: docs/memory.md
MOST_HELD = min(memory() // 12, 10**9)


def can_be_held(*shapes: tuple[int, int]) -> bool:
    """Whether measures and steps that need all rows of these shapes at once get them."""
    return sum(n * d * 8 for n, d in shapes) <= MOST_HELD


def return_large_blocks() -> None:
    """Lets the C library (glibc) return every freed block of 8 MB or more to the system at once.

    By default it raises that size up to 32 MB with the blocks that are freed, and keeps those below between others: in
    `diagnose` and `explore`, a gigabyte of them. Each block that is returned costs new pages when the next is asked
    for: from 1 MB on, a third of the time of `diagnose` with 2,000 pairs.
    """
    if hasattr(os, "sysconf") and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(-3, 2**23)  # M_MMAP_THRESHOLD


def give_back() -> None:
    """Returns freed memory to the system where the C library can (glibc), from `KEPT` bytes in this process on. It
    otherwise keeps most freed blocks between small live ones, for a streamed set as much as its largest blocks after
    each kind of pass."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None and resident() > KEPT:
        trim(0)


def resident() -> int:
    """Bytes of this process that are in memory, on Linux; elsewhere more than there can be."""
    pages = OWN_PAGES.read_text().split()[1] if OWN_PAGES.is_file() else 2**50
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory of any device ran out. torch has a class for CUDA only; elsewhere the message has to tell."""
    signs = ("not enough memory", "allocate memory", "out of memory", "bad_alloc", "malloc of size")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def out_of_memory(error: Exception) -> str:
    """The message when memory ran out: how much was requested, how much there is, and what needs less."""
    asked = re.search(r"(?:allocate|of size) (\d[\d.]* [KMGT]?i?B|\d+ bytes|\d+)", str(error))
    return (
        f"memory ran out{f', {asked[1]} more were asked for' if asked else ''}: this process may take "
        f"{memory() / 1e9:.3g} GB; give fewer rows, or a .npy file or a store, which are read in blocks if large, name "
        "fewer --measures, or make batches smaller"
    )

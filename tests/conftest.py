"""Shapes and types in geometry's signatures are checked while the tests run; parallel workers share the cores."""

import os

if "PYTEST_XDIST_WORKER_COUNT" in os.environ:  # before torch is imported, here and in the processes that tests start
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = max(1, cores // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    os.environ.setdefault("OMP_NUM_THREADS", str(share))

from jaxtyping import install_import_hook

install_import_hook("clip_geometry.geometry", "beartype.beartype")

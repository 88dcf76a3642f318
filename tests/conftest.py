"""Shapes and types in geometry's signatures are checked while the tests run; parallel workers share the cores."""

import gc
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER_COUNT" in os.environ:  # before torch is imported, here and in the processes that tests start
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = max(1, cores // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    os.environ.setdefault("OMP_NUM_THREADS", str(share))

import jaxtyping

import support.signatures  # noqa: F401 (jaxtyping looks its function up by this name)
from support.browser import chromium

jaxtyping.install_import_hook(["clip_geometry.geometry", "clip_geometry.rows"], "support.signatures.checked")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Ten thousand tests and their modules stay until the end: the garbage collector does not search them."""
    gc.disable()
    result = yield
    gc.enable()
    gc.freeze()
    return result


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    """The library has to work, and to pass its tests, without the experiments, which .ci/run deletes to show it."""
    here, installed = Path(__file__).parent, find_spec("clip_geometry_experiments") is not None
    for item in items:
        if item.path.relative_to(here).parts[0] in ("experiments", "site") or any(
            family in item.name for family in ("hidden", "ruclip")
        ):
            item.add_marker(pytest.mark.experiments)
        if item.get_closest_marker("experiments") and not installed:
            item.add_marker(pytest.mark.skip(reason="clip_geometry_experiments is not installed"))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)  # minutes at the end would be one worker's


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config, log):
    """By file, but for the pages whose blocks run, which take minutes each; in the order of the collection.

    xdist begins with files of many tests, and would end with those of few, which take longest.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrPage(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return nodeid if "test_the_blocks_of_a_page_run" in nodeid else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return ByFileOrPage(config, log)


@pytest.fixture
def no_type_checker():
    """Calls of small arrays in half of the time: for simulations."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def data():
    """The folder of real data, see docs/data.md."""
    folder = os.environ.get("CLIP_GEOMETRY_DATA")
    if not folder:
        pytest.skip("CLIP_GEOMETRY_DATA is not set; docs/data.md says how to build such a folder")
    return Path(folder)


@pytest.fixture(scope="session")
def coco500(data):
    import numpy as np

    folder = data / "embeddings" / "coco500-clip-vit-b16"
    return np.load(folder / "image.npy"), np.load(folder / "text.npy")

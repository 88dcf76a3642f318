"""The engine on Ray does what one process does, also where its workers are killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install ray")

pytestmark = pytest.mark.slow  # the cluster of all takes half a minute to start
TESTS = Path(__file__).parents[1]
CLOSE = 1e-9  # relative; blocks are the same and only sums of float64 numbers are put together in another order


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def found(folder):
    """What support/ray_jobs.py tells, by job; one cluster for all, since starting one takes seconds."""
    command = [sys.executable, str(TESTS / "support" / "ray_jobs.py"), str(folder)]
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


def contents(folder):
    """All files but the lock; the manifest without its date, its run and the checksum, which covers both."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(found.pop("manifest.json"))
    found.pop(".lock")
    return found, {key: value for key, value in manifest.items() if key not in ("date", "run", "checksum")}


def test_a_killed_worker_loses_nothing_and_the_engines_continue_each_other(found, folder):
    assert found["continued"]["result"]["run"] == {
        "image": {"engine": "ray", "actors": 2},
        "text": {"engine": "ray", "actors": 2},
    }
    killed = int((folder / "killed").read_text())
    assert killed != found["pid"] and not Path(f"/proc/{killed}").exists()
    workers = {int(path.name.partition("-")[2]) for path in folder.glob("batches-*")}
    assert len(workers) >= 2 and killed in workers and found["pid"] not in workers
    assert contents(folder / "store") == contents(folder / "whole")


def test_what_goes_wrong_in_a_worker_is_one_sentence(found):
    assert found["refused"] == {"error": "this model takes no such thing; take another"}
    error = found["dying"]["error"]
    assert error.startswith("the worker of image shard ") and " died 1 times (" in error
    assert error.endswith("run the same command again; finished shards are kept")
    error = found["dying_in_a_pass"]["error"]
    assert error.startswith("the worker of rows 0 to 1000 of image died 1 times (")
    assert error.endswith("): give it more memory")
    assert found["bad_row"] == {"error": "image has NaN or infinity in row 8500; remove or repair such rows first"}


def test_statistics_are_those_of_one_machine(found, folder):
    assert found["statistics"] == {"result": None}
    with np.load(folder / "ray.npz") as there, np.load(folder / "local.npz") as here:
        assert len(there.files) == 12
        for name in there.files:
            assert np.abs(there[name] - here[name]).max() <= CLOSE * np.abs(here[name]).max(), name
        rows = np.load(folder / "rows.npz")["rows"].astype(np.float64)
        centered = rows - rows.mean(0)
        assert there["mean"] == pytest.approx(rows.mean(0), rel=CLOSE)
        # float32 products inside a block, as in one process
        assert np.linalg.norm(there["M2"] - centered.T @ centered) < 1e-6 * np.linalg.norm(there["M2"])


def test_a_pass_survives_its_killed_worker(found, folder):
    killed = int((folder / "killed-in-a-pass").read_text())
    assert killed != found["pid"] and not Path(f"/proc/{killed}").exists()
    rows = np.load(folder / "rows.npz")["rows"]
    assert found["killed_in_a_pass"]["result"] == pytest.approx(rows.sum(0, dtype=np.float64), rel=CLOSE)


def test_measure_prints_the_same_numbers(found, folder):
    assert found["measured"] == {"result": None}
    here, there = (
        {
            (row["measure"], row["at"]["modality"]): row
            for row in map(json.loads, (folder / f"{engine}.jsonl").read_text().splitlines())
            if "measure" in row
        }
        for engine in ("local", "ray")
    )
    assert here.keys() == there.keys() and len(here) == 11
    assert {row["engine"] for row in there.values()} == {"ray"} and not any("engine" in row for row in here.values())
    for key, row in there.items():
        assert row["value"] == pytest.approx(here[key]["value"], rel=CLOSE, abs=CLOSE), key


def test_what_cannot_be_sent_is_one_sentence(found):
    sentence = "cannot be sent to other processes (cannot pickle '_thread.lock' object); leave out engine ray"
    assert found["unsendable"] == {"error": f"the data set fake or the model fake:linear {sentence}"}
    assert found["unsendable_rows"] == {"error": f"the rows of image {sentence}"}
    assert found["gone"]["error"].startswith("a worker cannot read ")


def test_workers_stand_where_this_process_stands(found, folder):
    """Paths of the data are relative to a folder that the workers were not started in, and the family of encoders is
    known to this process's script only."""
    assert found["elsewhere"] == {"result": 12}
    rows = np.load(folder / "elsewhere" / "store" / "text" / "vectors-00000.npy")
    assert rows[:, 0].tolist() == [len(f"relative {k}") for k in range(12)]
    assert not list((folder / "elsewhere" / "store").rglob("*.tmp"))


def test_a_cluster_that_was_there_before_stays(found):
    assert found["still there"]

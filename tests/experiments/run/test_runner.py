"""A run is planned, computed cell by cell, continued after a kill, and reported."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clip_geometry.registry import InputError
from clip_geometry.results import Results
from clip_geometry_experiments.geometry import Geometry
from clip_geometry_experiments.run.runner import plan, resolve, run

CONFIG = """
name: tiny
experiment: geometry
model: scenes-clip/fresh
pairs: {name: scenes, split: test, size: 24}
batch_size: 8
measures: [average_cosine, cone_half_angle, isoscore, isotropy_i1, modality_gap, modality_silhouette, matching_cosine]
figures: [singular_directions]
sweep:
  pipeline: [[normalize], [normalize, "center[each]"]]
smoke:
  pairs.size: 6
"""


@pytest.fixture
def config(tmp_path):
    return written(tmp_path)


def written(folder):
    path = folder / "tiny.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """The report of a run of the config, and no more."""
    folder = tmp_path_factory.mktemp("once")
    return run(written(folder), {}, runs=folder / "runs")


@pytest.fixture
def finished(once, tmp_path):
    """The report of a copy of that run."""
    runs = once.parents[1]
    return shutil.copytree(runs, tmp_path / "runs") / once.relative_to(runs)


def numbers(report):
    """(place → value) of a run's rows."""
    rows = Results(report.parent / "results.jsonl").read()
    keys = [(row["measure"], *row["pipeline"], *row["at"].values()) for row in rows]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, (row["value"] for row in rows), strict=True))


def test_resolve_puts_smoke_below_the_command_line(config):
    plain = resolve(config, {}, smoke=False)
    assert plain["pairs"]["size"] == 24 and "smoke" not in plain
    assert resolve(config, {}, smoke=True)["pairs"]["size"] == 6
    assert resolve(config, {"pairs.size": 7}, smoke=True)["pairs"]["size"] == 7


def test_a_finished_run_computes_nothing_again(config, finished, monkeypatch):
    before = (finished.parent / "results.jsonl").read_bytes()
    monkeypatch.setattr(Geometry, "_rows", lambda *_: pytest.fail("a finished cell was computed again"))
    assert run(config, {}, runs=finished.parents[1]) == finished
    assert (finished.parent / "results.jsonl").read_bytes() == before


def test_a_limit_is_a_view_of_the_same_store(config, tmp_path):
    run(config, {"measures": ["isoscore"], "limit": 10}, runs=tmp_path)
    report = run(config, {"measures": ["isoscore"]}, runs=tmp_path)
    assert len(list((tmp_path / "embeddings").iterdir())) == 1
    rows = Results(report.parent / "results.jsonl").read()
    assert {row["n"] for row in rows} == {24}


def test_a_torn_last_line_is_computed_again(config, finished):
    whole = numbers(finished)
    file = finished.parent / "results.jsonl"
    file.write_bytes(file.read_bytes()[:-60])
    assert len(numbers(finished)) < len(whole)
    assert run(config, {}, runs=finished.parents[1]) == finished
    assert numbers(finished) == whole


def test_a_key_that_is_set_is_not_swept(config):
    assert len(plan(resolve(config, {"pipeline": ["center"]}, smoke=False), "c")) == 1
    (_, settings), *_ = plan(resolve(config, {"pipeline": ["center"]}, smoke=False), "c")
    assert settings.pipeline == ("center",)


def test_experiments_without_the_section_have_no_smoke_version(config):
    config.write_text(CONFIG.partition("smoke:")[0])
    with pytest.raises(InputError, match="has no section 'smoke'"):
        resolve(config, {}, smoke=True)


# A child that runs the config, tells where it is, and sleeps before each cell so that a kill hits it there.
CHILD = """
import sys, time
from pathlib import Path
from clip_geometry_experiments.run import runner
from clip_geometry_experiments.kit import base
embed, append = base.embed, runner.Results.append
def announced(*args, **kwargs):
    print("embed", flush=True)
    return embed(*args, **kwargs)
def slow(self, cell, rows):
    print("cell", flush=True)
    time.sleep(0.05)
    append(self, cell, rows)
base.embed, runner.Results.append = announced, slow
runner.run(Path(sys.argv[1]), {}, runs=Path(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("cells", [0, 9])
def test_killed_at_any_instant_and_run_again_it_ends_the_same(config, once, tmp_path, cells):
    whole = numbers(once)
    command = [sys.executable, "-c", CHILD, str(config), str(tmp_path / "killed")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        for line in ["embed\n", *["cell\n"] * cells]:
            assert child.stdout.readline() == line
        time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    (folder,) = (tmp_path / "killed").glob("tiny-*")
    assert len(numbers(folder / "report.html")) < len(whole)
    assert numbers(run(config, {}, runs=tmp_path / "killed")) == whole


def test_the_store_of_batch_statistics_depends_on_the_batch_size(tmp_path, monkeypatch):
    from clip_geometry.data import resolve_dataset
    from clip_geometry.encoders import resolve_encoder
    from clip_geometry_experiments.kit import base

    workspace = base.RunFolder(Path(tmp_path / "run"))
    data = resolve_dataset("scenes", size=4)
    evaluated = resolve_encoder("open_clip:RN50/fresh")
    in_batches = resolve_encoder("open_clip:RN50/fresh", batch_norm="batch")
    stores = []
    monkeypatch.setattr(base, "embed", lambda model, dataset, store, **options: stores.append(store))
    monkeypatch.setattr(base, "read_store", lambda store, **options: {})
    for model, count in ((evaluated, 1), (in_batches, 3)):
        for batch_size in (8, 16):
            workspace.embeddings(model, data, limit=None, batch_size=batch_size)
        assert len(set(stores)) == count

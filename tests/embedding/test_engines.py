"""What engines are made of, without Ray."""

import operator
import os
import pickle
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from clip_geometry.data.base import Dataset
from clip_geometry.embedding import engines
from clip_geometry.embedding.engines import described, open_engine, opened
from clip_geometry.embedding.rows import ShardMaker
from clip_geometry.embedding.supply import Throughput
from clip_geometry.encoders.base import EncoderEntry, encoders
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import StreamedRows, aggregate_blocks
from support.embed_fakes import FakeConfig, FakeEncoder
from support.engine_fakes import Loading


@pytest.fixture
def mapped(tmp_path):
    """Behind a header and more pages than one, so that no offset is 0."""
    np.save(tmp_path / "rows.npy", np.arange(40_000, dtype=np.float16).reshape(10_000, 4))
    return np.load(tmp_path / "rows.npy", mmap_mode="r")


@pytest.mark.parametrize("part", [slice(None), slice(1, None), slice(5000, 9001), slice(9999, None)])
def test_a_memory_map_travels_by_its_name(mapped, part):
    part = mapped[part]
    sent = pickle.dumps(described(part))
    assert len(sent) < 500
    again = opened(pickle.loads(sent))
    assert isinstance(again, np.memmap) and not again.flags.writeable
    assert np.array_equal(again, part)
    assert np.array_equal(opened(described(again[3:])), part[3:])  # and on from there


@pytest.mark.parametrize("part", [np.s_[::2], np.s_[:, 1:], np.s_[[3, 1]], np.s_[:0]])
def test_what_is_no_run_of_rows_travels_by_its_values(mapped, part):
    assert np.array_equal(opened(pickle.loads(pickle.dumps(described(mapped[part])))), mapped[part])


def test_what_was_changed_in_this_process_only_travels_by_its_values(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((5, 2)))
    changed = np.load(tmp_path / "rows.npy", mmap_mode="c")
    changed[3] = 7
    assert opened(described(changed))[3, 0] == 7


def test_a_map_that_a_worker_cannot_open_is_an_error_when_rows_are_asked_for(mapped, tmp_path):
    sent = described(mapped)
    (tmp_path / "rows.npy").unlink()
    there = opened(sent)
    with pytest.raises(InputError, match=r"a worker cannot read .*rows\.npy \(.*No such file.*all machines"):
        there[:3]


def test_labels_of_a_span_travel_without_those_of_all_rows():
    along = torch.arange(100_000)
    ray = InThisProcess()
    x = engines.RayEngine(ray).stream(StreamedRows.of(np.ones((100_000, 1000), np.float16)))

    def add(found, block, labels):
        return found + int(labels.sum())

    assert x.aggregate(int, add, operator.add, 1000, along) == int(along.sum())
    assert len(ray.given) == 6 and all(len(pickle.dumps(labels)) < 9 * len(span) for _, span, labels in ray.given)
    assert x.aggregate(int, lambda found, block, labels: found + len(block), operator.add, 1000) == 10**5


class InThisProcess:
    """Stands in for Ray. given: the arguments of every job."""

    util = exceptions = SimpleNamespace(
        register_serializer=lambda *_, **__: None, deregister_serializer=lambda _: None, RayError=(), RayTaskError=()
    )

    def __init__(self):
        self.given = []

    def remote(self, function):
        def run(*given):
            self.given.append(given)
            return function(*given)

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=run))

    def put(self, value):
        return value

    def get(self, job):
        return job

    def wait(self, jobs, **_):
        return jobs, []

    def cluster_resources(self):
        return {}


def test_a_maker_travels_without_its_encoder(tmp_path):
    maker = ShardMaker(FakeConfig(), Dataset(FakeConfig(), "r1"), tmp_path, "cpu", 4, Throughput(), Loading(None))
    assert maker.encoder is maker.encoder
    assert "encoder" not in pickle.loads(pickle.dumps(maker)).__dict__


def test_spans_give_what_one_pass_gives():
    x = StreamedRows.of(torch.randn(103, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    own = torch.arange(103)

    def add(found, block, along):
        return found + along.double() @ block

    def zero():
        return torch.zeros(5, dtype=torch.float64)

    def engine(x, zero, accumulate, merge, size, along):
        sums = [
            aggregate_blocks(x, zero, accumulate, size, along[a : a + 20], range(a, min(a + 20, 103)))
            for a in range(0, 103, 20)
        ]
        return merge(merge(sums[0], sums[1]), sum(sums[2:]))

    expected = own.double() @ x[:]
    for size in (1, 10, 200):
        assert torch.allclose(x.aggregate(zero, add, operator.add, size, own), expected, rtol=1e-12)
    there = x.aggregated_by(engine)
    assert torch.allclose(there.aggregate(zero, add, operator.add, 10, own), expected, rtol=1e-12)
    doubled = there.map(lambda block, _: 2 * block, 5).take(torch.arange(103))
    assert torch.allclose(doubled.aggregate(zero, add, operator.add, 10, own), 2 * expected, rtol=1e-12)
    assert there.engine is engine and doubled.engine is engine and x.engine is None


def test_actors_are_as_many_as_there_are_gpus_or_processors():
    large, small, none = {"CPU": 64.0, "GPU": 8.0}, {"CPU": 8.0, "GPU": 4.0}, {"CPU": 100.0}
    assert engines.capacity([large], "auto") == (8, {"num_gpus": 1, "num_cpus": 8})
    # what an actor needs is there on every machine with GPUs: otherwise it would wait for ever
    assert engines.capacity([none, large, small], "auto") == (12, {"num_gpus": 1, "num_cpus": 2})
    assert engines.capacity([{"CPU": 4.0, "GPU": 8.0}], "cuda") == (8, {"num_gpus": 1, "num_cpus": 0})
    assert engines.capacity([large, none], "cpu") == (164, {"num_cpus": 1})
    assert engines.capacity([{"CPU": 2.0}], "auto") == (2, {"num_cpus": 1})
    assert engines.capacity([{}], "auto") == (1, {"num_cpus": 1})  # one that grows when it is asked


def test_a_worker_takes_on_the_folder_and_the_variables_it_lacks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "yes")
    monkeypatch.setenv("HF_HOME", "/of/the/driver")
    monkeypatch.setenv("SECRET", "s")
    driver = pickle.loads(pickle.dumps(engines.environment(FakeEncoder(FakeConfig()))))
    assert "SECRET" not in driver["variables"] and driver["families"] == {}
    monkeypatch.chdir("/")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_HOME", "/of/the/worker")
    engines.replicate(driver)
    assert Path.cwd() == tmp_path
    assert (os.environ["HF_HUB_OFFLINE"], os.environ["HF_HOME"]) == ("yes", "/of/the/worker")
    engines.replicate(driver | {"folder": str(tmp_path / "not there")})


def test_a_worker_knows_the_encoders_that_the_user_added(monkeypatch):
    entry = EncoderEntry(FakeConfig, lambda *_: None, lambda _: "")
    monkeypatch.setattr(encoders, "_members", {**encoders._members, "own": entry})
    driver = engines.environment(FakeEncoder(FakeConfig()))
    assert driver["families"] == {"own": entry}
    engines.replicate(driver)  # where it is known already
    monkeypatch.setattr(encoders, "_members", {})
    engines.replicate(driver)
    assert encoders["own"] is entry


def test_a_worker_with_other_libraries_or_weights_is_refused(monkeypatch):
    encoder = FakeEncoder(FakeConfig())
    facts = engines.facts_of(encoder)
    assert engines.environment(encoder)["facts"] == facts
    engines.require_equal(facts, dict(facts))
    for what, sentence in [
        (
            "weights of fake:linear",
            r"weights of fake:linear is older here, but fake on .*make it the same on all machines",
        ),
        ("the version of numpy", r"the version of numpy is older here, but \d.* on "),
    ]:
        with pytest.raises(InputError, match=sentence):
            engines.require_equal(facts | {what: "older"}, facts)
    monkeypatch.setattr(engines, "library_versions", lambda: {"torch": "2.15.0+cu132"})
    assert engines.facts_of(encoder)["the version of torch"] == "2.15.0"  # however it was built


def test_a_folder_that_is_not_shared_is_found_out(tmp_path):
    with pytest.raises(
        InputError, match=r"record-00003\.json, which does not exist on this machine: -o needs a folder"
    ):
        engines.require_shared(tmp_path / "image" / "record-00003.json")


def test_spans_are_whole_blocks_of_some_megabytes():
    def first_of(*given):
        found = engines.spans_of(*given)
        assert found[0].start == 0 and found[-1].stop == given[0]
        assert all(a.stop == b.start for a, b in pairwise(found))
        return len(found), len(found[0])

    assert first_of(10**6, 8192, 1024) == (31, 4 * 8192)  # 32 MB
    assert first_of(10**9, 8192, 1024) == (1018, 120 * 8192)
    assert first_of(10, 1000, 2**30) == (1, 10)


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    sentence = "^engine ray needs ray, which is not installed: pip install ray$"
    with pytest.raises(InputError, match=sentence), open_engine("ray"):
        pass


def test_nobody_at_the_address():
    pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    with pytest.raises(InputError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 \(.*refused"):
        open_engine("ray", "127.0.0.1:1").__enter__()


def test_an_address_from_the_environment_is_knocked_at_too(monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    for address in (None, "auto"):
        with pytest.raises(InputError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 \(.*refused"):
            open_engine("ray", address).__enter__()


def test_a_failed_connection_says_what_caused_it(monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    text = "Failed. Last error: Traceback (most recent call last):\n  File x\nAuthenticationError: token is missing\n\n"

    def init(**_):
        raise ConnectionError("Failed to connect") from RuntimeError(text)

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", init)
    sentence = r"answers at local \(AuthenticationError: token is missing\)"
    with pytest.raises(InputError, match=sentence), open_engine("ray"):
        pass


def test_unknown_engine_and_address_without_cluster():
    with pytest.raises(InputError, match="unknown engine 'rey'; did you mean 'ray'"):
        open_engine("rey")
    with pytest.raises(InputError, match="address 'auto' is for a Ray cluster, but the engine is local"):
        open_engine("local", "auto")

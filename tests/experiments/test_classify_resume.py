"""A training that is stopped goes on bit for bit."""

import pytest
import torch

from clip_geometry.experiments import classify_checkpoint
from clip_geometry.experiments.classify_checkpoint import Checkpoint
from clip_geometry.experiments.classify_problem import hold_out
from clip_geometry.experiments.classify_states import DEFAULT, Observer
from clip_geometry.experiments.classify_training import Training, resume, train
from support.problems import CONFIG, configured, pairs

CHANGES = [{}, {"classifier": "two-layer", "hidden": 5}, {"loss": "triplet"}]


@pytest.mark.parametrize("stop", [1, 5, 11])
@pytest.mark.parametrize("changes", CHANGES, ids=["linear", "two-layer", "triplet"])
def test_a_training_that_is_stopped_goes_on_bit_for_bit(tmp_path, monkeypatch, changes, stop):
    monkeypatch.setattr(classify_checkpoint, "SECONDS", 0)
    monkeypatch.setattr(classify_checkpoint, "SHARE", float("inf"))
    config = configured(lr=0.01, **changes)
    trained, unseen = hold_out(pairs(n=40, m=200), 0.2, 0) if "loss" not in changes else (pairs(), None)
    observer = Observer(DEFAULT, sample=20)

    def fresh():
        return Training(trained, config, seed=2, unseen=unseen)

    whole = fresh()
    expected = train(whole, observer, updates=12, every=2)

    def stopping(done):
        stopped.append(done)
        if len(stopped) > stop:
            raise KeyboardInterrupt

    stopped, checkpoint = [], Checkpoint(tmp_path / "cells" / "a.pt")
    with pytest.raises(KeyboardInterrupt):
        train(fresh(), observer, updates=12, every=2, checkpoint=checkpoint, advance=stopping)
    training = fresh()
    before = resume(training, checkpoint)
    assert training.update == stop
    found = train(training, observer, updates=12, every=2, trajectory=before, checkpoint=checkpoint)
    assert repr(found) == repr(expected)  # as text, so that NaN is NaN
    for one, other in zip(training._parameters(), whole._parameters(), strict=True):
        assert torch.equal(one, other)
    one, other = (each.optimizer.state_dict()["state"] for each in (training, whole))
    assert all(torch.equal(one[k][name], other[k][name]) for k in one for name in one[k])


def test_a_damaged_checkpoint_begins_anew(tmp_path, capsys):
    path = tmp_path / "a.pt"
    path.write_bytes(b"torn")
    training = Training(pairs(), CONFIG, seed=0)
    assert resume(training, Checkpoint(path)) == {} and training.update == 0
    assert "a.pt cannot be read" in capsys.readouterr().err


def test_checkpoints_are_seconds_apart_and_cost_little(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(classify_checkpoint.time, "monotonic", lambda: now[0])
    checkpoint = Checkpoint(tmp_path / "a.pt")
    assert not checkpoint.is_due()
    now[0] += 30
    assert checkpoint.is_due()
    monkeypatch.setattr(torch, "save", lambda *_: now.__setitem__(0, now[0] + 10))
    checkpoint.save({})
    now[0] += 199
    assert not checkpoint.is_due()  # ten seconds of writing are 5% of two hundred
    now[0] += 1
    assert checkpoint.is_due()

"""A training that is stopped goes on bit for bit."""

import pytest
import torch

from clip_geometry.experiments.kit.checkpoint import Checkpoint, resume
from clip_geometry.experiments.mickus2024.classify.problem import hold_out
from clip_geometry.experiments.mickus2024.classify.states import DEFAULT, Observer, Place
from clip_geometry.experiments.mickus2024.classify.training import Training, train
from support.problems import configured, pairs

CHANGES = [{}, {"classifier": "two-layer", "hidden": 5}, {"loss": "triplet"}]


@pytest.mark.parametrize("stop", [1, 5, 11])
@pytest.mark.parametrize("changes", CHANGES, ids=["linear", "two-layer", "triplet"])
def test_a_training_that_is_stopped_goes_on_bit_for_bit(tmp_path, monkeypatch, changes, stop):
    monkeypatch.setattr("clip_geometry.experiments.kit.checkpoint.SECONDS", 0)
    monkeypatch.setattr("clip_geometry.experiments.kit.checkpoint.SHARE", float("inf"))
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
    before = resume(training, checkpoint, Place)
    assert training.update == stop
    found = train(training, observer, updates=12, every=2, trajectory=before, checkpoint=checkpoint)
    assert repr(found) == repr(expected)  # as text, so that NaN is NaN
    for one, other in zip(training._parameters(), whole._parameters(), strict=True):
        assert torch.equal(one, other)
    one, other = (each.optimizer.state_dict()["state"] for each in (training, whole))
    assert all(torch.equal(one[k][name], other[k][name]) for k in one for name in one[k])

"""Checkpoints are seldom written, survive damage, are kept as long as they are needed, and lead back to the state."""

from typing import NamedTuple

import pytest
import torch

from clip_geometry.experiments.kit.checkpoint import Checkpoint, remove_finished, resume, save_measured
from clip_geometry.registry import InputError
from clip_geometry.results import Results


class Place(NamedTuple):
    measure: str
    layer: str = "input"


class Counting:
    """A training of nothing but a number."""

    number = 0

    def state(self):
        return {"number": self.number}

    def restore(self, state):
        self.number = state["number"]


def test_a_training_and_what_was_measured_are_read_as_they_were_saved(tmp_path):
    checkpoint, training = Checkpoint(tmp_path / "a.pt"), Counting()
    training.number = 3
    trajectory = {Place("loss", "output"): [2.0, 1.5], Place("isoscore"): [0.25]}
    save_measured(checkpoint, training, trajectory)
    other = Counting()
    found = resume(other, Checkpoint(checkpoint.path), Place)
    assert other.number == 3 and found == trajectory and all(isinstance(place, Place) for place in found)


def test_without_a_checkpoint_a_training_begins_at_its_beginning(tmp_path):
    training = Counting()
    assert resume(training, Checkpoint(tmp_path / "none.pt"), Place) == {} and training.number == 0


def test_a_damaged_checkpoint_begins_anew(tmp_path, capsys):
    path = tmp_path / "a.pt"
    path.write_bytes(b"torn")
    training = Counting()
    assert resume(training, Checkpoint(path), Place) == {} and training.number == 0
    assert "a.pt cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"training": {"number": 1}},
        {"training": [1], "trajectory": []},
        {"training": {}, "trajectory": []},
        {"training": {"number": 1}, "trajectory": [(("loss",), "high")]},
    ],
)
def test_the_checkpoint_of_something_else_is_one_sentence(tmp_path, state):
    torch.save(state, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"a\.pt"):
        resume(Counting(), Checkpoint(tmp_path / "a.pt"), Place)
    torch.save([1, 2], tmp_path / "a.pt")
    assert resume(Counting(), Checkpoint(tmp_path / "a.pt"), Place) == {}


def test_checkpoints_of_finished_cells_only_are_removed(tmp_path):
    remove_finished(tmp_path)  # neither checkpoints nor results are there yet
    done, begun = (Checkpoint.of(tmp_path, key) for key in ("done", "begun"))
    for each in (done, begun):
        each.save({})
    remove_finished(tmp_path)
    assert done.path.exists() and begun.path.exists()
    Results(tmp_path / "results.jsonl").append("done", [{"value": 1.0}])
    remove_finished(tmp_path)
    assert not done.path.exists() and begun.path.exists()


def test_checkpoints_are_seconds_apart_and_cost_little(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("clip_geometry.experiments.kit.checkpoint.time.monotonic", lambda: now[0])
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

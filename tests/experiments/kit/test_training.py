"""The contract of every training: resumption bit for bit, steps that depend on seed and number only, checkpoints."""

import math
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from clip_geometry.registry import InputError
from clip_geometry.results import Results
from clip_geometry_experiments.kit.training import Checkpoint, Trainer, learning_rate, remove_finished_checkpoints
from clip_geometry_experiments.mickus2024.classify.task import DEFAULT, hold_out
from clip_geometry_experiments.mickus2024.classify.training import ClassificationCallback
from clip_geometry_experiments.studies.train_clip.training import ClipCallback
from support import distillation, finetune, problems, train_clip


@dataclass
class Training:
    """make: seed → the training before its first step."""

    make: Callable[..., Trainer]
    callback: Callable[..., Any] = lambda trainer: {}
    recorded: tuple[int, ...] = ()
    seeded: bool = True


def classify(folder, **changes):
    held_out = "loss" not in changes
    task, unseen = hold_out(problems.pairs(n=40, m=200), 0.2, 0) if held_out else (problems.pairs(), None)
    return Training(
        lambda seed=2: problems.trainer(task, 12, seed, unseen, lr=0.01, **changes),
        ClassificationCallback(DEFAULT, sample=20),
        tuple(range(0, 13, 2)),
        held_out,
    )


def clip(folder, arm, **changes):
    experiment = train_clip.planned(folder, arm=arm, steps=4, **changes)
    pairs = experiment.pairs("measured")
    callback = ClipCallback(pairs, experiment.prompts, names=("modality_gap", "isoscore", "silhouette"))
    return Training(
        lambda seed=0: train_clip.planned(folder, arm=arm, steps=4, seed=seed, **changes).trainer(),
        callback,
        (0, 1, 2, 4),
    )


def distilled(folder):
    return Training(
        lambda seed=0: distillation.planned(folder, seed=seed).trainer(),
        distillation.planned(folder).callback(),
        (0, 2, 4, 6),
    )


# a ViT that drops half of its patches
VIT = {"image_size": 32, "patch_size": 8, "layers": 1, "width": 8, "head_width": 8, "patch_dropout": 0.5}
DROPPING = {"embed_dim": 12, "vision_cfg": VIT, "text_cfg": {"layers": 1}}
CLIP_ARMS = ("clip", "siglip", "istar", "classes")
TRAININGS: dict[str, Callable[..., Training]] = {
    "classify, linear": classify,
    "classify, two-layer": lambda folder: classify(folder, classifier="two-layer", hidden=5),
    "classify, triplet": lambda folder: classify(folder, loss="triplet"),
    **{
        f"finetune, {method}": lambda folder, method=method: Training(
            lambda seed=0: finetune.trainer(method, seed=seed)
        )
        for method in ("none", "i_star(-1)", "all_but_the_top(2)")
    },
    **{f"train_clip, {arm}": lambda folder, arm=arm: clip(folder, arm) for arm in CLIP_ARMS},
    "train_clip, dropout": lambda folder: clip(folder, "clip", architecture=DROPPING),
    "distillation": distilled,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the pictures of all trainings are drawn once."""
    return tmp_path_factory.mktemp("training")


@pytest.fixture(scope="module", params=list(TRAININGS))
def training(request, folder):
    return TRAININGS[request.param](folder)


@pytest.fixture(scope="module", params=["classify, linear", "finetune, none", "train_clip, clip", "distillation"])
def one_of_each(request, folder):
    return TRAININGS[request.param](folder)


@pytest.fixture
def always_due(monkeypatch):
    monkeypatch.setattr("clip_geometry_experiments.kit.training.SECONDS", 0)
    monkeypatch.setattr("clip_geometry_experiments.kit.training.SHARE", float("inf"))


def tensors(value):
    """All in a state, in its order."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [each for part in parts for each in tensors(part)]


@contextmanager
def interrupted(trainer, stop):
    """Ctrl-C before step `stop`."""
    step = trainer.step

    def stopping():
        if trainer.number == stop:
            raise KeyboardInterrupt
        step()

    trainer.step = stopping
    with pytest.raises(KeyboardInterrupt):
        yield


# --- steps


def test_a_training_interrupted_again_and_again_is_the_whole_one(training, tmp_path, always_due):
    whole = training.make()
    expected = whole.run(training.recorded, training.callback)
    checkpoint = Checkpoint(tmp_path / "cells" / "a.pt")
    for stop in sorted({1, whole.steps // 2, whole.steps - 1}):
        trainer = training.make()
        torch.rand(3)  # other draws do not matter
        with interrupted(trainer, stop):
            trainer.run(training.recorded, training.callback, checkpoint=checkpoint)
    last = training.make()
    last.resume(checkpoint)
    assert last.number == whole.steps - 1
    found = last.run(training.recorded, training.callback, checkpoint=checkpoint)
    assert repr(found) == repr(expected) and last.losses == whole.losses  # as text, so that NaN is NaN
    assert len(whole.losses) == whole.number == whole.steps
    for one, other in zip(tensors(last.state()), tensors(whole.state()), strict=True):
        assert torch.equal(one, other)


def test_a_step_depends_on_seed_and_number_only(training):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, same, other = training.make(1), training.make(1), training.make(2)
    for each in (one, same, other):
        each.step()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert one.losses == same.losses and one.number == 1
    assert (one.losses != other.losses) is training.seeded
    torch.rand(3)
    resumed = training.make(1)
    resumed.restore(same.state())
    one.step()
    resumed.step()
    assert one.losses == resumed.losses


def test_a_training_that_diverges_is_said(one_of_each):
    trainer = one_of_each.make()
    for parameter in trainer.parameters:
        parameter.data.fill_(math.nan)
    with pytest.raises(InputError, match=r"has diverged: the loss of step 1 is not finite; choose a lr below \d"):
        trainer.step()


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("cosine", {0: 0.02, 4: 0.1, 9: 0.2, 10: 0.2, 25: 0.1, 40: 0.0}),
        ("linear", {0: 0.02, 9: 0.2, 10: 0.2, 25: 0.1, 39: 0.2 / 30}),
    ],
)
def test_the_learning_rate_rises_and_falls(schedule, expected):
    found = {k: learning_rate(k, steps=40, lr=0.2, warmup=0.25, schedule=schedule) for k in expected}
    assert found == pytest.approx(expected)
    assert learning_rate(0, steps=4, lr=0.2, warmup=0.0) == 0.2


# --- checkpoints


class Counting(Trainer):
    """A training of one number."""

    class Place(NamedTuple):
        measure: str
        layer: str = "input"

    def __init__(self):
        super().__init__({"model": nn.Linear(1, 1)}, None, steps=3, seed=0)
        self.optimize(self.modules["model"].parameters())

    def loss(self):
        loss = self.modules["model"](torch.ones(1, 1)).square().sum()
        return loss, loss

    def rate(self, number):
        return 0.1


@pytest.mark.parametrize("damage", [b"torn", None])
def test_a_damaged_checkpoint_begins_again(tmp_path, capsys, damage):
    path = tmp_path / "a.pt"
    if damage is None:
        torch.save([1, 2], path)
    else:
        path.write_bytes(damage)
    trainer = Counting()
    trainer.resume(Checkpoint(path))
    assert trainer.number == 0 and "a.pt cannot be read, so the training begins again" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [None, {"number": "x"}, {"losses": 3}, {"modules": {}}, {"trajectory": [(("loss",), "high")]}, {"optimizer": {}}],
)
def test_a_checkpoint_of_something_else_is_one_sentence(tmp_path, changes):
    torch.save({} if changes is None else Counting().state() | changes, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"a\.pt"):
        Counting().resume(Checkpoint(tmp_path / "a.pt"))


def test_a_checkpoint_of_another_training_is_one_sentence(one_of_each, tmp_path):
    checkpoint = Checkpoint(tmp_path / "a.pt")
    checkpoint.save(Counting().state())
    with pytest.raises(InputError, match=r"is the checkpoint of another training .* remove it to begin again"):
        one_of_each.make().resume(checkpoint)


def test_checkpoints_of_finished_cells_only_are_removed(tmp_path):
    remove_finished_checkpoints(tmp_path)  # neither checkpoints nor results are there yet
    done, begun = (Checkpoint.of(tmp_path, key) for key in ("done", "begun"))
    for each in (done, begun):
        each.save({})
    remove_finished_checkpoints(tmp_path)
    assert done.path.exists() and begun.path.exists()
    Results(tmp_path / "results.jsonl").append("done", [{"value": 1.0}])
    remove_finished_checkpoints(tmp_path)
    assert not done.path.exists() and begun.path.exists()


def test_a_folder_of_checkpoints_that_cannot_be_read_is_not_empty(tmp_path, monkeypatch):
    Checkpoint.of(tmp_path, "done").save({})

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.listdir", refuse)
    monkeypatch.setattr("os.scandir", refuse)  # pathlib's glob takes its refusal for an empty folder
    with pytest.raises(PermissionError):
        remove_finished_checkpoints(tmp_path)

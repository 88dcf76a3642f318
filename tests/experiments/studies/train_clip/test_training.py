"""The losses are those they are named after, and what a step is made of."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from clip_geometry.evaluate import contrastive_loss
from clip_geometry.geometry import average_cosine
from clip_geometry.registry import InputError
from clip_geometry.training import IStar
from clip_geometry_experiments.studies.train_clip.training import ClipCallback, ClipObjective
from support.train_clip import planned


class Scale:
    """What of a model the losses use."""

    def __init__(self, scale=7.0, bias=None):
        self.logit_scale = torch.tensor(math.log(scale))
        self.logit_bias = None if bias is None else torch.tensor(bias)


def embedded(n=20, d=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(n, d, generator=generator)
    return image, image + torch.randn(n, d, generator=generator), torch.arange(n) % 4


def objective(arm, **changes):
    return ClipObjective(arm, **changes, width=6, classes=4, seed=3)


# --- losses


@pytest.mark.parametrize("arm", ["clip", "fixed_temperature"])
def test_cliploss_is_the_evaluators_contrastive_loss(arm):
    image, text, labels = embedded()
    loss, total = objective(arm)(image, text, labels, Scale(7.0))
    expected = contrastive_loss(image, text, logit_scale=7.0)
    assert float(loss) == pytest.approx(float(expected["loss"]), rel=1e-5)  # float32 against float64
    assert total is not None and float(total) == float(loss)


def test_the_siglip_loss_is_its_formula():
    image, text, labels = embedded()
    unit = [functional.normalize(each.double(), dim=1) for each in (image, text)]
    logits = 5.0 * unit[0] @ unit[1].T - 3.0
    signs = 2 * torch.eye(20, dtype=torch.float64) - 1
    expected = torch.log1p(torch.exp(-signs * logits)).sum() / 20
    loss, _ = objective("siglip")(image, text, labels, Scale(5.0, -3.0))
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)


def test_penalties_are_of_the_unit_rows_of_both_towers():
    image, text, labels = embedded()
    units = [functional.normalize(each.double(), dim=1) for each in (image, text)]
    loss, total = objective("istar", penalty=-2.0)(image, text, labels, Scale())
    assert float(total - loss) == pytest.approx(
        sum(float(IStar(-2.0, zeta=0.2, momentum=0.1)(u)) for u in units), abs=2e-5
    )
    loss, total = objective("cosreg", penalty=3.0)(image, text, labels, Scale())
    expected = sum(3.0 * float(average_cosine(each)) * 19 / 20 for each in units)
    assert float(total - loss) == pytest.approx(expected, abs=2e-5)


def test_classes_are_told_by_one_layer_from_pictures_and_captions():
    image, text, labels = embedded()
    found = objective("classes")
    assert found.head is not None
    weight, bias = found.head.weight.detach().double(), found.head.bias.detach().double()
    scores = [torch.log_softmax(each.double() @ weight.T + bias, 1) for each in (image, text)]
    expected = -sum(each.gather(1, labels[:, None]).mean() for each in scores) / 2
    assert float(found(image, text, labels, Scale())[0].detach()) == pytest.approx(float(expected), rel=1e-5)
    again = objective("classes")
    assert again.head is not None and torch.equal(again.head.weight, found.head.weight)  # of the seed


def test_the_scale_stays_between_1_and_100(tmp_path):
    trainer = planned(tmp_path, lr=1e-12).trainer()
    for given, expected in ((400.0, 100.0), (0.2, 1.0), (30.0, 30.0)):
        trainer.model.logit_scale.data.fill_(math.log(given))
        trainer.step()
        assert float(trainer.model.logit_scale.detach().exp()) == pytest.approx(expected)


def test_only_trained_temperatures_move(tmp_path):
    for arm, moves in (("clip", True), ("siglip", True), ("fixed_temperature", False)):
        training = planned(tmp_path, arm=arm, steps=2).trainer()
        before = float(training.model.logit_scale.detach().exp())
        assert before == pytest.approx(10 if arm == "siglip" else 1 / 0.07)
        training.step()
        training.step()
        assert (float(training.model.logit_scale.detach().exp()) != before) is moves
        assert (training.model.logit_bias is not None) is (arm == "siglip")


# --- a step


def test_an_epoch_has_every_picture_once_in_whole_batches(tmp_path):
    training = planned(tmp_path).trainer()
    first, second = ([training.batch(k) for k in range(start, start + 3)] for start in (0, 3))
    for epoch in (first, second):
        together = np.concatenate(epoch)
        assert len(together) == 48 == len(set(together.tolist()))  # of 50 in batches of 16
    assert set(first[0].tolist()) != set(second[0].tolist())
    assert np.array_equal(training.batch(4), planned(tmp_path, steps=9).trainer().batch(4))
    assert not np.array_equal(training.batch(0), planned(tmp_path, seed=1).trainer().batch(0))


def test_captions_are_those_of_the_pictures_or_of_their_classes(tmp_path):
    training = planned(tmp_path, class_captions=1.0, prompts=["a {}.", "one {} here"]).trainer()
    rows = training.batch(0)
    found, prompts = training.captions(rows, 0), training.prompts
    assert prompts is not None
    of = [torch.from_numpy(prompts.tokens[2 * label : 2 * label + 2]).tolist() for label in training.pairs.labels[rows]]
    assert all(row in two for row, two in zip(found.tolist(), of, strict=True))
    assert len({two.index(row) for row, two in zip(found.tolist(), of, strict=True)}) == 2
    training = planned(tmp_path, class_captions=0.0).trainer()
    found = training.captions(rows, 0).tolist()
    own = [[training.pairs.captions(np.array([k]), np.array([n]))[0].tolist() for n in range(3)] for k in rows]
    numbers = {three.index(row) for row, three in zip(found, own, strict=True)}
    assert numbers == {0, 1, 2}
    assert found == training.captions(rows, 0).tolist() != training.captions(rows, 1).tolist()


@pytest.mark.parametrize("class_captions", [0.0, 1.0])
def test_noise_gives_images_the_captions_of_others(tmp_path, class_captions):
    training = planned(tmp_path, caption_noise=0.4, class_captions=class_captions).trainer()
    swapped = np.flatnonzero(training.captioned != np.arange(50))
    assert len(swapped) == 20 and sorted(training.captioned) == list(range(50))
    rows, others = training.batch(0), training.captioned[training.batch(0)]
    clean = planned(tmp_path, class_captions=class_captions).trainer()
    assert np.array_equal(clean.captioned, np.arange(50))
    found, own = training.captions(rows, 0).tolist(), clean.captions(rows, 0).tolist()
    assert found == clean.captions(others, 0).tolist() and [found[k] for k in range(16) if rows[k] == others[k]] == [
        own[k] for k in range(16) if rows[k] == others[k]
    ]
    assert found != own
    other = planned(tmp_path, caption_noise=0.4, seed=1).trainer()
    assert not np.array_equal(other.captioned, training.captioned)


def test_more_pictures_in_a_batch_than_there_are_is_said(tmp_path):
    with pytest.raises(InputError, match="batch_size is 64, but there are 50 images to train on; lower batch_size"):
        planned(tmp_path, batch_size=64).trainer()


@pytest.mark.parametrize("arm", ["clip", "istar"])
def test_a_training_that_diverges_is_said(tmp_path, arm):
    experiment = planned(tmp_path, arm=arm, lr=1e30, steps=4, warmup=0.0, clip=None)
    measured = experiment.pairs("measured")
    callback = ClipCallback(measured, experiment.prompts, names=("modality_gap",))
    with pytest.raises(
        InputError, match=r"has diverged: the .* is not finite; choose a lr below 1e\+30 or more warmup"
    ):
        experiment.trainer().run([0, 4], callback)
    training = experiment.trainer()
    next(training.model.parameters()).data.fill_(float("nan"))
    with pytest.raises(InputError, match="an embedding after 0 steps is not finite"):
        callback(training)

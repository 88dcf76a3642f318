"""Pictures are the bytes that the encoder's own preprocessing makes, captions those of their pictures."""

import numpy as np
import pytest
import torch
from PIL import Image

from clip_geometry.data import load_dataset
from clip_geometry.data.base import Dataset, DatasetConfig, Side
from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.base import Tokens
from clip_geometry.registry import InputError
from clip_geometry_experiments.studies.train_clip import data as train_clip_data
from clip_geometry_experiments.studies.train_clip.data import (
    caption_groups,
    channel_statistics,
    load_pairs,
    prompt_tokens,
    require_apart,
)
from support.train_clip import planned


def side(modality, items, load, **rest):
    return Side(modality, items, load, **rest)


def made(**changes):
    """Three pictures of unequal shape with five captions between them, not in the order of the pictures."""
    pictures = [Image.new("RGB", size, (9 * k, 80, 200)) for k, size in enumerate([(70, 40), (33, 90), (64, 64)])]
    texts = ["b 0", "a 0", "c 0", "a 1", "b 1"]
    labels = np.array([2, 0, 2])
    sides = {
        "image": side("image", ["a", "b", "c"], pictures.__getitem__, labels=labels),
        "text": side("text", [text[0] for text in texts], texts.__getitem__),
    }
    names = {"class_names": ("x", "y", "z")}
    return Dataset(**({"config": DatasetConfig(name="made"), "revision": "r"} | sides | names | changes))


def numbered(texts):
    """Each text as its two characters."""
    return Tokens(torch.tensor([[ord(text[0]), int(text[2])] for text in texts]), truncated=0)


def loaded(dataset):
    return load_pairs(dataset, lambda picture: picture.resize((8, 8)), numbered, {"k": 1})


# --- captions


def test_the_captions_of_a_picture_are_its_own():
    pairs = loaded(made())
    rows = np.array([2, 0, 1, 0])
    found = pairs.captions(rows, np.array([5, 0, 1, 3]))
    assert found.tolist() == [[ord("c"), 0], [ord("a"), 0], [ord("b"), 1], [ord("a"), 1]]  # 5 and 3, round and round
    assert pairs.count.tolist() == [2, 2, 1] and len(pairs) == 3 == len(pairs.head(None))
    first = pairs.head(2)
    assert len(first) == 2 and first.captions(rows[1:], np.array([0, 1, 3])).tolist() == found[1:].tolist()


# --- pictures


def test_pictures_are_what_the_encoder_makes_of_them(tmp_path):
    """64 pixels brought to 32, as the trained model's own `local-dir:` does it."""
    experiment = planned(tmp_path)
    pairs, dataset = experiment.pairs("measured"), load_dataset(experiment.config.measured)
    training = experiment.trainer()
    found = training.pixels(pairs.images(np.arange(5)))
    encoder = load_encoder(f"local-dir:{experiment.model_folder}", "cpu", fresh=True)
    expected = torch.stack([encoder.preprocess(dataset.image.load(k)) for k in range(5)])
    assert torch.allclose(found, expected, atol=2e-6)  # (x/255 − m)/s and (x − 255 m)/(255 s) in float32


def test_pictures_are_made_once(monkeypatch):
    first = loaded(made(revision="once"))
    monkeypatch.setattr(train_clip_data, "_bytes", lambda *_: pytest.fail("made again"))
    assert loaded(made(revision="once")) is first


def test_channel_statistics_are_those_of_all_pixels(monkeypatch):
    monkeypatch.setattr(train_clip_data, "load_dataset", lambda _: made())
    mean, deviation = channel_statistics(DatasetConfig(name="made"))
    pixels = np.concatenate([np.full(n, v) for n, v in ((70 * 40, 0), (33 * 90, 9), (64 * 64, 18))]) / 255
    assert mean == pytest.approx([pixels.mean(), 80 / 255, 200 / 255], abs=6e-4)
    assert deviation[0] == pytest.approx(pixels.std(), abs=6e-4)
    assert deviation[1] == 0.001  # of a constant channel, so that nothing is divided by zero


# --- errors


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image": None}, "a CLIP is trained on images with captions, but made has no images"),
        ({"text": None}, "made has no captions; set its prompt for captions of its classes"),
        ({"class_names": None}, "made has no labels with class names"),
        (
            {"image": side("image", ["a", "b", "q"], str, labels=np.zeros(3, int))},
            "1 images have no caption, such as q",
        ),
    ],
)
def test_a_data_set_that_cannot_be_used_is_said_so(changes, said):
    if "image" in changes and changes["image"] is not None:
        with pytest.raises(InputError, match=said):
            caption_groups(changes["image"], made().text)
    else:
        with pytest.raises(InputError, match=said):
            loaded(made(revision=said, **changes))


def test_a_picture_that_cannot_be_decoded_is_named():
    def broken(k):
        raise OSError("truncated")

    image = side("image", ["a", "b", "c"], broken, labels=np.zeros(3, int))
    with pytest.raises(InputError, match=r"image a cannot be decoded \(truncated\); leave it out"):
        loaded(made(revision="broken", image=image))


def test_prompts_that_are_cut_are_refused():
    with pytest.raises(InputError, match="1 of 2 prompts are longer than the 3 tokens that the text tower reads"):
        prompt_tokens(["a {}"], ["x", "y"], lambda texts: Tokens(torch.zeros(len(texts), 3), 1), np.array([1]))


def of_split(name, split="train", **changes):
    return made(config=DatasetConfig(name=name, split=split), **changes)


def test_what_is_measured_is_not_trained_on():
    require_apart({"data": of_split("a"), "measured": of_split("a", "test"), "tested": of_split("b")})
    few = side("image", ["x", "b"], str, labels=np.zeros(2, int))
    with pytest.raises(InputError, match="1 images of tested, such as b, are trained on; expected other images"):
        require_apart({"data": of_split("a"), "tested": of_split("a", image=few)})


def test_what_is_measured_has_the_trained_classes():
    with pytest.raises(
        InputError, match=r"measured \(b\) has other classes than data \(a\); expected the same classes"
    ):
        require_apart({"data": of_split("a"), "measured": of_split("b", class_names=("x", "z", "y"))})

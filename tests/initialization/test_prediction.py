"""Whole architectures, small ones of timm and open_clip."""

import math
from statistics import fmean

import numpy as np
import pytest
import torch

import clip_geometry as cg
from clip_geometry.initialization import prediction
from clip_geometry.initialization.statistics import PHOTOGRAPHS


@pytest.fixture(autouse=True)
def few_inputs(monkeypatch):
    monkeypatch.setattr(prediction, "MOST_INPUTS", 4)


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_fresh_models_scatter_about_the_prediction(name):
    """They are 64 channels wide, so that a seed may be far off."""
    import timm

    found = cg.predicted_cone(name)
    images, values = PHOTOGRAPHS.sample(8, 160, seed=5) * 2 - 1, []
    for seed in range(4):
        torch.manual_seed(seed)
        with torch.no_grad():
            values.append(float(cg.average_cosine(timm.create_model(name, num_classes=0).eval()(images))))
    assert found.average_cosine == pytest.approx(fmean(values), abs=0.12)
    assert found.stages and all(-1 <= stage.cosine <= 1 for stage in found.stages)
    assert name in str(found)


def test_draws_scatter_and_infinite_width_does_not():
    drawn, wide = cg.predicted_cone("test_resnet", draws=2), cg.predicted_cone("test_resnet", draws=0)
    assert drawn.deviation > 0 and "of one seed" in str(drawn)
    assert math.isnan(wide.deviation) and "of one seed" not in str(wide)
    assert drawn == cg.predicted_cone("test_resnet", draws=2)


def test_text_and_zero_biases():
    found = [
        cg.predicted_cone("open_clip:ViT-S-32-alt", modality="text", zero_bias=zero, draws=0) for zero in (False, True)
    ]
    assert [each.modality for each in found] == ["text", "text"]
    assert found[0].average_cosine != found[1].average_cosine
    assert found[0].average_cosine == pytest.approx(found[1].average_cosine, abs=0.05)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"architecture": "resnet8000"}, "timm has no model"),
        ({"architecture": "open_clip:ViT-B-33"}, "open_clip has no model"),
        ({"architecture": "resnet18", "modality": "text"}, "no text tower"),
        ({"architecture": "test_resnet", "draws": -1}, "draws is -1"),
        ({"architecture": "test_resnet", "statistics": cg.text_statistics(["a b", "c d"])}, "expected ImageStatistics"),
        (
            {"architecture": "open_clip:ViT-S-32-alt", "modality": "audio"},
            "'audio' is unknown; known are 'image', 'text'",
        ),
        ({"architecture": "open_clip:ViT-S-32-alt", "modality": "txt"}, "'txt' is unknown; did you mean 'text'"),
        ({"architecture": None}, "architecture is None; expected a name of timm, or open_clip:NAME"),
        ({"architecture": "test_resnet", "statistics": np.ones((2, 4, 4, 3))}, "expected ImageStatistics of images"),
        ({"architecture": "test_resnet", "seed": -1}, "seed = -1; expected a whole number"),
        ({"architecture": "open_clip:xlm-roberta-base-ViT-B-32", "modality": "text"}, "has to be downloaded"),
    ],
)
def test_errors(options, message):
    with pytest.raises(cg.InputError, match=message):
        cg.predicted_cone(**options)

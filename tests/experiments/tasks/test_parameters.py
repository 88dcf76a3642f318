"""Numbers that are trained: against torch's own count, and what the published ones say of their tasks."""

import numpy as np
import pytest
import torch
from torch import nn

from clip_geometry.config import read_yaml
from clip_geometry_experiments.published.ledger import FILE
from clip_geometry_experiments.tasks.base import TaskConfig, single_label_task
from support.parameters import SHAPES, parameter_count, published_items, published_sizes

PAPER = read_yaml(FILE)["mickus2024"]


def task_of(width, classes, name="t"):
    texts = [[f"{k}{column}" if k else "same" for k in range(6)] for column in range(width)]
    return single_label_task(TaskConfig(name=name), texts, np.arange(6) % classes, [str(c) for c in range(classes)])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("width", "classes", "d"), [(1, 2, 5), (2, 2, 7), (2, 3, 4)])
def test_as_many_as_torch_counts(width, classes, d, bias):
    task = task_of(width, classes)
    model = nn.ModuleList([nn.Embedding(len(task.items), d), nn.Linear(width * d, classes, bias=bias)])
    assert parameter_count(task, d, bias) == sum(p.numel() for p in model.parameters())
    assert torch.as_tensor(task.examples).shape[1] * d == model[1].in_features


def test_every_published_count_stands_for_a_whole_number_of_items():
    """d times a whole number in every row: the reading of width, classes and bias is right, in all three encoders."""
    found = {}
    for task, _, d, examples, parameters in published_sizes(PAPER):
        items = published_items(task, d, parameters)
        assert items == int(items)
        assert task == "pos" or items <= examples * SHAPES[task][1]
        found.setdefault(task, set()).add(int(items))
    assert found == {
        "polarity": {10662},
        "snli": {12982},
        "pos": {14466},  # more than the 11462 words that the paper speaks of
        "supersense": {2275},
        "cola": {8532},
        "mnli": {519214},
        "mrpc": {7052},
        "qnli": {110978},
        "qqp": {493874},
        "rte": {4523},
        "sst2": {66978},
        "wnli": {925},
    }


def test_no_other_reading_of_the_parts_of_speech_fits():
    fits = [
        (classes, bias)
        for classes in range(1, 60)
        for bias in (0, 1)
        if (4341004 - classes * (300 + bias)) / 300 == 11462
    ]
    assert fits == []

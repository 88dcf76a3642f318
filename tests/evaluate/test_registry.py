"""What the registry says of the evaluators' numbers is true."""

import numpy as np
import pandas as pd
import pytest
import torch

from clip_geometry.geometry import measures
from support.clouds import cone, rotation

# settings, and the probe's objective
UNREGISTERED = {"batch_size", "iterations", "C", "loss"}
CLASSES = 7
NUMBERS = {name: each for name, each in measures.items() if each.evaluator}


def arguments(takes, seed=0):
    rng = np.random.default_rng(seed)
    image, text = cone(63, 6, rng), cone(63, 6, rng)
    text = 0.5 * image + text
    labels = np.arange(63) % CLASSES
    return {
        "distinct pairs": (image, text),
        "matched sets": (image, text),
        "two sets": (image, text[:40]),
        "classes": (image, labels, text[:CLASSES]),
        "train and test": (image[:42], labels[:42], image[42:], labels[42:]),
    }[takes]


def options(measure):
    """Those of the call that returns all numbers: most of retrieval are computed without the median ranks."""
    return {key: value for key, value in measure.options.items() if key != "median_rank"}


def shared_by_function():
    result = {}
    for measure in NUMBERS.values():
        if measure.attribute is None:  # a measure under another name, which is tested where it is at home
            continue
        result.setdefault((measure.function, str(options(measure))), []).append(measure)
    return list(result.values())


@pytest.mark.parametrize("members", shared_by_function(), ids=lambda members: members[0].name)
def test_every_number_is_returned_and_every_returned_number_is_registered(members):
    first = members[0]
    result = first.function(*arguments(first.takes), **options(first))
    registered = {each.attribute for each in members}
    assert registered <= result.keys()
    loss = {"loss"} if "linear_probe" not in first.name else set()
    assert result.keys() - registered <= UNREGISTERED - loss
    for each in members:
        assert each.name == f"{each.name.partition('.')[0]}.{each.attribute}"
        assert each.range[0] <= float(each.pick(result)) <= each.range[1]


@pytest.mark.parametrize("members", shared_by_function(), ids=lambda members: members[0].name)
def test_numbers_have_the_kind_of_the_rows(members):
    """Of arrays, lists and tables they are floats, of tensors 0-d tensors; labels do not decide."""
    first = members[0]
    sets = arguments(first.takes)
    result = first.function(*sets, **first.options)
    assert {type(value) for value in result.values()} == {float}
    for rows in (pd.DataFrame, np.ndarray.tolist):
        others = (rows(part) if np.ndim(part) == 2 else part for part in sets)
        assert first.function(*others, **first.options) == pytest.approx(result, abs=1e-12)
    of_labels = (torch.as_tensor(part) if np.ndim(part) == 1 else part for part in sets)
    assert {type(value) for value in first.function(*of_labels, **first.options).values()} == {float}
    tensors = [torch.from_numpy(part) if np.ndim(part) == 2 else part for part in sets]
    of_tensors = first.function(*tensors, **first.options)
    assert {(value.shape, value.dtype) for value in of_tensors.values()} == {((), torch.float64)}
    assert of_tensors == result
    assert type(first(*sets)) is float and first(*tensors) == first(*sets)
    for part in tensors:
        if np.ndim(part) == 2:
            part.requires_grad_()
    assert first(*tensors).requires_grad == (first.name.partition(".")[0] == "contrastive_loss")


def moved(how, takes, sets, rng):
    """The same sets after a map of all their rows."""
    q, factor, shift = rotation(6, rng), rng.uniform(1.5, 3.0), rng.normal(size=6)
    maps = {
        "rotation": lambda x: x @ q,
        "scale": lambda x: factor * x,
        "translation": lambda x: x + shift,
        "row scale": lambda x: x * rng.uniform(0.3, 3.0, size=(len(x), 1)),
    }
    if how == "swap":
        return sets[::-1]
    return tuple(maps[how](part) if np.ndim(part) == 2 else part for part in sets)


@pytest.mark.parametrize("name", [name for name, each in NUMBERS.items() if each.invariances and each.attribute])
def test_invariances_hold(name):
    measure = measures[name]
    for how in measure.invariances:
        sets = arguments(measure.takes)
        after = measure(*moved(how, measure.takes, sets, np.random.default_rng(1)))
        assert float(after) == pytest.approx(float(measure(*sets)), abs=1e-9), how

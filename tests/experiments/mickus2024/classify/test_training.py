"""The training is that of the straightforward program; its numbers are scikit-learn's and the IsoScore package's."""

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score
from torch import nn

from clip_geometry.references import isoscore_package
from clip_geometry_experiments.mickus2024.classify.training import (
    ClassificationCallback,
    Classifier,
    LayerPlace,
    triplet_loss,
)
from support.problems import NAMES, configured, pairs, several_labels, trainer


def straightforward(problem, config, seed, updates):
    """(embeddings, silhouettes, IsoScores, losses) by concatenated inputs, autograd and plain Adam."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = nn.Linear(problem.width, problem.outputs, bias=config.bias)
    items = nn.Parameter(problem.items.clone())
    optimizer = torch.optim.Adam([items, *layer.parameters()], lr=config.lr)
    labels = problem.classes.numpy()
    lossy = nn.BCEWithLogitsLoss() if problem.multi_label else nn.CrossEntropyLoss()
    scores = []
    for update in range(updates + 1):
        inputs = torch.cat([items[column] for column in problem.examples.T], dim=1)
        loss = lossy(layer(inputs), problem.targets)
        euclidean = silhouette_score(inputs.detach().numpy(), labels)
        scores.append((euclidean, float(isoscore_package(items.detach())), float(loss.detach())))
        if update < updates:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return items.detach(), *np.array(scores).T


# --- the training


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("problem", [pairs(), several_labels()], ids=["pairs", "several labels"])
def test_training_is_the_straightforward_one(problem, bias):
    """To 1e-4: Adam divides by small gradients, so that rounding errors of float32 grow over the updates."""
    config = configured(bias=bias, lr=0.01)
    training = trainer(problem, 25, seed=3, bias=bias, lr=0.01)
    states = training.run(range(26), ClassificationCallback(NAMES))
    items, *expected = straightforward(problem, config, 3, 25)
    assert (training.items - items).abs().max() < 1e-4 and (items - problem.items).abs().max() > 0.1
    loss = LayerPlace("classify.loss", layer="output")
    for place, values in zip((LayerPlace("silhouette"), LayerPlace("isoscore"), loss), expected, strict=True):
        assert np.abs(np.array(states[place]) - values).max() < 1e-4, place


@pytest.mark.parametrize("classifier", ["linear", "two-layer"])
def test_a_layer_on_items_added_up_is_the_layer_on_pairs(classifier):
    problem = pairs()
    model = Classifier(problem.width, 3, configured(classifier=classifier, hidden=6), seed=1)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = [nn.Linear(24, 3)] if classifier == "linear" else [nn.Linear(24, 6), nn.ReLU(), nn.Linear(6, 3)]
    expected = nn.Sequential(*layers)(problem.inputs(problem.items))
    assert torch.allclose(model(problem.items, problem.examples), expected, atol=1e-6)


COUNTS = [
    ({}, 600 + 75),
    ({"bias": False}, 600 + 72),
    ({"loss": "triplet"}, 600),
    ({"classifier": "two-layer", "hidden": 6}, 600 + 150 + 21),
]


@pytest.mark.parametrize(("changes", "count"), COUNTS)
def test_parameters_are_counted(changes, count):
    assert trainer(**changes).model.parameter_count == count


def test_the_triplet_loss_is_the_mean_over_triplets_and_falls():
    problem = pairs(n=18)
    rows, classes = problem.inputs(problem.items).double(), problem.classes
    gaps = [
        max(float((rows[a] - rows[p]).norm() - (rows[a] - rows[n]).norm()), 0.0)
        for a in range(18) for p in range(18) for n in range(18)
        if a != p and classes[a] == classes[p] != classes[n]
    ]  # fmt: skip
    assert float(triplet_loss(rows, classes)) == pytest.approx(np.mean(gaps), rel=1e-9)
    states = trainer(problem, 30, loss="triplet", lr=0.01).run(range(31), ClassificationCallback(NAMES))
    loss = states[LayerPlace("classify.loss", layer="output")]
    assert loss[0] == pytest.approx(np.mean(gaps), rel=1e-5) and loss[-1] < 0.5 * loss[0]
    assert LayerPlace("classify.accuracy", layer="output") not in states
    assert states[LayerPlace("silhouette")][-1] > states[LayerPlace("silhouette")][0]

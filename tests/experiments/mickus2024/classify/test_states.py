"""What is recorded of a state are the registered measures of its rows."""

import numpy as np
import pytest
import torch

from clip_geometry.experiments.mickus2024.classify.problem import Problem
from clip_geometry.experiments.mickus2024.classify.states import DEFAULT, Observer, Place, known_measure
from clip_geometry.experiments.mickus2024.classify.training import Training, recorded_updates, train
from clip_geometry.geometry import isoscore, measures, objectives, silhouette
from clip_geometry.registry import InputError
from support.problems import CONFIG, NAMES, configured, pairs, several_labels


def test_a_state_has_the_registered_measures_of_its_rows():
    problem = pairs()
    training = Training(problem, CONFIG, seed=0)
    found = training.measured(*training.outputs(), Observer((*DEFAULT, "isoscore[package]", "uniformity")))
    inputs, classes = problem.inputs(problem.items), problem.classes
    for name in (*DEFAULT, "isoscore[package]", "uniformity"):
        if name == "objective_classifier":
            weights = training.classifier.first.weight.detach()
            expected = objectives.classifier(inputs, problem.targets, weights)
        else:
            measure = known_measure(name)
            expected = measure(problem.items) if measure.takes == "rows" else measure(inputs, classes)
        assert found[Place(name)] == pytest.approx(float(expected), rel=1e-9, abs=1e-12), name


def test_isoscore_of_wide_rows_takes_float32_products():
    rows = torch.randn(400, 300, generator=torch.Generator().manual_seed(0))
    problem = Problem.of(rows.numpy(), np.arange(400)[:, None], np.arange(400) % 2)
    training = Training(problem, CONFIG, seed=0)
    found = training.measured(*training.outputs(), Observer(("isoscore", "isoscore[unbiased]")))
    for name in ("isoscore", "isoscore[unbiased]"):
        assert found[Place(name)] == pytest.approx(float(measures[name](rows.double())), rel=1e-6)


def test_distinct_label_vectors_are_the_classes_of_the_silhouette():
    problem = several_labels(k=2)
    classes = problem.targets[:, 0] * 2 + problem.targets[:, 1]
    training = Training(problem, CONFIG, seed=0)
    found = training.measured(*training.outputs(), Observer(("silhouette", "objective_classifier")))
    assert found[Place("silhouette")] == pytest.approx(float(silhouette(problem.items, classes)), rel=1e-9)
    # no class vector of the layer belongs to a vector of labels, so that class means stand in
    means = objectives.classifier(problem.items, classes)
    assert found[Place("objective_classifier")] == pytest.approx(float(means), rel=1e-9)


def test_a_sample_is_another_one_in_every_state_and_the_same_when_drawn_again():
    problem = pairs(n=60, m=80)
    observer = Observer(NAMES, sample=30, seed=4)
    training = Training(problem, configured(lr=1e-9), seed=0)
    states = train(training, observer, updates=6)
    again = train(Training(problem, configured(lr=1e-9), seed=0), observer, updates=6)
    assert states == again
    exact = train(Training(problem, configured(lr=1e-9), seed=0), Observer(NAMES, sample=80), updates=6)
    for place in (Place("silhouette"), Place("isoscore")):
        assert len(set(np.round(states[place], 6))) == 7 and np.ptp(exact[place]) < 1e-5
    rng = np.random.default_rng([4, 2])
    chosen = np.sort(rng.choice(80, 30, replace=False))
    assert states[Place("isoscore")][2] == pytest.approx(float(isoscore(problem.items[chosen])), rel=1e-4)


def test_a_measure_that_is_undefined_is_an_error_at_first_and_nan_later():
    items = np.ones((6, 4))
    problem = Problem.of(items, np.arange(6)[:, None], np.arange(6) % 2)
    training = Training(problem, CONFIG, seed=0)
    with pytest.raises(InputError, match="all 6 rows of x are equal"):
        training.measured(*training.outputs(), Observer(("isoscore",)))
    training.update = 1
    found = training.measured(*training.outputs(), Observer(NAMES))
    assert np.isnan(found[Place("isoscore")]) and found[Place("silhouette")] == 0


def test_a_two_layer_classifier_is_measured_after_its_first_layer_too():
    problem = pairs()
    training = Training(problem, configured(classifier="two-layer", hidden=6), seed=0)
    found = training.measured(*training.outputs(), Observer((*NAMES, "objective_classifier")))
    hidden = training.classifier.hidden(problem.items, problem.examples).detach()
    assert found[Place("silhouette", layer="hidden")] == pytest.approx(float(silhouette(hidden, problem.classes)))
    assert found[Place("isoscore", layer="hidden")] == pytest.approx(float(isoscore(hidden)))
    weights = training.classifier.second.weight.detach()
    expected = float(objectives.classifier(hidden, problem.targets, weights))
    assert found[Place("objective_classifier", layer="hidden")] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["silhouete", "modality_gap"])
def test_other_names_are_no_measures_of_one_set(name):
    with pytest.raises(InputError, match=f"'{name}' is no measure of one set of rows"):
        known_measure(name)


def test_states_are_recorded_every_so_often_and_at_the_last():
    assert recorded_updates(10, 4) == [0, 4, 8, 10] and recorded_updates(3, 1) == [0, 1, 2, 3]
    states = train(Training(pairs(), CONFIG, seed=0), Observer(NAMES), updates=10, every=4)
    every = train(Training(pairs(), CONFIG, seed=0), Observer(NAMES), updates=10)
    assert {len(values) for values in states.values()} == {4}
    assert all(values == [every[place][k] for k in (0, 4, 8, 10)] for place, values in states.items())

"""What is recorded of a state are the registered measures of its rows."""

import numpy as np
import pytest

from clip_geometry.geometry import isoscore, silhouette
from clip_geometry.registry import InputError
from clip_geometry_experiments.mickus2024.classify import objectives
from clip_geometry_experiments.mickus2024.classify.task import DEFAULT, ClassificationTask, known_measure
from clip_geometry_experiments.mickus2024.classify.training import ClassificationCallback, LayerPlace, recorded_updates
from support.problems import NAMES, pairs, several_labels, trainer


def test_a_state_has_the_registered_measures_of_its_rows():
    problem = pairs()
    training = trainer(problem)
    found = ClassificationCallback((*DEFAULT, "isoscore[package]", "uniformity"))(training)
    inputs, classes = problem.inputs(problem.items), problem.classes
    for name in (*DEFAULT, "isoscore[package]", "uniformity"):
        if name == "objective_classifier":
            weights = training.classifier.first.weight.detach()
            expected = objectives.classifier(inputs, problem.targets, weights)
        else:
            measure = known_measure(name)
            expected = measure(problem.items) if measure.takes == "rows" else measure(inputs, classes)
        assert found[LayerPlace(name)] == pytest.approx(float(expected), rel=1e-9, abs=1e-12), name


def test_distinct_label_vectors_are_the_classes_of_the_silhouette():
    problem = several_labels(k=2)
    classes = problem.targets[:, 0] * 2 + problem.targets[:, 1]
    found = ClassificationCallback(("silhouette", "objective_classifier"))(trainer(problem))
    assert found[LayerPlace("silhouette")] == pytest.approx(float(silhouette(problem.items, classes)), rel=1e-9)
    # no class vector of the layer belongs to a vector of labels, so that class means stand in
    means = objectives.classifier(problem.items, classes)
    assert found[LayerPlace("objective_classifier")] == pytest.approx(float(means), rel=1e-9)


def test_a_sample_is_another_one_in_every_state_and_the_same_when_drawn_again():
    problem = pairs(n=60, m=80)
    callback = ClassificationCallback(NAMES, sample=30, seed=4)
    states, again = (trainer(problem, 6, lr=1e-9).run(range(7), callback) for _ in range(2))
    assert states == again
    exact = trainer(problem, 6, lr=1e-9).run(range(7), ClassificationCallback(NAMES, sample=80))
    for place in (LayerPlace("silhouette"), LayerPlace("isoscore")):
        assert len(set(np.round(states[place], 6))) == 7 and np.ptp(exact[place]) < 1e-5
    rng = np.random.default_rng([4, 2])
    chosen = np.sort(rng.choice(80, 30, replace=False))
    assert states[LayerPlace("isoscore")][2] == pytest.approx(float(isoscore(problem.items[chosen])), rel=1e-4)


def test_a_measure_that_is_undefined_is_an_error_at_first_and_nan_later():
    items = np.ones((6, 4))
    problem = ClassificationTask.of(items, np.arange(6)[:, None], np.arange(6) % 2)
    training = trainer(problem)
    with pytest.raises(InputError, match="all 6 rows of x are equal"):
        ClassificationCallback(("isoscore",))(training)
    training.number = 1
    found = ClassificationCallback(NAMES)(training)
    assert np.isnan(found[LayerPlace("isoscore")]) and found[LayerPlace("silhouette")] == 0


@pytest.mark.parametrize("name", ["silhouete", "modality_gap"])
def test_other_names_are_no_measures_of_one_set(name):
    with pytest.raises(InputError, match=f"'{name}' is not a measure of one set of rows"):
        known_measure(name)


def test_states_are_recorded_every_so_often_and_at_the_last():
    assert recorded_updates(10, 4) == [0, 4, 8, 10] and recorded_updates(3, 1) == [0, 1, 2, 3]
    states, every = (trainer().run(recorded_updates(10, step), ClassificationCallback(NAMES)) for step in (4, 1))
    assert {len(values) for values in states.values()} == {4}
    assert all(values == [every[place][k] for k in (0, 4, 8, 10)] for place, values in states.items())

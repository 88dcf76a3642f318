"""What comes out has the kind of what went in: over all measures, and for what else takes rows."""

import numpy as np
import pandas as pd
import pytest
import torch

import clip_geometry as cg
from clip_geometry.geometry import measures, variant
from clip_geometry.geometry.kinds import as_given
from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.rows.streamed import StreamedRows
from support.clouds import MEASURES, arguments, cone, labels_for, row_places

# of neighbors, which are looked for without a gradient, and a sample
WITHOUT_GRADIENT = {"hubness", "mutual_knn", "cycle_knn", "information_imbalance", "two_nn", "silhouette[sampled]"}
WITHOUT_GRADIENT |= {name for name in measures if name.split("[")[0] == "lid"}
WITHOUT_GRADIENT |= {"nc4"}  # decisions
WITHOUT_GRADIENT |= {"ilisi", "clisi"}
WITHOUT_GRADIENT |= {name for name in measures if name.startswith(("robin_hood", "antihub_share"))}
X = cone(60, 6, np.random.default_rng(0))
LABELS = labels_for(X)
TENSOR = torch.from_numpy(X)


def leaves(result):
    """All numbers and arrays of a result: of named tuples, too."""
    if isinstance(result, tuple):
        return [leaf for part in result for leaf in leaves(part)]
    return [result]


def rows_as(kind, sets):
    return [kind(part) if np.ndim(part) == 2 else part for part in sets]


@pytest.mark.parametrize("name", MEASURES)
def test_arrays_give_floats_and_tensors_differentiable_tensors(name):
    measure, sets = measures[name], arguments(measures[name], "plain")
    result = leaves(measure.function(*sets, **measure.options))
    assert {type(leaf) for leaf in result} <= {float, np.ndarray, int, str, type(None)}
    assert float in map(type, result)
    of_tensors = leaves(measure.function(*rows_as(torch.from_numpy, sets), **measure.options))
    for leaf, of_tensor in zip(result, of_tensors, strict=True):
        if isinstance(leaf, float | np.ndarray):
            assert of_tensor.dtype == torch.float64 and of_tensor.shape == np.shape(leaf)
        assert np.array_equal(of_tensor, leaf)

    value = measure(*sets)
    assert type(value) is float and value == measure(*rows_as(torch.from_numpy, sets))
    learned = measure(*rows_as(lambda part: torch.from_numpy(part).requires_grad_(), sets))
    assert learned.shape == () and learned.requires_grad == (name not in WITHOUT_GRADIENT)
    assert float(learned.detach()) == pytest.approx(value, rel=1e-9, abs=1e-12)  # other sums with a gradient


@pytest.mark.parametrize("name", MEASURES)
def test_lists_and_tables_are_arrays_and_labels_do_not_decide(name):
    measure, sets = measures[name], arguments(measures[name], "plain")
    value = measure(*sets)
    for kind in (np.ndarray.tolist, pd.DataFrame):
        result = measure(*rows_as(kind, sets))  # a table is stored by columns, which changes the last digits of sums
        assert type(result) is float and result == pytest.approx(value, rel=1e-9, abs=1e-12)
    if measure.takes == "labeled rows":
        for dtype in (torch.long, torch.float64):
            result = measure(sets[0], torch.as_tensor(sets[1], dtype=dtype))
            assert type(result) is float and result == value
    if len(places := row_places(measure)) > 1:
        for place in places:
            one_tensor = [torch.from_numpy(part.copy()) if k == place else part for k, part in enumerate(sets)]
            assert isinstance(measure(*one_tensor), torch.Tensor)


@pytest.mark.parametrize("name", [name for name in MEASURES if name not in WITHOUT_GRADIENT])
def test_gradients_are_those_of_differences(name):
    """Along a random direction of all rows, where no extreme and no neighbor changes on the way."""
    measure, sets = measures[name], arguments(measures[name], "plain")
    rng, places, step = np.random.default_rng(1), row_places(measure), 1e-6
    along = {place: rng.normal(size=sets[place].shape) for place in places}
    rows = {place: torch.from_numpy(sets[place].copy()).requires_grad_() for place in places}
    measure(*(rows.get(place, part) for place, part in enumerate(sets))).backward()
    slope = sum(float((rows[place].grad * torch.from_numpy(along[place])).sum()) for place in places)
    forward, backward = (
        measure(*(part + sign * step * along[k] if k in along else part for k, part in enumerate(sets)))
        for sign in (1, -1)
    )
    assert slope != 0
    assert (forward - backward) / (2 * step) == pytest.approx(slope, rel=1e-4, abs=1e-7 * abs(forward))


VECTORS = {
    "silhouette_samples": lambda x: cg.geometry.silhouette_samples(x, LABELS),
    "conformity": cg.geometry.conformity,
    "coordinate_std": cg.geometry.coordinate_std,
    "singular_values": cg.geometry.singular_values,
}
NUMBERS = {
    "standard_error": lambda x: cg.geometry.standard_error("isoscore", x),
    "standard_error, one by one": lambda x: cg.geometry.standard_error(lambda rows: rows.sum(), x),
    "permutation_test of labels": lambda x: cg.geometry.permutation_test("silhouette", x, LABELS, draws=9),
    "permutation_test of pairs": lambda x: cg.geometry.permutation_test("matching_cosine", X + 1, x, draws=9),
    "isoscore_star": lambda x: cg.geometry.isoscore_star(x, np.eye(6), zeta=0.5),
    "partition_over": lambda x: cg.geometry.partition_over(x, np.eye(6)),
}


@pytest.mark.parametrize("function", VECTORS.values(), ids=VECTORS)
def test_arrays_give_arrays_where_there_are_many_numbers(function):
    for result, of_tensor in zip(leaves(function(X)), leaves(function(TENSOR)), strict=True):
        assert type(result) in (np.ndarray, int) and isinstance(of_tensor, torch.Tensor | int)
        assert np.array_equal(result, of_tensor, equal_nan=True)


@pytest.mark.parametrize("function", NUMBERS.values(), ids=NUMBERS)
def test_what_else_takes_rows_gives_floats_for_arrays_too(function):
    for result, of_tensor in zip(leaves(function(X)), leaves(function(TENSOR)), strict=True):
        assert type(result) in (float, int, str) and isinstance(of_tensor, torch.Tensor | int | str)
        assert result == (of_tensor if isinstance(result, str) else pytest.approx(float(of_tensor), rel=1e-12))
    assert float in map(type, leaves(function(X)))


def test_the_null_value_has_no_rows_and_is_a_float():
    assert type(cg.geometry.null_value("isoscore", 20, 5, draws=2)) is float


@pytest.mark.parametrize("of_arrays", [lambda x: np.float64(2.5), lambda x: torch.tensor(2.5), lambda x: 2.5])
def test_a_measure_of_ones_own_needs_no_decorator(of_arrays):
    measure = variant(measures["isoscore"], "own", function=of_arrays)
    assert type(measure(X)) is float and measure(X) == 2.5
    assert isinstance(measure(TENSOR), torch.Tensor) and measure(TENSOR) == 2.5


def test_a_list_of_tensors_keeps_its_gradient():
    x = TENSOR.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(cg.geometry.average_cosine(list(x)), x)
    assert gradient.abs().max() > 1e-3
    assert torch.autograd.gradcheck(cg.geometry.average_cosine, x[:5].detach().requires_grad_())


def test_streamed_rows_and_moments_give_tensors():
    for rows in (StreamedRows.of(X), Moments.of(X)):
        assert float(cg.geometry.isoscore(rows)) == pytest.approx(cg.geometry.isoscore(X), rel=1e-12)
        assert isinstance(cg.geometry.isoscore(rows), torch.Tensor)


def test_numbers_are_where_the_rows_are():
    """The device without values stands for a GPU; of two sets the first that is a tensor decides."""
    elsewhere = torch.empty(3, 2, device="meta")
    result = as_given({"a": 0.5, "b": torch.zeros(()), "c": 3}, [X, elsewhere, TENSOR])
    assert result["a"].is_meta and result["b"].is_meta and result["c"] == 3
    assert not as_given(0.5, [TENSOR, elsewhere]).is_meta
    assert as_given(torch.zeros(()), [X, torch.empty(3, device="meta")]) == 0.0  # one value a row: labels

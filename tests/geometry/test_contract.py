"""What the registry says of a measure is true, and what it does not say is not: over the whole registry."""

import numpy as np
import pytest
import torch

from clip_geometry.geometry import GROUPS, INVARIANCES, by_group, measures, null_value, variant
from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import StreamedRows
from support.clouds import MEASURES, arguments, cone, labels_for, rotation, row_places
from support.covering import covering_array
from support.oracles import ORACLES

SEEDS = (0, 1, 2)


def rotate(rng, *sets):
    q = rotation(sets[0].shape[1], rng)
    return [x @ q for x in sets]


def translate(rng, *sets):
    shift = rng.normal(size=sets[0].shape[1])
    return [x + shift for x in sets]


def scale(rng, *sets):
    factor = rng.uniform(1.5, 3.0)
    return [factor * x for x in sets]


def scale_rows(rng, *sets):
    return [x * rng.uniform(0.3, 3.0, size=(len(x), 1)) for x in sets]


def swap(rng, *sets):
    return sets[::-1]


# image and text, either of which may come first
TWO_SETS = [name for name, m in MEASURES.items() if m.inputs.arguments == ("image", "text")]
MAPS = {"rotation": rotate, "translation": translate, "scale": scale, "row scale": scale_rows, "swap": swap}


def mapped(measure, how, rng, sets):
    places = row_places(measure)
    moved = dict(zip(places, MAPS[how](rng, *(sets[place] for place in places)), strict=True))
    return [moved.get(place, part) for place, part in enumerate(sets)]


def moved_by(how, measure, seed):
    """How far the map of the arguments moves the value."""
    sets = arguments(measure, "plain", seed)
    moved = mapped(measure, how, np.random.default_rng(seed), sets)
    return abs(float(measure(*moved)) - float(measure(*sets)))


def test_the_maps_are_those_of_the_registry():
    assert MAPS.keys() == INVARIANCES.keys()


@pytest.mark.parametrize(("name", "how", "seed"), covering_array(MEASURES, MAPS, SEEDS))
def test_invariances_hold_both_ways(name, how, seed):
    measure = measures[name]
    if how == "swap" and name not in TWO_SETS:
        assert "swap" not in measure.invariances
        return
    if how in measure.invariances:
        assert moved_by(how, measure, seed) < 1e-9
    else:
        assert any(moved_by(how, measure, each) > 1e-4 for each in SEEDS)


@pytest.mark.parametrize("name", MEASURES)
def test_order_of_the_rows_does_not_matter(name):
    sets = arguments(measures[name], "plain")
    order = np.random.default_rng(0).permutation(len(sets[0]))
    permuted = (part[order] if len(part) == len(order) else part for part in sets)  # class texts stay in their order
    assert float(measures[name](*permuted)) == pytest.approx(float(measures[name](*sets)))


@pytest.mark.parametrize("name", TWO_SETS)
def test_needs_pairs_exactly_where_pairing_matters(name):
    measure = measures[name]
    x, y = arguments(measure, "plain")
    shuffled = y[np.random.default_rng(0).permutation(len(y))]
    moved = abs(float(measure(x, y)) - float(measure(x, shuffled)))
    assert moved > 1e-4 if "pairs" in measure.needs else moved < 1e-9
    if "pairs" in measure.needs:
        with pytest.raises(InputError, match="expected pairs"):
            measure(x, y[:-1])
    else:
        assert float(measure(x, y[:-1])) == pytest.approx(float(measure(x, y)), rel=0.2)


@pytest.mark.parametrize("name", MEASURES)
def test_value_lies_in_the_range(name):
    measure = measures[name]
    for cloud in ("plain", "tight clusters", "fewer rows than dimensions"):
        sets = arguments(measure, cloud)
        low, high = (sets[0].shape[1] if bound == "d" else bound for bound in measure.range)
        assert low - 1e-12 <= float(measure(*sets)) <= high + 1e-12


@pytest.mark.parametrize("name", [name for name, m in MEASURES.items() if m.statistic is Moments])
def test_moments_stand_for_rows(name):
    (x,) = arguments(measures[name], "plain")
    assert measures[name].streams
    assert float(measures[name](Moments.of(x))) == pytest.approx(float(measures[name](x)), rel=1e-12)


def test_a_variant_with_another_function_streams_only_if_it_says_so():
    other = variant(measures["isoscore"], "other", function=len)
    assert not (other.streams or other.aggregated or other.statistic)
    assert variant(measures["isoscore"], "unbiased", options={"unbiased": True}).statistic is Moments


@pytest.mark.parametrize("name", [name for name, m in MEASURES.items() if m.aggregated or m.statistic is Moments])
def test_passes_that_are_aggregations_are_run_by_an_engine(name, monkeypatch):
    """Every block is read inside of `aggregate`: what an engine does not see it cannot run."""
    measure, inside = measures[name], []
    count = 2 if measure.inputs.across else 1
    sets = arguments(measure, "plain")
    x = [torch.as_tensor(each) for each in sets[:count]]
    rows = [StreamedRows(lambda part, each=each: each[part], tuple(each.shape), each.dtype) for each in x]
    aggregate, read = StreamedRows.aggregate, StreamedRows.__getitem__

    def watched(self, *given):
        inside.append(True)
        try:
            return aggregate(self, *given)
        finally:
            inside.pop()

    def only_inside(self, rows):
        block = read(self, rows)
        assert inside or block.numel() <= 2 * self.shape[1], "a block was read outside of a pass"
        return block

    monkeypatch.setattr(StreamedRows, "aggregate", watched)
    monkeypatch.setattr(StreamedRows, "__getitem__", only_inside)
    assert float(measure(*rows, *sets[count:])) == pytest.approx(float(measure(*sets)), rel=1e-9)


@pytest.mark.parametrize("name", [name for name, m in MEASURES.items() if m.at_gaussian is not None])
def test_value_on_an_isotropic_gaussian(name):
    measure = measures[name]
    d = 3  # few dimensions, so that extremes have reached their limits at this n
    expected = {"d": d, "d − 1": d - 1}.get(measure.at_gaussian, measure.at_gaussian)
    value = float(null_value(measure, 4000, d, prepare=lambda rows: rows / rows.norm(dim=1, keepdim=True)))
    # sampling error of means ~ 1/√n = .016; extremes lie within that too; a half angle of 180 ± 3 degrees
    assert value == pytest.approx(expected, rel=0.02, abs=0.06)


def sized(measure, n, d):
    """Generic arguments of n rows and d columns; of a single column x has one sign and y both."""
    rng = np.random.default_rng(0)
    x, y = cone(n, d, rng, offset=0.0), cone(n, d, rng)
    x[:, :1] = np.abs(x[:, :1])
    y[:, :1] = np.abs(y[:, :1]) * (-1.0) ** np.arange(n)[:, None]
    if measure.takes == "classes":
        return x, labels_for(x) % 2, y[:2]
    if measure.inputs.across:
        return x, y
    return (x, labels_for(x) % 2) if measure.takes == "labeled rows" else (x,)


@pytest.mark.parametrize("name", MEASURES)
def test_the_smallest_input_has_the_value_of_the_definition_and_smaller_ones_are_errors(name):
    measure = measures[name]
    for n, d in {(measure.least_n, 6), (measure.least_n, measure.least_d), (60, measure.least_d)}:
        if n >= (d if "[rows]" in name else measure.least_n):  # the rows of a null space's basis are arbitrary
            sets = sized(measure, n, d)
            assert float(measure(*sets)) == pytest.approx(ORACLES[name](*sets), rel=1e-9, abs=1e-9)
    for n in range(measure.least_n):
        with pytest.raises(InputError, match=r"expected at least|label"):
            measure(*sized(measure, n, max(measure.least_d, 4)))
    for d in range(measure.least_d):
        with pytest.raises(InputError, match=r"column"):
            measure(*sized(measure, 8 * measure.least_n, d))


BAD = {  # other kinds: rows/test_arguments.py
    "one dimension": (np.ones(1000), r"shape \(1000,\); expected a matrix"),
    "no columns": (np.ones((1000, 0)), "0 columns; expected at least"),
    "integers": (np.ones((1000, 2), dtype=int), "dtype int64; expected floating point"),
    "NaN": (np.array([[1.0, 2.0], [3.0, np.nan], *[[1.0, 1.0]] * 998]), "NaN or infinity in row 1"),
}


@pytest.mark.parametrize("name", MEASURES)
def test_bad_rows_are_one_clear_sentence(name):
    takes = measures[name].takes
    for x, message in BAD.values():
        rest = {"rows": (), "labeled rows": ([0, 1] * 500,), "classes": ([0, 1] * 500, x)}.get(takes, (x,))
        with pytest.raises(InputError, match=message):
            measures[name](x, *rest)


# undefined without spread: rounding would turn 0/0 into a plausible number
SPREAD = (
    "participation_ratio", "isoscore", "isoscore[unbiased]", "information_imbalance", "cycle_knn",
    "cknna", "cka", "mutual_knn", "sphericity", "coordinate_spread", "effective_rank",
    "spectral_discrepancy", "hubness", "robin_hood", "antihub_share", "robin_hood[image_to_text]",
    "antihub_share[image_to_text]", "robin_hood[text_to_image]", "antihub_share[text_to_image]", "alpha_req", "nesum",
)  # fmt: skip


@pytest.mark.parametrize("name", SPREAD)
def test_equal_rows_are_an_error_of_measures_that_need_spread(name):
    """Of either set."""
    measure = measures[name]
    given = arguments(measure, "plain")
    for place in row_places(measure):
        sets = list(given)
        sets[place] = np.tile(np.linspace(0.1, 0.7, sets[place].shape[1]), (len(sets[place]), 1))
        with pytest.raises(InputError, match=r"all \d+ rows of (x|image|text) are equal"):
            measure(*sets)


@pytest.mark.parametrize("name", TWO_SETS)
def test_different_dimensions_are_an_error_unless_two_spaces_are_compared(name):
    measure = measures[name]
    rng = np.random.default_rng(0)
    n = max(6, measure.least_n)
    x, y = rng.normal(size=(n, 4)), rng.normal(size=(n, 5))
    if not measure.one_space:
        assert float(measure(x, y)) == pytest.approx(ORACLES[name](x, y), rel=1e-9, abs=1e-9)
        return
    with pytest.raises(InputError, match="image has dimension 4 and text has 5"):
        measure(x, y)


@pytest.mark.parametrize("name", [name for name, m in MEASURES.items() if "row scale" in m.invariances])
def test_directions_of_zero_rows_are_an_error(name):
    measure = measures[name]
    x, *rest = arguments(measure, "plain")
    x[3] = 0
    with pytest.raises(InputError, match=r"zero row \(row 3\)"):
        measure(x, *rest)


def test_every_measure_is_explained():
    for measure in by_group(all=True):
        assert measure.group in GROUPS
        for text in (measure.summary, measure.reading, measure.caveat):
            assert text[0].isupper() or text[0].isdigit()
            assert text.endswith(".")
        assert measure.formula and measure.reference and measure.direction and measure.title


PARTS = {"all rows": ..., "one row": (3,), "one column": (slice(None), 1)}


@pytest.mark.parametrize(("name", "scale", "part"), covering_array(MEASURES, [1e-310, 1e-120, 1e120, 1e200], PARTS))
def test_rows_of_extreme_scale_have_a_value_in_the_range_or_are_an_error(name, scale, part):
    """Of all rows, or of a part among others of scale 1."""
    measure = measures[name]
    low, high = measure.range[0], float("inf") if measure.range[1] == "d" else measure.range[1]
    sets = arguments(measure, "plain")
    for place in row_places(measure):
        sets[place][PARTS[part]] *= scale
    try:
        value = float(measure(*sets))
    except InputError as error:
        assert len(str(error)) <= 400
    else:
        assert np.isfinite(value) and low - 1e-9 <= value <= high

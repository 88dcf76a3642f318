import doctest
import re

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.geometry import measures, participation_ratio
from clip_geometry.measuring import scaling
from clip_geometry.measuring.scaling import DIVISIONS, ENOUGH, TRENDS, add_scaling, expected_at
from clip_geometry.registry import InputError

OWN = "retrieval[mixed].image.same_modality_at_1"
R_AT_1 = "retrieval.image_to_text.r_at_1"


def pairs(n, seed=0):
    """Images and captions that share a latent vector, each modality with its own offset."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 16)) * np.linspace(1.5, 0.5, 16)
    return tuple(z + 0.6 * rng.normal(size=z.shape) + shift for shift in (0.3, -0.3))


def measured(*rows, names, steps="normalize", full_size=None, **columns):
    sets = {name: cg.Embeddings(x, name, **columns) for name, x in zip(("image", "text"), rows, strict=False)}
    result = cg.MeasuredSets(sets, cg.transforms.parse_pipeline(steps), blocks=0)
    rows = list(cg.measure_sets(result, names))
    add_scaling(result, rows, full_size)
    return {row["measure"]: row for row in rows}


def divisions(items, n, seed=0):
    """The subsets that the documentation describes: four random divisions into disjoint subsets of n items."""
    rng = np.random.default_rng(seed)
    for _ in range(4):
        order = rng.permutation(items)
        yield [order[k : k + n] for k in range(0, n * (items // n), n)]


# --- values by size


def test_the_values_are_those_of_slices():
    image, text = pairs(90)
    row = measured(image, text, names=[OWN])[OWN]
    assert [size["n"] for size in row["scaling"]] == [11, 22, 45, 90]
    assert row["scaling"][-1] == {"n": 90, "value": row["value"], "standard_error": None, "subsets": 1}
    for size in row["scaling"][:-1]:
        values = np.array(
            [
                [
                    cg.evaluate.retrieval(image[each], text[each], k=1, index="mixed")["image.same_modality_at_1"]
                    for each in part
                ]
                for part in divisions(90, size["n"])
            ]
        )
        assert size["subsets"] == values.size == DIVISIONS * (90 // size["n"])
        assert size["value"] == pytest.approx(values.mean(), rel=1e-12)
        error = np.sqrt(values.var(axis=1, ddof=1).mean() / values.shape[1])
        assert size["standard_error"] == pytest.approx(error, rel=1e-12)


def test_the_pipeline_stays_as_fitted_on_all_items():
    (x,) = pairs(80)[:1]
    centered = x - x.mean(0)
    row = measured(x, names=["participation_ratio"], steps="center")["participation_ratio"]
    half = row["scaling"][-2]
    result = [float(participation_ratio(centered[each])) for part in divisions(80, 40) for each in part]
    assert half["value"] == pytest.approx(np.mean(result), rel=1e-9)
    unseen = []
    for part in divisions(80, 40):
        for each in part:
            rest = np.delete(x, each, axis=0)
            unseen.append(float(participation_ratio(x[each] - rest.mean(0))))
    assert half["unseen"] == pytest.approx(np.mean(unseen), rel=1e-9)


def test_items_are_drawn_with_all_their_captions():
    """As many captions as belong to the images of a subset: in the order of images, each beside its own."""
    image, text = pairs(48)
    captions = np.repeat(text, 2, axis=0) + 0.1 * np.random.default_rng(3).normal(size=(96, 16))
    ids, twice = ([f"i{k}" for k in numbers] for numbers in (range(48), np.repeat(np.arange(48), 2)))
    sets = {"image": cg.Embeddings(image, "image", item_id=ids), "text": cg.Embeddings(captions, "text", item_id=twice)}
    result = cg.MeasuredSets(sets, (), blocks=0)
    (row,) = cg.measure_sets(result, [R_AT_1])
    add_scaling(result, [row])
    half = row["scaling"][-2]
    values = []
    for part in divisions(48, 24):
        for each in part:
            rows = np.sort(np.concatenate([2 * each, 2 * each + 1]))
            numbers = np.searchsorted(np.sort(each), rows // 2), np.arange(48)
            result = cg.evaluate.retrieval(image[np.sort(each)], captions[rows], np.stack(numbers), k=1)
            values.append(result["image_to_text.r_at_1"])
    assert half["n"] == 24 and half["value"] == pytest.approx(np.mean(values), rel=1e-12)


def test_only_what_depends_on_n_has_sizes():
    rows = measured(*pairs(60), names=["isoscore", "average_cosine"])
    assert "scaling" in rows["isoscore"] and "scaling" not in rows["average_cosine"]


def test_a_size_too_small_for_the_measure_is_absent():
    sizes = measured(pairs(250)[0], names=["lid"])["lid"]["scaling"]  # of the 100 nearest
    assert [size["n"] for size in sizes] == [125, 250]


def test_rows_that_cannot_be_held_and_a_small_full_size_are_refused(monkeypatch):
    x = pairs(60)[0]
    with pytest.raises(InputError, match="the full size is 60, but 60 items were given; expected a larger full size"):
        measured(x, names=["isoscore"], full_size=60)
    sets = cg.MeasuredSets({"image": cg.Embeddings(x, "image")}, ())
    sets.streamed = True
    monkeypatch.setattr("clip_geometry.memory.MOST_HELD", 0)
    with pytest.raises(InputError, match="scaling needs all rows in memory"):
        add_scaling(sets, [])


def test_a_measurement_has_them_as_columns_and_as_a_table():
    x = pairs(240)[0]
    names = ["participation_ratio", "average_cosine"]
    result = cg.measure({"audio": x}, measures=names, blocks=0, full_size=480)
    record = next(each for each in result if each.scaling)
    _, quarter, half, whole = record.scaling
    line, other = (result.frame.set_index("measure").loc[name] for name in names)
    assert (line["n/4"], line["n/2"], line["value"]) == (quarter["value"], half["value"], whole["value"])
    assert line["expected_low"] == record.expected["low"] < line["expected"] == record.expected["value"]
    assert other[["n/4", "n/2", "expected", "expected_high"]].isna().all()
    plain = cg.measure({"audio": x}, measures=names, blocks=0)
    assert "n/2" not in plain.frame and "expected" not in plain.frame
    assert plain.frame["value"].equals(result.frame["value"])
    assert "expected" not in cg.measure({"audio": x}, measures=names, blocks=0, scaling=True).frame


def test_groups_have_sizes_of_their_own_and_no_full_size():
    x, labels = pairs(120)[0], np.repeat(["a", "b"], 60)
    result = cg.measure({"audio": x}, labels=labels, by="label", measures="isoscore", blocks=0, scaling=True)
    assert {record.at["label"]: record.scaling[-1]["n"] for record in result} == {"a": 60, "b": 60}
    with pytest.raises(InputError, match="a full size and groups of rows were both given"):
        cg.measure({"audio": x}, labels=labels, by="label", full_size=500)


# --- what to expect at full size


def sizes(values, start=64, error=0.004):
    return [{"n": start * 2**k, "value": value, "standard_error": error} for k, value in enumerate(values)]


@pytest.mark.parametrize(
    "trend", [trend for trends in TRENDS.values() if not isinstance(trends, str) for trend in trends]
)
def test_a_trend_goes_on_exactly_and_its_slope_is_the_derivative(trend):
    n, v = np.array([64, 128, 256, 512]), np.array([0.2, 0.4])
    first = trend.transformed(v) if trend is not scaling._RANK else trend.transformed(v + 1)
    line = np.polynomial.Polynomial.fit(trend.size(np.array([64.0, 512.0])), first, 1)
    values = np.array([trend.value(line(trend.size(float(each)))) for each in n])
    predicted, error = trend.predict(n, values, np.full(4, 1e-6), 2048)
    assert predicted == pytest.approx(line(trend.size(2048.0)), rel=1e-6) and 0 < error < 1e-3
    slope = (trend.transformed(values + 1e-6) - trend.transformed(values - 1e-6)) / 2e-6
    assert np.abs(trend.slope(values)) == pytest.approx(np.abs(slope), rel=1e-6)


def test_an_expected_value_stays_in_the_range():
    loss = measures["contrastive_loss.loss"]
    result = expected_at(loss, sizes([0.7, 0.5, 0.3, 0.1], error=0.1), 4096, 8)
    assert result["low"] == 0 <= result["value"]
    ratio = expected_at(measures["participation_ratio"], sizes([4, 5.5, 6.7, 7.5], error=0.9), 4096, 8)
    assert ratio["high"] == 8 >= ratio["value"]


@pytest.mark.parametrize(
    ("name", "scaled", "full_size", "note"),
    [
        (OWN, sizes([0.2, 0.3, 0.35, 0.9]), 1024, "the smaller sizes predict 0.4463 for 512 items, but these have 0.9"),
        (OWN, sizes([0.2, 0.3, 0.4, 0.5]), 8192, "the trend is known for a factor of 8, from 64 to 512 items"),
        (
            OWN,
            sizes([0.2, 0.3, 0.4, 0.5], start=16),
            256,
            "three sizes are needed, so a quarter of the items must be at",
        ),
        (OWN, sizes([0.7, 0.8, 0.9, 1.0]), 1024, "it is the same in all subsets of a size, or at an end of its range"),
        (OWN, sizes([0.2, 0.3, 0.4, 0.5], error=0), 1024, "it is the same in all subsets of a size, or at an end of"),
        ("cone_half_angle", sizes([80, 82, 84, 86]), 1024, "an extreme follows the rarest rows"),
    ],
)
def test_no_value_is_expected_where_no_trend_supports_it(name, scaled, full_size, note):
    result = expected_at(measures[name], scaled, full_size, 8)
    assert result["n"] == full_size and result["note"].startswith(note) and "value" not in result


def test_a_map_that_fits_only_its_own_pairs_is_found_out():
    image, text = (np.random.default_rng(seed).normal(size=(240, 64)) for seed in (0, 1))
    row = measured(image, text, names=[R_AT_1], steps="procrustes[text-to-image]", full_size=480)[R_AT_1]
    assert row["expected"]["note"].startswith("the pipeline was fitted on these items: 120 other items have 0.0")


def test_every_measure_that_depends_on_n_says_so_and_has_a_trend_or_a_reason():
    for name, measure in measures.items():
        if measure.depends_on_n:
            assert re.search(r"\bn\b|\bn[²³]|size of the index", measure.caveat), name
            sums = name.startswith("modality_separability")
            assert sums or any(part in name for part in TRENDS), name
    assert ENOUGH * measures[OWN].least_n == 55  # of which the ten nearest are under a tenth


def test_the_value_at_four_times_the_size_lies_in_the_interval():
    """Samples of 240 of 1920 pairs: the value in sets of 960 is in at least 90 % of the 95 % intervals."""
    image, text = pairs(1920)
    names = [OWN, f"{OWN}0", OWN.replace("image", "text"), "retrieval[mixed].image_to_text.r_at_1"]
    result = [cg.evaluate.retrieval(image[half], text[half], index="mixed") for half in next(divisions(1920, 960))]
    truth = {name: np.mean([each[name.removeprefix("retrieval[mixed].")] for each in result]) for name in names}
    hits = []
    for each in next(divisions(1920, 240, seed=1))[:4]:
        for name, row in measured(image[each], text[each], names=names, full_size=960).items():
            expected = row["expected"]
            assert expected["high"] - expected["low"] < 0.5
            hits.append(expected["low"] <= truth[name] <= expected["high"])
    assert np.mean(hits) >= 0.9


def test_the_examples_run():
    assert doctest.testmod(scaling).failed == 0

"""Changes with their errors: simulations with a known Δ, theorems of the paired error, and what does not compare."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import clip_geometry as cg
from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry import measures
from clip_geometry.geometry.statistics import BlockedRows
from clip_geometry.geometry.uncertainty import assign_blocks, jackknife
from clip_geometry.measuring.comparison import compare
from clip_geometry.measuring.records import measure_sets
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.results import Record
from clip_geometry.rows.matrix import as_rows
from clip_geometry.steps import parse_pipeline

R_AT_1 = "retrieval.image_to_text.r_at_1"
N = 120


def measured(image, text=None, *, labels=None, steps="", names=("average_cosine",), ids=None, blocks=20, seed=0):
    sets = {"image": Embeddings(image, "image", ids, labels)}
    if text is not None:
        sets["text"] = Embeddings(text, "text", ids)
    result = MeasuredSets(sets, parse_pipeline(steps), blocks=blocks, seed=seed)
    return [Record.of({**result.context(), **row}) for row in measure_sets(result, list(names))]


def change_of(a, b, **options):
    (changes,) = compare(a, b, **options).changes
    (change,) = changes
    return change


# --- the error covers the change


def drawn(rng):
    """Images, texts and labels of N items, and what has become of the same items: stretched, shifted, noisier."""
    labels = rng.integers(0, 3, N)
    x = rng.normal(size=(N, 5)) * [1.5, 1.2, 1.0, 0.8, 0.5] + 1.5 * np.eye(3, 5)[labels]
    image, text = (x + 0.5 * rng.normal(size=(N, 5)) + shift for shift in ([1, 0, 0, 0, 0], [0, -1, 0, 0, 0]))
    after = image * [1, 0.9, 0.8, 0.7, 0.6] + 0.4 * rng.normal(size=(N, 5)) + 0.2, text + 0.3 * rng.normal(size=(N, 5))
    return (image, text, labels), (*after, labels)


def arguments(measure, image, text, labels):
    return {"rows": (image,), "labeled rows": (image, labels)}.get(measure.takes, (image, text))


def record_of(measure, data, seed, blocks=20):
    """As `MeasuredSets.row` makes it, without its null value."""
    sets, block_of = arguments(measure, *data), assign_blocks(N, blocks, seed).long()
    parts = [BlockedRows(as_rows(x), block_of, blocks) if x.ndim == 2 else x for x in sets]
    result = measure.without_each(*parts)
    if result is None:
        kept = (tuple(x[(block_of != block).numpy()] for x in sets) for block in range(blocks))
        result = (measure.function(*some, **measure.options) for some in kept)
    without = [float(measure.pick(each)) for each in result]
    error = jackknife(without)
    shared = {"without": without, "item_blocks": str(seed), "n": N, "at": {"modality": "both"}}
    return Record(measure.name, float(measure(*sets)), error, **shared)


@pytest.mark.usefixtures("no_type_checker")
@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("average_cosine", 40),
        *(pytest.param(name, 20, marks=pytest.mark.slow) for name in ("isoscore", "silhouette")),
    ],
)
def test_the_error_covers_the_change(name, blocks):
    """Δ ± 1.96 SE has the true Δ, the mean over 300 other data sets of N items, in nearly 95 % of 120 data sets.

    Paired: the same items before and after. Independent: before and after of different items. Expected are 93.5 % of 20
    blocks and 94.3 % of 40 (1.96 of Student's t with blocks − 1 degrees of freedom), ± 2.2 %. SE over the deviation of
    Δ, which is uncertain by 6.5 %, sees a factor of 1.4; that of the slow ones is up to 10 % too large.
    """
    measure = measures[name]
    rng = np.random.default_rng(1)
    others = (drawn(rng) for _ in range(300))
    true = np.mean([np.subtract(*(float(measure(*arguments(measure, *x))) for x in (b, a))) for a, b in others])
    rng = np.random.default_rng(0)
    runs = [[record_of(measure, data, seed, blocks) for data in drawn(rng)] for seed in range(120)]
    for paired, firsts in ((True, runs), (False, runs[1:] + runs[:1])):
        changes = [change_of(a[:1], b[1:], flips=1) for a, b in zip(firsts, runs, strict=True)]
        assert all(change.paired == paired for change in changes)
        covered = np.mean([abs(change.value - true) <= 1.96 * change.standard_error for change in changes])
        assert 0.89 <= covered <= 0.99
        errors = np.array([change.standard_error for change in changes])
        deviation = np.std([change.value for change in changes], ddof=1)
        assert 0.85 < np.sqrt(np.square(errors).mean()) / deviation < 1.2


# --- theorems

X = np.random.default_rng(0).normal(size=(80, 4)) + 1
Y = X + np.random.default_rng(1).normal(size=(80, 4))


def test_the_paired_error_of_a_mean_is_that_of_the_differences():
    """One block for each item, mean cosine of pairs: sd/√n of the differences of the cosines of each pair."""
    a = measured(X, Y, names=["matching_cosine"], blocks=80)
    b = measured(X, 2 * Y - 0.5, names=["matching_cosine"], blocks=80)
    change = change_of(a, b)
    cosines = [np.sum(X * y, 1) / np.linalg.norm(X, axis=1) / np.linalg.norm(y, axis=1) for y in (Y, 2 * Y - 0.5)]
    differences = cosines[1] - cosines[0]
    assert change.value == pytest.approx(differences.mean(), rel=1e-9)
    assert change.standard_error == pytest.approx(differences.std(ddof=1) / np.sqrt(80), rel=1e-9)
    assert change.paired
    independent = math.hypot(*(x.std(ddof=1) / np.sqrt(80) for x in cosines))
    assert change.standard_error < 0.8 * independent


def test_p_of_few_blocks_is_the_share_of_all_sign_flips():
    """Of 6 blocks all 64 flips: their share with a mean as large as Δ, ± 3 standard errors of 20,000 flips."""
    a, b = measured(X[:12], blocks=6), measured(Y[:12], blocks=6)
    change = change_of(a, b, flips=20000)
    without = np.subtract(b[0].without, a[0].without)
    blocks = change.value - 5 * (without - without.mean())
    signs = np.array(list(itertools.product([-1, 1], repeat=6)))
    share = np.mean(np.abs(signs @ blocks) / 6 >= abs(change.value) * (1 - 1e-9))
    assert 0.03 < share < 1
    assert change.p_value == pytest.approx(share, abs=3 * np.sqrt(share * (1 - share) / 20000) + 1 / 20000)


def test_other_items_are_independent():
    for other in (measured(X[:70]), measured(X, seed=1), measured(X, blocks=10), measured(X, ids=np.arange(80) + 5)):
        change = change_of(measured(X), other)
        assert not change.paired
        errors = measured(X)[0].standard_error, other[0].standard_error
        assert change.standard_error == pytest.approx(math.hypot(*errors), rel=1e-12)
        z = abs(change.value) / change.standard_error
        assert change.p_value == pytest.approx(2 * scipy.stats.norm.sf(z), rel=1e-9)


def test_retrieval_has_a_better_direction_and_isotropy_has_none():
    worse = Y + 3 * np.random.default_rng(2).normal(size=Y.shape)
    result = compare(*(measured(X, y, names=[R_AT_1, "isoscore"]) for y in (Y, worse)))
    effects = {(change.measure, change.place): change.effect for change in result.changes[0]}
    assert effects == {(R_AT_1, "both"): "worse", ("isoscore", "image"): "", ("isoscore", "text"): ""}
    back = compare(*(measured(X, y, names=[R_AT_1]) for y in (worse, Y)))
    assert back.changes[0][0].effect == "better"


# --- shares


def test_mcnemar_sees_the_change_of_99_queries():
    """Recall 84/99 and 70/99, 17 queries lost and 3 won: McNemar's exact p is 0.0026, however few blocks there are."""
    n = 99
    before, after = np.arange(84), np.r_[np.arange(17, 84), [84, 85, 86]]
    a, b = (hits(right, n, blocks=5) for right in (before, after))
    change = change_of(a, b)
    assert (round(change.before.value, 3), round(change.after.value, 3)) == (0.848, 0.707)
    assert change.p_value == pytest.approx(scipy.stats.binomtest(3, 20).pvalue, rel=1e-12)
    assert change.p_value == pytest.approx(0.0026, abs=5e-5)
    assert (change.verdict, change.effect, change.error) == ("lower", "worse", "paired")
    assert change.low < change.value < change.high < 0


def hits(right, n, blocks=20):
    """Records of n pairs of which these find each other: a wrong text is nearer to the next image, and its own is
    not the nearest of its image."""
    text = np.eye(n)
    wrong = np.setdiff1d(np.arange(n), right)
    text[wrong] = -np.eye(n)[wrong]
    return measured(np.eye(n), text, names=[R_AT_1], ids=np.arange(n).astype(str), blocks=blocks)


def test_no_change_of_a_perfect_recall_has_an_interval():
    change = change_of(hits(np.arange(50), 50), hits(np.arange(50), 50))
    assert change.value == 0 and change.low < 0 < change.high and change.p_value == 1


def two_models(rng, n, noise, worse):
    """The same items in two models, of which the second has more noise."""
    rows = []
    latent = rng.normal(size=(n, 12))
    for scale in (noise, worse * noise):
        image, text = (latent + scale * rng.normal(size=(n, 12)) for _ in range(2))
        rows.append((image, text))
    return rows


@pytest.mark.usefixtures("no_type_checker")
@pytest.mark.parametrize(("noise", "worse", "n"), [(0.6, 1.3, 100), (0.9, 1.0, 150)])
def test_the_interval_of_a_change_of_recall_covers_it(noise, worse, n):
    """In 90 to 98% of 80 pairs of models, and two deviations (4.9%) beyond; without a change, p < 0.05 in 5%."""
    changes = []
    for seed in range(80):
        both = two_models(np.random.default_rng([seed, n]), n, noise, worse)
        records = [share_records(*rows) for rows in both]
        changes.append(change_of(*records))
    true = np.mean([change.value for change in changes]) if worse != 1 else 0
    covered = np.mean([change.low <= true <= change.high for change in changes])
    assert 0.90 - 0.049 <= covered <= 1
    rejected = np.mean([change.p_value < 0.05 for change in changes])
    assert rejected <= 0.05 + 0.049 if worse == 1 else rejected > 0.3


def share_records(image, text):
    """As `MeasuredSets.row` makes them."""
    share = measures[R_AT_1].shares(image, text)["image_to_text.r_at_1"]
    low, high = share.interval
    _, by_item = share.means_of_items
    fields = {"low": low, "high": high, "by_item": by_item, "item_blocks": "x", "items_from": "ids"}
    return [Record(R_AT_1, share.value, share.standard_error, n=len(image), at={"modality": "both"}, **fields)]


# --- which items


def test_rows_without_ids_are_only_assumed_to_be_the_same_items():
    """Two sets of 80 rows that have nothing to do with each other, the same rows twice, and the same ids."""
    other = np.random.default_rng(7).normal(size=(80, 4)) + 1
    assert change_of(measured(X), measured(other)).error == "by position"
    assert change_of(measured(X), measured(X, steps="center")).error == "paired"
    ids = np.arange(80).astype(str)
    assert change_of(measured(X, ids=ids), measured(other, ids=ids)).error == "paired"


def test_a_column_that_saw_the_items_says_so():
    fitted = compare(measured(X, Y), measured(X, Y, steps="normalize,procrustes[text-to-image]"))
    assert [bool(column.saw) for column in fitted.columns] == [False, True]
    assert fitted.columns[1].saw.startswith("saw these items: procrustes was fitted on them")
    assert compare(measured(X), measured(X, steps="normalize")).columns[1].saw == ""
    maps = [Record.of({**record, "maps": "center fitted on coco/train"}) for record in measured(X)]
    assert "a saved map (center fitted on coco/train); if that was fitted" in compare(maps, measured(Y)).columns[0].saw


# --- what does not compare


def test_numbers_that_depend_on_n_need_equal_n():
    names = ["isoscore", "isoscore[unbiased]", "average_cosine"]
    (changes,) = compare(measured(X, names=names), measured(X[:60], names=names)).changes
    obstacles = {change.measure: change.obstacle for change in changes}
    assert obstacles["isoscore"] == "depends on n, which is 80 and 60; measure equally many rows of both"
    assert obstacles["isoscore[unbiased]"] == obstacles["average_cosine"] == ""
    assert {change.measure: change.verdict for change in changes}["isoscore"] == "not compared"


@pytest.mark.usefixtures("no_type_checker")
@pytest.mark.parametrize("name", ["isoscore", "mutual_knn", "lid", "min_pairwise_cosine", "effective_rank", R_AT_1])
def test_what_depends_on_n_does(name):
    """Means over 40 clouds of 120 and of 480 rows differ by more than 4 standard errors where the registry says so."""
    assert shift_with_n(name, clouds=40) > 4
    assert measures[name].depends_on_n


@pytest.mark.usefixtures("no_type_checker")
@pytest.mark.parametrize(
    "name", [m.name for m in measures.values() if m.by_default and m.smooth and not m.depends_on_n]
)
def test_what_does_not_depend_on_n_does_not(name):
    assert shift_with_n(name) < 4


def shift_with_n(name, clouds=10):
    measure = measures[name]
    values = []
    for n in (120, 480):
        draws = (np.random.default_rng([n, seed]) for seed in range(clouds))
        values.append([float(measure(*arguments(measure, *cloud(n, rng)))) for rng in draws])
    errors = [np.std(each, ddof=1) / np.sqrt(clouds) for each in values]
    return abs(np.mean(values[0]) - np.mean(values[1])) / math.hypot(*errors)


def cloud(n, rng):
    labels = rng.integers(0, 3, n)
    x = rng.normal(size=(n, 8)) * np.linspace(1.3, 0.7, 8) + 1.5 * np.eye(3, 8)[labels]
    image, text = (x + 0.6 * rng.normal(size=(n, 8)) + shift for shift in (0.4, -0.4))
    return *(rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (image, text)), labels


# --- seeds


def seeded(values, **fields):
    return [
        Record("isoscore", value, 0.5, n=100, seed=seed, at={"modality": "image"}, **fields)
        for seed, value in enumerate(values)
    ]


def test_seeds_of_one_origin_are_averaged():
    a, b = np.array([0.2, 0.25, 0.33]), np.array([0.4, 0.47, 0.5])
    result = compare(seeded(a, pipeline=[]), seeded(b, pipeline=["center"]))
    assert [column.seeds for column in result.columns] == [(0, 1, 2)] * 2
    ((change,),) = result.changes
    assert change.before["sd"] == pytest.approx(a.std(ddof=1)) and change.value == pytest.approx((b - a).mean())
    assert change.paired and change.standard_error == pytest.approx((b - a).std(ddof=1) / np.sqrt(3), rel=1e-9)
    ((change,),) = compare(seeded(a), seeded(b[:2])).changes  # other seeds
    assert not change.paired
    assert change.standard_error == pytest.approx(math.hypot(a.std(ddof=1) / 3**0.5, b[:2].std(ddof=1) / 2**0.5))


def test_sets_are_measured_like_their_files(tmp_path):
    """Arrays, mappings, Embeddings and measurements give the changes of the files."""
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X + 1)
    labels = list(np.arange(len(X)) % 3)
    options = {"measures": "average_cosine,silhouette", "labels": labels}
    files = compare(tmp_path / "a.npy", tmp_path / "b.npy", **options).frame
    for make in (
        lambda x: x,
        lambda x: {"rows": x},
        lambda x: cg.measure(x, **options),
        lambda x: iter(list(cg.measure(x, **options))),
    ):
        of_records = isinstance(make(X), cg.Measurement | Iterator)
        result = compare(make(X), make(X + 1), **{} if of_records else options)
        pd.testing.assert_frame_equal(result.frame.drop(columns=["from", "to"]), files.drop(columns=["from", "to"]))
        assert [column.name for column in result.columns] == ["A", "B"] and repr(result).startswith(
            "no measure here says whether B"
        )


def test_a_name_is_text_whatever_is_in_it():
    name = "<script>alert(1)</script>\x1b[31m"
    result = compare(measured(X), measured(Y), names=[name, "b"])
    assert "<script>" not in result._repr_html_() and "\x1b" not in repr(result) and "<script>" in repr(result)


@pytest.mark.parametrize(
    ("operands", "options", "sentence"),
    [
        ([X], {}, "one set of embeddings was given; expected at least one more, or several pipelines"),
        ([X, "there.npy"], {}, "'?there.npy'? does not exist; embeddings, a run folder"),
        ([measured(X)], {}, "1 run was given; compare needs at least two"),
        ([X, Y], {"pipelines": ["raw"] * 3}, "3 pipelines and 2 operands were given"),
        (
            [measured(X), Y],
            {"measures": "isoscore"},
            "A holds records, which are compared as they are; leave out measures",
        ),
        ([X, 3], {}, "expected"),
    ],
)
def test_what_cannot_be_compared_is_refused(operands, options, sentence):
    with pytest.raises(InputError, match=sentence):
        compare(*operands, **options)


@pytest.mark.usefixtures("no_type_checker")
def test_p_values_of_no_change_are_uniform():
    """The same noise before and after, 100 times: a tenth of the p-values is below 0.1, ± 3 · 3 %."""
    measure, rng, result = measures["average_cosine"], np.random.default_rng(0), []
    for seed in range(100):
        x = rng.normal(size=(N, 3)) + 1
        both = [record_of(measure, (x + 0.5 * rng.normal(size=(N, 3)), x, None), seed) for _ in range(2)]
        result.append(change_of(both[:1], both[1:], flips=199).p_value)
    assert 0.01 <= np.mean(np.array(result) <= 0.1) <= 0.19
    assert min(result) >= 1 / 200

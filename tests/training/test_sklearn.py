"""Pipelines of several modalities and measures as scorers, in scikit-learn's pipelines, splits and searches."""

import doctest
import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.metrics import silhouette_samples as sklearn_samples
from sklearn.metrics import silhouette_score as sklearn_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline

import clip_geometry as cg
import clip_geometry.training.sklearn
from clip_geometry.geometry import measures
from clip_geometry.registry import InputError
from clip_geometry.training.sklearn import PipelineTransformer, scorer
from support.clouds import rotation
from support.sklearn_checks import pass_checks

STEPS = "normalize,center[each],procrustes[text-to-image]"


@pytest.fixture
def routed():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def pairs():
    """Images, and texts that are the same turned and moved."""
    rng = np.random.default_rng(0)
    image = rng.normal(size=(60, 5))
    return image + 1, (image + 0.1 * rng.normal(size=(60, 5))) @ rotation(5, rng) - 1


@pytest.fixture
def stacked(pairs):
    """(rows, modality, item), shuffled."""
    order = np.random.default_rng(1).permutation(120)
    modality, item = np.repeat(["image", "text"], 60), np.tile([f"item {k}" for k in range(60)], 2)
    return np.concatenate(pairs)[order], modality[order], item[order]


EXPECTED_FAILURES = {
    **dict.fromkeys(
        ("check_estimators_dtypes", "check_dtype_object"),
        "Integers and objects are more often labels, tokens or quantized rows than embeddings: an error here.",
    ),
    **dict.fromkeys(
        (
            *("check_complex_data", "check_estimators_empty_data_messages", "check_fit2d_predict1d"),
            *("check_estimator_sparse_array", "check_estimator_sparse_matrix", "check_estimator_sparse_tag"),
        ),
        "The error names the rows in the words that all functions of this package have.",
    ),
    "check_do_not_raise_errors_in_init_or_set_params": "A search has to stop at invalid steps.",
}


@pytest.mark.parametrize("steps", [None, "scale(2),center", "whiten(1)"])
@pytest.mark.filterwarnings("ignore:InputError occurred during set_params")  # a search has to stop at invalid steps
def test_the_checks_of_scikit_learn(steps):
    pass_checks(PipelineTransformer() if steps is None else PipelineTransformer(steps), EXPECTED_FAILURES)


def test_each_modality_goes_through_its_chain(pairs, stacked):
    x, modality, item = stacked
    image, text = pairs
    fitted = cg.Pipeline(STEPS).fit({"image": image, "text": text})
    expected = fitted.transform({"image": image, "text": text})
    transformer = PipelineTransformer(STEPS)
    found = transformer.fit_transform(x, modality=modality, item=item)
    for name, rows in expected.items():
        at = np.flatnonzero(modality == name)
        numbers = [int(each.split()[1]) for each in item[at]]
        assert np.allclose(found[at], rows[numbers], rtol=1e-12, atol=1e-12)  # sums in another order
    assert (transformer.transform(x[:7], modality=list(modality[:7])) == found[:7]).all()
    assert (pickle.loads(pickle.dumps(transformer)).transform(x, modality=modality) == found).all()
    only = transformer.transform(x[modality == "text"], modality=["text"] * 60)
    assert np.allclose(only, found[modality == "text"], rtol=1e-12)


def test_without_modalities_it_is_the_pipeline(pairs):
    x, _ = pairs
    found = PipelineTransformer("normalize,whiten(3)").fit_transform(x)
    assert (found == cg.Pipeline("normalize,whiten(3)").fit({"any": x}).transform({"any": x})["any"]).all()


def test_names_of_the_columns(stacked):
    x, modality, item = stacked
    table = pd.DataFrame(x, columns=[*"abcde"], index=item)
    for steps, columns in {"normalize,center[each]": 5, "pca(2)[pooled],normalize": 2, STEPS: 5}.items():
        transformer = PipelineTransformer(steps).set_output(transform="pandas")
        found = transformer.fit_transform(table, modality=modality, item=item)
        assert list(found.columns) == [f"pipelinetransformer{k}" for k in range(columns)]
        assert list(found.index) == list(item)
    assert list(transformer.feature_names_in_) == [*"abcde"]
    assert "PipelineTransformer" in transformer._repr_html_()


@pytest.mark.parametrize(
    ("steps", "given", "message"),
    [
        ("center[each", set(), "is not of the form name"),
        ("centre", set(), "unknown"),
        ("center", {"modality"}, r"center was fitted on each modality by itself; write center\[pooled\]"),
        (STEPS, {"modality"}, r"procrustes\[text-to-image\] is fitted on rows that belong together: give item="),
        (STEPS, {"item"}, "is to be fitted on text rows, but only unnamed rows were given"),
        ("procrustes[text-to-audio]", {"modality", "item"}, "is to be fitted on audio rows"),
    ],
)
def test_what_cannot_be_fitted(steps, given, message, stacked):
    x, modality, item = stacked
    metadata = {"modality": modality, "item": item}
    transformer = PipelineTransformer(steps)
    with pytest.raises(InputError, match=message):
        transformer.fit(x, **{name: metadata[name] for name in given})
    with pytest.raises(NotFittedError):
        transformer.transform(x)


@pytest.mark.parametrize(
    ("modality", "message"),
    [
        (["image"] * 3, "3 modality for 120 rows"),
        (["image"] * 119 + [None], "modality lack a value in row 119"),
        (["image"] * 119 + ["each"], "each.* is no name of a modality"),
        (np.zeros(120), "is no name of a modality"),
        ("image", "expected a list, an array or a tensor"),
    ],
)
def test_wrong_modalities(modality, message, stacked):
    x, _, _ = stacked
    with pytest.raises(InputError, match=message):
        PipelineTransformer("center[each]").fit(x, modality=modality)


def test_modalities_that_it_was_not_fitted_for(stacked):
    x, modality, _ = stacked
    transformer = PipelineTransformer("center[each]").fit(x, modality=modality)
    with pytest.raises(InputError, match="fitted for image and text rows, but audio rows were given"):
        transformer.transform(x[:1], modality=["audio"])
    with pytest.raises(
        InputError, match="was fitted for image, text rows: give modality=, one name for each row, as metadata"
    ):
        transformer.transform(x)


# -- routing


def test_items_in_one_modality_only(stacked):
    x, modality, _ = stacked
    with pytest.raises(InputError, match="needs pairs: image and text rows have no item_id in common"):
        PipelineTransformer(STEPS).fit(x, modality=modality, item=np.arange(120))


def test_metadata_reaches_every_part_of_a_chain(routed, stacked):
    x, modality, item = stacked
    chain = make_pipeline(PipelineTransformer(STEPS), cg.Whiten(3), PipelineTransformer("center[each]"))
    found = chain.fit_transform(x, modality=modality, item=item)
    by_hand = cg.Whiten(3).fit_transform(PipelineTransformer(STEPS).fit_transform(x, modality=modality, item=item))
    by_hand = PipelineTransformer("center[each]").fit_transform(by_hand, modality=modality)
    assert np.allclose(found, by_hand, rtol=1e-12, atol=1e-12)
    assert np.allclose(chain.transform(x, modality=modality), found, rtol=1e-12, atol=1e-12)


def test_a_step_can_decline_metadata(routed, stacked):
    x, modality, item = stacked
    alone = PipelineTransformer("center").set_fit_request(modality=False, item=False)
    alone.set_transform_request(modality=False)
    chain = make_pipeline(PipelineTransformer("normalize,center[each]"), alone)
    assert list(chain.fit(x, modality=modality, item=item)[-1].pipeline_.chains) == ["any"]


def test_cross_validation_measures_the_held_out_rows(routed, stacked):
    x, modality, item = stacked
    names = ["modality_gap", "matching_cosine", "retrieval.image_to_text.r_at_1", "average_cosine"]
    found = cross_validate(
        PipelineTransformer(STEPS),
        x,
        cv=GroupKFold(3),
        scoring={name: scorer(name) for name in names},
        params={"modality": modality, "item": item, "groups": item},
        error_score="raise",
    )
    for fold, (train, test) in enumerate(GroupKFold(3).split(x, groups=item)):
        fitted = PipelineTransformer(STEPS).fit(x[train], modality=modality[train], item=item[train])
        rows = fitted.transform(x[test], modality=modality[test])
        image, text = (
            rows[modality[test] == name][item[test][modality[test] == name].argsort()] for name in ("image", "text")
        )
        expected = {
            "modality_gap": -cg.modality_gap(image, text),
            "matching_cosine": cg.matching_cosine(image, text),
            "retrieval.image_to_text.r_at_1": cg.retrieval(image, text)["image_to_text.r_at_1"],
            "average_cosine": -cg.average_cosine(rows),
        }
        for name in names:
            assert found[f"test_{name}"][fold] == pytest.approx(expected[name], rel=1e-9, abs=1e-12), name


def test_a_search_over_pipelines(routed, stacked):
    x, modality, item = stacked
    search = GridSearchCV(
        PipelineTransformer(),
        {"steps": ["normalize", "normalize,center[each]", STEPS]},
        scoring=scorer("matching_cosine"),
        cv=GroupKFold(3),
    ).fit(x, modality=modality, item=item, groups=item)
    assert search.best_params_ == {"steps": STEPS}
    assert search.best_score_ > 0.8 > search.cv_results_["mean_test_score"][0]
    assert search.score(x, modality=modality, item=item) == pytest.approx(search.best_score_, abs=0.1)


@pytest.mark.parametrize("step", ["whiten(0)", "pca(-1)[pooled]", "all_but_the_top(1.5)"])
def test_a_search_stops_at_steps_that_no_rows_allow(routed, stacked, step):
    """For an error in `fit`, it would record the score nan and go on with a warning."""
    x, modality, item = stacked
    search = GridSearchCV(PipelineTransformer(), {"steps": ["normalize", step]}, scoring=scorer("average_cosine"))
    with pytest.raises(InputError, match=r"k of .*; expected a whole number"):
        search.fit(x, modality=modality, item=item)


def test_nested_cross_validation(routed, stacked):
    x, modality, item = stacked
    search = GridSearchCV(
        PipelineTransformer(), {"steps": ["normalize", STEPS]}, scoring=scorer("matching_cosine"), cv=GroupKFold(3)
    )
    metadata = {"modality": modality, "item": item, "groups": item}
    found = cross_validate(
        search, x, cv=GroupKFold(2), scoring=scorer("modality_gap"), params=metadata, error_score="raise"
    )
    assert (found["test_score"] > -0.5).all()


# -- scorers


def test_a_search_over_numbers_of_components():
    """Two directions are ten times as long as the others: without them the rest is isotropic."""
    x = np.random.default_rng(0).normal(size=(300, 6)) * [9, 9, 1, 1, 1, 1] + 3
    search = GridSearchCV(cg.AllButTheTop(1), {"k": [1, 2, 3, 4]}, scoring=scorer("isoscore")).fit(x)
    assert search.best_params_ == {"k": 2}
    by_hand = [cg.isoscore(cg.AllButTheTop(2).fit(np.delete(x, test, 0)).transform(x[test])) for test in folds(300)]
    assert search.best_score_ == pytest.approx(np.mean(by_hand), rel=1e-12)
    smallest = GridSearchCV(
        cg.AllButTheTop(1), {"k": [1, 2, 3]}, scoring=scorer("isoscore", greater_is_better=False)
    ).fit(x)
    assert smallest.best_params_ != {"k": 2} and smallest.best_score_ < 0


def folds(n, k=5):
    return np.array_split(np.arange(n), k)


def test_labels_are_y(pairs):
    x, _ = pairs
    labels = (x[:, 0] > 1).astype(int)
    fitted = cg.Whiten(3).fit(x)
    assert scorer("silhouette")(fitted, x, labels) == cg.silhouette(fitted.transform(x), labels)
    assert scorer("nc1", greater_is_better=False)(fitted, x, pd.Series(labels)) == pytest.approx(
        -float(measures["nc1"](fitted.transform(x), labels))
    )
    with pytest.raises(InputError, match="silhouette compares classes: give y, one label for each row"):
        scorer("silhouette")(fitted, x)


@pytest.mark.filterwarnings("ignore:.* leave part of the map free")  # of rcond=0.9
def test_the_other_set_is_y(pairs):
    image, text = pairs
    search = GridSearchCV(cg.LeastSquares(), {"rcond": [None, 0.9]}, scoring=scorer("matching_cosine")).fit(text, image)
    assert search.best_params_ == {"rcond": None}
    fitted = cg.Procrustes().fit(text, image)
    moved = fitted.transform(text)
    assert scorer("isoscore")(fitted, text, image) == cg.isoscore(moved)
    assert scorer("matching_cosine")(fitted, text, image) == pytest.approx(cg.matching_cosine(moved, image))
    assert scorer("modality_gap")(fitted, text, image) == pytest.approx(-cg.modality_gap(moved, image))
    found = scorer("retrieval.image_to_text.r_at_1")(fitted, text, image)
    assert found == cg.retrieval(moved, image)["image_to_text.r_at_1"]


def test_measures_of_two_sets_are_metrics_of_predictions(pairs):
    image, text = pairs
    found = cross_val_score(LinearRegression(), text, image, scoring=make_scorer(cg.matching_cosine), cv=3)
    less = make_scorer(cg.alignment, greater_is_better=False)
    assert (found > 0.9).all()
    fitted = LinearRegression().fit(text, image)
    assert less(fitted, text, image) == -cg.alignment(image, fitted.predict(text))


def test_a_score_beside_that_of_the_task(pairs):
    """Of a pipeline that ends in a classifier, the rows that the classifier sees are measured."""
    x, _ = pairs
    labels = (x[:, 0] > 1).astype(int)
    chain = make_pipeline(cg.Center(), cg.Whiten(3), LogisticRegression())
    found = cross_validate(chain, x, labels, scoring={"accuracy": "accuracy", "isoscore": scorer("isoscore")}, cv=3)
    assert (found["test_accuracy"] > 0.5).all() and (found["test_isoscore"] > 0.5).all()
    fitted = chain.fit(x, labels)
    assert scorer("isoscore")(fitted, x) == cg.isoscore(fitted[:-1].transform(x))
    for lacking in (LogisticRegression(), make_pipeline(LogisticRegression())):
        with pytest.raises(InputError, match="has no transform, so there are no rows to be measured"):
            scorer("isoscore")(lacking.fit(x, labels), x)


def test_one_modality_of_several(stacked):
    x, modality, _ = stacked
    fitted = PipelineTransformer("center[pooled]").fit(x, modality=modality)
    rows = fitted.transform(x, modality=modality)
    for name in ("image", "text"):
        expected = -cg.average_cosine(rows[modality == name])
        found = scorer("average_cosine", modalities=name)(fitted, x, modality=modality)
        assert found == pytest.approx(expected, rel=1e-12)
    assert scorer("average_cosine")(fitted, x, modality=modality) == pytest.approx(-cg.average_cosine(rows))
    three = np.where(np.arange(120) % 3 == 0, "audio", modality)
    fitted = PipelineTransformer("center[pooled]").fit(x, modality=three)
    rows = fitted.transform(x, modality=three)
    found = scorer("modality_gap", modalities=("text", "audio"))(fitted, x, modality=three)
    assert found == pytest.approx(-cg.modality_gap(rows[three == "audio"], rows[three == "text"]), rel=1e-12)
    with pytest.raises(InputError, match="rows of two modalities, and there are audio, image, text: choose with"):
        scorer("modality_gap")(fitted, x, modality=three)


def test_labels_of_both_modalities_say_what_is_relevant(stacked):
    x, modality, item = stacked
    classes = np.array([int(each.split()[1]) % 4 for each in item])
    fitted = PipelineTransformer(STEPS).fit(x, modality=modality, item=item)
    rows = fitted.transform(x, modality=modality)
    at = {name: modality == name for name in ("image", "text")}
    relevance = cg.Relevance.of_labels(image=classes[at["image"]], text=classes[at["text"]])
    expected = cg.two_sided_retrieval(rows[at["image"]], rows[at["text"]], relevance)["image.ndcg_at_10"]
    found = scorer("retrieval[two_sided].image.ndcg_at_10")(fitted, x, classes, modality=modality)
    assert found == pytest.approx(expected, rel=1e-12)


def test_every_measure_is_a_scorer_or_says_why(stacked):
    """Of every kind of rows that scorers can be given, and in the measure's direction."""
    x, modality, item = stacked
    classes, numbers = np.arange(120) % 4, np.array([int(each.split()[1]) for each in item])
    fitted = PipelineTransformer("normalize").fit(x, modality=modality)
    scored = set()
    for name, measure in measures.items():
        try:
            made = scorer(name)
        except InputError as error:
            probes = measure.takes.startswith("train") or "language" in measure.takes
            assert ("which no scorer is given" if probes else "no direction of its own") in str(error), name
            continue
        if measure.takes == "classes" or measure.least_n > 60 or measure.function.__module__.endswith("references"):
            continue
        y = {"labeled rows": classes, "relevant sets": numbers % 4}.get(measure.takes)
        score = made(fitted, x, y, modality=modality, item=item)
        assert np.isfinite(score), name
        low, high = (len(x[0]) if bound == "d" else bound for bound in measure.range)
        sign = {"higher": 1, "lower": -1}[(measure.better or measure.direction).split()[0]]
        assert low - 1e-9 <= sign * score <= high + 1e-9, name
        scored.add(measure.takes)
    assert {*scored, "classes"} == {measure.takes for measure in measures.values()} - {"train and test"}


def test_class_prompts_are_a_modality(pairs):
    image, _ = pairs
    classes = np.arange(60) % 4
    prompts = np.stack([image[classes == c].mean(0) for c in range(4)])
    x, modality = np.concatenate([image, prompts]), ["image"] * 60 + ["text"] * 4
    y = [*classes, *range(4)]
    fitted = PipelineTransformer("normalize").fit(x, modality=modality)
    expected = cg.zero_shot(image, classes, prompts)["top_1"]
    assert scorer("zero_shot.top_1")(fitted, x, y, modality=modality) == expected > 0


@pytest.mark.parametrize(
    ("measure", "options", "message"),
    [
        ("isoscor", {}, "did you mean|unknown"),
        ("linear_probe.top_1", {}, "takes train and test, which no scorer is given: put a classifier at the end"),
        (
            "retrieval[mixed].image.same_modality_at_1",
            {},
            "no direction of its own .*greater_is_better=True or False",
        ),
        ("isoscore", {"greater_is_better": "yes"}, "expected True or False"),
    ],
)
def test_what_is_no_scorer(measure, options, message):
    with pytest.raises(InputError, match=message):
        scorer(measure, **options)


def test_what_a_scorer_lacks(stacked):
    x, modality, _ = stacked
    fitted = cg.Center().fit(x)
    with pytest.raises(
        InputError, match="compares two sets: give y, the rows of the other one, or stack both: give mod"
    ):
        scorer("modality_gap")(fitted, x)
    with pytest.raises(InputError, match="enable_metadata_routing=True"):
        scorer("isoscore", modalities="image")(fitted, x)
    with pytest.raises(InputError, match="matching_cosine compares rows that belong together: give item="):
        scorer("matching_cosine")(fitted, x, modality=modality)
    with pytest.raises(InputError, match="takes rows of one modality, and there are image, text"):
        scorer("isoscore", modalities="audio")(fitted, x, modality=modality)


def test_a_scorer_is_an_object_of_scikit_learn(routed):
    made = scorer("modality_gap", modalities=["image", "text"])
    assert repr(clone(made)) == repr(pickle.loads(pickle.dumps(made))) == repr(made)
    assert "modality_gap" in repr(made)
    made.set_score_request(item=False)
    assert made.get_metadata_routing().score.requests == {"modality": True, "item": False}


# -- silhouettes

METRICS = ["euclidean", "sqeuclidean", "cosine", "precomputed"]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(3))
def test_silhouettes_are_those_of_scikit_learn(metric, seed):
    """In the same calls: rows and labels by position, the metric by its name; a class of one row has 0."""
    rng = np.random.default_rng(seed)
    x, labels = rng.normal(size=(50, 6)) + 0.3, rng.integers(0, 5, size=50)
    labels[:6] = [7, 0, 1, 2, 3, 4]
    if metric == "precomputed":
        x = np.abs(x[:, None] - x[None]).sum(-1)
    assert cg.silhouette(x, labels, metric=metric) == pytest.approx(
        sklearn_score(x, labels, metric=metric), rel=1e-10, abs=1e-12
    )
    samples = cg.silhouette_samples(x, labels, metric=metric)
    assert np.allclose(samples, sklearn_samples(x, labels, metric=metric), rtol=1e-10, atol=1e-12)
    assert samples[0] == 0 and type(samples) is np.ndarray and type(cg.silhouette(x, labels)) is float


def test_the_default_metric_is_the_same_and_labels_may_be_words():
    x = np.random.default_rng(0).normal(size=(30, 4))
    labels = KMeans(3, random_state=0, n_init=1).fit_predict(x)
    words = np.array(["cat", "dog", "owl"])[labels]
    assert cg.silhouette(x, labels) == pytest.approx(sklearn_score(x, words), rel=1e-10)
    assert cg.silhouette(x, pd.Series(words)) == pytest.approx(sklearn_score(x, words), rel=1e-10)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("labels", [[0] * 6, [*range(6)]])
def test_labels_without_a_silhouette_are_a_value_error_in_both(metric, labels):
    x = np.ones((6, 6)) - np.eye(6)
    for silhouette in (cg.silhouette, sklearn_score):
        with pytest.raises(ValueError):
            silhouette(x, labels, metric=metric)


def test_distances_of_other_rows_are_refused():
    for x in (np.ones((4, 4)), np.zeros((4, 3)), np.eye(4) - 1):
        with pytest.raises(InputError, match=r"expected the distances of all rows for metric 'precomputed', \(n, n\)"):
            cg.silhouette(x, [0, 0, 1, 1], metric="precomputed")


def test_a_sampled_silhouette_is_that_of_all_rows():
    """scikit-learn's sample_size takes that of a subset, which is another number."""
    x = np.random.default_rng(0).normal(size=(60, 4))
    labels = np.arange(60) % 3
    every = sklearn_score(x, labels)
    assert cg.sampled_silhouette(x, labels, of=60).value == pytest.approx(every, rel=1e-9)
    estimates = [cg.sampled_silhouette(x, labels, of=20, seed=seed).value for seed in range(30)]
    subsets = [sklearn_score(x, labels, sample_size=20, random_state=seed) for seed in range(30)]
    assert abs(np.mean(estimates) - every) < abs(np.mean(subsets) - every)


# -- documentation


def test_the_page_in_the_documentation_runs():
    text = (Path(__file__).parents[2] / "docs" / "howto" / "sklearn.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "docs/howto/sklearn.md", None, 0)
    said = []
    failed, tried = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert tried > 30 and not failed, "".join(said)


def test_the_examples_run():
    failed, tried = doctest.testmod(clip_geometry.training.sklearn)
    assert tried > 5 and not failed

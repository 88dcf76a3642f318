"""`match`: probabilities that hold on other items, cutoffs that hold their promise, and refusals."""

import numpy as np
import pytest
from scipy.stats import rankdata

import clip_geometry as cg
from clip_geometry.registry import InputError
from clip_geometry.search.matching.fit import _logistic
from clip_geometry.search.matching.roc import Roc
from clip_geometry.search.matching.scores import LISTED, first_results, search
from support.clip_like import unit


def pairs(n, d=32, noise=0.9, seed=0):
    """Image and text rows in two cones; rows of one item resemble each other."""
    rng = np.random.default_rng(seed)
    cones, item = rng.normal(size=(2, 1, d)), rng.normal(size=(n, d))
    return [unit(cone + item + noise * rng.normal(size=(n, d))) for cone in cones]


def searched(queries, items, k=10):
    """The k best cosines of each query, their items, and the mean and standard deviation of all."""
    cosines = queries @ items.T
    order = np.argsort(-cosines, axis=1)[:, :k]
    return np.take_along_axis(cosines, order, axis=1), order[:, 0], cosines.mean(1), cosines.std(1)


def judged(model, queries, items, answers):
    """The probability of each query's first result, and whether it is right."""
    top, first, mean, std = searched(queries, items)
    return model.probability(top, mean=mean, std=std, m=len(items)), first == answers


@pytest.fixture(scope="module")
def fitted():
    return cg.match(*pairs(400))


# -- against other items of the same distribution


@pytest.mark.parametrize("answerable", [0.2, 0.5, 0.8])
def test_probabilities_and_cutoffs_hold_for_other_items(answerable):
    """3,000 other queries: the share that is right has a standard error of 1%, the fit one of about 2%."""
    fitted = cg.match(*pairs(1000), answerable=answerable)["text_to_image"]
    image, text = pairs(4000, seed=0)
    image, text = image[1000:], text[1000:]
    right, probability, weights = [], [], []
    for start in range(0, 3000, 1000):
        part = slice(start, start + 1000)
        for items, answers, weight in (
            (image[part], np.arange(1000), answerable),
            (image[(start + 1000) % 3000 :][:1000], np.full(1000, -1), 1 - answerable),
        ):
            p, correct = judged(fitted, text[part], items, answers)
            probability.append(p), right.append(correct), weights.append(np.full(1000, weight))
    probability, right, weights = map(np.concatenate, (probability, right, weights))
    assert abs(np.average(probability - right, weights=weights)) < 0.04
    for low, high in ((0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1)):
        some = (low <= probability) & (probability < high)
        if some.sum() < 200:
            continue
        assert abs(np.average((probability - right)[some], weights=weights[some])) < 0.08
    wrong = np.where(right, 0, weights)
    for rate in (0.05, 0.1):
        accepted = probability > fitted.cutoff(rate)
        assert 0.5 * rate < wrong[accepted].sum() / wrong.sum() < 1.7 * rate
        kept = weights[accepted & right].sum() / weights[right].sum()
        assert abs(kept - fitted.kept(rate)) < 0.08


def test_the_auc_is_above_that_of_the_cosine_and_its_interval_contains_that_of_other_items(fitted):
    numbers = fitted["image_to_text"].numbers
    assert numbers["auc"][0] > numbers["auc[cosine]"][0]
    image, text = pairs(4400)
    aucs = []
    for start in range(400, 4400, 400):
        part = slice(start, start + 400)
        p, right = judged(fitted["image_to_text"], image[part], text[part], np.arange(400))
        other, _ = judged(fitted["image_to_text"], image[part], text[(start + 400) % 4400 :][:400], -np.ones(400))
        scores, labels = np.concatenate([p, other]), np.concatenate([right, np.zeros(400, bool)])
        ranks = rankdata(scores)[labels]
        count = labels.sum()
        aucs.append((ranks.mean() - (count + 1) / 2) / (len(labels) - count))
    assert numbers["auc"][1] - 0.02 < np.mean(aucs) < numbers["auc"][2] + 0.02


def test_a_larger_index_needs_no_new_fit():
    """Fitted on 300 items and asked about 1,200; without log m, the mean probability would be 10% too high."""
    image, text = pairs(1500)
    model = cg.match(image[:300], text[:300], answerable=0.99)["image_to_text"]
    p, right = judged(model, image[300:], text[300:], np.arange(1200))
    small, small_right = judged(model, image[300:600], text[300:600], np.arange(300))
    assert abs(p.mean() - right.mean()) < 0.06 and abs(small.mean() - small_right.mean()) < 0.06
    assert right.mean() < small_right.mean() - 0.1


# -- nothing to find


@pytest.mark.parametrize("seed", range(4))
def test_random_rows_and_shuffled_pairs_have_no_cutoff(seed):
    rng = np.random.default_rng(seed)
    image, text = pairs(300, seed=seed)
    for sets in (rng.normal(size=(2, 300, 32)), (image, rng.permutation(text))):
        fitted = cg.match(*sets)
        assert not any(model.identifies for model in fitted.values())
        assert "no cutoff is offered" in fitted.verdict[0] and "%" not in str(fitted.table().groups)
        with pytest.raises(InputError, match="cannot identify matches of image queries among text items"):
            fitted["image_to_text"].cutoff()
        with pytest.raises(InputError, match="cannot identify matches"):
            fitted["text_to_image"].kept()


def test_labels_that_mean_nothing_have_no_cutoff():
    """A tenth of the first results is right by chance, so only the AUC shows that nothing is there."""
    labels = np.random.default_rng(0).integers(10, size=400)
    assert not cg.match(pairs(400)[0], labels=labels)["rows_to_rows"].identifies


# -- relevance by labels, ids, near duplicates and anchors


def test_labels_and_ids_say_what_is_right():
    image, _ = pairs(300)
    codes = np.arange(300) % 150
    image[150:] = unit(image[:150] + 0.05 * np.random.default_rng(0).normal(size=(150, 32)))
    by_label = cg.match(image, labels=codes)
    by_id = cg.match({"image": image}, ids=codes)["image_to_image"]
    assert by_label["rows_to_rows"].coefficients == by_id.coefficients
    assert by_id.numbers["right"][0] == pytest.approx(0.5) and by_id.kept(0.05) > 0.99


def test_directions_with_few_answers_are_left_out():
    image, text = pairs(200)
    labels = {"image": np.arange(200) % 10, "text": np.where(np.arange(200) < 10, np.arange(200), -np.arange(200))}
    fitted = cg.match({"image": image, "text": text}, labels=labels)
    assert list(fitted) == ["image_to_text"]
    assert fitted.skipped["text_to_image"].startswith("10 text queries have an answer among the image items")
    assert "10 text queries have an answer" in fitted.verdict[-1]


def test_natural_near_duplicates_are_right_without_labels():
    image, _ = pairs(1000)
    image[:80] = unit(image[80:160] + 1e-3 * np.random.default_rng(0).normal(size=(80, 32)))
    model = cg.match({"image": image})["image_to_image"]
    assert model.answerable == 0.5 and model.kept(0.01) > 0.99
    without = cg.match({"image": pairs(1000)[0]})["image_to_image"]
    assert without.answerable is None


def test_anchors_give_false_accepts_but_no_probability():
    image, _ = pairs(600)
    anchors, others = pairs(2400, seed=9)[1].reshape(2, 1200, 32)
    fitted = cg.match({"image": image}, anchors={"text": anchors})
    model = fitted["text_to_image"]
    assert "no probabilities" in fitted.verdict[0] and set(fitted.frame.number) == {"cutoff"}
    assert "–" in str(fitted)
    with pytest.raises(InputError, match="without pairs there is no probability"):
        model.probability([[0.5, 0.4]], mean=[0], std=[0.1], m=600)
    with pytest.raises(InputError, match="without pairs, no right results are known"):
        model.kept()
    top, _, mean, std = searched(others, image)
    for rate in (0.05, 0.1):  # 1,200 queries: a standard error of 0.9% at most, twice
        assert abs(model.accepts(top, mean=mean, std=std, m=600, false_accepts=rate).mean() - rate) < 0.027


# -- the parts, against plain definitions


def test_search_is_that_of_all_cosines():
    image, text = pairs(9000, d=16)  # more than one block
    queries, rows = cg.Embeddings(image[:500], "image"), np.arange(3, 400, 7)
    codes = np.arange(9000) % 4500  # two right items
    scores = search(queries, rows, cg.Embeddings(text, "text"), codes[:500], codes)
    cosines = image[rows] @ text.T
    is_right = codes[rows][:, None] == codes
    near = {"atol": 1e-6}  # float32
    np.testing.assert_allclose(scores.right.scores[:, :2], -np.sort(-cosines[is_right].reshape(-1, 2)), **near)
    assert np.isneginf(scores.right.scores[:, 2:]).all()
    wrong = -np.sort(-np.where(is_right, -9, cosines), axis=1)
    np.testing.assert_allclose(scores.wrong.scores, wrong[:, :LISTED], **near)
    np.testing.assert_allclose(np.take_along_axis(cosines, scores.wrong.items, axis=1), scores.wrong.scores, **near)
    np.testing.assert_allclose(scores.mean, cosines.mean(1), **near)
    np.testing.assert_allclose(scores.std, cosines.std(1), atol=1e-5)
    assert scores.m == 9000


def test_a_query_does_not_find_itself():
    x = unit(np.random.default_rng(0).normal(size=(200, 8)))
    scores = search(
        *(cg.Embeddings(x, "x"), np.arange(200), cg.Embeddings(x, "x"), np.arange(200), np.arange(200)),
        exclude_itself=True,
    )
    cosines = x @ x.T
    others = cosines[~np.eye(200, dtype=bool)].reshape(200, 199)
    assert scores.m == 199 and not np.isfinite(scores.right.scores).any()
    np.testing.assert_allclose(scores.wrong.scores[:, 0], others.max(1), atol=1e-6)
    np.testing.assert_allclose(scores.std, others.std(1), atol=1e-5)


def test_first_results_in_subsets_are_those_of_smaller_searches():
    """In halves of the index, as many first results are right as in searches of real halves."""
    image, text = pairs(600)
    codes = np.arange(600)
    scores = search(cg.Embeddings(image, "i"), codes, cg.Embeddings(text, "t"), codes, codes)
    found = first_results(scores, 0)
    assert sorted(set(found.size)) == [150, 300, 600]
    rng, real = np.random.default_rng(1), []
    for _ in range(40):
        half = rng.permutation(600)[:300]
        real.append((searched(image[half], text[half])[1] == np.arange(300)).mean())
    shares = {size: found.right[(found.size == size) & found.answerable].mean() for size in (150, 300, 600)}
    assert shares[300] == pytest.approx(np.mean(real), abs=0.02)
    assert shares[600] == (searched(image, text)[1] == codes).mean()
    weights = found.weights(0.3)
    assert weights[found.answerable].sum() == pytest.approx(0.9) and weights.sum() == pytest.approx(3)
    assert not found.right[~found.answerable].any()


def test_the_logistic_regression_recovers_its_weights():
    image, text = pairs(3000)
    codes = np.arange(3000)
    found = first_results(search(cg.Embeddings(image, "i"), codes, cg.Embeddings(text, "t"), codes, codes), 0)
    truth = np.array([-9.0, 10.0, 4.0, 2.0, -0.3])
    p = 1 / (1 + np.exp(-truth[0] - found.columns @ truth[1:]))
    drawn = found._replace(right=np.random.default_rng(1).random(len(p)) < p)
    intercept, *slopes = _logistic(drawn, 0.5)
    assert np.abs(intercept + drawn.columns @ slopes - np.log(p / (1 - p))).mean() < 0.1


def test_roc_is_that_of_scikit_learn():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    right = rng.random(500) < 0.4
    scores, weights = rng.normal(size=500) + right, rng.random(500)
    roc = Roc(scores, right)
    assert roc.auc(weights) == pytest.approx(roc_auc_score(right, scores, sample_weight=weights))
    cutoffs, kept = roc.cutoffs(weights, np.array([0.02, 0.1, 0.5]))
    for cutoff, share, rate in zip(cutoffs, kept, (0.02, 0.1, 0.5), strict=True):
        accepted = scores > cutoff
        assert weights[accepted & right].sum() / weights[right].sum() == pytest.approx(share)
        false = weights[accepted & ~right].sum() / weights[~right].sum()
        assert false <= rate < false + weights.max() / weights[~right].sum()


def test_all_numbers_have_intervals_that_contain_them(fitted):
    frame = fitted.frame
    assert list(frame.direction.unique()) == ["image_to_text", "text_to_image"]
    assert (frame.low <= frame.value).mean() > 0.9 and (frame.value <= frame.high).mean() > 0.9
    assert not frame[["value", "low", "high"]].isna().any().any()


def test_the_table_has_the_cutoffs_of_the_model(fitted):
    for model in fitted.values():
        for rate in (0.01, 0.05, 0.1):
            assert model.numbers[f"cutoff@{rate}"][0] == pytest.approx(model.cutoff(rate))
            assert model.numbers[f"kept@{rate}"][0] == pytest.approx(model.kept(rate))


def test_the_same_seed_gives_the_same_models_and_sets_stay_as_they_are(fitted):
    image, text = pairs(400)
    before = image.copy()
    assert cg.match(image, text).models == fitted.models
    assert (image == before).all()
    assert cg.match(image, text, seed=1).models != fitted.models


def test_float16_and_unnormalized_rows_give_nearly_the_same(fitted):
    image, text = (7 * x for x in pairs(400))
    model = cg.match(image.astype(np.float16), text.astype(np.float16))["image_to_text"]
    assert model.kept(0.1) == pytest.approx(fitted["image_to_text"].kept(0.1), abs=0.02)


def test_the_figure_has_four_panels_for_each_direction(fitted):
    figure = fitted.figure()
    assert len(figure.axes) == 8
    assert [axes.get_xlabel() for axes in figure.axes[:4]] == [
        *("probability", "share accepted", "probability", "cosine of the first result"),
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: cg.match(a, b[:50]), "the rows do not pair and have no labels"),
        (lambda a, b: cg.match(a[:59], b[:59]), "59 image queries have an answer among the text items; expected at"),
        (lambda a, b: cg.match(a, b, answerable=1), "answerable = 1; expected a share between 0 and 1"),
        (lambda a, b: cg.match(a, b, answerable="half"), "answerable = 'half'"),
        (lambda a, b: cg.match(a, b[:, :8]), "one index needs rows of one dimension"),
        (lambda a, b: cg.match(np.ones_like(a), np.ones_like(b)), "all scores of each image query are equal"),
        (lambda a, b: cg.match(a, b, seed=-1), "seed = -1"),
        (lambda a, b: cg.match(a, anchors=b), "anchors = .*; expected modality → rows that match nothing"),
        (
            lambda a, b: cg.match({"image": a}, anchors={"text": b[:9]}),
            "there are 9 text anchors; expected at least 60",
        ),
        (lambda a, b: cg.match({"image": a}, anchors={"image": b}), "there are only image sets to search"),
        (lambda a, b: cg.match(np.full_like(a, np.nan), b), "NaN"),
        (lambda a, b: cg.match(np.zeros_like(a), b), "zero row"),
    ],
)
def test_wrong_arguments_are_a_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call(*pairs(100))

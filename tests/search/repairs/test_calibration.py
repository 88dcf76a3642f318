"""Calibrated scores: oracles of scikit-learn, invariants, planted parameters, and degenerate rows."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression

from clip_geometry.registry import InputError
from clip_geometry.search.relevance import Relevance
from clip_geometry.search.repairs import Known, repairs
from clip_geometry.search.repairs.calibration import ORDER, RIDGE, WEAK, Calibrated, likely_scale, logistic, targets
from support.clouds import unit
from support.mixed_index import NAMES, labelled, paired, rows

CALIBRATED = [name for name in repairs if issubclass(repairs[name].kind, Calibrated)]
KINDS = [("image", "image"), ("image", "text"), ("text", "image"), ("text", "text")]


def cosines_of(sets, kind):
    return unit(sets[kind[0]]) @ unit(sets[kind[1]]).T


def off_diagonal(table, kind):
    return table[~np.eye(len(table), dtype=bool)] if kind[0] == kind[1] else table.ravel()


@pytest.mark.parametrize("name", CALIBRATED)
@pytest.mark.parametrize("known", [labelled, paired, Known])
def test_the_order_within_a_modality_is_that_of_the_cosine(name, known):
    """Without means across modalities, if the repair is centered. New rows also lie beyond the ends of curves."""
    sets, q, x = rows(), rows(1, n=20), rows(2, n=30, noise=1.5)
    repair = repairs[name].make().fit(known(sets))
    means = {modality: unit(each).mean(0) for modality, each in sets.items()}
    for query, item in KINDS:
        left, right = unit(q[query]), unit(x[item])
        if "centered" in name and query != item:
            left, right = unit(left - means[query]), unit(right - means[item])
        order = np.argsort(left @ right.T, axis=1)
        assert (np.argsort(repair.scores(query, q[query], item, x[item]), axis=1) == order).all()


@pytest.mark.parametrize("name", ["zscore", "zscore[centered]"])
def test_zscores_have_mean_0_and_deviation_1(name):
    sets = rows(names=NAMES)
    repair = repairs[name].make().fit(Known(sets))
    for query in NAMES:
        for item in NAMES:
            known = off_diagonal(repair.scores(query, sets[query], item, sets[item]), (query, item))
            assert known.mean() == pytest.approx(0, abs=1e-12) and known.std() == pytest.approx(1, abs=1e-12)


def test_quantiles_are_shares():
    """The share of lower scores, exact at the top; between the 2,000 places kept it is interpolated, so to 0.002."""
    sets = rows()
    repair = repairs["quantile"].make().fit(Known(sets))
    for kind in KINDS:
        known = off_diagonal(cosines_of(sets, kind), kind)
        table = repair.scores(kind[0], sets[kind[0]], kind[1], sets[kind[1]])
        scores = off_diagonal(table, kind)
        shares = (known[:, None] < known[None, ::7]).mean(0) + 0.5 / len(known)
        np.testing.assert_allclose(scores[::7], shares, rtol=0, atol=2e-3)
        best = np.sort(scores)[-10:]
        bound = 1.01 / len(known) if kind[0] == kind[1] else 2 * ORDER  # a cosine within a modality occurs twice
        np.testing.assert_allclose(best, (len(known) - np.arange(9.5, 0, -1)) / len(known), rtol=0, atol=bound)


# -- logistic


def sample(seed, n=3000):
    rng = np.random.default_rng(seed)
    cosines = rng.normal(0.3, 0.1, size=n)
    return cosines, rng.random(n) < expit(25 * cosines - 9), rng


def regression(targets):
    """Scikit-learn's, with the same ridge on standardized cosines; its loss is a sum, not a mean."""
    ridge = RIDGE * targets.mean() * (1 - targets.mean())
    return LogisticRegression(C=1 / (ridge * len(targets)), tol=1e-10, max_iter=1000)


@pytest.mark.parametrize("seed", range(3))
def test_logistic_is_that_of_scikit_learn(seed):
    """To 1e-5, as precisely as lbfgs stops."""
    cosines, hits, _ = sample(seed)
    slope, offset = logistic(cosines, hits.astype(float))
    z = (cosines - cosines.mean()) / cosines.std()
    oracle = regression(hits).fit(z[:, None], hits)
    expected = oracle.decision_function(z[:, None])
    np.testing.assert_allclose(slope * cosines + offset, expected, rtol=1e-5, atol=1e-5)
    assert slope == pytest.approx(25, rel=0.2) and offset == pytest.approx(-9, rel=0.2)


@pytest.mark.parametrize("margin", [0.1, 1e-4])
def test_separated_targets_have_a_finite_slope(margin):
    """All relevant items lie above all others. Probabilities at the threshold's sides are near 0 and 1."""
    cosines = np.concatenate([np.linspace(0.1, 0.3, 500), np.linspace(0.3 + margin, 0.4, 7)])
    slope, offset = logistic(cosines, (cosines > 0.3 + margin / 2).astype(float))
    assert 0 < slope < 1e5
    assert expit(slope * 0.4 + offset) > 0.9 and expit(slope * 0.2 + offset) < 0.01


@pytest.mark.parametrize(("share", "relevant"), [(0.0, 0.5), (1.0, 399.5), (0.23, 92.0)])
def test_targets_that_say_nothing(share, relevant):
    """Equal targets: the log odds of their share, half an item at least, in an order that float32 keeps."""
    cosines, _, _ = sample(1, n=400)
    slope, offset = logistic(cosines, np.full(400, share))
    assert slope == pytest.approx(WEAK / cosines.std(), rel=1e-12)
    assert slope * cosines.mean() + offset == pytest.approx(np.log(relevant / (400 - relevant)), rel=1e-9)


# -- posteriors of repairs


def test_the_posterior_is_the_logistic_regression_of_each_kind():
    sets = rows()
    known = labelled(sets)
    repair = repairs["posterior"].make().fit(known)
    for kind in KINDS:
        cosines = off_diagonal(cosines_of(sets, kind), kind)
        hits = off_diagonal(np.equal.outer(np.arange(100) % 20, np.arange(100) % 20), kind)
        z = (cosines - cosines.mean()) / cosines.std()
        oracle = regression(hits).fit(z[:, None], hits)
        scores = off_diagonal(repair.scores(kind[0], sets[kind[0]], kind[1], sets[kind[1]]), kind)
        np.testing.assert_allclose(scores, oracle.decision_function(z[:, None]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("planted", [12.0, 55.0])
def test_likely_scale_recovers_a_planted_one(planted):
    """Queries draw their item from softmax(τ cosines).

    Of 4,000 queries 250 are used; log τ then has a deviation of .1 (.05 for τ = 12) over seeds, and the mean of 40 of
    .016.
    """
    log_scales, without = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        cosines = unit(rng.normal(size=(4000, 16))) @ unit(rng.normal(size=(50, 16))).T
        chosen = (softmax(planted * cosines, axis=1).cumsum(1) > rng.random((4000, 1))).argmax(1)
        grades = np.zeros(cosines.shape)
        grades[np.arange(4000), chosen] = 1
        log_scales.append(np.log(likely_scale(cosines, grades)))
        grades[::3] = 0  # queries without a relevant item are left out
        without.append(np.log(likely_scale(cosines, 2.5 * grades)))
    assert np.exp(np.mean(log_scales)) == pytest.approx(planted, rel=0.05)
    assert np.exp(np.mean(without)) == pytest.approx(planted, rel=0.05)


def test_the_likely_scale_of_pairs_far_apart_is_the_largest():
    """The likelihood still rises there, by less than the rounding of scores in the thousands."""
    cosines = np.full((500, 500), 0.3) + np.random.default_rng(0).uniform(-0.01, 0, (500, 500))
    np.fill_diagonal(cosines, 0.33)
    assert likely_scale(cosines, np.eye(500)) > 0.99 * np.exp(7)


# -- targets


def tables(sets):
    names = sorted(sets)
    kinds = [(query, item) for query in names for item in names]
    return {kind: cosines_of(sets, kind) for kind in kinds}, {k: 0.7 if k[0] != k[1] else 1.0 for k in kinds}


def test_targets_within_a_modality_are_agreements_of_posteriors():
    """Of three modalities, the mean over the two others; without pairs at the logit scale over the spread."""
    sets = rows(n=12, names=NAMES)
    cosines, spreads = tables(sets)
    relevance = targets(Known(sets, logit_scale=20.0), cosines, spreads)
    for query in NAMES:
        p = {b: softmax(20 / 0.7 * cosines[query, b], axis=1) for b in NAMES if b != query}
        for b, each in p.items():
            np.testing.assert_allclose(relevance[query, b], each, rtol=1e-12)
        expected = [[np.mean([x[i] @ x[j] for x in p.values()]) for j in range(12)] for i in range(12)]
        np.testing.assert_allclose(relevance[query, query], expected, rtol=1e-12)


def test_targets_of_pairs_take_their_likely_scale():
    sets = rows(n=40)
    cosines, spreads = tables(sets)
    relevance = targets(paired(sets, logit_scale=3.0), cosines, spreads)
    scale = likely_scale(cosines["text", "image"], np.eye(40))
    p = softmax(scale * cosines["text", "image"], axis=1)
    np.testing.assert_allclose(relevance["text", "text"], p @ p.T, rtol=1e-12)
    assert (relevance["image", "text"] == np.eye(40)).all()


# -- degenerate rows


@pytest.mark.parametrize("name", ["posterior", "posterior[isotonic]"])
def test_names_that_are_all_different(name):
    """Labels are complete and no text is relevant to another one, so texts come last for a text."""
    sets = rows()
    sets = {"image": sets["image"], "text": sets["text"][:20]}
    relevance = Relevance.of_labels(image=np.arange(100) % 20, text=np.arange(20))
    repair = repairs[name].make().fit(Known(sets, relevance))
    items = rows(1)
    scores = repair.mixed("text", items["text"], items, np.arange(100))
    own = np.arange(100)
    assert (scores["image"][own, own] > scores["text"].max(1)).mean() > 0.9


@pytest.mark.parametrize("name", ["posterior", "posterior[isotonic]"])
def test_labels_that_nothing_shares(name):
    sets = rows(n=30)
    relevance = Relevance.of_labels(image=np.arange(30), text=np.arange(30) + 100)
    with pytest.raises(InputError, match="no item is relevant to any query; a posterior needs labels that rows share"):
        repairs[name].make().fit(Known(sets, relevance))


@pytest.mark.parametrize("name", ["posterior", "posterior[isotonic]"])
def test_one_modality_needs_labels(name):
    image = {"image": rows()["image"]}
    with pytest.raises(InputError, match="only image rows were given; a posterior needs labels or a second modality"):
        repairs[name].make().fit(Known(image))
    repair = repairs[name].make().fit(labelled(image))
    x = rows(1)["image"]
    scores = repair.scores("image", x, "image", x)
    same = np.equal.outer(np.arange(100) % 20, np.arange(100) % 20)
    assert scores[same].mean() > scores[~same].mean()


@pytest.mark.parametrize("name", ["zscore", "posterior"])
def test_rows_that_are_all_equal(name):
    """Of different lengths, so that their cosines differ by rounding."""
    sets = rows(n=30)
    sets["text"] = np.outer(np.linspace(0.3, 4, 30), sets["text"][0])
    with pytest.raises(InputError, match="all cosines of a kind are equal; a calibration needs rows that differ"):
        repairs[name].make().fit(paired(sets))


@pytest.mark.parametrize("name", CALIBRATED)
def test_one_row_of_a_modality(name):
    sets = rows(n=30)
    sets["text"] = sets["text"][:1]
    with pytest.raises(InputError, match=r"there is one text row; .* needs at least 2 rows of each modality"):
        repairs[name].make().fit(Known(sets))


def test_soft_targets_count_as_both_outcomes():
    """A target of p is p of a relevant and 1 − p of an irrelevant item: scikit-learn's weighted fit of both."""
    cosines, _, rng = sample(5)
    soft = np.clip(expit(25 * cosines - 9) + rng.normal(scale=0.1, size=len(cosines)), 0, 1)
    slope, offset = logistic(cosines, soft)
    z = (cosines - cosines.mean()) / cosines.std()
    twice, outcome = np.tile(z, 2)[:, None], np.repeat([1, 0], len(z))
    oracle = regression(soft)
    oracle.fit(twice, outcome, sample_weight=np.concatenate([soft, 1 - soft]))
    np.testing.assert_allclose(slope * cosines + offset, oracle.decision_function(z[:, None]), rtol=1e-5, atol=1e-5)

"""Two-sided retrieval against loops in numpy and scikit-learn's NDCG."""

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score

import clip_geometry as cg
from clip_geometry.registry import InputError
from clip_geometry.search.two_sided import _relevant, in_order, top
from support import oracles_two_sided as oracles

N, M, D = 30, 24, 6


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def grades_of(relevance, query):
    """Modality → dense grades, through the class's own look-up; `test_relevance` checks that."""
    n = relevance.sizes[query]
    return {
        item: relevance.tables[query, item].grades(torch.arange(n), torch.arange(m).expand(n, m)).numpy()
        for item, m in relevance.sizes.items()
    }


def labeled(seed, classes=5, gap=0.4):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=N), rng.integers(classes + 1, size=M)  # texts have a class that images lack
    centers = 2 * rng.normal(size=(classes + 1, D))
    image, text = (centers[each] + rng.normal(size=(len(each), D)) for each in labels)
    return image + gap, text - gap, cg.Relevance.of_labels(image=labels[0], text=labels[1])


def captioned(seed):
    rng = np.random.default_rng(seed)
    image = rng.normal(size=(N, D))
    of = np.concatenate([np.arange(10), rng.integers(N, size=M - 10)])
    return image, image[of] + 0.7 * rng.normal(size=(M, D)), cg.Relevance.of_pairs((of, np.arange(M)), image=N, text=M)


@pytest.mark.parametrize("made", [labeled, captioned])
@pytest.mark.parametrize(("seed", "k"), [(0, 1), (1, 10), (2, 40)])  # 40: more than the items of either modality
def test_agrees_with_the_loop(made, seed, k):
    image, text, relevance = made(seed)
    found = cg.two_sided_retrieval(image, text, relevance, k=k)
    rows, means = {"image": unit(image), "text": unit(text)}, {}
    for query, own in rows.items():
        scores = {name: own @ items.T for name, items in rows.items()}
        values = oracles.by_query(scores, grades_of(relevance, query), query, k)
        of_scores = cg.two_sided_scores(scores, relevance, query, k=k)
        assert of_scores.keys() == values.keys()
        for name, each in values.items():  # a few ratios and a sum of k terms
            np.testing.assert_allclose(of_scores[name], each, rtol=0, atol=1e-13, err_msg=name)
        names = {name: name for name in ("ndcg", "precision", "own_precision")}
        names |= {f"recall.{item}": f"{item}_recall" for item in rows}
        means |= {  # no image shares a caption with another
            f"{query}.{name}_at_{k}": np.nanmean(values[key])
            for key, name in names.items()
            if not np.isnan(values[key]).all()
        }
        means[f"{query}.own_share_at_{k}"] = np.nanmean(values[f"share.{query}"])
        excess = values[f"share.{query}"] - values[f"relevant_share.{query}"]
        means[f"{query}.own_share_excess_at_{k}"] = np.nanmean(excess)
    assert found == pytest.approx(means, abs=1e-13)
    assert k != 10 or 0 < found["image.ndcg_at_10"] < 1


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize("seed", range(3))
def test_ndcg_is_that_of_scikit_learn(seed):
    """Linear gains; in one list of all items but the query, without ties."""
    image, text, relevance = labeled(seed)
    rows = {"image": unit(image), "text": unit(text)}
    for query, own in rows.items():
        scores = {name: own @ items.T for name, items in rows.items()}
        grades = np.hstack(list(grades_of(relevance, query).values()))
        itself = np.arange(len(own)) + (N if query == "text" else 0)
        kept = [np.delete(np.arange(N + M), i) for i in itself]
        together = np.hstack(list(scores.values()))
        found = cg.two_sided_scores(scores, relevance, query, k=7)["ndcg"]
        expected = [
            ndcg_score(grades[i : i + 1, kept[i]], together[i : i + 1, kept[i]], k=7)
            if grades[i, kept[i]].any()
            else np.nan
            for i in range(len(own))
        ]
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tie", [0.0, 0.25])
def test_ties_count_against_the_query(seed, tie):
    """Scores of a few levels, in which all of the top ten may be tied with all of the rest."""
    rng = np.random.default_rng(seed)
    _, _, relevance = labeled(seed)
    levels = 2 + seed
    scores = {"text": rng.integers(levels, size=(N, M)) / 4, "image": rng.integers(levels, size=(N, N)) / 4}
    expected = oracles.by_query(scores, grades_of(relevance, "image"), "image", 10, tie)
    found = cg.two_sided_scores(scores, relevance, "image", tie=tie)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-13, err_msg=name)


def test_rows_that_coincide_find_as_little_as_possible():
    rows = np.random.default_rng(0).normal(size=(1, 5)).repeat(20, axis=0)
    labels = np.arange(20) % 2
    found = cg.two_sided_retrieval(rows, rows, cg.Relevance.of_labels(image=labels, text=labels), k=10)
    assert found["image.ndcg_at_10"] == found["text.precision_at_10"] == 0  # 20 of 39 items are not relevant
    assert found["image.own_share_at_10"] == 1
    scaled = rows * np.random.default_rng(1).uniform(0.1, 9, size=(20, 1))  # copies of the direction, rounded otherwise
    assert cg.two_sided_retrieval(scaled, rows, cg.Relevance.of_labels(image=labels, text=labels), k=10) == found


@pytest.mark.parametrize("seed", range(3))
def test_copies_cost_their_places(seed):
    """Each text stands twice under different labels: the wrong one is first, in any order of the rows."""
    rng = np.random.default_rng(seed)
    image, labels = rng.normal(size=(12, 5)), np.arange(12)
    text = np.repeat(image, 2, axis=0) * rng.uniform(0.5, 2, size=(24, 1))
    of_text = np.stack([labels, labels + 100], 1).ravel()
    order = rng.permutation(24)
    relevance = cg.Relevance.of_labels(image=labels, text=of_text[order])
    found = cg.two_sided_retrieval(image, text[order], relevance, k=1)
    assert found["image.text_recall_at_1"] == 0
    second = cg.two_sided_retrieval(image, text[order], relevance, k=2)
    assert second["image.text_recall_at_2"] == 1
    assert second["image.ndcg_at_2"] == pytest.approx(1 / np.log2(3), abs=1e-15)


def test_a_sample_of_queries_has_the_values_of_these_queries():
    image, text, relevance = labeled(1)
    rows = {"image": unit(image), "text": unit(text)}
    scores = {name: rows["text"] @ each.T for name, each in rows.items()}
    some = np.random.default_rng(0).permutation(M)[:9]
    whole = cg.two_sided_scores(scores, relevance, "text")
    sample = {name: each[some] for name, each in scores.items()}
    for name, values in cg.two_sided_scores(sample, relevance, "text", queries=some).items():
        np.testing.assert_array_equal(values, whole[name][some], err_msg=name)
    with pytest.raises(InputError, match="text item 24 does not exist; expected numbers from 0 to 23"):
        cg.two_sided_scores(sample, relevance, "text", queries=[24])
    with pytest.raises(InputError, match=r"are 9 × 30 .*; expected floats, 8 text queries"):
        cg.two_sided_scores(sample, relevance, "text", queries=some[:8])


def test_three_modalities_in_one_index():
    rng = np.random.default_rng(0)
    sizes = {"image": 14, "text": 9, "audio": 11}
    labels = {name: rng.integers(3, size=n) for name, n in sizes.items()}
    relevance = cg.Relevance.of_labels(**labels)
    scores = {name: rng.normal(size=(9, n)) for name, n in sizes.items()}
    found = cg.two_sided_scores(scores, relevance, "text", k=5)
    for name, values in oracles.by_query(scores, grades_of(relevance, "text"), "text", 5).items():
        np.testing.assert_allclose(found[name], values, atol=1e-13, err_msg=name)


def test_queries_without_relevant_items_are_left_out_and_said():
    alone = cg.Relevance.of_labels(image=[0, 0, 0, 7], text=[0, 0, 8, 9])
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4, 3))
    note = "relevant: equal labels; 1 of 4 image queries and 2 of 4 text queries have no relevant item and are left out"
    assert _relevant(rows, rows, alone) == note
    values = cg.two_sided_scores({"image": rows @ rows.T, "text": rows @ rows.T}, alone, "image", k=2)
    assert all(np.isnan(each[3]) and not np.isnan(each[:3]).any() for each in values.values())
    nothing = cg.Relevance.of_labels(image=[0, 1, 2], text=[3, 4, 5])
    assert cg.two_sided_retrieval(rows[:3], rows[:3], nothing, k=2) == {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"k": 54}, "k = 54; expected a whole number from 1 to 53, below the 54 items"),
        ({"k": 0}, "k = 0; expected a whole number from 1 to 53"),
        ({"relevance": None}, "image has 30 rows and text has 24; expected pairs, row i with row i"),
        ({"relevance": [1, 2]}, r"relevance = \[1, 2\]; expected Relevance.of_labels or of_pairs"),
        (
            {"relevance": cg.Relevance.of_labels(image=[0], text=[0])},
            "the relevance is of 1 image, 1 text items; expected that of the rows, 30 image, 24 text",
        ),
        ({"text": np.zeros((M, D))}, "text has a zero row"),
    ],
)
def test_errors(change, sentence):
    image, text, relevance = labeled(0)
    with pytest.raises(InputError, match=sentence):
        cg.two_sided_retrieval(**({"image": image, "text": text, "relevance": relevance} | change))


OWN, ACROSS = np.zeros((N, N)), np.zeros((N, M))


@pytest.mark.parametrize(
    ("scores", "options", "sentence"),
    [
        ({"image": OWN}, {}, "scores are of image; expected a mapping of image, text to scores of their items"),
        ([OWN], {}, "expected a mapping of image, text"),
        (
            {"image": OWN, "text": ACROSS[:, :5]},
            {},
            "scores of text items are 30 × 5 float64; expected floats, 30 image queries × 24",
        ),
        ({"image": OWN, "text": ACROSS.astype(int)}, {}, "scores of text items are 30 × 24 int64; expected floats"),
        ({"image": OWN, "text": "high"}, {}, "scores of text items are 0 float32; expected floats"),
        (
            {"image": OWN, "text": ACROSS * np.nan},
            {},
            "expected floats, 30 image queries × 24 items, with −inf and not NaN",
        ),
        ({"image": OWN, "text": ACROSS[:5]}, {}, "scores of text items are 5 × 24 float64"),
        ({"image": OWN[:5], "text": ACROSS[:5]}, {}, "scores of image items are 5 × 30 float64"),
        (
            {"image": OWN, "text": ACROSS},
            {"query": "audio"},
            "query = 'audio'; expected a modality of the relevance: image, text",
        ),
        ({"image": OWN, "text": ACROSS}, {"tie": -1}, "tie = -1; expected a finite number from 0 on"),
    ],
)
def test_scores_that_are_wrong(scores, options, sentence):
    _, _, relevance = labeled(0)
    with pytest.raises(InputError, match=sentence):
        cg.two_sided_scores(scores, relevance, **{"query": "image"} | options)


def best_by_loop(scores, grades, itself, k):
    found = []
    for row, graded, own in zip(scores, grades, itself, strict=True):
        items = sorted((-row[j], graded[j]) for j in range(len(row)) if j != own)[:k]
        items += [(np.inf, 0.0)] * (k - len(items))
        found.append([(-score, grade) for score, grade in items])
    return np.array(found)


@pytest.mark.parametrize(("seed", "levels", "k"), [(0, 2, 1), (1, 2, 4), (2, 5, 4), (0, 1000, 4), (1, 2, 30)])
def test_ties_go_to_the_lowest_grade(seed, levels, k):
    """With two levels most of 25 items are tied with the k-th; with k = 30 there are too few."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.integers(levels, size=(40, 25)) / levels)
    grades = torch.from_numpy(rng.integers(4, size=(40, 25)).astype(float))
    itself = torch.from_numpy(rng.integers(-1, 25, size=40))
    widths = []

    def choose(rows, width):
        widths.append(width)
        return scores[rows].topk(width, dim=1)

    found = top(choose, lambda rows, columns: grades[rows].gather(1, columns), itself, 25, k)
    expected = best_by_loop(scores.numpy(), grades.numpy(), itself.numpy(), k)
    np.testing.assert_array_equal(torch.stack(found, -1).numpy(), expected)
    assert widths[0] == min(k + 2, 25) and (levels > 2 or k == 30 or max(widths) > 20)


def test_a_chain_of_near_scores_is_one_tie():
    scores = torch.tensor([[0.3, 0.9, 1.0, 0.81, 0.5]], dtype=torch.float64)
    grades = torch.tensor([[1.0, 2.0, 3.0, 1.0, 0.0]])
    assert in_order(scores, grades, 0.101).tolist() == [[3, 1, 2, 4, 0]]
    assert in_order(scores, grades, 0.095).tolist() == [[2, 3, 1, 4, 0]]
    assert in_order(scores, grades).tolist() == [[2, 1, 3, 4, 0]]

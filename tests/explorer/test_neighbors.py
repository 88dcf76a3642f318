"""Neighbors, hubs and numbers against plain numpy on all scores."""

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.explorer import states
from clip_geometry.explorer.points import choose_points
from clip_geometry.explorer.states import K, make, neighbors_of, search_numbers, states_of
from clip_geometry.measuring.given import given_sets
from clip_geometry.progress import quiet

# of maps that 60 pairs do not determine
pytestmark = pytest.mark.filterwarnings("ignore::clip_geometry.transforms.RankWarning")


@pytest.fixture(scope="module")
def points(sets):
    return choose_points(given_sets(sets), pipeline="", limit=1000, seed=0)


def found_by(name, points, queries):
    repair = make(name).fit(points.index.known(points.fit))
    return repair, neighbors_of(repair, points, queries, lambda count: None)


def all_scores(repair, points):
    rows = {name: x.astype(float) for name, x in points.rows.items()}
    tables = [repair.mixed(name, q, rows, np.arange(len(q))) for name, q in rows.items()]
    return np.block([[each[item] for item in rows] for each in tables])


@pytest.mark.parametrize(
    "name",
    ["none", "center", "procrustes", "posterior", "posterior[isotonic]", "csls", "whiten(8)[pooled]"],
)
def test_lists_are_those_of_all_scores(name, points, monkeypatch):
    monkeypatch.setattr(states, "SCORES", 1000)  # 25 items at a time
    queries = np.arange(1, len(points), 3)
    repair, neighbors = found_by(name, points, queries)
    scores = all_scores(repair, points)
    own = points.modality[queries][:, None] == points.modality
    for kind in (own, ~own):
        best = np.where(kind, scores[queries], -np.inf)
        expected = -np.sort(-best, axis=1)[:, :K]
        of_kind = np.take_along_axis(kind, neighbors.numbers, 1)
        assert (of_kind.sum(1) == K).all()
        ours = neighbors.scores[of_kind].reshape(-1, K)
        assert ours == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert np.take_along_axis(scores[queries], neighbors.numbers, 1)[of_kind].reshape(-1, K) == pytest.approx(
            expected, rel=1e-4, abs=1e-4
        )
    assert (np.diff(neighbors.scores, axis=1) <= 0).all()


def test_counts_are_hubness(points):
    queries = np.arange(len(points))
    _, neighbors = found_by("none", points, queries)
    counts = neighbors.counts(len(points))
    scores = all_scores(make("none").fit(points.index.known(points.fit)), points)
    expected = np.bincount(np.argsort(-scores, axis=1)[:, :K].ravel(), minlength=len(points))
    assert np.array_equal(counts, expected)
    rows = np.concatenate(list(points.rows.values()))
    excess = counts - K
    assert float(cg.geometry.hubness(rows, k=K)) == pytest.approx((excess**3).mean() / (excess**2).mean() ** 1.5)


@pytest.mark.parametrize("name", ["none", "center", "posterior"])
def test_numbers_are_those_of_the_toolkit(name, points):
    """Of all points as queries, `search_index` gives the same."""
    everyone = type(points)(points.index, points.fit, np.ones(len(points), bool), points.given)
    queries = np.arange(len(points))
    repair, neighbors = found_by(name, everyone, queries)
    _, before = found_by("none", everyone, queries)
    ours = search_numbers(everyone, queries, neighbors, before)
    theirs = cg.search.search_index(points.index, repair)
    assert set(ours) == {"own_share", "r_at_1", "hit_at_10", "cross_r_at_1", "neighbors"}
    assert ours == pytest.approx({key: theirs[key].value for key in ours}, abs=1e-9)


def test_numbers_are_of_held_out_queries(points):
    queries = np.arange(len(points))
    _, neighbors = found_by("least_squares", points, queries)
    everyone = type(points)(points.index, points.fit, ~points.held_out, points.given)
    seen, unseen = (search_numbers(each, queries, neighbors, neighbors)["cross_r_at_1"] for each in (everyone, points))
    assert seen > unseen + 0.2  # a map that fits the pairs it was fitted on


def test_the_plane_of_a_repair_is_that_of_its_rows(points):
    states, failed = states_of(points, np.arange(50), ["center", "posterior"], umap=False, seed=0, progress=quiet)
    assert [state.name for state in states] == ["none", "center", "posterior"] and not failed
    assert [state.drawn_as for state in states] == ["none", "center", "none"] and states[2].pca is None
    rows = {name: x.astype(float) for name, x in points.rows.items()}
    moved = {}
    for name, x in rows.items():
        y = x - x[points.fit[name]].mean(0)
        moved[name] = y / np.linalg.norm(y, axis=1, keepdims=True)
    both = np.concatenate(list(moved.values()))
    both -= both.mean(0)
    _, sizes, axes = np.linalg.svd(both, full_matrices=False)
    plane = both @ axes[:2].T
    signs = np.sign((plane * states[0].pca.points).sum(0))
    assert states[1].pca.points == pytest.approx(signs * plane, abs=1e-4)
    assert states[1].pca.shares == pytest.approx((sizes**2 / (sizes**2).sum())[:2], rel=1e-4)
    gap = np.linalg.norm(moved["image"].mean(0) - moved["text"].mean(0))
    assert states[1].numbers["modality_gap"] == pytest.approx(gap, abs=1e-5)


def test_one_modality_has_neighbors_only(sets):
    exploration = cg.explore(sets["image"], umap=False)
    assert [state.name for state in exploration.states] == ["none", "center", "whiten"] or exploration.failed
    assert set(exploration.states[0].numbers) == {"neighbors"}
    assert exploration.states[0].neighbors.numbers.shape == (120, K)


def test_three_modalities(sets):
    audio = sets["text"][::-1] + 0.1
    exploration = cg.explore({**sets, "audio": audio.copy()}, repairs=["center"], umap=False)
    lists = exploration.states[0].neighbors.numbers
    own = exploration.points.modality[lists] == exploration.points.modality[exploration.queries][:, None]
    assert (own.sum(1) == K).all() and lists.shape == (360, 2 * K)


def test_repairs_without_a_score_are_refused(sets):
    with pytest.raises(cg.InputError, match="rrf ranks items by the whole list"):
        cg.explore(sets, repairs=["rrf"], umap=False)

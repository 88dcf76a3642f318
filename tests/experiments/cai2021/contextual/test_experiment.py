"""Words in context: the numbers are those of the plain functions, a layer is a cell, and what is unusable is said."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from clip_geometry.config import validate
from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry import (
    average_cosine,
    inter_type_cosine,
    intra_type_cosine,
    isoscore,
    local_intrinsic_dimension,
    two_nn,
)
from clip_geometry.registry import InputError
from clip_geometry.results import Results
from clip_geometry_experiments.cai2021.contextual import Contextual
from clip_geometry_experiments.cai2021.contextual.measures import ContextualConfig, find_clusters, sampled

WORDS = ("the", "The", "dog", "cat", ",", "barks", "sleeps", ".", "1990", "loudly")
TAGS = ("DT", "DT", "NN", "NN", ",", "VBZ", "VBZ", ".", "CD", "RB")
N, D = 240, 6
VALUES = {
    "name": "tiny",
    "experiment": "contextual",
    "model": "hidden-states:scenes-clip/fresh",
    "data": {"name": "scenes", "size": 8},
    "layers": [0, 1, 2],
    "sample": 100,
    "probes": 40,
    "neighbours": 10,
    "most_clusters": 5,
}


def states():
    """Three layers of N words: a cloud for each word, three clusters far out, and clouds away from the origin."""
    rng = np.random.default_rng(0)
    word, cluster = rng.integers(len(WORDS), size=N), rng.integers(3, size=N)
    own = rng.normal(size=(len(WORDS), D))[word]
    centres = 20 + 6 * rng.normal(size=(3, D))
    layers = [
        own + 0.5 * rng.normal(size=(N, D)),
        centres[cluster] + rng.normal(size=(N, D)),
        own + 2 + rng.normal(size=(N, D)),
    ]
    return np.concatenate(layers).astype(np.float32), word, cluster


class Made:
    """A workspace with these rows; `asked` counts how often they were embedded."""

    def __init__(self, folder):
        self.folder = folder
        self.asked = 0

    def embeddings(self, model, data, *, limit, batch_size, only=None):
        self.asked += 1
        vectors, word, _ = states()
        columns = {
            "layer": np.repeat(np.arange(3, dtype=np.int32), N),
            "token": np.tile(np.array(WORDS, dtype=object)[word], 3),
            "tag": np.tile(np.array(TAGS, dtype=object)[word], 3),
            "frequency": np.tile(np.bincount(word)[word], 3),
        }
        origin = {"model": model.model, "dataset": data.name, "model_options": {"layers": [0, 1, 2]}, "split": "test"}
        return {"text": Embeddings(vectors, "text", metadata=columns, provenance=origin)}

    def revisions(self, model, data):
        return {"data_revision": "1"}


def config_of(**changes):
    return validate(ContextualConfig, VALUES | changes, "test")


def experiment(folder, **changes):
    return Contextual(config_of(**changes), Made(folder))


def computed(planned):
    """Rows of all cells, each written before the next, as the runner does it."""
    results = Results(planned.workspace.folder / "results.jsonl")
    for cell in planned.cells():
        results.append(cell.key, cell.compute())
    return results.read()


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return computed(experiment(tmp_path_factory.mktemp("run")))


def found(rows, measure, layer, **at):
    """The one row; `at` beside the layer and the neighbors."""
    told = [
        row
        for row in rows
        if row["measure"] == measure
        and {key: value for key, value in row["at"].items() if key not in ("neighbours", "clusters")}
        == {"layer": layer, **at}
    ]
    (row,) = told
    return row


# --- the numbers


@pytest.mark.parametrize("layer", range(3))
def test_cosines_are_those_of_all_rows(rows, layer):
    vectors, word, _ = states()
    x, types = vectors[layer * N : (layer + 1) * N], word
    for name, value in (
        ("inter_type_cosine", inter_type_cosine(x, types)),
        ("intra_type_cosine", intra_type_cosine(x, types)),
        ("average_cosine", average_cosine(x)),
        ("isoscore", isoscore(x)),
    ):
        row = found(rows, name, layer)
        assert row["value"] == pytest.approx(float(value), abs=1e-12) and (row["n"], row["d"]) == (N, D)


def test_isolated_clusters_are_found_and_adjusted_for(rows):
    vectors, word, cluster = states()
    row = found(rows, "contextual.clusters", 1)
    assert row["value"] == 3 and sorted(row["sizes"]) == sorted(np.bincount(cluster).tolist())
    assert row["note"].endswith("of 100 rows; k-means from the centres of the sample")
    sample = sampled(N, 100, 0)
    score = silhouette_score(vectors[N : 2 * N][sample], cluster[sample])
    best = found(rows, "contextual.silhouette", 1)
    assert best["value"] == pytest.approx(score, abs=1e-6) and best["n"] == 100 and set(best["tried"]) == set("2345")
    centered = vectors[N : 2 * N].astype(np.float64)
    for c in range(3):
        centered[cluster == c] -= centered[cluster == c].mean(0)
    expected = np.mean([float(inter_type_cosine(centered[cluster == c], word[cluster == c])) for c in range(3)])
    adjusted = found(rows, "contextual.adjusted_inter", 1)
    assert adjusted["value"] == pytest.approx(expected, abs=1e-9) and adjusted["at"]["clusters"] == 3
    assert found(rows, "inter_type_cosine", 1)["value"] > 0.9 and abs(adjusted["value"]) < 0.1


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_dimensions_of_the_sample_are_those_of_the_measure(rows, metric):
    x = states()[0][:N][sampled(N, 100, 0)]
    suffix = "" if metric == "euclidean" else "[cosine]"
    row = found(rows, f"lid{suffix}", 0, sample=100)
    exact = local_intrinsic_dimension(x, k=10, metric=metric)
    assert row["value"] == pytest.approx(float(exact), rel=1e-9) and row["n"] == 100 and row["standard_error"] > 0
    published = found(rows, "lid[cai2021]" if metric == "euclidean" else "lid[cai2021-cosine]", 0, sample=100)
    exact = local_intrinsic_dimension(x, k=10, metric=metric, estimator="cai2021")
    assert published["value"] == pytest.approx(float(exact), rel=1e-9)
    assert found(rows, "two_nn", 0, sample=100)["value"] == pytest.approx(float(two_nn(x)), rel=1e-9)


def test_null_values_are_those_of_a_gaussian_of_the_same_size(rows):
    """6 dimensions seen by 10 neighbors among 100 rows: somewhat less."""
    null = found(rows, "lid", 0, sample=100)["null_value"]
    assert 3.5 < null < 6
    assert found(rows, "inter_type_cosine", 1)["null_value"] == 0


# --- clusters


def test_the_silhouettes_are_those_of_the_best_of_several_starts():
    x = states()[0][:N]
    clusters = find_clusters(x, np.arange(N), config_of(starts=4, seed=5))
    for k, value in clusters.silhouettes.items():
        labels = KMeans(k, n_init=4, random_state=5).fit(x).labels_
        assert value == pytest.approx(silhouette_score(x, labels), abs=1e-6)
    assert clusters.best == max(clusters.silhouettes, key=clusters.silhouettes.__getitem__)


def test_rows_of_few_different_places_have_few_clusters():
    x = np.repeat(np.eye(3, dtype=np.float32), 5, axis=0)
    clusters = find_clusters(x, np.arange(15), config_of())
    assert set(clusters.silhouettes) == {2, 3} and clusters.k == 3 and clusters.method == "k-means"
    with pytest.raises(InputError, match="15 rows are too few or too equal to be clustered"):
        find_clusters(np.ones((15, 3), np.float32), np.arange(15), config_of())


def test_what_cannot_be_taken_is_a_row_that_says_why(tmp_path, monkeypatch):
    vectors, word, cluster = states()
    monkeypatch.setattr(f"{__name__}.states", lambda: (np.ones_like(vectors), word, cluster))
    rows = computed(experiment(tmp_path, layers=[0]))
    assert "too equal to be clustered" in found(rows, "contextual.clusters", 0)["note"]
    lid = found(rows, "lid", 0, sample=100)
    assert lid["value"] is None and "1 different rows among" in lid["note"]
    assert found(rows, "inter_type_cosine", 0)["value"] == 1


# --- static vectors and stored rows


@pytest.fixture
def vectors(tmp_path):
    """150 words in GloVe's layout."""
    x = np.random.default_rng(0).normal(size=(150, 5))
    lines = [f"w{k} {' '.join(f'{value:.6f}' for value in row)}" for k, row in enumerate(x)]
    (tmp_path / "glove.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "glove.txt", np.round(x, 6)


def test_a_vocabulary_takes_neither_data_nor_layers(vectors):
    with pytest.raises(InputError, match="words:PATH uses all words of its file; leave data and layers out"):
        config_of(model=f"words:{vectors[0]}")


def test_layers_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match="there are no rows of layer 7; set layers to some of 0, 1, 2"):
        computed(experiment(tmp_path, layers=[7]))


def test_rows_without_layers(tmp_path, monkeypatch):
    flat = Embeddings(np.eye(4, dtype=np.float32), "text")
    monkeypatch.setattr(Made, "embeddings", lambda *_, **__: {"text": flat})
    with pytest.raises(InputError, match="gives rows without layers, but layers = "):
        computed(experiment(tmp_path))
    monkeypatch.setattr(Made, "embeddings", lambda *_, **__: {"image": flat, "other": flat})
    with pytest.raises(InputError, match="scenes has no text embeddings"):
        computed(experiment(tmp_path))


# --- the run


def test_a_layer_is_a_cell_whatever_else_is_measured(tmp_path):
    every = {cell.define["layer"]: cell.key for cell in experiment(tmp_path).cells() if cell.define["of"] == "a layer"}
    (one,) = (cell for cell in experiment(tmp_path, layers=[1]).cells() if cell.define["of"] == "a layer")
    assert one.key == every[1] and len(set(every.values())) == 3
    for change in ({"sample": 50}, {"probes": 0}, {"neighbours": 5}, {"fold_case": True}, {"seed": 1}, {"limit": 4},
                   {"most_clusters": 4}, {"least_silhouette": 0.2}, {"starts": 1}):  # fmt: skip
        assert not {cell.key for cell in experiment(tmp_path, **change).cells()} & set(every.values())

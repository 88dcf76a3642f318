"""Words in context: the numbers are those of the plain functions, a layer is a cell, and what is unusable is said."""

import json

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
    measures,
    two_nn,
)
from clip_geometry.registry import InputError
from clip_geometry.results import Results
from clip_geometry_experiments.cai2021.contextual import Contextual
from clip_geometry_experiments.cai2021.contextual.config import ContextualConfig
from clip_geometry_experiments.cai2021.contextual.rows import find_clusters
from clip_geometry_experiments.cai2021.contextual.sources import sampled
from clip_geometry_experiments.run.runner import RunFolder, run

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


def test_case_is_folded_where_it_is_asked_for(tmp_path, rows):
    folded = computed(experiment(tmp_path, fold_case=True, layers=[0]))
    vectors, word, _ = states()
    types = np.where(word == 1, 0, word)
    value = found(folded, "inter_type_cosine", 0)["value"]
    assert value == pytest.approx(float(inter_type_cosine(vectors[:N], types)), abs=1e-12)
    assert value != found(rows, "inter_type_cosine", 0)["value"]


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
    assert adjusted["weighted_by_rows"] != adjusted["value"]


def test_one_cluster_where_no_silhouette_is_good_enough(tmp_path):
    planned = experiment(tmp_path, layers=[0], least_silhouette=0.9)
    told = found(computed(planned), "contextual.clusters", 0)
    assert told["value"] == 1 and told["note"].endswith("below 0.9: one cluster") and told["sizes"] == [N]


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


def test_probes_estimate_the_dimension_among_all_rows(rows):
    x = states()[0][:N]
    row = found(rows, "lid", 0, probes=40)
    exact = float(local_intrinsic_dimension(x, k=10))
    assert row["n"] == N and abs(row["value"] - exact) < 4 * row["standard_error"] < exact


def test_without_a_sample_everything_is_exact(tmp_path):
    rows = computed(experiment(tmp_path, layers=[0], sample=None))
    x = states()[0][:N]
    row = found(rows, "lid", 0)
    assert row["value"] == pytest.approx(float(local_intrinsic_dimension(x, k=10)), rel=1e-9)
    assert not any("probes" in row["at"] or "sample" in row["at"] for row in rows)
    assert found(rows, "contextual.silhouette", 0)["n"] == N


def test_null_values_are_those_of_a_gaussian_of_the_same_size(rows):
    """6 dimensions seen by 10 neighbors among 100 rows: somewhat less."""
    null = found(rows, "lid", 0, sample=100)["null_value"]
    assert 3.5 < null < 6
    assert found(rows, "inter_type_cosine", 1)["null_value"] == 0


def test_the_last_cell_is_the_mean_of_the_layers_in_context(rows):
    for at in ({"sample": 100}, {"probes": 40}):
        values = [found(rows, "lid[cai2021-cosine]", layer, **at)["value"] for layer in (1, 2)]
        mean = found(rows, "lid[cai2021-cosine]", "mean", **at)
        assert mean["value"] == pytest.approx(np.mean(values)) and mean["note"] == "mean of the layers 1, 2"
    assert found(rows, "contextual.million_rows", "mean")["value"] == N / 1e6
    assert found(rows, "contextual.columns", "mean")["value"] == D


def test_copies_are_left_out_and_counted(tmp_path, monkeypatch):
    vectors, *rest = states()
    vectors[1:11] = vectors[0]
    monkeypatch.setattr(f"{__name__}.states", lambda: (vectors, *rest))
    rows = computed(experiment(tmp_path, layers=[0], sample=None))
    assert found(rows, "lid", 0)["note"] == "10 of 240 rows are copies and left out"
    assert found(rows, "lid", 0)["n"] == N - 10


def test_rows_say_where_they_come_from(rows):
    for row in rows:
        assert (row["model"], row["dataset"], row["seed"], row["pipeline"]) == (VALUES["model"], "scenes", 0, [])
        assert row["model_options"] == {}  # the layers of the store are no option of a number


def test_every_number_is_explained(rows):
    assert {row["measure"] for row in rows} <= {*Contextual.explanations, *measures}
    assert set(Contextual.explanations) <= {row["measure"] for row in rows}


# --- clusters


def test_many_rows_are_clustered_in_mini_batches():
    vectors, _, cluster = states()
    x = vectors[N : 2 * N]
    clusters = find_clusters(x, np.arange(0, N, 2), config_of(mini_batch=N))
    assert clusters.method == "mini-batch k-means from the centres of the sample" and clusters.k == 3
    assert len(set(zip(clusters.labels.tolist(), cluster.tolist(), strict=True))) == 3


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
    assert lid["value"] is None and "of which 1 are different" in lid["note"]
    assert found(rows, "inter_type_cosine", 0)["value"] == 1


# --- static vectors and stored rows


@pytest.fixture
def vectors(tmp_path):
    """150 words in GloVe's layout."""
    x = np.random.default_rng(0).normal(size=(150, 5))
    lines = [f"w{k} {' '.join(f'{value:.6f}' for value in row)}" for k, row in enumerate(x)]
    (tmp_path / "glove.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "glove.txt", np.round(x, 6)


def test_all_words_of_a_file(vectors, tmp_path):
    path, x = vectors
    values = {**VALUES, "model": f"words:{path}", "data": None, "layers": [], "sample": None}
    planned = Contextual(validate(ContextualConfig, values, "test"), RunFolder(tmp_path / "run", "cpu"))
    planned.workspace.folder.mkdir()
    rows = computed(planned)
    assert len(list(planned.cells())) == 1 and not any("layer" in row["at"] for row in rows)
    told = {row["measure"]: row for row in rows}
    assert told["lid"]["value"] == pytest.approx(float(local_intrinsic_dimension(x, k=10)), rel=1e-4)  # of float32 rows
    assert told["inter_type_cosine"]["value"] == pytest.approx(float(average_cosine(x)), abs=1e-6)
    assert told["intra_type_cosine"]["value"] is None and "has a type of its own" in told["intra_type_cosine"]["note"]
    assert (told["contextual.million_rows"]["value"], told["contextual.columns"]["value"]) == (150 / 1e6, 5)
    assert told["lid"]["model"] == f"words:{path}" and told["lid"]["split"] == "glove.txt"
    assert planned.facts()["types"] == 150 and planned.facts()["layers"] is None
    names = {entry.name for entry in planned.figures(tmp_path / "figures")}
    assert names == {"contextual_silhouettes", "contextual_plane_kinds", "contextual_space_kinds"}


def test_stored_rows_need_no_words(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(150, 5)).astype(np.float32))
    values = {**VALUES, "model": None, "data": {"embeddings": str(tmp_path / "rows.npy")}, "layers": [], "sample": None}
    planned = Contextual(validate(ContextualConfig, values, "test"), RunFolder(tmp_path / "run", "cpu"))
    told = {row["measure"]: row for cell in planned.cells() for row in cell.compute()}
    assert told["inter_type_cosine"]["note"] == "the words of these rows are not known"
    assert told["contextual.adjusted_inter"]["value"] is None and told["lid"]["value"] > 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": [0, 0]}, r"layers = \[0, 0\]; expected different numbers from 0"),
        ({"layers": [-1]}, r"layers = \[-1\]; expected different numbers from 0"),
        ({"layers": []}, "layers is missing"),
        ({"data": None}, "data is missing; expected a corpus, or model: words:PATH"),
        ({"model": None}, "data has scenes, which a model has to embed"),
        ({"probes": 1}, "probes = 1 has no standard error"),
        ({"most_cluster": 3}, "did you mean 'most_clusters'"),
    ],
)
def test_unusable_configs(changes, message):
    with pytest.raises(InputError, match=message):
        config_of(**changes)


def test_a_vocabulary_takes_neither_data_nor_layers(vectors):
    with pytest.raises(InputError, match="words:PATH is taken with all words of its file; leave data and layers out"):
        config_of(model=f"words:{vectors[0]}")


def test_layers_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match="there are no rows of layer 7; there are those of 0, 1, 2: set layers"):
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


def test_listing_cells_embeds_nothing(tmp_path):
    planned = experiment(tmp_path)
    assert len(list(planned.cells())) == 4 and planned.workspace.asked == 0


def test_a_layer_is_a_cell_whatever_else_is_measured(tmp_path):
    every = {cell.define["layer"]: cell.key for cell in experiment(tmp_path).cells() if cell.define["of"] == "a layer"}
    (one,) = (cell for cell in experiment(tmp_path, layers=[1]).cells() if cell.define["of"] == "a layer")
    assert one.key == every[1] and len(set(every.values())) == 3
    for change in ({"sample": 50}, {"probes": 0}, {"neighbours": 5}, {"fold_case": True}, {"seed": 1}, {"limit": 4},
                   {"most_clusters": 4}, {"least_silhouette": 0.2}, {"starts": 1}, {"mini_batch": 9}):  # fmt: skip
        assert not {cell.key for cell in experiment(tmp_path, **change).cells()} & set(every.values())


def test_a_run_with_a_fresh_tower_resumes_layer_by_layer(tmp_path, monkeypatch):
    config = tmp_path / "tiny.yaml"
    config.write_text(json.dumps(VALUES | {"layers": [0, 1], "sample": 60, "probes": 20}))
    whole = Contextual._layer_rows
    monkeypatch.setattr(
        Contextual, "_layer_rows", lambda self, layer: whole(self, layer) if layer == 0 else pytest.fail("interrupted")
    )
    with pytest.raises(pytest.fail.Exception, match="interrupted"):
        run(config, {}, runs=tmp_path / "runs", device="cpu")
    monkeypatch.setattr(
        Contextual, "_layer_rows", lambda self, layer: whole(self, layer) if layer else pytest.fail("computed again")
    )
    report = run(config, {}, runs=tmp_path / "runs", device="cpu")
    rows = Results(report.parent / "results.jsonl").read()
    assert {row["at"].get("layer") for row in rows} == {0, 1, "mean"}
    names = {path.name for path in (report.parent / "figures").iterdir()}
    kinds = ("plane_kinds", "plane_frequency", "space_kinds", "space_frequency", "cosines", "dimension", "silhouettes")
    assert names == {f"contextual_{kind}.{suffix}" for kind in kinds for suffix in ("png", "svg")}
    page = report.read_text()
    assert "Cosine between types, adjusted" in page and "freshly initialized" in page


def test_a_sample_is_seeded_and_has_no_row_twice():
    assert (sampled(100, 10, 3) == sampled(100, 10, 3)).all() and len(set(sampled(100, 10, 3).tolist())) == 10
    assert (sampled(10, None, 0) == np.arange(10)).all() and (sampled(10, 50, 0) == np.arange(10)).all()

"""Cai et al. 2021 on real words: the first 400 sentences of the treebank through all-MiniLM-L6-v2, and word2vec."""

import numpy as np
import pytest

from clip_geometry.config import validate
from clip_geometry.results import Results
from clip_geometry_experiments.cai2021.contextual import Contextual
from clip_geometry_experiments.cai2021.contextual.figures import kinds_of
from clip_geometry_experiments.cai2021.contextual.measures import ContextualConfig, find_clusters, neighborhoods
from clip_geometry_experiments.run.runner import RunFolder
from support.minilm import minilm

pytestmark = pytest.mark.slow
LAYERS = (0, 3, 5, 6)


def run(folder, **values):
    folder.mkdir()
    config = validate(ContextualConfig, {"name": "real", "experiment": "contextual", **values}, "test")
    planned = Contextual(config, RunFolder(folder, "cpu"))
    results = Results(folder / "results.jsonl")
    for cell in planned.cells():
        results.append(cell.key, cell.compute())
    return planned, results.read()


@pytest.fixture(scope="module")
def treebank(data, tmp_path_factory):
    minilm()
    return run(
        tmp_path_factory.mktemp("contextual") / "run",
        model="hidden-states:all-MiniLM-L6-v2",
        data={"name": "treebank", "path": str(data / "text" / "treebank_sample.parquet")},
        layers=list(LAYERS),
        fold_case=True,
        limit=400,
        sample=4000,
        probes=1000,
        most_clusters=3,
    )


def values(rows, measure, **at):
    """By layer; `at` beside layer and clusters."""
    return {
        row["at"]["layer"]: row["value"]
        for row in rows
        if row["measure"] == measure
        and {key: value for key, value in row["at"].items() if key not in ("layer", "clusters")} == at
    }


# layer → values seen: S_inter, S_intra, k, their adjusted values
SEEN = {
    0: (0.0167, 0.9380, 1, 0.0241, 0.9370),
    3: (0.1682, 0.8282, 1, 0.0373, 0.7999),
    5: (0.1584, 0.8554, 2, 0.0418, 0.7702),
    6: (0.0291, 0.7258, 2, 0.0116, 0.7458),
}
MEASURES = (
    "inter_type_cosine", "intra_type_cosine", "contextual.clusters", "contextual.adjusted_inter",
    "contextual.adjusted_intra",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("measure", "place"), [(measure, place) for place, measure in enumerate(MEASURES)])
def test_cosines_and_clusters_of_the_layers(treebank, measure, place):
    """To .002: rows are float32, and k-means finds other clusters on other samples; exact cosines agree to .0001."""
    seen = {layer: told[place] for layer, told in SEEN.items()}
    assert values(treebank[1], measure) == pytest.approx(seen, abs=1e-3 if place < 2 else 0.01)


def test_words_in_context_keep_their_direction_and_share_none(treebank):
    """Unlike in the paper's models: no layer is a cone, and the cosine within types stays far above that between."""
    inter, intra = (values(treebank[1], f"{kind}_type_cosine") for kind in ("inter", "intra"))
    assert all(inter[layer] < 0.2 and intra[layer] > 0.7 for layer in LAYERS)


def test_two_clusters_are_words_of_content_and_function_words(treebank):
    planned, _ = treebank
    rows = planned.layer(5)
    found = find_clusters(rows.vectors, np.arange(len(rows)), planned.config)
    kind = np.array(kinds_of(rows.metadata["token"].tolist(), rows.metadata["tag"].tolist()))
    function = np.isin(kind, ["function word", "symbol"])
    first, second = (function[found.labels == cluster].mean() for cluster in (0, 1))
    assert found.k == 2 and min(first, second) < 0.1 and max(first, second) > 0.6


def test_layer_0_has_copies(treebank):
    """A word at a position is one row before the first block; in context every row is its own."""
    planned, rows = treebank
    first = planned.layer(0)
    keys = {(word.lower(), *row.tobytes()) for word, row in zip(first.metadata["token"], first.vectors, strict=True)}
    (lid,) = (row for row in rows if row["measure"] == "lid" and row["at"] == {"layer": 0, "probes": 1000})
    assert len(keys) * 0.99 < lid["n"] <= len(keys) and lid["n"] < 0.7 * len(first)
    (lid,) = (row for row in rows if row["measure"] == "lid" and row["at"] == {"layer": 3, "probes": 1000})
    assert lid["n"] == len(first)


def test_dimension_depends_on_the_rows_among_which_neighbors_are(treebank):
    _, rows = treebank
    for name in ("lid", "lid[cai2021-cosine]"):
        sample, every = values(rows, name, sample=4000), values(rows, name, probes=1000)
        assert all(1.05 * every[layer] < sample[layer] for layer in LAYERS if layer), name


# --- static vectors


@pytest.fixture(scope="module")
def word2vec(data, tmp_path_factory):
    return run(tmp_path_factory.mktemp("static") / "run", model=f"words:{data}/words/word2vec1000.npy")


def test_word2vec_beside_gnews(word2vec):
    """Published is 21.1 of 3 million words by this convention; of 1000 words 100 neighbors are a tenth."""
    _, rows = word2vec
    told = {row["measure"]: row["value"] for row in rows}
    seen = {"lid": 20.23, "lid[cosine]": 20.23, "lid[cai2021]": 11.91, "lid[cai2021-cosine]": 11.91, "two_nn": 9.591}
    assert {name: told[name] for name in seen} == pytest.approx(seen, abs=0.006)  # as printed
    assert told["contextual.clusters"] == 1 and told["contextual.silhouette"] == pytest.approx(0.031, abs=0.005)
    assert told["inter_type_cosine"] == pytest.approx(0.1194, abs=1e-4) == told["average_cosine"]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_published_convention_is_about_half(word2vec, metric):
    """½ · 100/99 of the arithmetic mean of standard dimensions, row by row; rows whose lengths differ, too."""
    rows = word2vec[0].embeddings.vectors * np.linspace(1, 2, 1000)[:, None]
    found = neighborhoods(rows, metric=metric)
    standard, published = (found.dimension(estimator).value for estimator in ("levina-bickel", "cai2021"))
    assert float(published) == pytest.approx(float(standard) * 100 / 99 / 2, rel=1e-12)

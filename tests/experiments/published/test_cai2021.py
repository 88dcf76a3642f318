"""Which rows of the experiment `contextual` stand beside Table 3 of Cai et al. 2021."""

from pathlib import Path

import pytest
import yaml

from clip_geometry_experiments.cai2021.contextual.rows import LIDS, row, size_rows
from clip_geometry_experiments.published.comparing import compare

CONFIGS = Path(__file__).parents[3] / "configs" / "cai2021"


def rows_of(model, n, d, layer="mean", dataset="treebank", split="all", options=None, **at):
    """As the experiment writes them; layer None: of static vectors."""
    place = {} if layer is None else {"layer": layer}
    shared = {"model": model, "dataset": dataset, "split": split, "model_options": options or {}, "pipeline": []}
    found = [{**each, "at": place} for each in size_rows(n, d)]
    for names in LIDS.values():
        found += [row(name, 4.5, n=n, d=d, at=place | at, standard_error=0.1) for name in names.values()]
    return [{**shared, **each} for each in found]


def lines(rows, run):
    return {line.entry.published.path.partition(".")[2]: line for line in compare(rows, run) if line.ours}


def test_minilm_on_the_treebank_is_a_proxy_of_distilbert():
    rows = rows_of("hidden-states:all-MiniLM-L6-v2", 94084, 384, probes=4000)
    rows += rows_of("hidden-states:all-MiniLM-L6-v2", 94084, 384, layer=3, probes=4000)
    rows += rows_of("hidden-states:all-MiniLM-L6-v2", 20000, 384, sample=20000)[2:]
    found = lines(rows, "cai2021-contextual")
    assert set(found) == {"D-BERT.n", "D-BERT.m", "D-BERT.lid"}
    published, standard = found["D-BERT.lid"].ours
    assert (published.row["measure"], standard.row["measure"]) == ("lid[cai2021-cosine]", "lid[cosine]")
    assert published.row["at"] == {"layer": "mean", "probes": 4000}
    assert set(published.unlike) == {
        "dataset", "split", "model", "model_options.words", "data_options.window", "at.probes"
    }  # fmt: skip
    assert found["D-BERT.n"].ours[0].value == pytest.approx(0.094084)
    assert found["D-BERT.m"].ours[0].value == 384


@pytest.mark.parametrize(
    ("column", "model"),
    [
        ("BERT", "hidden-states:bert-base-uncased"),
        ("D-BERT", "hidden-states:distilbert-base-uncased"),
        ("GPT", "hidden-states:openai-gpt"),
        ("GPT2", "hidden-states:gpt2"),
    ],
)
def test_the_papers_models_on_ptb_are_its_own_setup(column, model):
    """But for the windows of 512 sub-words, which nothing makes yet: each sentence is embedded by itself."""
    options = {"words": "none"}
    rows = rows_of(model, 1_190_000, 768, dataset="ptb", split="train", options=options)
    found = lines(rows, "cai2021-contextual")
    assert set(found) == {f"{column}.n", f"{column}.m", f"{column}.lid"}
    assert all(ours.unlike == ("data_options.window",) for line in found.values() for ours in line.ours)
    in_windows = [{**row, "data_options": {"window": 512}} for row in rows]
    assert all(line.comparable for line in lines(in_windows, "cai2021-contextual").values())
    sampled = lines(rows_of(model, 1_190_000, 768, dataset="ptb", split="train", options=options, probes=4000),
                    "cai2021-contextual")  # fmt: skip
    assert sampled[f"{column}.lid"].ours[0].unlike == ("at.probes", "data_options.window")


@pytest.mark.parametrize(
    ("column", "model", "own"),
    [
        ("GloVe", "words:glove.twitter.27B.100d.txt", True),
        ("GloVe-2M", "words:/data/glove.840B.300d.txt", True),
        ("GNEWS", "words:GoogleNews-vectors-negative300.bin", True),
        ("GNEWS", "words:/shared/words/word2vec1000.npy", False),
    ],
)
def test_static_vectors(column, model, own):
    found = lines(rows_of(model, 1000, 300, layer=None), "cai2021-static")
    assert set(found) == {f"{column}.n", f"{column}.m", f"{column}.lid"}
    assert found[f"{column}.lid"].comparable == own


def test_other_neighborhoods_stand_beside_nothing():
    found = lines(rows_of("words:glove.840B.300d.txt", 1000, 300, layer=None, neighbours=20), "cai2021-static")
    assert "GloVe-2M.lid" not in found


@pytest.mark.parametrize("stem", ["contextual", "static"])
def test_the_configs_take_the_published_number_of_neighbors(stem):
    assert "neighbours" not in {key for key in yaml.safe_load((CONFIGS / f"{stem}.yaml").read_text()) if key != "smoke"}

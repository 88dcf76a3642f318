"""Which rows of the experiment `contextual` stand beside Table 3 of Cai et al. 2021."""

import pytest

from clip_geometry_experiments.cai2021.contextual.measures import LIDS, row, size_rows
from clip_geometry_experiments.published.comparing import compare


def rows_of(model, n, d, layer="mean", dataset="treebank", split="all", options=None, **at):
    """As the experiment writes them; layer None: of static vectors."""
    place = {} if layer is None else {"layer": layer}
    shared = {"model": model, "dataset": dataset, "split": split, "model_options": options or {}, "pipeline": []}
    found = [{**each, "at": place} for each in size_rows(n, d)]
    for names in LIDS.values():
        found += [row(name, 4.5, n=n, d=d, at=place | at, standard_error=0.1) for name in names.values()]
    return [{**shared, **each} for each in found]


def lines(rows, run):
    return {line.path.partition(".")[2]: line for line in compare(rows, run) if line.ours}


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

"""Hidden states of MiniLM as tokens: pairs of sentences find each other by MaxSim, which favors long sentences."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from clip_geometry.io.reading import read_table
from clip_geometry.search import TokenRows
from clip_geometry.search.compression.explanation import slope_on_length
from clip_geometry.search.compression.sweep import Half
from support.minilm import minilm

MODEL = minilm()
N = 120


@pytest.fixture(scope="module")
def paraphrases():
    """Unit hidden states of pairs of MRPC, first and second sentences."""
    from transformers import AutoModel, AutoTokenizer

    if "CLIP_GEOMETRY_DATA" not in os.environ:
        pytest.skip("CLIP_GEOMETRY_DATA is not set")
    table = read_table(Path(os.environ["CLIP_GEOMETRY_DATA"]) / "text/glue/mrpc_train.parquet").to_pydict()
    pairs = [k for k, label in enumerate(table["label"]) if label == 1][:N]
    tokenizer, model = AutoTokenizer.from_pretrained(MODEL), AutoModel.from_pretrained(MODEL).eval()
    sets = {}
    for name in ("sentence1", "sentence2"):
        batch = tokenizer([table[name][k] for k in pairs], padding=True, return_tensors="pt")
        with torch.no_grad():
            states = model(**batch).last_hidden_state
        sets[name] = TokenRows(torch.nn.functional.normalize(states, dim=-1), batch["attention_mask"].sum(1))
    return sets


def test_paraphrases_find_each_other_and_pooling_costs_little_recall(paraphrases):
    queries, items = paraphrases.values()
    for factor, least in ((1, 0.99), (2, 0.99), (4, 0.98)):
        assert np.mean(queries.max_sim(items.pooled(factor)).argmax(1) == np.arange(N)) >= least


def test_max_sim_favors_long_sentences_but_not_copies_of_a_token(paraphrases):
    numbers = {name: np.arange(N) for name in paraphrases}
    half = Half(paraphrases, paraphrases, numbers, numbers, paired=True)
    for slope, error in slope_on_length(half):
        assert slope > 3 * error
    rng = np.random.default_rng(0)
    z = []
    for _ in range(5):
        copies = {}  # of the first token of each sentence: the scores do not depend on their number
        for name, x in paraphrases.items():
            lengths = rng.integers(1, 10, size=N)
            copies[name] = TokenRows(np.repeat(x.rows[x.starts], lengths, axis=0), lengths)
        z += [slope / error for slope, error in slope_on_length(Half(copies, copies, numbers, numbers, paired=True))]
    assert np.abs(z).mean() < 1.6 and np.max(np.abs(z)) < 4

"""Contextual embeddings of a treebank by a trained model."""

import numpy as np
import pytest
import torch

from clip_geometry.data import load_dataset
from clip_geometry.data.base import words_of
from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.encoders.sentence import full_name
from support.minilm import minilm

minilm()
MODEL = "hidden-states:all-MiniLM-L6-v2"


@pytest.mark.experiments
@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("name", "sentences", "tokens", "types"), [("treebank", 3914, 94_084, 11_968), ("brown", 57_340, 1_161_192, 56_057)]
)
def test_corpora_have_their_published_sizes(name, sentences, tokens, types):
    side = load_dataset(name).text
    assert (len(side), sum(side.word_counts.values()), len(side.word_counts)) == (sentences, tokens, types)


@pytest.mark.experiments
@pytest.mark.usefixtures("data")
def test_words_of_a_treebank_are_those_of_a_loop_over_its_sentences():
    from transformers import AutoModel, AutoTokenizer

    config = resolve_encoder(MODEL)
    side = load_dataset("treebank").text
    texts = [side.load(k) for k in range(0, 3914, 250)]
    encoder = load_encoder(config, device="cpu")
    rows = encoder.text_rows(encoder.tokenize(texts))
    tokenizer, model = (kind.from_pretrained(full_name(config)) for kind in (AutoTokenizer, AutoModel))
    expected = []
    for text in texts:
        encoded = tokenizer(list(words_of(text)), is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            hidden = torch.cat(model.eval()(**encoded, output_hidden_states=True).hidden_states)
        of = np.array([-1 if k is None else k for k in encoded.word_ids()])
        expected += [states[np.flatnonzero(of == k)].mean(0) for states in hidden for k in range(len(words_of(text)))]
    assert rows.lost == 0 and len(rows.vectors) == 7 * sum(len(words_of(text)) for text in texts)
    torch.testing.assert_close(rows.vectors, torch.stack(expected), rtol=1e-5, atol=1e-5)

"""transformers' text encoders from a folder made here: its own hidden states pooled, its weights, and refusals."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.hf import context_length
from clip_geometry.encoders.hf.text import POOLINGS
from clip_geometry.registry import InputError

TEXTS = ["cat", "a photo of the red bus", "dog on left"]


@pytest.fixture
def folder(bert_folder, tmp_path):
    return shutil.copytree(bert_folder, tmp_path / "bert")


def load(folder, **options):
    return load_encoder(f"hf-text:{folder}", device="cpu", **options)


def rows_of(folder, texts=TEXTS, **options):
    encoder = load(folder, **options)
    return encoder.text_features(encoder.tokenize(texts))


def last_layer(folder, text):
    """(tokens, 24) of one text alone, so without padding."""
    from transformers import AutoTokenizer, BertModel

    inputs = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.no_grad():
        return BertModel.from_pretrained(folder).eval()(input_ids=inputs["input_ids"]).last_hidden_state[0]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_rows_are_transformers_last_layer_pooled(bert_folder, pooling):
    layers = [last_layer(bert_folder, text) for text in TEXTS]
    expected = torch.stack([layer.mean(dim=0) if pooling == "mean" else layer[0] for layer in layers])
    rows = rows_of(bert_folder, pooling=pooling)
    torch.testing.assert_close(rows, expected)
    assert torch.equal(rows_of(bert_folder, pooling=pooling, features="pooled"), rows)


def test_poolings_do_not_care_for_the_side_of_the_padding():
    hidden = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    left = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    moved = torch.stack([hidden[0].roll(2, dims=0), hidden[1]])
    for pool in POOLINGS.values():
        torch.testing.assert_close(pool(hidden, mask), pool(moved, left))


def test_pickled_weights_and_those_of_a_language_model_load(folder, capfd):
    """BERT is published with its two heads, under a prefix; RoBERTa without a pooler: none of it is used."""
    expected = rows_of(folder)
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    assert torch.equal(rows_of(folder), expected)
    state = {f"bert.{name}": value for name, value in state.items() if not name.startswith("pooler.")}
    torch.save({**state, "cls.predictions.bias": torch.ones(18)}, folder / "pytorch_model.bin")
    assert torch.equal(rows_of(folder), expected)
    assert capfd.readouterr() == ("", "")  # neither progress bars nor reports


def expect(folder, sentence):
    with pytest.raises(InputError, match=sentence):
        load(folder)


def test_weights_that_do_not_fit_are_one_sentence(folder):
    state = load_file(folder / "model.safetensors")
    bias = state.pop("encoder.layer.1.output.dense.bias")
    del state["embeddings.word_embeddings.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    expect(
        folder,
        r"of hf-text:.* lack 2 parameters of the architecture, including 'embeddings\.word_embeddings\.weight'",
    )
    state |= {"encoder.layer.1.output.dense.bias": bias, "embeddings.word_embeddings.weight": torch.ones(3, 24)}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    expect(folder, "the weights of hf-text:.* cannot be loaded")


def test_a_text_without_tokens_is_one_sentence(folder):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "post_processor": None}))  # no start and end
    encoder = load(folder)
    assert encoder.tokenize(["cat", "a bus"]).inputs["input_ids"].shape == (2, 2)
    with pytest.raises(InputError, match="the text '' has no tokens, so it has no embedding"):
        encoder.tokenize(["cat", ""])


def test_the_limit_is_the_tokenizers_or_that_of_the_positions():
    model = torch.nn.Module()
    model.config = SimpleNamespace(max_position_embeddings=30)  # pyright: ignore
    free, limited = SimpleNamespace(model_max_length=int(1e30)), SimpleNamespace(model_max_length=20)
    assert context_length(free, model, "m") == 30
    assert context_length(limited, model, "m") == 20
    model.position_embeddings = torch.nn.Embedding(16, 2, padding_idx=1)
    assert context_length(limited, model, "m") == 14
    del model.position_embeddings
    model.config = SimpleNamespace()  # pyright: ignore
    with pytest.raises(InputError, match=r"the tokenizer and the config of m state .* as the number of tokens"):
        context_length(free, model, "m")


@pytest.mark.parametrize("layer", [-2, 0, 1])
def test_any_layer_can_be_pooled(bert_folder, layer):
    from transformers import AutoTokenizer, BertModel

    model, tokenizer = BertModel.from_pretrained(bert_folder).eval(), AutoTokenizer.from_pretrained(bert_folder)
    with torch.no_grad():
        states = [
            model(tokenizer(text, return_tensors="pt")["input_ids"], output_hidden_states=True).hidden_states
            for text in TEXTS
        ]
    rows = rows_of(bert_folder, layer=layer)
    torch.testing.assert_close(rows, torch.stack([each[layer][0].mean(dim=0) for each in states]))
    assert not torch.allclose(rows, rows_of(bert_folder), atol=1e-3)


def test_a_layer_that_is_not_there(bert_folder):
    with pytest.raises(InputError, match=r"has layers 0 to \d \(0: the embeddings\), but layer = 99"):
        load(bert_folder, layer=99)

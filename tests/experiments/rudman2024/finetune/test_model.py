"""Which transformers can be fine-tuned, their first layers, and the head on them."""

import numpy as np
import pytest
import torch

from clip_geometry.config import validate
from clip_geometry.registry import InputError
from clip_geometry_experiments.rudman2024.finetune.model import (
    FineTuned,
    TransformerConfig,
    head_dropout,
    load_transformer,
    tiny_bert,
    word_tokenizer,
)
from clip_geometry_experiments.rudman2024.finetune.training import Examples, encode

TEXTS = [("A red star.", "Where is it?"), ("a Blue ring",)]


def configured(**values):
    return validate(TransformerConfig, values, "test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BERT of three layers with its tokenizer, as transformers saves them."""
    path = tmp_path_factory.mktemp("bert")
    model, tokenizer = tiny_bert(TEXTS, width=8, layers=3, seed=1)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def outputs(model, tokenizer):
    with torch.no_grad():
        return model.eval()(**tokenizer(["A red ring"], return_tensors="pt"), output_hidden_states=True).hidden_states


# --- transformers


def test_the_first_layers_are_those_of_the_whole(folder):
    whole = outputs(*load_transformer(configured(model=f"hf-text:{folder}"), TEXTS))
    first = outputs(*load_transformer(configured(model=f"hf-text:{folder}", layers=2), TEXTS))
    assert (len(whole), len(first)) == (4, 3)
    for one, other in zip(first, whole, strict=False):
        assert torch.equal(one, other)


@pytest.mark.parametrize("family", ["DistilBert", "Albert", "Roberta"])
def test_other_families_have_first_layers_too(tmp_path, family):
    """Their configs name layers and dropout in other ways; DistilBERT has no token types, ALBERT shares its layers."""
    import transformers

    tokenizer = word_tokenizer(text for group in TEXTS for text in group)
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 40, "pad_token_id": 0}
    shape = {"dim": 8, "hidden_dim": 16, "n_layers": 3, "n_heads": 2} if family == "DistilBert" else {
        "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}  # fmt: skip
    getattr(transformers, f"{family}Model")(getattr(transformers, f"{family}Config")(**sizes, **shape)).save_pretrained(
        tmp_path
    )
    tokenizer.save_pretrained(tmp_path)
    examples = Examples(
        "t", "class", tuple((texts[0], "red") for texts in TEXTS), np.array([0, 1]), ("a", "b"), "r", ""
    )
    counts = []
    for layers in (None, 2):
        transformer, found = load_transformer(configured(model=f"hf-text:{tmp_path}", layers=layers), TEXTS)
        model = FineTuned(transformer, outputs=2, spans=False, pooling="cls", seed=0).eval()
        inputs = encode(examples, found, transformer, name="t", max_length=20, overlap=4)
        with torch.no_grad():
            output = model(inputs.batch([0, 1], torch.device("cpu"))[0])
        assert output.scores.shape == (2, 2)
        assert model.dropout.p == {"DistilBert": 0.2, "Albert": 0.1, "Roberta": 0.1}[family]
        counts.append(len(output.hidden))
        assert ("token_type_ids" in inputs.parts) == (family != "DistilBert")
    assert counts == [3, 2]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"model": "open_clip:RN50/fresh"}, "cannot be fine-tuned here; expected hf-text:ORG/NAME or PATH, sentence"),
        ({"model": "bert"}, "model 'bert' cannot be fine-tuned here"),
        ({"model": "hf-text:no such"}, "is neither an existing folder nor a name"),
        ({"model": "bert/fresh", "layers": 0}, "layers"),
    ],
)
def test_another_model_is_one_sentence(values, says):
    with pytest.raises(InputError, match=says):
        configured(**values)


def test_more_layers_than_there_are(folder):
    with pytest.raises(InputError, match="has only 3 layers, but layers = 4"):
        load_transformer(configured(model=f"hf-text:{folder}", layers=4), TEXTS)


# --- the head


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_head_is_on_the_row_of_the_sentence(pooling):
    transformer, tokenizer = tiny_bert(TEXTS, width=8, layers=2, seed=0)
    model = FineTuned(transformer, outputs=3, spans=False, pooling=pooling, seed=0).eval()
    given = dict(tokenizer(["red", "a blue ring ."], padding=True, return_tensors="pt"))
    with torch.no_grad():
        output, hidden = model(given), transformer(**given, output_hidden_states=True).hidden_states
    assert len(output.hidden) == 2 and torch.equal(output.hidden[0], hidden[1])
    row = hidden[-1][0, 0] if pooling == "cls" else hidden[-1][0, :3].mean(0)
    torch.testing.assert_close(output.sentences[0], row)
    torch.testing.assert_close(output.scores[0], model.head.weight @ row + model.head.bias)


def test_a_span_head_scores_every_token_twice():
    transformer, tokenizer = tiny_bert(TEXTS, width=8, layers=2, seed=0)
    model = FineTuned(transformer, outputs=2, spans=True, pooling="cls", seed=0).eval()
    with torch.no_grad():
        output = model(dict(tokenizer(["a red star"], return_tensors="pt")))
    assert output.scores.shape == (1, 5, 2) and output.sentences.shape == (1, 8)
    torch.testing.assert_close(output.scores[0, 2], model.head(output.hidden[-1][0, 2]).detach())


@pytest.mark.parametrize(
    ("family", "settings", "classes", "spans"),
    [
        ("Bert", {}, 0.1, 0.1),  # classifier_dropout is None: that of the layers
        ("Bert", {"classifier_dropout": 0.3}, 0.3, 0.1),
        ("Bert", {"classifier_dropout": 0.0}, 0.0, 0.1),
        ("Roberta", {"hidden_dropout_prob": 0.05}, 0.05, 0.05),
        ("Albert", {}, 0.1, 0.0),  # none in its layers
        ("DistilBert", {}, 0.2, 0.1),
        ("DistilBert", {"qa_dropout": 0.4, "dropout": 0.3}, 0.2, 0.4),
        ("T5", {"dropout_rate": 0.3, "classifier_dropout": 0.25}, 0.25, 0.1),
    ],
)
def test_dropout_before_the_head_is_that_of_the_family(family, settings, classes, spans):
    """Defaults and names as the heads of transformers (…ForSequenceClassification, …ForQuestionAnswering) have them."""
    import transformers

    config = getattr(transformers, f"{family}Config")(**settings)
    assert (head_dropout(config, spans=False), head_dropout(config, spans=True)) == (classes, spans)

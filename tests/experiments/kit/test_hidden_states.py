"""Rows of words from all layers, against a loop over single sentences with transformers alone."""

import shutil

import pytest
import torch

from clip_geometry.data.base import words_of
from clip_geometry.encoders import resolve_encoder
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.corpora import Sentence
from support.encoding import load

PIECES = ["un", "##related", "cat", "##s", "##like", "dog", ".", ",", "the", "red", "##dish", "sat", "a", "'", "s"]
SENTENCES = [
    Sentence(["the", "cats", "sat", "."], ["DT", "NNS", "VBD", "."]),
    Sentence(["unrelated", "catlike", "reddish", "dogs", ",", "a", "cat's", "dog", "."]),
    Sentence(["Dog"]),
    "The reddish cat, unrelated.",
    Sentence(["a", "zebra", "sat"]),
]
SMALL = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}


def scattered(model):
    with torch.no_grad():
        for k, parameter in enumerate(model.parameters()):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(k)))
    return model


@pytest.fixture(scope="session")
def bert_pieces(tmp_path_factory):
    """A tiny BERT with a WordPiece tokenizer of its own kind: lower-cases, divides at punctuation; 20 tokens."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("hidden") / "bert"
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(vocab={word: k for k, word in enumerate(vocabulary)}).save_pretrained(folder)
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=20, intermediate_size=40, **SMALL)
    scattered(BertModel(config)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def gpt_folder(tmp_path_factory):
    """A tiny GPT-2 with a byte-level tokenizer, which has neither padding nor special tokens; 24 tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["the cats sat . a reddish dog , unrelated cats"] * 9, trainer)
    folder = tmp_path_factory.mktemp("hidden") / "gpt2"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    config = GPT2Config(vocab_size=290, n_positions=24, n_embd=24, n_layer=3, n_head=2, bos_token_id=0, eos_token_id=0)
    scattered(GPT2Model(config)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session", params=["bert", "gpt2"])
def folder(request):
    return request.getfixturevalue({"bert": "bert_pieces", "gpt2": "gpt_folder"}[request.param])


def rows_of(folder, texts=SENTENCES, **options):
    encoder = load(f"hidden-states:{folder}", **options)
    return encoder.text_rows(encoder.tokenize(texts))


def by_hand(folder, sentence):
    """(layer, word, vector, …) of one sentence of given words, by the tokenizer's own word_ids."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    encoded = tokenizer(" ".join(sentence.words), return_tensors="pt")
    if (folder / "vocab.txt").exists():
        ids = tokenizer(list(sentence.words), is_split_into_words=True).word_ids()
    else:  # a byte-level tokenizer joins a space with the word behind it
        counts = [len(tokenizer(" " * (k > 0) + word)["input_ids"]) for k, word in enumerate(sentence.words)]
        ids = [k for k, count in enumerate(counts) for _ in range(count)]
    assert len(ids) == encoded["input_ids"].shape[1]
    with torch.no_grad():
        hidden = model(**encoded, output_hidden_states=True).hidden_states
    found = []
    for layer, states in enumerate(hidden):
        for k, word in enumerate(sentence.words):
            pieces = [states[0, place] for place, of in enumerate(ids) if of == k]
            found.append((layer, word, k, torch.stack(pieces).mean(0)))
    return found


def test_words_are_those_of_the_loop(folder):
    texts = [text for text in SENTENCES if isinstance(text, Sentence)]
    rows = rows_of(folder, texts)
    expected = [(item, *each) for item, text in enumerate(texts) for each in by_hand(folder, text)]
    assert list(rows.item) == [each[0] for each in expected]
    assert list(rows.columns["layer"]) == [each[1] for each in expected]
    assert list(rows.columns["token"]) == [each[2] for each in expected]
    assert list(rows.columns["position"]) == [each[3] for each in expected]
    # one forward pass of many, padded, and one of each alone: 1e-5 is some hundred times float32's rounding
    torch.testing.assert_close(rows.vectors, torch.stack([each[4] for each in expected]), rtol=1e-5, atol=1e-5)
    assert rows.vectors.dtype == torch.float32 and rows.lost == 0


OTHERS = {
    "albert": {"embedding_size": 10, "intermediate_size": 40},  # its embeddings are narrower than its layers
    "distilbert": {"dim": 24, "n_layers": 3, "n_heads": 2, "hidden_dim": 40},
    "roberta": {"max_position_embeddings": 22, "intermediate_size": 40},  # counts positions from behind its padding
    "opt": {"ffn_dim": 40, "word_embed_proj_dim": 24},
    "llama": {"intermediate_size": 40},  # rotary positions
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_architectures_give_every_layer_whatever_the_batch(kind, bert_pieces, tmp_path):
    from transformers import AutoConfig, AutoModel

    folder = shutil.copytree(bert_pieces, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    sizes = {**({} if kind == "distilbert" else SMALL), "max_position_embeddings": 20, **OTHERS[kind]}
    config = AutoConfig.for_model(
        kind, vocab_size=5 + len(PIECES), pad_token_id=0, bos_token_id=2, eos_token_id=3, **sizes
    )
    scattered(AutoModel.from_config(config)).save_pretrained(folder)
    together = rows_of(folder)
    assert together.vectors.shape == (4 * sum(len(words_of(text)) for text in SENTENCES), 24)
    for k, text in enumerate(SENTENCES):
        alone = rows_of(folder, [text])
        torch.testing.assert_close(alone.vectors, together.vectors[together.item == k], rtol=1e-5, atol=1e-5)
    expected = [each[3] for each in by_hand(folder, SENTENCES[0])]
    torch.testing.assert_close(together.vectors[together.item == 0], torch.stack(expected), rtol=1e-5, atol=1e-5)


def test_sub_words_are_those_of_the_tokenizer(bert_pieces):
    rows = rows_of(bert_pieces, SENTENCES[:1], words="none", layers=[2])
    assert list(rows.columns["token"]) == ["the", "cat", "##s", "sat", "."]
    assert list(rows.columns["word"]) == ["the", "cats", "cats", "sat", "."]
    assert list(rows.columns["position"]) == [0, 1, 1, 2, 3]
    assert list(rows.columns["piece"]) == [0, 0, 1, 0, 0]
    assert list(rows.columns["tag"]) == ["DT", "NNS", "NNS", "VBD", "."]
    whole = rows_of(bert_pieces, SENTENCES[:1], words="mean", layers=[2]).vectors
    torch.testing.assert_close(whole[1], rows.vectors[1:3].mean(0))


def test_a_long_sentence_is_cut_and_counted_and_half_a_word_is_none(bert_pieces):
    # [CLS], sixteen of one token, a word of three tokens of which two still fit, and [SEP]: 20 tokens
    long = Sentence(["the"] * 16 + ["catlikes", "dog"])
    encoder = load(f"hidden-states:{bert_pieces}", layers=[1])
    tokens = encoder.tokenize([long, SENTENCES[0]])
    assert tokens.truncated == 1
    rows = encoder.text_rows(tokens)
    assert list(rows.columns["token"][rows.item == 0]) == ["the"] * 16
    assert rows.lost == 2
    fitting = Sentence(["the"] * 15 + ["catlikes"])
    assert encoder.tokenize([fitting]).truncated == 0 and encoder.text_rows(encoder.tokenize([fitting])).lost == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": [4]}, r"has layers 0 to 3 \(0: the embeddings\), but layers has 4"),
        ({"layers": [-5]}, "but layers has -5"),
        ({"layers": []}, "layers is an empty list"),
        ({"layers": "last"}, r'layers: it is "last"; expected all, or a list such as \[0, -1\]'),
        ({"layers": 3}, r"layers: it is 3; expected all"),
        ({"layers": [0, "last"]}, r'layers: it is \[0, "last"\]; expected all'),
        ({"layers": [True]}, r"layers: it is \[true\]; expected all"),
        ({"words": "last"}, "words"),
        ({"seed": 1}, "seed and zero_bias are for freshly initialized models"),
    ],
)
def test_wrong_options(bert_pieces, options, message):
    with pytest.raises(InputError, match=message):
        rows_of(bert_pieces, **options)


def test_models_of_another_kind_are_refused(bert_pieces, hf_clip_folder, tmp_path):
    with pytest.raises(InputError, match="type 'clip', not an encoder or decoder"):
        resolve_encoder(f"hidden-states:{hf_clip_folder}")
    (tmp_path / "config.json").write_text('{"model_type": "t5", "is_encoder_decoder": true}')
    with pytest.raises(InputError, match="type 't5', not an encoder or decoder"):
        resolve_encoder(f"hidden-states:{tmp_path}")
    for empty in ("hidden-states:", "hidden-states: "):
        with pytest.raises(InputError, match=f"^{empty} lacks a name; expected hidden-states:ORG/NAME, a folder, or"):
            resolve_encoder(empty)
    with pytest.raises(InputError, match="'a b' is neither an existing folder nor a name"):
        resolve_encoder("hidden-states:a b")
    encoder = load(f"hidden-states:{bert_pieces}")
    with pytest.raises(InputError, match="gives several rows per text"):
        encoder.text_features(encoder.tokenize(["cat"]))


def test_slow_tokenizers_are_refused(bert_pieces, monkeypatch):
    encoder = load(f"hidden-states:{bert_pieces}")
    slow = type("SlowTokenizer", (), {"is_fast": False})()
    monkeypatch.setattr(encoder, "tokenizer", slow)
    with pytest.raises(InputError, match="SlowTokenizer does not tell which characters"):
        encoder.tokenize(["cat"])

"""sentence-transformers' models: its own output, its limits, and refusals."""

import json
import shutil

import pytest
import torch

from clip_geometry.data.base import Dataset, DatasetConfig, Side
from clip_geometry.embedding.loop import embed
from clip_geometry.embedding.store import read_store
from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.encoders.sentence import WHEELS, full_name
from clip_geometry.progress import quiet
from clip_geometry.registry import InputError
from support.minilm import minilm

TEXTS = ["cat", "a photo of the red bus", "Dog on Left", "small blue circle on a large red circle"]
BERT = "sentence_transformers.models."


@pytest.fixture
def folder(sentence_folder, tmp_path):
    return shutil.copytree(sentence_folder, tmp_path / "model")


def load(folder, **options):
    return load_encoder(f"sentence:{folder}", device="cpu", **options)


def rows_of(folder, texts=TEXTS, **options):
    encoder = load(folder, **options)
    return encoder.text_features(encoder.tokenize(texts))


def oracle(folder, texts=TEXTS):
    sentence_transformers = pytest.importorskip("sentence_transformers", exc_type=ImportError)
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    return model.encode(texts, convert_to_tensor=True, show_progress_bar=False)


def rewrite(path, **changes):
    """Sets keys of a JSON object; None takes one out."""
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def set_modules(folder, *kinds):
    entries = [
        {"idx": k, "name": str(k), "path": f"{k}_{kind}" if k else "", "type": f"{BERT}{kind}"}
        for k, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))


# --- sentence-transformers' own output


@pytest.fixture(scope="module", name="minilm")
def minilm_folder():
    return minilm()


def test_minilm_gives_what_sentence_transformers_gives(minilm):
    texts = ["Three blind horses listening to Mozart.", "Älgen är skogens konung!", "", "a bus " * 300, "two dogs"]
    rows = rows_of(minilm, texts)
    assert rows.shape == (5, 384)
    assert (rows - oracle(minilm, texts)).abs().max() < 1e-6
    assert (rows.norm(dim=1) - 1).abs().max() < 1e-6  # it ends in Normalize, so that is its own output
    # and its neighborhoods are a real model's
    a, b, c = rows_of(minilm, ["A man plays a guitar.", "Somebody is making music.", "The stock market fell."])
    assert a @ b > 0.4 > a @ c


def test_texts_are_batched_by_their_number_of_tokens(minilm, tmp_path, monkeypatch):
    """As in sentence-transformers, rows come back in the order given; batches have hardly any padding."""
    encoder, padded = load(minilm), []
    texts = ["a " * (k * 7 % 40 + 1) if k % 2 else "Älgskogskonungen" * (k * 5 % 9 + 1) for k in range(48)]
    texts.append("a " * 999)
    expected = [int(encoder.tokenize([text]).inputs["attention_mask"].sum()) for text in texts]
    assert encoder.text_lengths(texts) == expected and expected[-1] == 256
    original = encoder.text_features
    monkeypatch.setattr(encoder, "text_features", lambda tokens: padded.append(tokens) or original(tokens))
    monkeypatch.setattr("clip_geometry.encoders.load_encoder", lambda config, device="auto": encoder)
    side = Side("text", [str(k) for k in range(49)], texts.__getitem__)
    dataset = Dataset(DatasetConfig(name="texts"), "1", text=side)
    manifest = embed(encoder.config, dataset, tmp_path, batch_size=4, device="cpu", progress=quiet)
    widths = [tokens.inputs["input_ids"].shape[1] for tokens in padded]
    assert widths == sorted(expected, reverse=True)[::4]
    assert manifest["run"]["text"]["sorted"] is True and manifest["sides"]["text"]["truncated"] == 1
    stored = read_store(tmp_path)["text"]
    assert list(stored.metadata["text"]) == texts
    assert (torch.from_numpy(stored.vectors.copy()) - oracle(minilm, texts)).abs().max() < 1e-6


@pytest.mark.parametrize(
    "pooling",
    [
        {},
        {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True},
        {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True},
        {"pooling_mode_mean_tokens": False, "pooling_mode_weightedmean_tokens": True},
        {"pooling_mode_mean_tokens": None, "pooling_mode_cls_token": None, "pooling_mode": "lasttoken"},
        {"pooling_mode_mean_tokens": None, "pooling_mode_cls_token": None, "pooling_mode": "cls"},
        {"pooling_mode_mean_tokens": None, "pooling_mode_cls_token": None},
    ],
)
def test_every_pooling_is_sentence_transformers_own(folder, pooling):
    rewrite(folder / "1_Pooling" / "config.json", **pooling)
    rows = rows_of(folder)
    assert rows.shape == (4, 10)
    assert (rows - oracle(folder)).abs().max() < 1e-6


@pytest.mark.parametrize("activation", ["torch.nn.modules.linear.Identity", "torch.nn.modules.activation.ReLU", None])
def test_dense_and_normalize_are_sentence_transformers_own(folder, activation):
    set_modules(folder, "Transformer", "Pooling", "Dense", "Normalize")  # the folder of Normalize need not exist
    rewrite(folder / "2_Dense" / "config.json", activation_function=activation)
    rows = rows_of(folder)
    assert rows.shape == (4, 10)
    assert (rows - oracle(folder)).abs().max() < 1e-6


def test_the_default_prompt_and_lower_case_are_sentence_transformers_own(folder):
    plain = rows_of(folder)
    settings = {"prompts": {"query": "Red circle: "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    prompted = rows_of(folder)
    assert load(folder).describe()["prompt"] == "Red circle: "
    assert (prompted - oracle(folder)).abs().max() < 1e-6
    rewrite(folder / "sentence_bert_config.json", do_lower_case=True)
    lowered = rows_of(folder)
    assert (lowered - oracle(folder)).abs().max() < 1e-6
    for before, after in ((plain, prompted), (prompted, lowered)):
        assert (before - after).abs().max() > 0.1


def test_a_model_saved_by_sentence_transformers_of_today_loads(folder, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers", exc_type=ImportError)
    sentence_transformers.SentenceTransformer(str(folder), device="cpu").save(str(tmp_path / "saved"))
    assert (rows_of(tmp_path / "saved") - rows_of(folder)).abs().max() < 1e-6
    assert load(tmp_path / "saved").describe()["context_length"] == 12


# --- files


def test_max_seq_length_is_the_models_own_or_the_tokenizers_or_the_positions(folder):
    texts = ["cat " * words for words in (10, 11, 12, 13)]
    assert load(folder).tokenize(texts).truncated == 3
    rewrite(folder / "sentence_bert_config.json", max_seq_length=None)
    assert load(folder).tokenize(texts).truncated == 1  # 14 positions
    rewrite(folder / "tokenizer_config.json", model_max_length=13)
    assert load(folder).tokenize(texts).truncated == 2
    (folder / "sentence_bert_config.json").rename(folder / "sentence_roberta_config.json")
    rewrite(folder / "sentence_roberta_config.json", max_seq_length=12)
    assert load(folder).tokenize(texts).truncated == 3


# --- refusals


def expect(folder, sentence):
    with pytest.raises(InputError, match=sentence):
        load(folder)


@pytest.mark.parametrize(
    "kinds",
    [["Transformer", "Pooling", "WordWeights"], ["Pooling", "Transformer"], ["Transformer"], ["CLIPModel", "Dense"]],
)
def test_modules_in_another_order_or_of_another_kind_are_named(folder, kinds):
    set_modules(folder, *kinds)
    clip = "a CLIP is loaded by hf-clip: from the folder with its config.json"
    expect(
        folder, f"has the modules {', '.join(kinds)}; expected Transformer, Pooling, then Dense or Normalize; {clip}"
    )


def test_prompts_that_are_not_supported_are_named(folder):
    path = folder / "config_sentence_transformers.json"
    path.write_text('{"default_prompt_name": "query", "prompts": {"passage": "p: "}}')
    expect(folder, "has the default_prompt_name 'query', which is not one of its prompts")
    path.write_text('{"default_prompt_name": "query", "prompts": {"query": "q: "}}')
    rewrite(folder / "1_Pooling" / "config.json", include_prompt=False)
    expect(folder, "its Pooling leaves out the prompt 'q: ', which is not supported")


def test_a_bare_name_is_one_of_sentence_transformers_own(monkeypatch, tmp_path):
    config = resolve_encoder("sentence:all-MiniLM-L6-v2")
    assert full_name(config) == str(minilm())
    assert full_name(resolve_encoder("sentence:all-mpnet-base-v2")) == "sentence-transformers/all-mpnet-base-v2"
    monkeypatch.setitem(WHEELS, "all-MiniLM-L6-v2", "a_package_that_is_not_there")
    assert full_name(config) == "sentence-transformers/all-MiniLM-L6-v2"
    assert full_name(resolve_encoder("sentence:someone/model")) == "someone/model"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert full_name(EncoderConfig(model="sentence:mine")) == "mine"

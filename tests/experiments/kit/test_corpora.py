"""Corpora: sentences that know their words."""

import itertools
import json

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from clip_geometry.data import config_class, dataset_from, datasets, load_dataset, resolve_dataset
from clip_geometry.data.base import DatasetConfig, words_of
from clip_geometry.data.scenes import class_names
from clip_geometry.encoders.open_clip import scenes_folder
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.corpora import Sentence, tags_of, windows

SCENES = scenes_folder()
TOKENS = [["The", "cat", "*T*-1", "sat", "."], ["*U*"], ["the", "the"]]
TAGS = [["DT", "NN", "-NONE-", "VBD", "."], ["-NONE-"], ["DT", "DT"]]


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "c.parquet", tokens=TOKENS, tags=TAGS, text=["a b", "c", "d e f"])


def sentences(dataset):
    return [dataset.text.load(k) for k in range(len(dataset.text))]


def corpus(**options):
    return load_dataset("corpus", **options)


def test_a_sentence_is_a_text_with_words_and_tags():
    sentence = Sentence(["The", "cat's"], ["DT", "NN"])
    assert sentence == "The cat's" and isinstance(sentence, str)
    assert (words_of(sentence), tags_of(sentence)) == (("The", "cat's"), ("DT", "NN"))
    assert tags_of(Sentence(["a", "b"])) == ("", "")


def test_traces_are_left_out_and_sentences_of_nothing_else_too(table):
    found = corpus(path=table)
    assert [words_of(each) for each in sentences(found)] == [("The", "cat", "sat", "."), ("the", "the")]
    assert [tags_of(each) for each in sentences(found)] == [("DT", "NN", "VBD", "."), ("DT", "DT")]
    assert list(found.text.item_id) == ["0", "2"] and found.image is None
    assert found.text.word_counts == {"The": 1, "cat": 1, "sat": 1, ".": 1, "the": 2}


@pytest.mark.parametrize(("name", "file"), [("treebank", "treebank_sample.parquet"), ("brown", "brown.parquet")])
def test_corpora_at_hand(name, file, tmp_path, monkeypatch):
    monkeypatch.setenv("CLIP_GEOMETRY_DATA", str(tmp_path))
    write(tmp_path / "text" / file, tokens=TOKENS, tags=TAGS)
    found = load_dataset(name)
    assert len(found.text) == 2 and found.config.split == "all"
    other = write(tmp_path / "other.parquet", tokens=[["x"]], tags=[["X"]])
    assert sentences(load_dataset(name, path=other)) == ["x"]
    (tmp_path / "text" / file).unlink()
    with pytest.raises(InputError, match=f"set CLIP_GEOMETRY_DATA to a folder with text/{file}, or give the file"):
        load_dataset(name)


# --- the hub


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Columns of the file that the hub has, and what was asked for."""

    class Hub:
        def __init__(self):
            self.columns, self.error, self.asked = {}, None, []

        def download(self, repository, file, *, repo_type, revision):
            self.asked.append((repository, file, repo_type, revision))
            if self.error:
                raise self.error
            return str(write(tmp_path / "hub.parquet", **self.columns))

    fake = Hub()
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fake.download)
    return fake


def test_the_penn_treebank_of_language_models(hub):
    hub.columns = {"sentence": ["mr. <unk> is chairman", "N million"]}
    found = load_dataset("ptb", split="validation")
    assert [words_of(each) for each in sentences(found)] == [("mr.", "<unk>", "is", "chairman"), ("N", "million")]
    file = "penn_treebank/validation/0000.parquet"
    assert hub.asked == [("ptb-text-only/ptb_text_only", file, "dataset", "refs/convert/parquet")]


def test_wikitext_in_sentences(hub):
    hub.columns = {"text": ["", " = Title = \n", " It is . A second ? the rest \n", " = = Part = = \n"]}
    found = load_dataset("wikitext2")
    assert sentences(found) == ["It is .", "A second ?", "the rest"]
    assert list(found.text.item_id) == ["2.0", "2.1", "2.2"]
    assert hub.asked == [("Salesforce/wikitext", "wikitext-2-raw-v1/test-00000-of-00001.parquet", "dataset", "main")]


@pytest.mark.parametrize("name", ["ptb", "wikitext2"])
def test_without_network_it_says_which_file_to_bring(hub, name, table):
    hub.error = LocalEntryNotFoundError("offline\nand more")
    with pytest.raises(
        InputError, match=rf"{name}, split train, could not be fetched .*: offline\); download .* path="
    ) as e:
        load_dataset(name, split="train")
    assert "\n" not in str(e.value)
    with pytest.raises(
        InputError, match=r"c.parquet has no column 'sentence'" if name == "ptb" else "no sentence with"
    ):
        write(table, **({"tokens": TOKENS} if name == "ptb" else {"text": ["", "= a ="]}))
        load_dataset(name, path=table)


# --- errors


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": ["x"]}, {}, "has no column tokens or words or sentence or text; name one of a with words="),
        ({"a": ["x"]}, {"words": "b"}, "has no column 'b'; it has a"),
        ({"tokens": [["x"]]}, {"tags": "tagz"}, "has no column 'tagz'"),
        ({"tokens": [["x"]], "tags": [["A", "B"]]}, {}, "row 1 of .* has 1 words but 2 tags"),
        ({"tokens": [["x"], ["a", ""]]}, {}, "row 2 of column 'tokens' in .* is neither a list of words"),
        ({"tokens": [3]}, {}, "row 1 of column 'tokens' in .* is neither a list of words"),
        ({"tokens": [[], []]}, {}, "has no sentence with a word in it"),
    ],
)
def test_what_is_wrong_in_a_table(tmp_path, columns, options, message):
    with pytest.raises(InputError, match=message):
        corpus(path=write(tmp_path / "c.parquet", **columns), **options)


def test_wrong_options(table, tmp_path):
    for name in ("corpus", "treebank"):
        with pytest.raises(InputError, match="unknown split 'train'"):
            resolve_dataset(name, path=table, split="train")
    with pytest.raises(InputError, match="unknown split 'trian'; did you mean 'train'"):
        resolve_dataset("ptb", split="trian")
    with pytest.raises(InputError, match="a prompt needs class names, but this data set has its own texts"):
        resolve_dataset("treebank", prompt="a {}")
    (tmp_path / "t.txt").write_text("a b")
    with pytest.raises(InputError, match="has no column 'text'; it has sentence"):
        corpus(path=tmp_path / "t.txt", words="text")


# --- windows of running text


def flat(texts):
    return [pair for each in texts for pair in zip(words_of(each), tags_of(each), strict=True)]


@pytest.mark.parametrize("size", [8, 13, 32])
def test_windows_hold_the_words_of_all_sentences_in_order(tmp_path, size):
    """Each is as full as it can be: with the next word it would be too long, by the tokenizer itself."""
    sentences_ = [class_names(name) for name in ("en", "de", "fr", "ru")]
    path = write(tmp_path / "c.parquet", tokens=[" ".join(each).split() for each in sentences_])
    found, whole = corpus(path=path, window=size, tokenizer=str(SCENES)), corpus(path=path)
    texts = sentences(found)
    assert flat(texts) == flat(sentences(whole))
    tokenizer = AutoTokenizer.from_pretrained(str(SCENES))
    lengths = [len(tokenizer(text)["input_ids"]) for text in texts]
    assert max(lengths) <= size
    assert all(
        len(tokenizer(f"{text} {words_of(after)[0]}")["input_ids"]) > size for text, after in itertools.pairwise(texts)
    )
    assert found.text.item_id[0] == "0:0" and len(set(found.text.item_id)) == len(texts)
    assert found.revision != whole.revision


def test_a_word_with_other_sub_words_at_the_start_and_one_that_is_too_long(tmp_path):
    """Byte pairs with the space before a word: at the start of a text, where there is none, its letters stay apart."""
    tokenizer = Tokenizer(models.BPE(byte_pairs("Ġab"), [("Ġ", "a"), ("Ġa", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=10)
    pairs = [("0", Sentence(["ab"] * 7)), ("3", Sentence(["b" * 12, "ab"]))]
    found = list(windows(pairs, fast, 4))
    assert [list(each.words) for _, each in found] == [["ab"] * 3, ["ab"] * 3, ["ab"], ["b" * 12], ["ab"]]
    assert [item for item, _ in found] == ["0:0", "0:3", "0:6", "3:0", "3:1"]
    with pytest.raises(InputError, match="window is 11, but the tokenizer's model reads 10 sub-words"):
        list(windows(pairs, fast, 11))


def byte_pairs(*merged):
    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġa", *merged]
    return {letter: k for k, letter in enumerate(letters)}


def test_a_window_needs_its_tokenizer(table):
    for option in ({"window": 16}, {"tokenizer": "x"}):
        with pytest.raises(InputError, match="one of window and tokenizer is missing"):
            corpus(path=table, **option)


# --- what every data set keeps (tests/data/test_contract.py, which is about those with images)


@pytest.mark.parametrize("name", ["corpus", "treebank", "brown", "ptb", "wikitext2"])
def test_the_contract(name, tmp_path):
    column = {"ptb": "sentence", "wikitext2": "text"}.get(name, "tokens")
    values = ["a b", "c"] if name in ("ptb", "wikitext2") else [["a", "b"], ["c"]]
    path = write(tmp_path / "c.parquet", **{column: values}, tags=[["A", "B"], ["C"]])
    config = resolve_dataset(name, path=path)
    dataset = load_dataset(config)
    assert sentences(dataset) == ["a b", "c"] == sentences(load_dataset(config))
    assert dataset.revision == load_dataset(config).revision and dataset.revision
    assert (dataset.text.modality, dataset.text.language, dataset.text.pair_on) == ("text", "en", "item_id")
    assert dataset_from(json.loads(config.model_dump_json())) == config
    assert type(config) is config_class(name) is datasets[name].config
    explained = " ".join(kind.__doc__ or "" for kind in type(config).__mro__ if issubclass(kind, DatasetConfig))
    assert all(option in explained for option in type(config).model_fields)

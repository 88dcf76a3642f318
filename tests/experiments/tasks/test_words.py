"""Tasks on words: CoDWoE and supersenses in the layouts that they are published in."""

import pytest

from clip_geometry.registry import InputError
from clip_geometry_experiments.tasks import load_task, resolve_task

# keys as in the .complete.json files of the shared task; embeddings cut short
ENTRIES = [
    {"id": "en.trial.1", "word": "bank", "pos": "noun", "gloss": "An institution.", "sgns": [0.1], "polysemous": True},
    {
        "id": "en.trial.2",
        "word": "bank",
        "pos": "verb",
        "gloss": "To deal with it.",
        "sgns": [0.1],
        "polysemous": True,
    },
    {"id": "en.trial.3", "word": "quick", "pos": "adjective", "gloss": "Fast.", "sgns": [0.2], "polysemous": False},
    {"id": "en.trial.4", "word": "Bank", "pos": "noun", "gloss": "A name.", "sgns": [0.3], "polysemous": False},
    {"id": "en.trial.5", "word": "odd", "pos": None, "gloss": "?", "sgns": [0.3], "polysemous": False},
]


def load(name, **options):
    return load_task(resolve_task({"name": name, **options}))


def test_parts_of_speech_of_codwoe(write_json):
    """A word has those of all its definitions; one without any is dropped and counted."""
    task = load("pos", path=write_json("en.trial.complete.json", ENTRIES))
    assert (task.items, task.class_names) == (("bank", "quick", "Bank"), ("adjective", "noun", "verb"))
    assert task.labels.astype(int).tolist() == [[0, 1, 1], [1, 0, 0], [0, 1, 0]]
    assert (task.dropped, task.width, task.multi_label) == (1, 1, True)


def test_words_without_a_vector_are_left_out(write_json, vectors):
    path = write_json("en.trial.complete.json", ENTRIES)
    task = load("pos", path=path, vectors=vectors(["Bank", "bank", "ship", "odd"]))
    assert (task.items, task.class_names, task.dropped) == (("bank", "Bank"), ("noun", "verb"), 1)
    with pytest.raises(InputError, match="pos has no words that have both a label and a vector"):
        load("pos", path=path, vectors=vectors(["ship"]))
    with pytest.raises(InputError, match="does not exist; a file of word vectors was expected"):
        load("pos", path=path, vectors="no.npy")


def test_supersenses(shared, write_json):
    (shared / "words").mkdir()
    write_json("words/supersenses.json", {"dog": ["noun.animal"], "bank": ["noun.group", "noun.object"]})
    task = load("supersense")
    assert (task.items, task.class_names) == (("dog", "bank"), ("noun.animal", "noun.group", "noun.object"))
    assert task.labels.astype(int).tolist() == [[1, 0, 0], [0, 1, 1]]


@pytest.mark.parametrize(
    ("name", "file", "content", "sentence"),
    [
        ("pos", "en.train.json", '[{"id": "en.train.1", "gloss": "g"}]', "has no 'word' and 'pos', which the files of"),
        ("pos", "a.csv", "word,gloss\nx,y", "take full_dataset/en.complete.csv in https://codwoe.atilf.fr/data/full_"),
        ("pos", "a.json", '{"word": "x"}', "a JSON list of definitions was expected"),
        ("pos", "b.json", "[1]", "a JSON list of definitions was expected"),
        ("pos", "c.json", "[", "a JSON list of definitions was expected"),
        (
            "supersense",
            "a.json",
            '{"dog": "animal"}',
            "of words and the lists of their supersenses was expected",
        ),
        ("supersense", "b.json", "[]", "of words and the lists of their supersenses was expected"),
        ("supersense", "c.json", "{", "of words and the lists of their supersenses was expected"),
        ("supersense", "a.csv", "word1,word2\na,b", "lacks word1, word2 or wordN.attrs.supersenses.is_X; words_feat"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, name, file, content, sentence):
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError) as error:
        load(name, path=tmp_path / file)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("name", "source"), [("pos", "https://codwoe.atilf.fr"), ("supersense", "github.com/altsoph/modality_shifts")]
)
def test_without_a_file_it_says_where_to_get_it(shared, name, source):
    with pytest.raises(InputError) as error:
        load(name)
    assert f"{name} is not in $CLIP_GEOMETRY_DATA/words (" in str(error.value) and source in str(error.value)

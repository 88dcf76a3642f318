"""Tasks on words: CoDWoE and supersenses in the layouts that they are published in."""

import pytest

from clip_geometry.registry import InputError
from clip_geometry_experiments.tasks import load_task, resolve_task

ENTRIES = "word,pos,gloss\nbank,noun,An institution.\nbank,verb,To deal with it.\nquick,adjective,Fast.\n"
ENTRIES += "Bank,noun,A name.\nodd,,?\n"


def load(name, **options):
    return load_task(resolve_task({"name": name, **options}))


@pytest.fixture
def codwoe(tmp_path):
    (tmp_path / "en.complete.csv").write_text(ENTRIES)
    return tmp_path / "en.complete.csv"


def test_parts_of_speech_of_codwoe(codwoe):
    """A word has those of all its definitions; one without any is dropped and counted."""
    task = load("pos", path=codwoe)
    assert (task.items, task.class_names) == (("bank", "quick", "Bank"), ("adjective", "noun", "verb"))
    assert task.labels.astype(int).tolist() == [[0, 1, 1], [1, 0, 0], [0, 1, 0]]
    assert (task.dropped, task.width, task.multi_label) == (1, 1, True)


def test_words_without_a_vector_are_left_out(codwoe, vectors):
    task = load("pos", path=codwoe, vectors=vectors(["Bank", "bank", "ship", "odd"]))
    assert (task.items, task.class_names, task.dropped) == (("bank", "Bank"), ("noun", "verb"), 1)
    with pytest.raises(InputError, match="pos has no words that have both a label and a vector"):
        load("pos", path=codwoe, vectors=vectors(["ship"]))
    with pytest.raises(InputError, match="does not exist; a file of word vectors was expected"):
        load("pos", path=codwoe, vectors="no.npy")


def test_supersenses(shared, write_json):
    (shared / "words").mkdir()
    write_json("words/supersenses.json", {"dog": ["noun.animal"], "bank": ["noun.group", "noun.object"]})
    task = load("supersense")
    assert (task.items, task.class_names) == (("dog", "bank"), ("noun.animal", "noun.group", "noun.object"))
    assert task.labels.astype(int).tolist() == [[1, 0, 0], [0, 1, 1]]


@pytest.mark.parametrize(
    ("name", "file", "content", "sentence"),
    [
        (
            "pos",
            "a.csv",
            "word,gloss\nx,y",
            "expected full_dataset/en.complete.csv in https://codwoe.atilf.fr/data/full_",
        ),
        (
            "supersense",
            "a.json",
            '{"dog": "animal"}',
            "of words and the lists of their supersenses was expected",
        ),
        ("supersense", "b.json", "[]", "of words and the lists of their supersenses was expected"),
        ("supersense", "c.json", "{", "of words and the lists of their supersenses was expected"),
        (
            "supersense",
            "a.csv",
            "word1,word2\na,b",
            "lacks word1, word2 or wordN.attrs.supersenses.is_X; expected words_feat",
        ),
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

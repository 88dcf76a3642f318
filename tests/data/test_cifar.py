import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
import tarfile
import time
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clip_geometry.data import cifar, load_dataset, resolve_dataset
from clip_geometry.files import LOCK
from clip_geometry.registry import InputError


def _load(path, name="cifar100", **options):
    return load_dataset(resolve_dataset(name, path=path, **options))


def _multiset(dataset):
    image = dataset.image
    return Counter((np.asarray(image.load(k)).tobytes(), int(image.labels[k])) for k in range(len(image)))


@pytest.mark.parametrize("labels", ["fine", "coarse"])
def test_both_layouts_give_the_same_images_labels_and_names(cifar_python, cifar_parquet, cifar_rows, labels):
    python, parquet = _load(cifar_python, labels=labels), _load(cifar_parquet, labels=labels)
    expected = zip((image.tobytes() for image in cifar_rows["pixels"]), cifar_rows[f"{labels}_label"], strict=True)
    assert _multiset(python) == _multiset(parquet) == Counter(expected)
    assert python.class_names == parquet.class_names
    assert python.class_names is not None and len(python.class_names) == {"fine": 5, "coarse": 2}[labels]


def test_both_layouts_of_cifar10(cifar10_python, cifar10_parquet, cifar_rows):
    python, parquet = (_load(folder, "cifar10", prompt="a {}") for folder in (cifar10_python, cifar10_parquet))
    expected = zip((image.tobytes() for image in cifar_rows["pixels"]), cifar_rows["label"], strict=True)
    assert _multiset(python) == _multiset(parquet) == Counter(expected)
    assert python.class_names == parquet.class_names == ("airplane", "automobile", "bird", "cat", "deer")
    assert [text.load(4) for text in (python.text, parquet.text)] == ["a deer", "a deer"]
    (cifar10_parquet / "plain_text/test-00000-of-00001.parquet").rename(cifar10_parquet / "test-00000-of-00001.parquet")
    assert _multiset(_load(cifar10_parquet, "cifar10")) == _multiset(python)


def test_the_five_batches_of_cifar10_in_their_order(cifar10_python, cifar_rows):
    train = _load(cifar10_python, "cifar10", split="train")
    assert np.array_equal([train.image.load(k) for k in range(10)], cifar_rows["pixels"][:10])
    assert train.image.labels.tolist() == cifar_rows["label"][:10]
    assert train.image.item_id[-1] == "python-train-9"
    batch = cifar10_python / "cifar-10-batches-py/data_batch_3"
    os.utime(batch, ns=(1, 1))
    assert _load(cifar10_python, "cifar10", split="train").revision != train.revision


def test_errors_of_cifar10(tmp_path, cifar10_python, cifar10_parquet):
    folder = cifar10_python / "cifar-10-batches-py"
    with pytest.raises(InputError, match="unknown key 'labels'"):
        resolve_dataset("cifar10", labels="coarse")
    with pytest.raises(InputError, match="key 'language' is 'ru': input should be 'en'"):
        resolve_dataset("cifar10", language="ru")
    with pytest.raises(InputError, match=r"no train split of CIFAR-10; expected cifar-10-batches-py/\{data_batch_1,"):
        _load(cifar10_parquet, "cifar10", split="train")
    (folder / "data_batch_3").write_bytes((folder / "batches.meta").read_bytes())
    with pytest.raises(InputError, match=r"data_batch_3 holds no 'data' of .* a CIFAR-10 pickle was expected"):
        _load(cifar10_python, "cifar10", split="train")
    (folder / "data_batch_3").unlink()
    with pytest.raises(InputError, match=r"holds no train split of CIFAR-10"):
        _load(cifar10_python, "cifar10", split="train")
    (folder / "batches.meta").write_bytes((folder / "test_batch").read_bytes())
    with pytest.raises(InputError, match=r"test_batch or .*batches.meta lacks the labels or their names"):
        _load(cifar10_python, "cifar10")


def test_one_set_is_not_the_other(cifar_parquet, cifar10_parquet):
    with pytest.raises(InputError, match="has no column 'label'; it has img, fine_label, coarse_label"):
        _load(cifar_parquet, "cifar10")
    with pytest.raises(InputError, match="has no column 'fine_label'; it has img, label"):
        _load(cifar10_parquet / "plain_text")


def test_ids_of_the_layouts_differ_because_their_order_does(cifar_python, cifar_parquet):
    python, parquet = _load(cifar_python).image, _load(cifar_parquet).image
    assert python is not None and parquet is not None
    assert list(python.item_id)[:2] == ["python-test-0", "python-test-1"]
    assert not set(python.item_id) & set(parquet.item_id)


def test_images_are_32_by_32_rgb_and_upright(cifar_python, cifar_rows):
    image = _load(cifar_python).image
    assert image is not None
    assert (image.load(5).mode, image.load(5).size) == ("RGB", (32, 32))
    assert np.array_equal(image.load(5), cifar_rows["pixels"][5])


@pytest.mark.parametrize("layout", ["cifar_python", "cifar_parquet"])
def test_prompts_are_the_text_side(request, layout):
    folder = request.getfixturevalue(layout)
    assert _load(folder).text is None
    text = _load(folder, prompt="a photo of a {}").text
    assert text is not None
    assert [text.load(k) for k in (0, 2)] == ["a photo of a apple", "a photo of a lawn mower"]
    with pytest.raises(InputError, match=r"contains \{\} 0 times"):
        _load(folder, prompt="")


FINE = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can "
    "castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin "
    "elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster "
    "man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck "
    "pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk "
    "skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger "
    "tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"
)


def test_russian_names_are_those_of_the_hundred_classes_in_their_order():
    names = cifar.russian_names()
    assert " ".join(names) == FINE and len(names) == 100
    assert len(set(names.values())) == 100
    assert all(re.fullmatch("[а-яё]+( [а-яё]+)*", name) for name in names.values())
    some = {
        "ray": "скат",
        "seal": "тюлень",
        "orange": "апельсин",
        "can": "жестяная банка",
        "sweet_pepper": "сладкий перец",
    }
    assert some.items() <= names.items()


def test_the_russian_names_say_where_they_come_from():
    content = json.loads(Path(cifar.__file__).with_name("cifar100_ru.json").read_text(encoding="utf-8"))
    assert {"source", "review"} <= content.keys()
    names, other = content["names"], content["ruclip_differs"]
    assert other.keys() <= names.keys() and all(names[name] != word for name, word in other.items())


@pytest.mark.parametrize("layout", ["cifar_python", "cifar_parquet"])
def test_russian_prompts(request, layout):
    dataset = _load(request.getfixturevalue(layout), prompt="изображение {}", language="ru")
    text = dataset.text
    assert text is not None and dataset.class_names is not None and text.labels is not None
    words = ("яблоко", "кровать", "газонокосилка", "выдра", "сосна")  # of the fixture's classes
    assert [text.load(k) for k in range(len(text))] == [f"изображение {word}" for word in words]
    assert (text.language, text.labels.tolist(), dataset.class_names[0]) == ("ru", [0, 1, 2, 3, 4], "apple")


def test_languages_of_the_class_names(cifar_parquet, monkeypatch):
    with pytest.raises(InputError, match="key 'language' is 'de': input should be 'en' or 'ru'"):
        _load(cifar_parquet, language="de")
    with pytest.raises(InputError, match=r"has its 20 coarse classes in en only, not in 'ru'$"):
        _load(cifar_parquet, language="ru", labels="coarse")
    monkeypatch.setattr(cifar, "russian_names", lambda: {"apple": "яблоко"})
    assert _load(cifar_parquet, language="ru").text is None
    with pytest.raises(InputError, match="'bed' is no class of CIFAR-100 and has no name in 'ru'"):
        _load(cifar_parquet, prompt="{}", language="ru")


def test_the_folders_themselves_and_their_parents_are_recognized(cifar_python, cifar_parquet):
    assert _multiset(_load(cifar_python / "cifar-100-python")) == _multiset(_load(cifar_python))
    (cifar_parquet / "cifar100").mkdir()
    name = "test-00000-of-00001.parquet"
    (cifar_parquet / name).rename(cifar_parquet / "cifar100" / name)
    assert _multiset(_load(cifar_parquet)) == _multiset(_load(cifar_python))


@pytest.mark.parametrize(
    ("layout", "file"),
    [("cifar_python", "cifar-100-python/meta"), ("cifar_parquet", "test-00000-of-00001.parquet")],
)
def test_the_revision_follows_the_files(request, layout, file):
    folder = request.getfixturevalue(layout)
    first = _load(folder).revision
    assert _load(folder).revision == first
    os.utime(folder / file, ns=(1, 1))
    assert _load(folder).revision != first


def test_an_image_that_does_not_decode_is_an_oserror(cifar_parquet):
    path = cifar_parquet / "test-00000-of-00001.parquet"
    table = pq.read_table(path)
    cells = table["img"].to_pylist()
    cells[0]["bytes"], cells[1]["bytes"], cells[2] = None, cells[1]["bytes"][:50], None
    column = pa.array(cells, table.schema.field("img").type)
    pq.write_table(table.set_column(0, table.schema.field("img"), column), path)
    image = _load(cifar_parquet).image
    assert image is not None
    for k in range(3):
        with pytest.raises(OSError):
            image.load(k)
    assert image.load(3).size == (32, 32)


def test_path_and_split_errors(tmp_path, cifar_python):
    with pytest.raises(InputError, match="does not exist; a CIFAR-100 folder was expected"):
        _load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is a file; a CIFAR-100 folder was expected"):
        _load(cifar_python / "cifar-100-python/test")
    with pytest.raises(InputError, match=r"holds no train split of CIFAR-100; expected cifar-100-python/"):
        _load(cifar_python, split="train")
    with pytest.raises(InputError, match="unknown split 'trian'; did you mean 'train'"):
        _load(cifar_python, split="trian")
    with pytest.raises(InputError, match="unknown split 'xyzzy'; known are train, test"):
        _load(cifar_python, split="xyzzy")
    with pytest.raises(InputError, match="key 'labels' is 'medium'"):
        _load(cifar_python, labels="medium")


def test_pickles_of_something_else(cifar_python):
    test, meta = cifar_python / "cifar-100-python/test", cifar_python / "cifar-100-python/meta"
    test_content, meta_content = test.read_bytes(), meta.read_bytes()
    meta.write_bytes(test_content)
    with pytest.raises(InputError, match="lacks the fine labels or their names"):
        _load(cifar_python)
    test.write_bytes(meta_content)
    with pytest.raises(InputError, match=r"holds no 'data' of \(n, 3072\) bytes"):
        _load(cifar_python)


def _rewrite(folder, change):
    path = folder / "test-00000-of-00001.parquet"
    pq.write_table(change(pq.read_table(path)), path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["img"]), "has no column 'img'; it has fine_label, coarse_label"),
        (lambda t: t.drop_columns(["fine_label"]), "has no column 'fine_label'; it has img, coarse_label"),
        (lambda t: t.replace_schema_metadata(None), "has no class names in its schema"),
        (lambda t: t.replace_schema_metadata({"huggingface": json.dumps({"info": 1})}), "has no class names"),
        (lambda t: t.set_column(0, "img", t["coarse_label"]), "has int64 in the column 'img'"),
        (lambda t: t.slice(0, 0), "has no rows"),
        (lambda t: t.set_column(1, "fine_label", [[5] * len(t)]), "has a label that is none of its 5 classes"),
        (lambda t: t.set_column(1, "fine_label", [[None] * len(t)]), "has a label that is none of its 5 classes"),
    ],
)
def test_parquet_of_something_else(cifar_parquet, change, message):
    _rewrite(cifar_parquet, change)
    with pytest.raises(InputError, match=message):
        _load(cifar_parquet)


def test_truncated_parquet(cifar_parquet):
    path = cifar_parquet / "test-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"is no readable \.parquet file"):
        _load(cifar_parquet)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLIP_GEOMETRY_DATA", raising=False)
    return tmp_path / "home"


def test_the_default_is_the_shared_folder_where_there_is_one(home, cifar_parquet, cifar_python, monkeypatch):
    cifar_parquet.rename(cifar_parquet.parent / "cifar100")
    monkeypatch.setenv("CLIP_GEOMETRY_DATA", str(cifar_parquet.parent))
    assert _multiset(load_dataset(resolve_dataset("cifar100"))) == _multiset(_load(cifar_python))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def archive(cifar_python, cifar10_python, tmp_path, monkeypatch):
    """Both fixtures as an archive that torchvision downloads, from a server of this machine."""
    from torchvision.datasets import CIFAR10, CIFAR100

    path = tmp_path / "served/cifar.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as tar:
        tar.add(cifar_python / "cifar-100-python", "cifar-100-python")
        tar.add(cifar10_python / "cifar-10-batches-py", "cifar-10-batches-py")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(path.parent))) as server:
        for published in (CIFAR10, CIFAR100):
            monkeypatch.setattr(published, "tgz_md5", hashlib.md5(path.read_bytes()).hexdigest())
            monkeypatch.setattr(published, "url", f"http://127.0.0.1:{server.server_port}/{path.name}")
        Thread(target=server.serve_forever, daemon=True).start()
        yield path
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "layout", "inside"),
    [("cifar100", "cifar_python", "cifar-100-python"), ("cifar10", "cifar10_python", "cifar-10-batches-py")],
)
def test_otherwise_it_is_downloaded_once(request, home, archive, name, layout, inside):
    expected = _multiset(_load(request.getfixturevalue(layout), name))
    assert _multiset(load_dataset(resolve_dataset(name))) == expected
    folder = home / ".cache/clip-geometry" / name
    assert {entry.name for entry in folder.iterdir()} == {inside, LOCK}
    archive.unlink()
    assert len(load_dataset(resolve_dataset(name)).sides) == 1


def test_no_network_and_a_wrong_archive_are_one_sentence(home, archive):
    archive.write_bytes(b"something else")
    with pytest.raises(InputError, match=r"could not be downloaded from .*give a folder that holds it with path="):
        cifar.download(cifar.Cifar100Config(), home / "a")
    archive.unlink()
    with pytest.raises(InputError, match=r"could not be downloaded from .*give a folder that holds it with path="):
        load_dataset(resolve_dataset("cifar100"))
    assert not (home / ".cache/clip-geometry/cifar100/cifar-100-python").exists()


class _BreakingOff(_Quiet):
    """Sends half of a file, and then nothing; the connection stays open while `hangs`."""

    hangs: Event | None = None

    def copyfile(self, source, outputfile):
        content = source.read()
        outputfile.write(content[: len(content) // 2])
        outputfile.flush()
        if self.hangs is not None:
            self.hangs.wait(60)


@pytest.fixture
def breaking(archive, monkeypatch):
    """The archive from a server that breaks off halfway."""
    from torchvision.datasets import CIFAR10, CIFAR100

    handler, whole = type("Handler", (_BreakingOff,), {}), CIFAR100.url
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(archive.parent))) as server:
        for published in (CIFAR10, CIFAR100):
            monkeypatch.setattr(published, "url", f"http://127.0.0.1:{server.server_port}/{archive.name}")
        Thread(target=server.serve_forever, daemon=True).start()
        yield handler, whole
        server.shutdown()


def test_a_download_that_breaks_off_leaves_nothing(home, breaking, cifar_python):
    with pytest.raises(InputError, match=r"CIFAR-100 could not be downloaded from http[^\n]*; give a folder"):
        load_dataset(resolve_dataset("cifar100"))
    assert [entry.name for entry in (home / ".cache/clip-geometry/cifar100").iterdir()] == [LOCK]


def test_what_a_killed_download_left_is_removed_by_the_next(home, breaking, monkeypatch):
    from torchvision.datasets import CIFAR100

    handler, whole = breaking
    handler.hangs = Event()
    code = (
        "from torchvision.datasets import CIFAR100 as C; from clip_geometry.data import load_dataset, resolve_dataset\n"
        f"C.url, C.tgz_md5 = {CIFAR100.url!r}, {CIFAR100.tgz_md5!r}; load_dataset(resolve_dataset('cifar100'))"
    )
    folder = home / ".cache/clip-geometry/cifar100"
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "HOME": str(home)}) as process:
        until = time.monotonic() + 60
        while not any(folder.glob("tmp*/*.gz")) and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    handler.hangs.set()
    assert {entry.name[:3] for entry in folder.iterdir()} == {"tmp", LOCK[:3]}
    monkeypatch.setattr(CIFAR100, "url", whole)
    load_dataset(resolve_dataset("cifar100"))
    assert {entry.name for entry in folder.iterdir()} == {"cifar-100-python", LOCK}


# pickles


class _Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    (tmp_path / "evil").write_bytes(pickle.dumps({"data": _Touch(tmp_path / "ran")}, protocol=2))
    with pytest.raises(InputError, match=r"is not one of CIFAR's pickles: .* is refused"):
        cifar.read_batch(tmp_path / "evil")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["test", "meta"])
def test_it_reads_what_pickle_reads(cifar_python, name):
    path = cifar_python / "cifar-100-python" / name
    expected = pickle.loads(path.read_bytes(), encoding="latin1")
    ours = cifar.read_batch(path)
    pixels, expected_pixels = ours.pop("data", None), expected.pop("data", None)
    assert ours == expected
    assert np.array_equal(pixels, expected_pixels)


@pytest.mark.parametrize("content", [b"", b"text", pickle.dumps({"data": [1, 2]})[:-4], pickle.dumps([1])])
def test_damaged_pickles(tmp_path, content):
    (tmp_path / "test").write_bytes(content)
    with pytest.raises(
        InputError, match=r"is not one of CIFAR's pickles: .|is empty .* one of CIFAR's pickles was expected"
    ):
        cifar.read_batch(tmp_path / "test")

import subprocess
import sys

import pytest

from clip_geometry.data import dataset_from, datasets, load_dataset, resolve_dataset
from clip_geometry.registry import InputError


def test_paths_are_recognized(tmp_path, write_image, cifar_parquet, cifar10_parquet):
    write_image(tmp_path / "images/deep/a.png")
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/s.tar").touch()
    kinds = {
        "images": "folder",
        "t.csv": "captions",
        "t.tsv": "captions",
        "t.parquet": "captions",
        "t.jsonl": "captions",
        "T.CSV": "captions",
        "captions.json": "coco",
        "s.tar": "webdataset",
        "s.tar.gz": "webdataset",
        "shards": "webdataset",
        "parquet": "cifar100",
        "parquet10": "cifar10",
    }
    for path, name in kinds.items():
        if "." in path:
            (tmp_path / path).touch()
        config = resolve_dataset(str(tmp_path / path))
        assert (path, config.name) == (path, name)
        assert getattr(config, "path", None) == tmp_path / path
        assert type(config) is datasets[name].config


def test_options_are_validated(tmp_path):
    with pytest.raises(InputError, match="data set 'cifar100': unknown key 'splt'; did you mean 'split'"):
        resolve_dataset("cifar100", splt="test")
    with pytest.raises(InputError, match="data set 'cifar100': key 'split' is 3"):
        resolve_dataset("cifar100", split=3)
    with pytest.raises(InputError, match="data set 'folder': key 'path' is missing"):
        resolve_dataset("folder")
    with pytest.raises(InputError, match="and path='elsewhere'; give one"):
        resolve_dataset(str(tmp_path), path="elsewhere")


def test_options_beside_a_config_are_refused():
    with pytest.raises(InputError, match="size cannot be given with a config; give the options to resolve_dataset"):
        load_dataset(resolve_dataset("scenes"), size=3)


@pytest.mark.experiments
def test_what_is_no_data_set(tmp_path):
    with pytest.raises(InputError, match="is neither a data set nor an existing path; did you mean 'cifar100'"):
        resolve_dataset("cifar1000")
    with pytest.raises(InputError, match="nor an existing path; clip-geometry list datasets names all"):
        resolve_dataset("/xyzzy/q")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no images"):
        resolve_dataset(tmp_path / "empty")
    (tmp_path / "model.pt").touch()
    with pytest.raises(InputError, match="is not a data set; expected a folder of images, a table"):
        resolve_dataset(tmp_path / "model.pt")


def test_sections_of_a_config(tmp_path, write_image):
    write_image(tmp_path / "a.png")
    assert dataset_from({"name": "cifar100", "split": "train"}) == resolve_dataset("cifar100", split="train")
    assert dataset_from({"name": str(tmp_path)}).name == "folder"
    with pytest.raises(InputError, match="unknown key 'languag'; did you mean 'language'"):
        dataset_from({"name": "cifar100", "languag": "de"})
    for section in ({"split": "test"}, {"name": 3}):
        with pytest.raises(InputError, match="a data set needs a 'name'"):
            dataset_from(section)


def test_the_import_is_light():
    heavy = "{'pandas', 'pyarrow', 'torchvision', 'open_clip', 'transformers', 'sklearn', 'matplotlib'}"
    code = f"import sys, clip_geometry.data; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_one_place_has_one_name(tmp_path, monkeypatch):
    table = tmp_path / "captions.csv"
    table.write_text("caption\na cat\n")
    (tmp_path / "link.csv").symlink_to(table)
    monkeypatch.chdir(tmp_path)
    configs = [resolve_dataset(name) for name in (str(table), "captions.csv", "./captions.csv", "link.csv")]
    assert len(set(configs)) == 1

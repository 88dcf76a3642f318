"""Every config says what it is, is valid as it stands and with its smoke section, and has a script beside it."""

from pathlib import Path

import pytest

from clip_geometry.config import read_yaml
from clip_geometry.registry import InputError
from clip_geometry_experiments.run.config import find_config, shipped_configs
from clip_geometry_experiments.run.runner import plan, resolve

ROOT = Path(__file__).parents[3]
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
OTHER = ("scripts", "data", "diagnosis", "site")  # folders of scripts that belong to no config
SCRIPTS = sorted(path for path in (ROOT / "scripts").rglob("*.py") if path.parent.name not in OTHER)
WORDS = ("word2vec1000.npy", "word2vec1000.json", "222/model.bin")  # an encoder of words wants its file to be there
VARIANTS = ("_coco500", "_bert", "_rucoco", "_russian", "_sweep")  # the same experiment on other data or models


def name_of(path):
    return str(path.relative_to(ROOT / "configs").with_suffix(""))


@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_a_config_begins_with_what_it_shows(path):
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    text = "\n".join(head)
    for word in ("# What it shows: ", "# Yields: ", "# Command: ", "# Time: ", "# Expected: "):
        assert word in text
    assert f"configs/{name_of(path)}.yaml" in text
    assert path.read_text().startswith(head[0])


@pytest.mark.parametrize("smoke", [False, True])
@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_a_config_is_valid(path, smoke, monkeypatch, tmp_path):
    monkeypatch.setenv("CLIP_GEOMETRY_DATA", str(tmp_path))
    for name in () if smoke else WORDS:
        (tmp_path / "words" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "words" / name).write_text("unread")
    planned = plan(resolve(path, {}, smoke=smoke), str(path))
    assert {config.name for _, config in planned} == {name_of(path).replace("/", "-")}
    assert planned[0][1].title and planned[0][1].description


@pytest.mark.parametrize("smoke", [False, True])
@pytest.mark.parametrize(
    "name", ["semantic_map", "isotropy", "joint_distribution", "multilingual", "clip_loss", "trained"]
)
def test_a_figure_or_table_of_a_trained_model_has_one_by_default(name, smoke):
    """Tyshchuk et al. 2023: figures 1 to 4 and 8 to 15 and Table 2 are of trained models, 5 to 7 of fresh ones."""
    planned = plan(resolve(f"tyshchuk2023/{name}", {}, smoke=smoke), name)
    assert planned and not any(config.model.is_fresh for _, config in planned)
    fresh = plan(resolve("tyshchuk2023/initialization", {}, smoke=smoke), "initialization")
    assert all(model.is_fresh for _, config in fresh for model in config.models)


@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_an_experiment_has_a_script(path):
    """Named as the config, or as the experiment where several configs are of one; of each part, where it has some."""
    stem = path.stem
    for variant in VARIANTS:
        stem = stem.removesuffix(variant)
    folder = ROOT / "scripts" / path.relative_to(ROOT / "configs").parent
    values = read_yaml(path)
    for part in values.get("parts", [values]):
        assert any((folder / f"{name}.py").is_file() for name in (stem, part["experiment"]))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_a_short_story_of_public_calls(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 40 and text.startswith('"""') and f"python scripts/{path.parent.name}/" in text


# --- by name


def test_every_config_has_its_name():
    assert shipped_configs() == {name_of(path): path for path in CONFIGS}


@pytest.mark.parametrize(
    "given", ["tyshchuk2023/isotropy", "tyshchuk2023/isotropy.yaml", "configs/tyshchuk2023/isotropy.yaml"]
)
def test_a_name_is_found_in_any_folder(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_config(given) == ROOT / "configs/tyshchuk2023/isotropy.yaml"


def test_an_existing_file_is_taken_and_a_folder_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()
    assert find_config("quickstart") == ROOT / "configs/quickstart.yaml"
    (tmp_path / "quickstart.yaml").write_text("name: mine")
    assert find_config("quickstart.yaml") == Path("quickstart.yaml")
    (tmp_path / "quickstart").rmdir()
    (tmp_path / "quickstart").write_text("name: mine, too")
    assert find_config("quickstart") == Path("quickstart")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("quickstrat", r"quickstrat does not exist and is not the name of a config; did you mean 'quickstart'\?"),
        ("isotropy", r"; did you mean 'tyshchuk2023/isotropy' or "),
        ("mine.yaml", r"mine.yaml does not exist .*; clip-geometry list configs names all [0-9]+"),
        (".", r"\. is a directory; expected a YAML config file or the name of a config"),
    ],
)
def test_what_is_neither_a_file_nor_a_name_is_one_sentence(given, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        find_config(given)

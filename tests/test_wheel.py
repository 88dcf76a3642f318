"""What is installed: the wheel and the archive of sources have the configs, and one runs by name in an empty folder."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFIGS = {path.relative_to(ROOT).as_posix() for path in (ROOT / "configs").rglob("*.yaml")}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel and the archive of sources of this tree, which is left as it is."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in ("src", "configs", "licenses"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A folder with the content of the wheel, as pip unpacks it."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        archive.extractall(site)
    return site


def test_the_archive_of_sources_has_the_configs(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= CONFIGS and len(CONFIGS) > 30


def test_the_wheel_has_the_configs_and_every_file_of_the_package(installed):
    files = {path.relative_to(installed).as_posix() for path in installed.rglob("*.*") if path.is_file()}
    mine = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.*") if path.is_file()}
    configs = {f"clip_geometry_experiments/{name}" for name in CONFIGS}
    expected = configs | {name for name in mine if "__pycache__" not in name}
    assert {name for name in files if "dist-info" not in name} == expected


def test_the_wheel_carries_the_license_texts(installed):
    (found,) = installed.glob("*.dist-info/licenses")
    texts = {path.name for path in (ROOT / "licenses").glob("*.txt")}
    assert len(texts) == 2 and {path.name for path in found.rglob("*.txt")} >= texts
    assert (found / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.slow
def test_a_config_of_the_wheel_runs_by_name_in_an_empty_folder(installed, tmp_path):
    code = "import clip_geometry, sys; from clip_geometry.cli import main; print(clip_geometry.__file__); main()"
    environment = {key: value for key, value in os.environ.items() if key != "CLIP_GEOMETRY_DATA"}
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "quickstart", "--smoke", "--device", "cpu"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    package, report = done.stdout.splitlines()
    assert package.startswith(str(installed)) and (tmp_path / report.removeprefix("report: ")).is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]

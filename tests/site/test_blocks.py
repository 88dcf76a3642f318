"""Every `sh` and `python` block of the README and of docs/ runs, page by page, and prints what the page says.

Blocks of nothing but `clip-geometry` commands run in this process. The
blocks of a page run in order in one folder, which begins with the files that docs/start.md makes below `<!--
preparation -->`. A `text` block right after a block is its output: words are compared exactly, numbers within three
units of their last printed digit, and … stands for anything. Blocks of `>>>` are doctests. A block with a title is a
file of that name, or lines of it (`PATH, after LINE`); pages with such blocks run in a copy of the checkout if the
files are its own. Lines that begin with `pip install` are not run, but packages of the extras that no such line above a
block names are hidden from it, and a package that the page itself wrote is installed into a folder beside it. A comment
right above a block says that it is not run and why (`<!-- not run: needs a download -->`), or what it needs (`<!--
needs the data folder -->`, `<!-- needs coco500 -->`), or its test (`<!-- run by tests/… -->`).
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from dataclasses import dataclass
from importlib import metadata
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.cli import main
from support.generated import generated

ROOT = Path(__file__).parents[2]
OWN_TESTS = {"howto/training.md", "howto/sklearn.md", "howto/databases.md"}  # tests of their own
NOT_RUN = 15  # blocks; fewer is better
PAGES_EXIST = (ROOT / "docs").exists()
CHECKOUT = ("src", "tests", "scripts", "configs", "docs", "benchmarks", "pyproject.toml", "README.md", "CHANGELOG.md")
NUMBER = r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
HIDDEN = ROOT / "tests" / "support" / "hidden"
UNITS = 3  # of the last digit: another processor moved a rank of near ties by 1.7


@dataclass
class Block:
    """A code block with the comment above it and the output below it."""

    language: str
    code: str
    line: int
    comment: str
    output: str | None
    title: str
    installed: frozenset[str]

    @property
    def not_run(self) -> bool:
        return self.comment.startswith("not run:")


def blocks(text: str) -> list[Block]:
    """The blocks of a page that can be run, and those with a title, which are files."""
    found = list(re.finditer(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', text, re.M | re.S))
    made = []
    for block, after in zip_longest(found, found[1:]):
        if block[1] not in ("sh", "python") and not block[2]:
            continue
        said = re.search(r"<!-- ([^\n]*) -->\n\Z", text[: block.start()])
        follows = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        line = text.count("\n", 0, block.start()) + 1
        output = after[3] if follows and after and not after[2] else None
        installed = frozenset(packages(text[: block.end()]))
        made.append(Block(block[1], block[3], line, said[1] if said else "", output, block[2] or "", installed))
    return made


# --- what a page installs

MODULES = {"faiss_cpu": "faiss", "scikit_learn": "sklearn", "psycopg[binary]": "psycopg"}  # package → what is imported


def installs(text: str) -> list[list[str]]:
    """What each `pip install` of a text installs, in blocks and in sentences."""
    commands = re.findall(r"pip install ((?:(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s`\"'#;&|]+)[ \t]*)+)", text)
    return [shlex.split(command) for command in commands]


def module(requirement: str) -> str:
    """The module that a requirement installs."""
    name = re.split(r"[<>=;!~ ]", requirement.strip())[0].lower().replace("-", "_")
    return MODULES.get(name, name.partition("[")[0])


def packages(text: str) -> set[str]:
    """The modules that the `pip install` lines of a text install."""
    found = set()
    for requirement in (each for command in installs(text) for each in command):
        extras = re.fullmatch(r"\.\[([\w,]+)\]", requirement)
        for extra in extras[1].split(",") if extras else ():
            found |= {each for part in EXTRAS[extra] for each in packages_of(part)}
        found |= set() if extras else {module(requirement)}
    return found


def packages_of(requirement: str) -> set[str]:
    """The modules of one requirement of an extra, which may be other extras of this package."""
    ours = re.fullmatch(r"clip-geometry\[([\w,]+)\]", requirement)
    return packages(f'pip install ".[{ours[1]}]"') if ours else {module(requirement)}


def closure(requirements: list[str]) -> set[str]:
    """The distributions that requirements install, with what these require, normalized."""
    found, left = set(), [re.split(r"[\s<>=!~;\[(]", each)[0] for each in requirements]
    while left:
        name = left.pop().lower().replace("_", "-")
        if name not in found:
            found.add(name)
            with contextlib.suppress(metadata.PackageNotFoundError):
                needed = metadata.requires(name) or []
                left += [re.split(r"[\s<>=!~;\[(]", each)[0] for each in needed if "extra ==" not in each]
    return found


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"] if PAGES_EXIST else {}
EXTRAS: dict[str, list[str]] = PROJECT.get("optional-dependencies", {})
BASE = closure(PROJECT.get("dependencies", []))
# what the extras for users install, by module
OPTIONAL = {
    module(each)
    for extra in EXTRAS.keys() - {"test", "dev", "docs", "formats"}
    for each in EXTRAS[extra]
    if re.split(r"[<>=]", each)[0].lower() not in BASE
}


def pages() -> dict[str, list[Block]]:
    """Pages with blocks, by their path below docs/."""
    return {name: each for name, text in TEXT_OF.items() if (each := blocks(text))}


def texts() -> dict[str, str]:
    """Page, by its path below docs/ → its text. Of the generated pages, those with blocks of their own."""
    if not PAGES_EXIST:
        return {}
    paths = {path.relative_to(ROOT / "docs").as_posix(): path for path in sorted((ROOT / "docs").rglob("*.md"))}
    paths["README.md"] = ROOT / "README.md"
    return {name: path.read_text(encoding="utf-8") for name, path in paths.items()} | generated("formats.md")


TEXT_OF = texts()
PAGES = pages()


def compared(said: str, found: str) -> str | None:
    """How an output differs from what a page says; None where it does not."""
    pattern, numbers = "", []
    for token in re.findall(rf"…|{NUMBER}|\s+|[^\s\d…]+?(?=[-−+]?\d|\s|…|$)|.", said.strip()):
        if token == "…":
            pattern += r"[\s\S]*?"
        elif token.isspace():
            pattern += r"\s+"
        elif re.fullmatch(NUMBER, token):
            pattern, numbers = pattern + f"({NUMBER})", [*numbers, token]
        else:
            pattern += re.escape(token)
    # an ellipsis takes the blanks around it along
    pattern = pattern.replace(r"\s+[\s\S]*?", r"[\s\S]*?").replace(r"[\s\S]*?\s+", r"[\s\S]*?")
    match = re.fullmatch(pattern, found.strip())
    if match is None:
        return f"the page says\n{said}\nand what was printed is\n{found}"
    for ours, theirs in zip(numbers, match.groups(), strict=True):
        digits = ours.partition("e")[0].partition(".")[2]
        exponent = int(ours.partition("e")[2] or 0)
        unit = 10.0 ** (exponent - len(digits)) if digits or exponent else 0
        value, other = (float(each.replace(",", "").replace("−", "-")) for each in (ours, theirs))
        if abs(value - other) > UNITS * unit * 1.001:
            return f"the page says {ours}, and what was printed is {theirs}, in\n{found}"
    return None


def run_sh(code: str, folder: Path, **environment: str) -> str:
    """Runs lines of a shell; what they print."""
    lines = [line for line in code.splitlines() if not line.startswith("pip install")]
    environment = {**os.environ, "COLUMNS": "100", "PYTHONWARNINGS": "ignore", **environment}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment["PYTHONPATH"] = os.pathsep.join([str(HIDDEN), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["bash", "-euc", "\n".join(lines)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def install_written(code: str, folder: Path) -> None:
    """Installs the packages that a page wrote and a block installs into `folder/installed`, with their entry points."""
    for path in re.findall(r"^pip install -e \./(\S+)$", code, re.M):
        options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", folder / "installed"]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, folder / path], check=True)


def run_commands(code: str, folder: Path) -> str | None:
    """What `run_sh` gives, in this process, which has imported torch; None where a line is more than a command."""
    code = re.sub(r"^pip install.*\n", "", code, flags=re.M)
    lines = [shlex.split(line, comments=True) for line in re.sub(r"\\\n\s*", " ", code).splitlines()]
    lines = [line for line in lines if line]
    if re.search(r"[|<>&;$`*~]|--engine", code) or any(line[0] != "clip-geometry" for line in lines):
        return None
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.chdir(folder)
        patch.setenv("COLUMNS", "100")
        for line in lines:
            patch.setattr(sys, "argv", line)
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code, line
    return out.getvalue()


def write_file(block: Block, folder: Path) -> None:
    """Writes the block of a title: a file, or lines below the one line of a file that begins with what is named."""
    name, _, place = block.title.partition(", after ")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not place:
        assert not path.exists(), f"line {block.line}: {name} is there already"
        path.write_text(block.code, encoding="utf-8")
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    (k,) = (k for k, line in enumerate(lines) if line.startswith(place))
    apart = "\n\n" if block.code.startswith("def ") else ""
    path.write_text("".join([*lines[: k + 1], apart, block.code, *lines[k + 1 :]]), encoding="utf-8")


@contextlib.contextmanager
def hidden(modules: set[str]):
    """Modules that cannot be imported, in this process and in those that it starts by `run_sh`."""
    with pytest.MonkeyPatch.context() as patch:
        for name in modules:
            patch.setitem(sys.modules, name, None)
        patch.setenv("CLIP_GEOMETRY_HIDDEN", " ".join(sorted(modules)))
        yield


def run_python(code: str, names: dict) -> str:
    """Runs a block; what it prints, or how a doctest fails."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if code.startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(code, names, "page", None, 0)
            names.update(test.globs)
            runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
            assert not runner.run(test, out=out.write, clear_globs=False).failed, out.getvalue()
            names.update(test.globs)
            return ""
        exec(compile(code, "page", "exec"), names)
    return out.getvalue()


def coco500() -> Path:
    """500 COCO pairs through CLIP ViT-B/16, of the data folder."""
    return Path(os.environ["CLIP_GEOMETRY_DATA"], "embeddings", "coco500-clip-vit-b16")


def run_page(each: list[Block], folder: Path, **environment: str) -> None:
    """Runs the blocks of a page in a folder and compares what they print."""
    names: dict = {"__name__": "__page__"}
    for block in each:
        if block.not_run or block.comment.startswith("run by tests/"):
            continue
        if block.title:
            write_file(block, folder)
            continue
        if block.comment.startswith("needs "):  # of the data folder
            if not os.environ.get("CLIP_GEOMETRY_DATA"):
                continue
            if block.comment == "needs coco500":
                shutil.copytree(coco500(), folder / "coco500", dirs_exist_ok=True)
        with hidden(OPTIONAL - block.installed):
            if block.language == "sh":
                install_written(block.code, folder)
                printed = None if environment else run_commands(block.code, folder)
                printed = run_sh(block.code, folder, **environment) if printed is None else printed
            else:
                with contextlib.chdir(folder):
                    printed = run_python(block.code, names)
        if block.output is not None:
            wrong = compared(block.output, printed)
            assert wrong is None, f"line {block.line}: {wrong}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with the files that docs/start.md makes."""
    folder = tmp_path_factory.mktemp("prepared")
    (block,) = (each for each in PAGES["start.md"] if each.comment == "preparation")
    run_sh(block.code, folder)
    assert np.load(folder / "image.npy").shape == np.load(folder / "text.npy").shape == (500, 256)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a page of additions takes minutes of one processor
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.weekly if page == "mixed_index.md" else ())  # minutes, of its own data
        for page in sorted(PAGES.keys() - OWN_TESTS)
    ],
)
def test_the_blocks_of_a_page_run(page, prepared, tmp_path):
    environment = {}
    written = {block.title.partition("/")[0] for block in PAGES[page] if block.title}
    if written & {*CHECKOUT}:
        for name in CHECKOUT:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, tmp_path / name)
        shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
        environment["PYTHONPATH"] = str(tmp_path / "src")
    elif page == "README.md":  # whose numbers are those of real embeddings
        if not os.environ.get("CLIP_GEOMETRY_DATA"):
            pytest.skip("CLIP_GEOMETRY_DATA is not set")
        shutil.copytree(coco500(), tmp_path, dirs_exist_ok=True)
    else:
        shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    if written and not environment:
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "installed"), os.environ.get("PYTHONPATH", "")])
    run_page(PAGES[page], tmp_path, **environment)


NEEDS = {  # what a command line shows that it needs, and the module
    r"--to faiss|\.faiss\b": "faiss",
    r"--to onnx": "onnx",
    r"\.lance\b": "lancedb",
    r"--engine ray|^ray ": "ray",
    r"clip-geometry explore": "plotly",
    r"\.h5\b": "h5py",
    r"\.zarr\b": "zarr",
}
LOCAL = {
    "clip_geometry",
    "clip_geometry_experiments",
    "search",
    "shipped",
}  # modules that are there, or that commands of the pages write
IMPORTED = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml", "open_clip": "open-clip-torch"}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_installs_what_its_blocks_need(page):
    """Those that are not run here, too: by what commands name, and by what Python imports."""
    for block in PAGES[page]:
        if block.title:
            continue
        needed = {name for pattern, name in NEEDS.items() if re.search(pattern, block.code, re.M)}
        if block.language == "python":
            code = re.sub(r"^(?:>>>|\.\.\.) ?", "", block.code, flags=re.M) if ">>>" in block.code else block.code
            names = re.findall(r"^\s*(?:from|import) ([\w., ]+?)(?: import| as|$)", code, re.M)
            names = {each.strip().partition(".")[0] for line in names for each in line.split(",")}
            needed = {name for name in names if IMPORTED.get(name, name).lower().replace("_", "-") not in BASE}
            needed -= {*sys.stdlib_module_names, *LOCAL}
        assert needed <= block.installed, f"line {block.line}: no pip install above of {needed - block.installed}"


def test_a_package_that_a_page_does_not_install_is_hidden(tmp_path):
    page = '```sh\npip install -e ".[explore]"\npython -c "import {name}"\n```\n'
    run_page(blocks(page.format(name="plotly")), tmp_path)
    with pytest.raises(AssertionError, match="import of torchmetrics halted"):
        run_page(blocks(page.format(name="torchmetrics")), tmp_path)


def test_few_blocks_are_not_run_and_each_says_why():
    left = [(page, block.line, block.comment) for page, each in PAGES.items() for block in each if block.not_run]
    assert len(left) <= NOT_RUN, left
    assert all(len(reason.removeprefix("not run:").strip()) > 10 for _, _, reason in left), left
    others = [
        block.comment.split()[2] for each in PAGES.values() for block in each if block.comment.startswith("run by")
    ]
    assert others and all((ROOT / path).is_file() for path in others)


@pytest.mark.parametrize(
    ("said", "found", "same"),
    [
        ("gap 0.248 ± 0.001", "gap   0.250 ± 0.002\n", True),
        ("gap 0.248 ± 0.001", "gap 0.252 ± 0.001", False),
        ("2,000 rows\n…\nend", "2,000 rows\nmore\nand more\nend", True),
        ("a … z", "a z", True),
        ("one word", "one wort", False),
    ],
)
def test_an_output_is_compared_in_words_and_numbers(said, found, same):
    assert (compared(said, found) is None) == same


def test_a_block_that_fails_or_prints_something_else_is_found(tmp_path):
    page = "```python\nprint(1.25)\n```\n\n```text\n1.35\n```\n"
    with pytest.raises(AssertionError, match=r"line 1: the page says 1\.35"):
        run_page(blocks(page), tmp_path)
    with pytest.raises(AssertionError, match="no-such-command"):
        run_page(blocks("```sh\npip install x\nno-such-command\n```\n"), tmp_path)
    run_page(blocks("<!-- not run: it would fail -->\n```sh\nno-such-command\n```\n"), tmp_path)

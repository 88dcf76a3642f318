"""Every `sh` and `python` block of the README and of docs/ runs, page by page, and prints what the page says.

Blocks of nothing but `clip-geometry` commands run in this process, except those of the start page with the wheel.
The blocks of a page run in order in one folder, which begins with the files that docs/start.md makes below
`<!-- preparation -->`. A `text` block right after a block is its output: words are compared exactly, numbers within
three units of their last printed digit, and … stands for anything. Blocks of `>>>` are doctests. Lines that begin with
`pip install` are left out. A comment right above a block says that it is not run, and why
(`<!-- not run: needs a download -->`), or what it needs (`<!-- needs the data folder -->`, `<!-- needs coco500 -->`).
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
import warnings
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.cli import main

ROOT = Path(__file__).parents[2]
OWN_TESTS = {"howto/training.md", "howto/sklearn.md", "howto/add_measure.md", "howto/explore.md"}  # tests of their own
NOT_RUN = 15  # blocks; fewer is better
NUMBER = r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
UNITS = 3  # of the last digit: another processor moved a rank of near ties by 1.7


@dataclass
class Block:
    """A code block with the comment above it and the output below it."""

    language: str
    code: str
    line: int
    comment: str
    output: str | None

    @property
    def not_run(self) -> bool:
        return self.comment.startswith("not run:")


def blocks(text: str) -> list[Block]:
    """The blocks of a page that can be run."""
    found = list(re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S))
    made = []
    for block, after in zip_longest(found, found[1:]):
        if block[1] not in ("sh", "python"):
            continue
        said = re.search(r"<!-- ([^\n]*) -->\n\Z", text[: block.start()])
        follows = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        line = text.count("\n", 0, block.start()) + 1
        made.append(Block(block[1], block[2], line, said[1] if said else "", after[2] if follows and after else None))
    return made


def pages() -> dict[str, list[Block]]:
    """Pages with blocks, by their path below docs/."""
    if not (ROOT / "docs").exists():
        return {}
    paths = {path.relative_to(ROOT / "docs").as_posix(): path for path in sorted((ROOT / "docs").rglob("*.md"))}
    found = {name: blocks(path.read_text(encoding="utf-8")) for name, path in paths.items()}
    found["README.md"] = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    return {name: each for name, each in found.items() if each}


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
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euc", "\n".join(lines)],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100", "PYTHONWARNINGS": "ignore", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_commands(code: str, folder: Path) -> str | None:
    """What `run_sh` gives, in this process, which has imported torch; None where a line is more than a command."""
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
        if block.not_run:
            continue
        if block.comment.startswith("needs "):  # of the data folder
            if not os.environ.get("CLIP_GEOMETRY_DATA"):
                continue
            if block.comment == "needs coco500":
                shutil.copytree(coco500(), folder / "coco500", dirs_exist_ok=True)
        if block.language == "sh":
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
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", sorted(PAGES.keys() - OWN_TESTS))
def test_the_blocks_of_a_page_run(page, prepared, tmp_path):
    if page == "README.md":  # whose numbers are those of real embeddings
        if not os.environ.get("CLIP_GEOMETRY_DATA"):
            pytest.skip("CLIP_GEOMETRY_DATA is not set")
        shutil.copytree(coco500(), tmp_path, dirs_exist_ok=True)
    elif page != "start.md":  # which makes these files
        shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    run_page(PAGES[page], tmp_path)


def test_the_measure_of_the_page_works_with_its_registration(tmp_path):
    """In a process of its own, whose registry has one measure more."""
    (code,) = (block.code for block in PAGES["howto/add_measure.md"] if block.language == "python")
    (tmp_path / "offset.py").write_text(code, encoding="utf-8")
    said = run_sh(
        "python -m doctest offset.py\n"
        'python -c "import offset, numpy as np, torch; x = np.ones((3, 2)); '
        'print(type(offset.offset_share(x)).__name__, type(offset.offset_share(torch.tensor(x))).__name__)"\n'
        'python -c "import offset, numpy as np, clip_geometry as cg\n'
        "x = np.random.default_rng(0).normal(size=(200, 8)) + 1\n"
        "print(round(cg.measure(x, measures=['offset_share'], pipeline=None)['offset_share'].value, 2))\"",
        tmp_path,
    )
    assert compared("float Tensor\n0.50", said) is None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_start_page_runs_with_the_wheel(tmp_path):
    """Line by line in an empty folder, with what the wheel has and nothing of the checkout."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
    import zipfile

    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    (tmp_path / "empty").mkdir()
    where = run_sh(
        "python -c 'import clip_geometry; print(clip_geometry.__file__)'", tmp_path, PYTHONPATH=f"{tmp_path}/installed"
    )
    assert where.startswith(str(tmp_path / "installed"))
    each = [block for block in PAGES["start.md"] if block.language == "sh"]
    run_page(each, tmp_path / "empty", PYTHONPATH=f"{tmp_path}/installed")


def test_few_blocks_are_not_run_and_each_says_why():
    left = [(page, block.line, block.comment) for page, each in PAGES.items() for block in each if block.not_run]
    assert len(left) <= NOT_RUN, left
    assert all(len(reason.removeprefix("not run:").strip()) > 10 for _, _, reason in left), left


@pytest.mark.parametrize(
    ("said", "found", "same"),
    [
        ("gap 0.248 ± 0.001", "gap   0.250 ± 0.002\n", True),
        ("gap 0.248 ± 0.001", "gap 0.252 ± 0.001", False),
        ("gap 0.248", "gap -0.248", False),
        ("500 rows", "501 rows", False),
        ("2,000 rows\n…\nend", "2,000 rows\nmore\nand more\nend", True),
        ("a … z", "a z", True),
        ("one word", "one wort", False),
        ("-3.3e-05", "-3.4e-05", True),
        ("-3.3e-05", "-3.9e-05", False),
        ("[[0 7]]", "[[0 7]]", True),
        ("row0.5", "row0.6", True),
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

"""The help, its examples, and the completion of names, all without torch."""

import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

from clip_geometry.cli import app, completion
from clip_geometry.cli.commands import discovered, examples

COMMANDS = {**get_command(app).commands, **discovered()}  # pyright: ignore[reportAttributeAccessIssue]


def commands_of(lines):
    """The command lines among the lines of an example, whose end may be on the next line."""
    joined = re.sub(r"\\\n\s*", "", lines)
    return [line.strip() for line in joined.splitlines() if line.strip().startswith("clip-geometry ")]


EVERY = [line for lines in examples().values() for line in commands_of(lines)]


@pytest.mark.parametrize("name", ["clip-geometry", *COMMANDS])
def test_every_help_ends_with_its_examples_line_by_line(cli, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = cli(*([] if name == "clip-geometry" else [name]), "--help").out
    lines = examples()[name].splitlines()
    assert [line.strip() for line in out.splitlines()][-len(lines) - 1 :] == ["Examples:", *(s.strip() for s in lines)]
    assert 2 <= len(commands_of(examples()[name])) <= 4
    assert all(len(line) <= 78 for line in lines)  # click puts two more before them


@pytest.mark.experiments
def test_a_command_is_said_whole_in_one_line(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = cli("--help").out
    assert "..." not in out.partition("Commands:")[2] and examples().keys() == {"clip-geometry", *COMMANDS}


@pytest.mark.experiments
@pytest.mark.parametrize("line", EVERY)
def test_an_example_is_read(line):
    _, name, *arguments = shlex.split(line)
    with COMMANDS[name].make_context(name, arguments, resilient_parsing=False) as ctx:
        assert ctx.params


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::clip_geometry.transforms.base.RankWarning")  # of a map fitted on few pairs
def test_every_example_runs(cli, tmp_path):
    """One after the other, as they depend on each other; that of a download is only read."""
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for k in range(3):
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), np.uint8)).save(tmp_path / "photos" / f"{k}.png")
    for name in ("image", "text", "rows"):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(60, 256)).astype("float32"))
    np.save(tmp_path / "labels.npy", np.arange(60) % 3)
    done = set()

    def run(line):
        if line in done or "/openai" in line:
            return
        arguments = shlex.split(line)[1:]
        arguments += ["--smoke"] if arguments[0] == "run" and "--smoke" not in arguments else []
        outcome = cli(*arguments)
        assert outcome.status == 0, (line, outcome.err)
        done.add(line)

    first = ("init", "embed", "fit", "apply")  # what these write, the others read
    for name in (*first, *(each for each in examples() if each not in first)):
        for line in commands_of(examples()[name]):
            if "centered" in line:
                run("clip-geometry apply white.safetensors scenes -o centered")
            run(line)
    assert len(done) > 25


@pytest.mark.experiments
def test_the_help_needs_no_torch(fresh_process):
    outcome, imported = fresh_process("run", "--help")
    assert "Examples:" in outcome.out and not imported


# --- completion


@pytest.fixture
def completed(fresh_process):
    """What bash is offered for the last of the words."""

    def complete(*words):
        outcome, imported = fresh_process(
            _CLIP_GEOMETRY_COMPLETE="complete_bash",
            COMP_WORDS="\n".join(["clip-geometry", *words]),
            COMP_CWORD=str(len(words)),
        )
        assert not imported
        return outcome.out.splitlines()

    return complete


@pytest.mark.experiments
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("meas",), {"measure"}),
        (("run", "quick"), {"quickstart"}),
        (
            ("run", "tyshchuk2023/iso"),
            {f"tyshchuk2023/isotropy{each}" for each in ("", "_bert", "_coco500", "_rucoco")},
        ),
        (("init", ""), {"measure", "train"}),
        (("embed", "local"), {"local-dir:shipped/scenes-trained", "local-dir:"}),
        (("embed", "scenes-clip/fresh", "cifar"), {"cifar10", "cifar100"}),
        (("fit", "normalize,whi"), {"normalize,whiten"}),
        (("list", "conf"), {"configs"}),
        (("list", "meas"), {"measures"}),
        (("embed", "ru"), {"ruclip:"}),
        (("list", "configs", "quick"), {"quickstart"}),
        (("list", "repairs", "zs"), {"zscore", "zscore[centered]"}),
    ],
)
def test_names_are_completed(completed, words, offered):
    assert set(completed(*words)) == offered


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("measure", "x.npy", "--measures", "modality_gap,isosc"), "modality_gap,isoscore[unbiased]"),
        (("measure", "x.npy", "--pipeline", "normalize,proc"), "normalize,procrustes"),
        (("diagnose", "x.npy", "--repairs", "zscore,post"), "zscore,posterior"),
        (("embed", "open_clip:ViT-B-32"), "open_clip:ViT-B-32/fresh"),
        (("ship", "m.safetensors", "--to", "fa"), "faiss"),
        (("list", "measures", "isos"), "isoscore"),
    ],
)
def test_more_names_are_completed(completed, words, name):
    assert name in completed(*words)


@pytest.mark.experiments
def test_files_are_completed_beside_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from clip_geometry_experiments.run.commands import _configs

    (tmp_path / "quick.yaml").touch()
    (tmp_path / "quick.txt").touch()
    (tmp_path / "quicker").mkdir()
    assert {"quickstart", "quick.yaml", "quicker/"} <= {*_configs("qui")}
    assert "quick.txt" not in _configs("qui") and "quick.txt" in completion.dataset("qui")
    (tmp_path / "quicker" / "a.yml").touch()
    assert "quicker/a.yml" in _configs("quicker/") and _configs("none/") == [*_configs("none/")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_gets_a_script(shell, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # as where the shell is not known
    outcome = subprocess.run(
        [sys.executable, "-c", "from clip_geometry.cli import main; main()", "--show-completion", shell],
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 0 and "_CLIP_GEOMETRY_COMPLETE" in outcome.stdout


def test_it_runs_as_a_module_too():
    command = [sys.executable, "-m", "clip_geometry", "list", "measures", "isoscore"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip().startswith("isoscore: IsoScore") and not found.stderr

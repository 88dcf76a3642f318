import sys
from ast import literal_eval
from dataclasses import dataclass

import numpy as np
import pytest

from clip_geometry import progress
from clip_geometry.cli import main
from support import command_line
from support.forks import Server


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    """Runs the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(progress, "INTERVAL", 600.0)  # a loaded machine must not add lines of progress

    def run(*arguments) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["clip-geometry", *map(str, arguments)])
        capsys.readouterr()
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def fresh_process(tmp_path_factory):
    """Runs the command line in a fork of a new process: its outcome, and which slow packages it imported."""
    server, output = Server(command_line.__file__), tmp_path_factory.mktemp("output")

    def run(*arguments, folder=output, **environment) -> tuple[Outcome, list[str]]:
        job = {"arguments": arguments, "folder": str(folder), "output": str(output), "environment": environment}
        status = server.run(**job)
        *lines, imported = (output / "out").read_text().splitlines(keepends=True)
        return Outcome(status, "".join(lines), (output / "err").read_text()), literal_eval(imported)

    yield run
    server.close()


@pytest.fixture
def refused(cli):
    """Runs a command that has to end with one sentence and status 2, and gives the sentence."""

    def run(*arguments, out_may_be=False) -> str:
        outcome = cli(*arguments)
        assert outcome.status == 2
        assert outcome.out == "" or out_may_be
        assert "Traceback" not in outcome.err
        lines = [line for line in outcome.err.splitlines() if line]
        assert len(lines) == 1, outcome.err
        assert lines[0].startswith("clip-geometry: ")
        return lines[0].removeprefix("clip-geometry: ")

    return run


@pytest.fixture
def sets(tmp_path):
    """Two files of 40 aligned rows in 6 dimensions."""
    rng = np.random.default_rng(0)
    image, text = tmp_path / "image.npy", tmp_path / "text.npy"
    x = rng.normal(size=(40, 6)) + 1
    np.save(image, x.astype(np.float32))
    np.save(text, (x + rng.normal(size=(40, 6)) - 2).astype(np.float32))
    return image, text

"""Commands on a handful of items, what they leave, and what may be left where they fail."""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clip_geometry.files import is_temporary
from clip_geometry.results import Results
from support import faults
from support.forks import Server
from support.train_clip import TINY

GEOMETRY = {
    "name": "tiny",
    "experiment": "geometry",
    "model": "scenes-clip/fresh",
    "pairs": {"name": "scenes", "split": "test", "size": 12},
    "batch_size": 8,
    "measures": ["isoscore", "modality_gap"],
    "figures": ["singular_directions"],
    "sweep": {"seed": [0, 1]},
}
TRAINING = TINY | {
    "data": TINY["data"] | {"size": 16},
    "measured": TINY["measured"] | {"size": 8},
    "steps": 3,
    "batch_size": 8,
    "measurements": 2,
}
# the last word is what they write
STORE = ("--batch-size", "2", "--shard-size", "4", "--prompt", "a {}")
COMMANDS = {
    "embed": ("embed", "scenes-clip/fresh", "images", *STORE, "-o", "out"),
    "embed-workers": ("embed", "scenes-clip/fresh", "images", *STORE, "throughput.workers=2", "-o", "out"),
    "run": ("run", "geometry.yaml", "--runs", "out"),
    "train": ("run", "training.yaml", "--runs", "out"),
    "fit": ("fit", "normalize,whiten(3)[pooled]", "both.npz", "-o", "out.safetensors"),
    "apply": ("apply", "map.safetensors", "both.npz", "-o", "out"),
    "measure": ("measure", "both.npz", "--measures", "isoscore,modality_gap", "--json", "out.jsonl"),
    "fit-large": ("fit", "normalize,whiten(3)", "large.npy", "-o", "out.safetensors"),
    "measure-large": ("measure", "large.npy", "--measures", "isoscore", "--blocks", "0", "--json", "out.jsonl"),
}


def pytest_collection_modifyitems(config, items):
    """Half an hour to hours: by `pytest -m endurance tests/experiments/faults` only."""
    if "endurance" not in config.option.markexpr:
        for item in items:
            if Path(__file__).parent in item.path.parents and item.get_closest_marker("endurance"):
                item.add_marker(
                    pytest.mark.skip(reason="takes half an hour or more: pytest -m endurance tests/experiments/faults")
                )


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str


class Bench:
    """A folder in which commands are run, each in a child of a warm process."""

    commands = COMMANDS

    def __init__(self, folder: Path):
        self.given, self.folder, self.beside = folder / "given", folder / "work", folder / "beside"
        self.wholes: dict[str, dict[str, Any]] = {}
        self.times: dict[str, float] = {}
        _make_inputs(self.given)
        shutil.copytree(self.given, self.beside)
        make_map = ("fit", "normalize", "both.npz", "-o", "map.safetensors")
        apart = [
            (*command[:-1], f"{name}{Path(command[-1]).suffix}")
            for name, command in COMMANDS.items()
            if "large" not in name
        ]
        self.pipes = {name: _pipe(self.beside / name) for name in ("out", "err")}
        self.server = Server(faults.__file__, str(self.beside), json.dumps([make_map, *apart]))
        self.reset()
        made = self.run(*make_map)
        assert made.status == 0, made
        shutil.copy(self.folder / make_map[-1], self.given)

    def reset(self) -> None:
        """As if nothing had been run; always the same folder, since paths are part of what is written."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.given, self.folder, copy_function=os.link)

    def begin(self, name: str) -> None:
        """Before the command, of which is known what it leaves."""
        self.whole(name)
        self.reset()

    def start(self, *argv: str, **how: Any) -> int:
        says = {name: str(self.beside / name) for name in self.pipes}
        [child] = self.server.start({"folder": str(self.folder), "argv": argv, **says, **how})
        return child

    def wait(self) -> Outcome:
        [status] = self.server.wait()
        return Outcome(status, **{name: _drained(pipe) for name, pipe in self.pipes.items()})

    def run(self, *argv: str, **how: Any) -> Outcome:
        self.start(*argv, **how)
        return self.wait()

    def whole(self, name: str) -> dict[str, Any]:
        """What the command leaves that nothing happens to."""
        if name not in self.wholes:
            self.reset()
            started = time.monotonic()
            outcome = self.run(*COMMANDS[name])
            self.times[name] = time.monotonic() - started
            assert outcome.status == 0, outcome.err
            self.wholes[name] = self.contents()
        return self.wholes[name]

    def operations(self, name: str) -> list[str]:
        """The file operations of the command, in their order."""
        log = self.beside / "operations.log"
        log.unlink(missing_ok=True)
        self.begin(name)
        assert self.run(*COMMANDS[name], faults={"log": str(log)}).status == 0
        return log.read_text().splitlines()

    def contents(self) -> dict[str, Any]:
        """All files by name, but locks and temporaries; of those that were given the names."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.name != ".lock" and not any(map(is_temporary, (path, *path.parents))):
                name = str(path.relative_to(self.folder))
                found[name] = _content(path) if name.startswith("out") else None
        return found

    def temporaries(self) -> list[str]:
        return [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if is_temporary(path)]

    def require_refusal(self, outcome: Outcome) -> None:
        """One sentence and status 2, after notes perhaps."""
        assert outcome.status == 2, outcome
        assert "Traceback" not in outcome.err, outcome.err
        last = outcome.err.splitlines()[-1]
        assert last.startswith("clip-geometry: ") and len(last) <= 400, outcome.err

    def require_nothing_false(self, name: str) -> None:
        """Of a command that writes one thing it is there whole or not at all, or empty, which claims the name."""
        found, out = self.contents(), COMMANDS[name][-1]
        if name.startswith(("fit", "apply", "measure")):
            new = {path: content for path, content in found.items() if path.startswith(out)}
            assert new in ({}, {out: b""}) or found == self.whole(name)

    def require_completion(self, name: str) -> None:
        """The same command ends as if nothing had happened; where it has done its work already, it may say so."""
        self.require_nothing_false(name)
        was_done = self.contents() == self.whole(name)
        outcome = self.run(*COMMANDS[name])
        if outcome.status != 0:
            assert was_done, outcome.err
            assert re.search("exists; choose another name|is not empty, and nothing is overwritten", outcome.err)
        assert self.contents() == self.whole(name)
        assert self.temporaries() == []

    def close(self) -> None:
        self.server.close()
        for pipe in self.pipes.values():
            os.close(pipe)


def _pipe(path: Path) -> int:
    """What is written to `path` is read here; no limit of files counts there."""
    os.mkfifo(path)
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def _drained(pipe: int) -> str:
    found = b""
    with suppress(BlockingIOError):
        while part := os.read(pipe, 2**16):
            found += part
    return found.decode()


def _content(path: Path) -> Any:
    """Without the date and the seconds of a run."""
    if path.name == "manifest.json":
        return {k: v for k, v in json.loads(path.read_text()).items() if k not in ("date", "run", "checksum")}
    if path.name == "results.jsonl":
        return Results(path).read()  # of a line that was torn a part may be left
    return path.read_bytes()


def _make_inputs(folder: Path) -> None:
    random = np.random.default_rng(0)
    for k in range(6):
        place = folder / "images" / "ab"[k % 2] / f"{k}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(place)
    rows = (random.normal(size=(40, 6)) + 1).astype(np.float32)
    np.savez(folder / "both.npz", image=rows, text=rows + random.normal(size=rows.shape).astype(np.float32) - 2)
    np.save(folder / "large.npy", random.normal(size=(40_000, 128)).astype(np.float32))
    (folder / "geometry.yaml").write_text(json.dumps(GEOMETRY))
    (folder / "training.yaml").write_text(json.dumps(TRAINING))


@pytest.fixture(scope="session")
def bench(tmp_path_factory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("bench"))
    yield bench
    bench.close()

"""Help, examples, completion, and mistakes that are found within half a second: all without torch."""

import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

import clip_geometry as cg
from clip_geometry import Pipeline
from clip_geometry.cli import EXAMPLES, app
from clip_geometry.cli.lists import LISTS
from clip_geometry.search.repairs import Known, make_repair

GROUP = get_command(app)
COMMANDS = {name: GROUP.get_command(None, name) for name in GROUP.list_commands(None)}  # pyright: ignore


def commands_of(name):
    """The command lines among the examples of a command, whose end may be on the next line."""
    joined = re.sub(r"\\\n\s*", "", EXAMPLES[name])
    return [line.strip() for line in joined.splitlines() if line.strip().startswith("clip-geometry ")]


EVERY = [line for name in EXAMPLES for line in commands_of(name)]


@pytest.mark.parametrize("name", ["clip-geometry", *COMMANDS])
def test_every_help_ends_with_its_examples_line_by_line(cli, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = cli(*([] if name == "clip-geometry" else [name]), "--help").out
    lines = [line.strip() for line in EXAMPLES[name].splitlines()[1:]]
    assert [line.strip() for line in out.splitlines()][-len(lines) :] == lines and lines[0] == "Examples:"
    assert 2 <= len(commands_of(name)) <= 4 and all(len(line) <= 80 for line in out.splitlines())
    assert "..." not in out.partition("Commands:")[2]


@pytest.mark.experiments
def test_an_example_is_read():
    assert EXAMPLES.keys() == {"clip-geometry", *COMMANDS}
    for line in EVERY:
        _, name, *arguments = shlex.split(line)
        with COMMANDS[name].make_context(name, arguments) as ctx:
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
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(120, 256)).astype("float32"))
    np.save(tmp_path / "labels.npy", np.arange(120) % 3)
    old, numbers = rng.normal(size=(1000, 8)), rng.permutation(1000)[:200]
    ids = np.array([f"item{number}" for number in range(1000)])
    for name, rows, known in (("old", old, ids), ("new", old[numbers] ** 3, ids[numbers])):
        np.save(tmp_path / f"{name}.npy", rows)
        cg.export({"image": cg.Embeddings(rows, "image", item_id=known)}, tmp_path / name, to="parquet")
    np.save(tmp_path / "numbers.npy", numbers)
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
    for name in (*first, *(each for each in EXAMPLES if each not in first)):
        for line in commands_of(name):
            if "centered" in line:
                run("clip-geometry apply white.safetensors scenes -o centered")
            run(line)
    assert len(done) > 25


def test_without_a_command_there_is_the_help(cli):
    outcome = cli()
    assert outcome.status == 2 and outcome.out.startswith("Usage: clip-geometry")


def test_it_runs_as_a_module_too():
    command = [sys.executable, "-m", "clip_geometry", "list", "measures", "isoscore"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip().startswith("isoscore: IsoScore") and not found.stderr


# --- what is fast: nothing slow is imported

FINE = [
    ["--help"],
    ["measure", "--help"],
    *(["list", what] for what in LISTS if what != "models"),
    ["list", "measures", "isoscore"],
    *([pytest.param(each, marks=pytest.mark.experiments) for each in (["list", "configs"], ["run", "--help"])]),
]
WRONG = [
    ["list", "mesures"],
    ["measure", "missing.npy"],
    ["measure", "empty.json", "--measures", "isoscor"],
    ["measure", "empty.json", "--pipeline", "centre"],
    ["fit", "centre", "empty.json", "-o", "map.safetensors"],
    ["fit", "center", "missing.npy", "-o", "map.safetensors"],
    ["apply", "missing.safetensors", "rows.npy", "-o", "new"],
    ["diagnose", "empty.json", "--repairs", "zscor"],
    ["explore", "empty.json", "-o", "e.html", "--repairs", "center,whitn(3)"],
    ["ship", "map.safetensors", "-o", "new", "--to", "fais"],
    ["ship", "missing.safetensors", "-o", "new", "--to", "numpy"],
    ["ship", "map.safetensors", "-o", ".", "--to", "numpy"],
    ["ship", "map.safetensors", "rows.npy", "-o", "new", "--to", "faiss"],
    ["ship", "repair.safetensors", "rows.npy", "-o", "new", "--to", "faiss"],
    pytest.param(["run", "missing.yaml"], marks=pytest.mark.experiments),
    pytest.param(["run", "unknown.yaml"], marks=pytest.mark.experiments),
]


@pytest.mark.parametrize("arguments", FINE, ids=" ".join)
def test_help_and_lists_import_no_torch(arguments, fresh_process):
    outcome, imported = fresh_process(*arguments)
    assert not {"torch", "sklearn"} & {*imported} and outcome.status == 0


def test_measure_imports_no_slow_library_that_it_does_not_need(tmp_path, fresh_process):
    for seed, name in enumerate(("image", "text")):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).normal(size=(60, 8)))
    for pipeline, needed in (("normalize", set()), ("normalize,center[each]", {"sklearn", "pandas", "scipy.stats"})):
        outcome, imported = fresh_process("measure", "image.npy", "text.npy", "--pipeline", pipeline, folder=tmp_path)
        assert outcome.status == 0 and {*imported} == {"torch", "numpy"} | needed


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistaken")
    (folder / "unknown.yaml").write_text("experiment: isotrpy")
    (folder / "empty.json").write_text("[]")
    x = {name: np.random.default_rng(0).normal(size=(30, 6)) for name in ("image", "text")}
    Pipeline("center[each]").fit(x).save(folder / "map.safetensors")
    make_repair("zscore").fit(Known(x)).save(folder / "repair.safetensors")
    np.save(folder / "rows.npy", np.ones((30, 5)))
    return folder


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_names_and_paths_import_no_torch(arguments, mistaken, fresh_process):
    outcome, imported = fresh_process(*arguments, folder=mistaken)
    assert not {"torch", "sklearn"} & {*imported} and outcome.status == 2 and outcome.err.count("\n") == 1


def test_explore_says_that_it_works_before_slow_imports(mistaken):
    code = """import sys
class Late:
    def find_spec(self, name, *_):
        if name in ("torch", "numpy", "sklearn", "matplotlib", "pandas"):
            sys.stderr.flush()
            raise SystemExit(f"{name} is imported")
sys.meta_path.insert(0, Late())
import clip_geometry as cg
from clip_geometry.cli import main
main()
"""
    command = [sys.executable, "-c", code, "explore", "rows.npy", "-o", "e.html"]
    first, *_ = subprocess.run(command, capture_output=True, text=True, cwd=mistaken).stderr.splitlines()
    assert first.startswith("exploring rows.npy: ")


# --- completion


@pytest.mark.experiments
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("meas", {"measure"}),
        ("run quick", {"quickstart"}),
        ("init ", {"measure", "train"}),
        ("embed local", {"local-dir:shipped/scenes-trained", "local-dir:"}),
        ("embed scenes-clip/fresh cifar", {"cifar10", "cifar100"}),
        ("embed ru", {"ruclip:"}),
        ("fit normalize,whi", {"normalize,whiten"}),
        ("list meas", {"measures"}),
        ("list configs quick", {"quickstart"}),
        ("list repairs zs", {"zscore", "zscore[centered]"}),
        ("ship m.safetensors --to fa", {"faiss"}),
        ("measure x.npy --measures modality_gap,isoscore[u", {"modality_gap,isoscore[unbiased]"}),
        ("diagnose x.npy --repairs zscore,wh", {"zscore,whiten"}),
    ],
)
def test_names_are_completed(fresh_process, words, offered):
    words = words.split(" ")
    outcome, imported = fresh_process(
        _CLIP_GEOMETRY_COMPLETE="complete_bash",
        COMP_WORDS="\n".join(["clip-geometry", *words]),
        COMP_CWORD=str(len(words)),
    )
    assert not imported and set(outcome.out.splitlines()) == offered

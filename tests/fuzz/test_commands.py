"""Command lines that were valid once, and the files that they name, in this process."""

import contextlib
import io
import json
import sys
from unittest import mock

import pytest
from hypothesis import strategies as st

from clip_geometry.cli import main
from fuzz.outcome import fuzzed, require_sentence, sandbox
from fuzz.strategies import damaged, often, rarely
from fuzz.test_files import ARRAYS, LABEL_FILES, ROW, a_map

FILES = {**ARRAYS, **LABEL_FILES, "m.safetensors": a_map(), "r.jsonl": json.dumps(ROW).encode()}
FILES |= {"folder/image.npy": ARRAYS["x.npy"], "folder/text.npy": ARRAYS["f.npy"]}
FILES["c.yaml"] = b"name: x\nexperiment: geometry\npairs: {name: scenes}\nmodel: scenes-clip/fresh\nmeasures: [none]\n"
ODD = ["", "-", "--", "-1", "0", "1e9", "9" * 30, "é\x1b[1m\n", "x" * 999, "none.npy", "~nobody/x", "/proc/self/mem"]
ODD += [".", "..", "*", "\ud800", "a\0b", "nan", "isoscor", "silhouette", "cuda:9", "center", "pca(9)[each]", "label"]
LINES = {
    "measure x.npy f.npy --labels=l.npy --by=label --json=out --seed=3 --blocks=3 --measures=isoscore,two_nn": 20,
    "measure folder --raw --pipeline=normalize,center[pooled] --measures=modality_gap,matching_cosine": 10,
    "fit normalize,whiten(2)[pooled] folder -o out": 10,
    "fit procrustes[text-to-image] x.npy f.npy --out=out.safetensors": 10,
    "apply m.safetensors folder -o out --as=image": 15,
    "apply m.safetensors x.npy -o out --as=text --no-normalize": 10,
    "ship m.safetensors folder -o out --to=faiss": 10,
    "ship m.safetensors -o out --to=numpy --no-normalize": 10,
    "compare r.jsonl r.jsonl": 10,
    "list measures": 10,
    "init measure -o out": 10,
    "embed scenes-clip/fresh scenes size=6 data.seed=1 --precision=fp32 --features=pooled --split=train -o out": 2,
    "embed scenes-clip/fresh scenes size=6 --limit=2 --prompt={} --shard-size=1 -o out": 2,
    "run c.yaml seed=1 --runs=out --smoke --device=cpu": 10,
    "--version --debug -h": 6,
}


@st.composite
def words_changed(draw, line):
    """The words of a line; options may be left out, and a word or the value of an option may be another."""
    words = []
    for word in line.split():
        if draw(rarely(12)):
            option, equals, _ = word.rpartition("=")
            word = option + equals + draw(st.sampled_from(ODD) | st.sampled_from(sorted(FILES)))
        if not (word.startswith("--") and draw(st.booleans())):
            words.append(word)
    return words


@pytest.mark.parametrize("line", LINES)
def test_commands(line):
    damage = st.sampled_from(sorted(FILES)).flatmap(lambda name: st.fixed_dictionaries({name: damaged(FILES[name])}))

    @fuzzed(LINES[line], words=words_changed(line), damage=often(st.just({}), damage, 3))
    def holds(words, damage):
        """Status 0, or 2 and one sentence, which typer may put below its usage; then no file is left but a store."""
        with (
            sandbox(FILES | damage, "out", "out.safetensors", *ODD) as folder,
            mock.patch.object(sys, "argv", ["clip-geometry", *words]),
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            before = set(folder.iterdir())
            try:
                main()
                status = 0
            except SystemExit as end:
                status = end.code or 0
            left = set(folder.iterdir()) - before
        said = [line for line in err.getvalue().splitlines() if line]
        assert "\x1b" not in out.getvalue() + err.getvalue() and status in (0, 2), (status, said)
        if status == 2:
            assert said[0].startswith("Usage:") or said[-1].startswith("clip-geometry: "), said
            require_sentence(said[-1].removeprefix("clip-geometry: "))
            assert "embed" in words or not left, left

    holds()

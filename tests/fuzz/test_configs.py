"""Configs that were valid once, and changes on the command line, as far as the plan of a run."""

from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from clip_geometry.config import parse_overrides
from fuzz.outcome import fuzzed, outcome, sandbox
from fuzz.strategies import JUNK_JSON, LONG, altered, damaged, often

pytestmark = pytest.mark.experiments
runner = pytest.importorskip("clip_geometry_experiments.run.runner")

CONFIGS = {path.name: path.read_text() for path in sorted(Path(__file__).parents[2].glob("configs/**/*.yaml"))}
LINES = sorted({line for text in CONFIGS.values() for line in text.splitlines() if not line.startswith("#")})
LINES += ["seed: !!python/object:os.system x", "a: &a [1, 1]\nb: [*a, *a]", "? [1]\n: 2", "seed: 1\nseed: 2"]
LINES += [
    "[" * 200,
    f"seed: {'9' * 5000}",
    "seed: 2001-13-01",
    "seed: .nan",
    "sweep: {seed: [0, 1], model: [a]}",
    "parts: []",
]
KEYS = ["seed", "model", "pairs.size", "parts.0.seed", "parts.9.seed", "parts", "measures", "name", "sweep.seed"]
KEYS += ["experiment", "pairs", "pipeline", "parts.0.pairs.size", "blocks", "smoke.seed", "..", "é\x1b", "", LONG]
VALUES = ["1", "-1", "1e400", "true", "[1, 2]", "{name: 1}", "~", "*a", "!!python/name:os.system", "scenes", "{a: {}}"]
VALUES += ["[[[[", "2001-01-01", "'", "\x1b[1m", "no", "null", "", LONG, "9" * 5000, *map(str, JUNK_JSON)]


@st.composite
def lines_changed(draw, text):
    lines = text.splitlines()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines)))
        lines[at : at + draw(st.integers(0, 2))] = [draw(st.sampled_from(LINES))]
    return "\n".join(lines).encode()


def values_changed(text):
    def dumped(value):
        return yaml.safe_dump(value, allow_unicode=True, sort_keys=False).encode(errors="surrogatepass")

    return altered(yaml.safe_load(text)).map(dumped)


texts = st.sampled_from(list(CONFIGS.values())).flatmap(
    lambda text: values_changed(text) | lines_changed(text) | damaged(text.encode())
)
overrides = st.lists(st.builds("{}={}".format, st.sampled_from(KEYS), st.sampled_from(VALUES)), max_size=2)


@fuzzed(
    55,
    text=often(texts, st.text(max_size=40).map(lambda text: text.encode(errors="replace"))),
    pairs=overrides,
    smoke=st.booleans(),
)
def test_configs(text, pairs, smoke):
    with sandbox({"c.yaml": text}) as folder:
        changes = outcome(parse_overrides, pairs)
        values = outcome(runner.resolve, folder / "c.yaml", changes or {}, smoke=smoke)
        if values is not None:
            outcome(runner.plan_parts, values, "c.yaml")

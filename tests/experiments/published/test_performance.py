import json
from pathlib import Path

from clip_geometry.display.words import render

ROOT = Path(__file__).parents[3]
RESULTS = sorted((ROOT / "benchmarks/results").glob("*.json"))
TEMPLATE = ROOT / "benchmarks/performance.md.j2"
GPU = json.loads((ROOT / "benchmarks/results/gpu/embed.json").read_text(encoding="utf-8"))


def test_the_page_in_docs_is_what_the_benchmarks_wrote():
    """After a benchmark: python scripts/build_docs.py."""
    outputs = {path.stem: json.loads(path.read_text()) for path in RESULTS}
    assert (ROOT / "docs/performance.md").read_text(encoding="utf-8") == render(TEMPLATE, outputs=outputs, gpu=GPU)


def test_every_benchmark_has_a_result():
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {"contest"}
    files -= {"live"}  # waits for a quiet machine with 7 GB to spare; until then its figures are in the template
    assert files == {path.stem for path in RESULTS}

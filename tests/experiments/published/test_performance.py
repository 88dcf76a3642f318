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


def test_a_line_has_both_sides_and_says_when_a_claim_is_not_held():
    row = {
        "contest": "sum",
        "size": {"n": 5},
        "peer": "numpy",
        "seconds": {"ours": 2.0, "peer": 3.0},
        "ratio": 1.5,
        "megabytes": {"ours": 10.0, "peer": 70.0},
        "difference": 2e-8,
        "claims": {"faster": 2, "memory": None},
        "held": False,
        "notes": ["all of it in one pass"],
    }
    machine = {"cpu": "abacus", "cores": 1, "date": "2026-01-02", "python": "3.11", "versions": {"numpy": "2.0"}}
    page = render(TEMPLATE, outputs={"sums": {"machine": machine, "rows": [row]}}, gpu=GPU)
    assert "| sum | n = 5 | 2 s | 3 s | 1.5 × | 10 MB | 70 MB | 2e-08 | ≥ 2 ×: **not held** |" in page
    assert "\n\n- sum: all of it in one pass\n" in page
    assert "2026-01-02, 1-core abacus, Python 3.11, numpy 2.0" in page

"""A report of three modalities: a matrix of every couple."""

import re

import numpy as np

from clip_geometry.config import parse_overrides
from clip_geometry.measuring.table import couples, matrices
from clip_geometry.results import read_rows
from clip_geometry_experiments.run.runner import run


def test_the_report_has_a_matrix_of_every_couple(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "sets.npz", **{name: rng.normal(size=(60, 6)) for name in ("audio", "en", "text_de")})
    (tmp_path / "c.yaml").write_text(
        f"name: three\nexperiment: geometry\npairs: {{embeddings: {tmp_path / 'sets.npz'}}}\nblocks: 5\n"
        "figures: []\nmeasures: [average_cosine, modality_gap, matching_cosine]\n"
    )
    report = run(tmp_path / "c.yaml", parse_overrides([]), runs=tmp_path / "runs")
    page = report.read_text()
    assert len(re.findall(r'<code>modality_gap</code></th>\s*<th class="num">', page)) == 1
    assert "Across modalities" in page and "above the diagonal: the value of the couple" in page
    assert "audio+en" not in page.partition("How to reproduce")[0]
    rows = couples(read_rows(report.parent / "results.jsonl"))
    assert {row["at"]["modality"] for row in rows} == {"audio+en", "audio+text_de", "en+text_de"}
    cells = [text for table in matrices(rows) for _, *texts in table.rows for text in texts if text]
    assert len(cells) == 12 and all(f">{text}<" in page for text in cells)

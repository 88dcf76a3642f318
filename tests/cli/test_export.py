"""`export`: what a user types, and what is said."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from clip_geometry.io.sources import formats


@pytest.mark.parametrize("to", [name for name, each in formats().items() if each.write])
def test_each_format(cli, sets, to):
    out = "out"
    outcome = cli("export", sets[0].parent, "-o", out, "--to", to, "--normalize")
    assert outcome.status == 0, outcome.err
    assert outcome.out.endswith(f"\n{to}: {out}\n") and "float" in outcome.out
    again = cli("export", sets[0].parent, "-o", out, "--to", to)
    assert again.status == 2 and ("is not empty" in again.err or "exists" in again.err)
    assert again.err.count("\n") == 1 and not list(Path().glob(".*.tmp"))


def test_unit_rows_in_one_file(cli, sets):
    outcome = cli("export", sets[0], "-o", "a.parquet", "--to", "parquet", "--normalize")
    assert outcome.status == 0, outcome.err
    table = pq.read_table("a.parquet").to_pandas()
    assert np.linalg.norm(np.stack(table["embedding"]), axis=1) == pytest.approx(1, abs=1e-6)


def test_mistakes_are_one_sentence(cli, sets):
    outcome = cli("export", sets[0].parent, "-o", "out", "--to", "fais")
    assert outcome.status == 2 and outcome.err.count("\n") == 1
    assert "unknown format 'fais'; did you mean 'faiss'" in outcome.err and not Path("out").exists()

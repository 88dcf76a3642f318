"""`export`: what a user types, and what is said."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from clip_geometry.formats.writers import writers


@pytest.mark.parametrize("to", writers)
def test_each_format(cli, sets, to):
    out = "out.parquet" if to == "embedding-atlas" else "out"
    outcome = cli("export", sets[0].parent, "-o", out, "--to", to, "--normalize")
    assert outcome.status == 0, outcome.err
    assert outcome.out.endswith(f"\n{to}: {out}\n") and "float" in outcome.out
    again = cli("export", sets[0].parent, "-o", out, "--to", to)
    assert again.status == 2 and ("is not empty" in again.err or "exists" in again.err)
    assert again.err.count("\n") == 1 and not list(Path().glob(".*.tmp"))


def test_options_and_unit_rows(cli, sets):
    outcome = cli(
        "export", sets[0], "-o", "a.parquet", "--to", "embedding-atlas", "--normalize", "projection=pca", "neighbors=3"
    )
    assert outcome.status == 0, outcome.err
    assert "a.parquet --x projection_x --y projection_y --neighbors neighbors" in outcome.out
    table = pq.read_table("a.parquet").to_pandas()
    assert np.linalg.norm(np.stack(table["embedding"]), axis=1) == pytest.approx(1, abs=1e-6)
    assert {len(each["ids"]) for each in table["neighbors"]} == {3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "fais"), "unknown format 'fais'; did you mean 'faiss'"),
        (("--to", "faiss", "neighbors=3"), "export to faiss: unknown key 'neighbors'"),
        (("--to", "faiss", "normalize=true"), "normalize=… is no option of a format; give --normalize instead"),
        (("--to", "embedding-atlas"), "out is no .parquet file"),
    ],
)
def test_mistakes_are_one_sentence(cli, sets, arguments, message):
    outcome = cli("export", sets[0].parent, "-o", "out", *arguments)
    assert outcome.status == 2 and message in outcome.err and outcome.err.count("\n") == 1
    assert not Path("out").exists()

"""`export`: what a user types, and what is said."""

from pathlib import Path

import numpy as np
import pytest

from clip_geometry.io.sources import formats, read


@pytest.mark.parametrize("to", [name for name, each in formats().items() if "write" in each])
def test_each_format(cli, sets, to):
    outcome = cli("export", sets[0].parent, "-o", "out", "--to", to, "--normalize")
    assert outcome.status == 0, outcome.err
    assert outcome.out.endswith(f"\n{to}: out\n") and "float" in outcome.out
    for side in read("out").values():
        assert np.linalg.norm(np.asarray(side.vectors), axis=1) == pytest.approx(1, abs=1e-6)
    again = cli("export", sets[0].parent, "-o", "out", "--to", to)
    assert again.status == 2 and ("is not empty" in again.err or "exists" in again.err)
    assert again.err.count("\n") == 1 and not list(Path().glob(".*.tmp"))

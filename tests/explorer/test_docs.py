"""The commands and the code of docs/howto/explore.md run as they stand."""

import re
import shlex
from pathlib import Path

import pytest

from clip_geometry.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "explore.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("clip-geometry") and "photos/" not in line]
    assert [command.split()[1] for command in commands] == ["embed", "explore", "export"]
    for command in commands:
        monkeypatch.setattr("sys.argv", shlex.split(command))
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code, command
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, {})
    assert {"explore.html", "two_repairs.html", "scenes.parquet"} <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "explore.html").stat().st_size < 8e6

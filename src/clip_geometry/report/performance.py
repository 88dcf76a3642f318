"""docs/performance.md from the results of the benchmarks: ours, the peer, the ratio, and on which machine."""

from collections.abc import Mapping
from pathlib import Path

from clip_geometry.report.words import render


def performance_page(outputs: Mapping[str, dict]) -> str:
    """The page.

    Args:
        outputs: Name of a benchmark → what its --json wrote.
    """
    notes = {
        name: [f"{row['contest']}: {note}" for row in output["rows"] for note in row.get("notes", [])]
        for name, output in outputs.items()
    }
    return render(Path(__file__).with_name("performance.md.j2"), outputs=outputs, notes=notes)

"""`clip-geometry explore`: embeddings as an HTML file to look into."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clip_geometry.cli.diagnose_files import labels_of
from clip_geometry.cli.early import parts
from clip_geometry.cli.tables import console, say
from clip_geometry.explorer import explore
from clip_geometry.files import claimed, write_atomically
from clip_geometry.progress import progress


def explore_files(
    paths: Sequence[Path], out: Path, *, labels: Sequence[str], repairs: str | None, command: str, **options: Any
) -> None:
    """Writes the page and prints what was sampled or left out; `options` are those of `cg.explore`."""
    names = None if repairs is None else [part.strip() for part in parts(repairs)]
    with claimed(out) as target:
        found = explore(*paths, labels=labels_of(labels), repairs=names, progress=progress, **options)
        write_atomically(target, found.to_html(command).encode())
        size = target.stat().st_size / 1e6
    where = console()
    for note in found.notes:
        say(where, f"· {note}", indent="  ")
    say(where, f"explorer: {out} ({size:.1f} MB; opens in a browser, without a network)")

"""`clip-geometry export`: embeddings in the format of another program."""

from collections.abc import Sequence
from pathlib import Path

from clip_geometry.config import parse_overrides
from clip_geometry.formats.writers import export
from clip_geometry.registry import InputError, printable


def export_embeddings(source: Path, out: Path, to: str, options: Sequence[str], *, normalize: bool) -> None:
    """Writes the embeddings of `source` for the program `to` and prints which files these are."""
    asked = parse_overrides(options)
    if own := {"to", "normalize", "out", "source"} & asked.keys():
        raise InputError(f"{min(own)}=… is no option of a format; give --{min(own)} instead")
    for name, says in export(source, out, to=to, normalize=normalize, **asked).items():
        print(printable(f"{name}: {says}"))
    print(printable(f"{to}: {out}"))

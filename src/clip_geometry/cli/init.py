"""`clip-geometry init`: a commented config to start from."""

import shlex
from pathlib import Path

from clip_geometry.files import claimed, write_atomically
from clip_geometry.registry import InputError, did_you_mean, listed, printable, shown

TEMPLATES = {path.stem: path for path in sorted((Path(__file__).parent / "templates").glob("*.yaml"))}


def write_template(what: str, out: Path | None) -> None:
    """Writes one of the TEMPLATES to a new file, `what`.yaml unless `out` is given, and prints how to run it.

    Raises:
        InputError: There is no such template, or the file exists.
    """
    if what not in TEMPLATES:
        near = did_you_mean(what, TEMPLATES) or f"; known are {listed(TEMPLATES)}"
        raise InputError(f"there is no config to start from for {shown(what)}{near}")
    target = out or Path(f"{what}.yaml")
    command = f"clip-geometry run {shlex.quote(str(target))}"
    text = TEMPLATES[what].read_text(encoding="utf-8").replace(f"clip-geometry run {what}.yaml", command)
    with claimed(target) as mine:
        write_atomically(mine, text.encode())
    print(printable(f"config: {target}"))
    print(printable(f"next: {command}"))

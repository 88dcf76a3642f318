"""The page of file formats, from their registry."""

from pathlib import Path

from clip_geometry.display.words import render
from clip_geometry.io.sources import formats


def page() -> str:
    return render(Path(__file__).with_name("formats.md.j2"), formats=formats())

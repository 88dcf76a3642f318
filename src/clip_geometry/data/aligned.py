"""Line-aligned text files, one per language: line k of each is about the same thing."""

import re
from collections.abc import Mapping
from glob import escape
from pathlib import Path

from clip_geometry.data.files import read_lines
from clip_geometry.data.tables import Table
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError

PLACE = "{language}"
LANGUAGE = re.compile("[a-z]{2}(?:[-_][A-Za-z]{2,4})?")  # en, zh-CN; not the txt of train.txt
CAPTION_NUMBER = re.compile(r"(?<=\w)#\d+$")  # lists of captions have 1000092795.jpg#2


def language_files(template: Path) -> dict[str, Path]:
    """The files that a path with {language} in it stands for, by language; a file goes before its own .gz."""
    before, _, after = str(template.absolute()).partition(PLACE)
    found: dict[str, Path] = {}
    for ending in (after, f"{after}.gz"):
        pattern = f"{escape(before)}*{escape(ending)}"
        for file in Path("/").glob(pattern.lstrip("/")):
            language = str(file)[len(before) : len(str(file)) - len(ending)]
            if LANGUAGE.fullmatch(language):
                found.setdefault(language, file)
    return dict(sorted(found.items()))


def read_aligned(path: Path, files: Mapping[str, Path], image_names: Path | None = None) -> Table:
    """A column for each language and, where there is a file of them, `image`; errors name the table `path`.

    The number of a caption behind an image name, as in x.jpg#2, is left out. Raises InputError where the files do not
    have the same number of lines.
    """
    sources = {**files, **({} if image_names is None else {"image": image_names})}
    columns = {name: read_lines(existing_file(file, "a text file")) for name, file in sources.items()}
    first = next(iter(sources))
    for name, lines in columns.items():
        if len(lines) != len(columns[first]):
            raise InputError(
                f"{sources[name]} has {len(lines)} lines and {sources[first]} {len(columns[first])}; "
                "line k of each must be about the same image"
            )
    if image_names is not None:
        columns["image"] = [CAPTION_NUMBER.sub("", name) for name in columns["image"]]
    return Table(path, tuple(columns), columns.__getitem__, files=tuple(sources.values()), languages=tuple(files))

"""Shards of webdataset: tar files of images, captions and labels, read in place by offset.

An index of the members is made when the set is loaded. Nothing is unpacked; images and captions stay on the disk.
"""

import io
import itertools
import math
import os
import re
import tarfile
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from clip_geometry.data.base import Dataset, DatasetEntry, FilesConfig, Side, datasets, is_unicode, revision
from clip_geometry.data.images import IMAGE_SUFFIXES, load_image
from clip_geometry.data.prompts import class_prompts
from clip_geometry.data.tables import read_lines
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.reading import damaged, parse_json
from clip_geometry.registry import InputError, listed, shown

WHAT = "a shard of webdataset (.tar)"
PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
# as in webdataset: a key ends at the first dot of the file name; members such as __meta__ are no samples
MEMBER = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
META = re.compile(r"__[^/]*__($|/)|__[^/]*__$")
MOST_SHARDS, MOST_TEXT, MOST_IMAGE = 10**6, 2**24, 2**28  # bytes of a member


class WebdatasetConfig(FilesConfig):
    """Shards of webdataset: KEY.jpg (.png, .webp, …) with KEY.txt or KEY.json for captions, and KEY.cls for labels.

    Attributes:
        path: A .tar, a folder of them, or numbered ones: "shards/{000000..000003}.tar".
        caption_key: Key of the captions in KEY.json, a text or a list of texts. Default: the lines of KEY.txt, and
            "caption" of KEY.json for items without it.
        prompt: Its class names are the lines of classnames.txt beside the shards or in the folder above.
    """

    name: str = "webdataset"
    caption_key: str | None = None


# --- files


def is_shard(path: Path) -> bool:
    return path.name.lower().endswith((".tar", *PACKED)) and not path.name.startswith(".") and path.is_file()


def shards_of(path: Path) -> list[Path]:
    """The shards that a path stands for, in the order in which they are read."""
    if RANGE.search(str(path)):
        parts = RANGE.split(str(path))  # text, first, last, text, …, text
        bounds = list(zip(parts[1::3], parts[2::3], strict=True))
        count = math.prod(abs(int(last) - int(first)) + 1 for first, last in bounds)
        if count > MOST_SHARDS:
            raise InputError(f"{shown(path)} stands for {count} shards; at most {MOST_SHARDS} were expected")
        every = itertools.product(*(_numbers(first, last) for first, last in bounds))
        paths = [Path("".join(itertools.chain(*zip(parts[::3], (*each, ""), strict=True)))) for each in every]
    elif path.is_dir():
        paths = sorted(filter(is_shard, path.iterdir()))
        if not paths:
            raise InputError(f"{shown(path)} holds no .tar; a folder of webdataset's shards was expected")
    else:
        paths = [path]
    for each in paths:
        existing_file(each, WHAT)
        if each.name.lower().endswith(PACKED):
            raise InputError(f"{shown(each)} is compressed; unpack it to a .tar, so that single images can be read")
        if not is_unicode(str(each)):
            raise InputError(f"the name of {shown(each)} is not UTF-8; rename it")
    return paths


def _numbers(first: str, last: str) -> Iterator[str]:
    """As a shell does: a leading zero makes all numbers as wide as the wider one."""
    padded = any(each[0] == "0" and len(each) > 1 for each in (first, last))
    width = max(len(first), len(last)) if padded else 0
    step = 1 if int(first) <= int(last) else -1
    return (f"{number:0{width}}" for number in range(int(first), int(last) + step, step))


def samples(path: Path) -> Iterator[tuple[str, dict[str, tarfile.TarInfo]]]:
    """The key of each sample of a shard, and its members by extension: those with one key that follow each other."""
    seen, current, members = set(), None, {}
    for member in _members(path):
        match = MEMBER.fullmatch(member.name)
        if match is None or META.match(member.name):
            continue
        key, extension = match[1], match[2].lower()
        if not is_unicode(key):
            raise InputError(f"{shown(path)} has a member whose name {shown(member.name)} is not UTF-8; rename it")
        if key != current:
            if members:
                yield str(current), members
            if key in seen:
                raise InputError(f"{shown(path)} has two samples {shown(key)}; each key was expected once")
            seen.add(key)
            current, members = key, {}
        if extension in members:
            raise InputError(f"{shown(path)} has two members {shown(member.name)}; each was expected once")
        members[extension] = member
    if members:
        yield str(current), members


def _members(path: Path) -> Iterator[tarfile.TarInfo]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            before = -1
            while (member := tar.next()) is not None:
                tar.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  # it would keep them all
                if member.issparse() or not 0 <= member.size <= size - member.offset_data or tar.offset <= before:
                    raise damaged(path, ".tar", f"{member.name} is not whole")
                before = tar.offset  # a size below zero would lead back
                if member.isreg():
                    yield member
            file.seek(tar.offset)
            if file.read(512) != bytes(512):  # tarfile takes a damaged header for the end
                raise damaged(path, ".tar", f"it has neither a member nor an end at byte {tar.offset}")
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise error if isinstance(error, InputError) else damaged(path, ".tar", error) from None


# --- the index


@dataclass(frozen=True)
class Members:
    """Members of shards by number.

    table: (n, 4) the number of the shard, first byte, size; and of a caption its place in the member, k, or −1 − k in
    JSON.
    """

    shards: Sequence[Path]
    table: np.ndarray
    caption_key: str | None = None

    def _read(self, k: int, most: int) -> tuple[bytes, int]:
        shard, start, size, part = map(int, self.table[k])
        with self.shards[shard].open("rb") as file:
            return _content(file, self.shards[shard], start, size, most), part

    def image(self, k: int) -> Image.Image:
        return load_image(io.BytesIO(self._read(k, MOST_IMAGE)[0]))

    def caption(self, k: int) -> str:
        try:
            content, part = self._read(k, MOST_TEXT)
        except OSError as error:
            raise InputError(f"a caption in {shown(self.shards[self.table[k, 0]])} cannot be read: {error}") from None
        if part < 0:
            return captions_in_json(content, "the caption", self.caption_key)[-1 - part]
        return captions_in_text(content, "the caption")[part]


def _content(file: BinaryIO, path: Path, start: int, size: int, most: int) -> bytes:
    """Bytes of a shard. OSError if they are too many, or if the shard became shorter."""
    if size > most:
        raise OSError(f"it has {size} bytes, more than {most}")
    file.seek(start)
    content = file.read(size)
    if len(content) < size:
        raise OSError(f"{path.name} ends within it")
    return content


def captions_in_text(content: bytes, source: str) -> list[str]:
    """The lines that are not blank."""
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise InputError(f"{source} is not a text in UTF-8") from None
    return [line.removesuffix("\r") for line in lines if line.strip()]


def captions_in_json(content: bytes, source: str, key: str | None) -> list[str]:
    """The text or the texts under a key; none without it."""
    given = parse_json(content, source, dict[str, Any], ": write it again").get(key or "caption")
    captions = given if isinstance(given, list) else [] if given is None else [given]
    if not all(isinstance(each, str) for each in captions):
        raise InputError(f"{source} has {shown(given)} under {shown(key or 'caption')}; a text or texts were expected")
    return [each for each in captions if each.strip()]


class _Index:
    """Members in the order of the shards, as four numbers each, and the keys of their items."""

    def __init__(self, shards: Sequence[Path], caption_key: str | None):
        self.shards, self.caption_key = shards, caption_key
        self.images, self.captions = array("q"), array("q")
        self.image_keys: list[str] = []
        self.caption_keys: list[str] = []
        self.labels: list[int | None] = []
        self.items, self.silent, self.repeated = 0, 0, False
        seen: set[str] = set()
        for number, path in enumerate(self.shards):
            with path.open("rb") as file:
                for key, members in samples(path):
                    self._add(number, key, members, file)
                    self.repeated |= key in seen
                    seen.add(key)

    def _add(self, shard: int, key: str, members: dict[str, tarfile.TarInfo], file: BinaryIO) -> None:
        def read(extension: str) -> tuple[bytes, str]:
            member = members[extension]
            source = f"{shown(member.name)} in {shown(self.shards[shard])}"
            try:
                return _content(file, self.shards[shard], member.offset_data, member.size, MOST_TEXT), source
            except OSError as error:
                raise InputError(f"{source} cannot be read: {error}") from None

        by_kind: dict[str, list[str]] = {}
        for extension in members:
            by_kind.setdefault(extension.rpartition(".")[2], []).append(extension)
        images = [each for kind, several in by_kind.items() if f".{kind}" in IMAGE_SUFFIXES for each in several]
        texts = [] if self.caption_key else by_kind.get("txt", [])
        found = [(each, k) for each in texts for k in range(len(captions_in_text(*read(each))))]
        for each in () if found else by_kind.get("json", ()):
            found += [(each, -1 - k) for k in range(len(captions_in_json(*read(each), self.caption_key)))]
        if not images and not found:
            return
        if len(images) > 1:
            raise InputError(
                f"{shown(self.shards[shard])} has {len(images)} images of {shown(key)} ({listed(images)}); one was "
                "expected"
            )
        self.items += 1
        self.silent += not found
        for each in images:
            self.images.extend((shard, members[each].offset_data, members[each].size, 0))
            self.image_keys.append(key)
            self.labels.append(_label(*read("cls")) if "cls" in members else None)
        for each, part in found:
            self.captions.extend((shard, members[each].offset_data, members[each].size, part))
            self.caption_keys.append(key)

    def side(self, modality: str) -> tuple[list[str], Members]:
        flat, keys = (self.images, self.image_keys) if modality == "image" else (self.captions, self.caption_keys)
        table = np.array(flat, np.int64).reshape(-1, 4)
        if self.repeated:
            keys = [f"{self.shards[shard].stem}/{key}" for shard, key in zip(table[:, 0], keys, strict=True)]
        return keys, Members(self.shards, table, self.caption_key)


def _label(content: bytes, source: str) -> int:
    try:
        return int(np.int64(int(content)))
    except (ValueError, OverflowError):
        raise InputError(f"{source} is {shown(content, 40)}; the number of a class was expected") from None


def load(config: WebdatasetConfig) -> Dataset:
    """Load items in webdataset's own order, shard by shard; the captions of an item follow each other.

    item_id is the key, after the name of its shard if several shards have the same key. There are labels if every image
    has a .cls.
    """
    shards = shards_of(config.path)
    index = _Index(shards, config.caption_key)
    if not index.items:
        raise InputError(f"{shown(config.path)} holds neither images nor captions (KEY.jpg, KEY.txt, KEY.json)")
    if config.caption_key and not index.caption_keys:
        raise InputError(f"no .json in {shown(config.path)} has captions under {shown(config.caption_key)}")
    if 0 < index.silent < index.items:
        note(f"{index.silent} of {index.items} items of {shown(config.path)} have no caption")
    image = text = class_names = labels = None
    root, files = shards[0].parent, list(shards)
    if index.image_keys:
        if None not in index.labels:
            labels = np.array(index.labels, np.int64)
            places = (folder / "classnames.txt" for folder in (root, root.parent))
            if path := next((each for each in places if each.is_file()), None):
                class_names, files = tuple(read_lines(path)), [*shards, path]
                if not 0 <= labels.min() <= labels.max() < len(class_names):
                    said = f"labels are {labels.min()} to {labels.max()}"
                    raise InputError(f"{shown(path)} names {len(class_names)} classes, and {said}")
        keys, members = index.side("image")
        image = Side("image", keys, members.image, labels=labels)
    if config.prompt is not None:
        if class_names is None:
            raise InputError(f"prompt {config.prompt!r} needs labels (.cls) and their names in classnames.txt")
        text = class_prompts(class_names, config.prompt, config.language)
    elif index.caption_keys:
        keys, members = index.side("text")
        text = Side("text", keys, members.caption, language=config.language)
    return Dataset(config, revision(root, [os.path.relpath(each, root) for each in files]), image, text, class_names)


datasets.add(
    "webdataset", DatasetEntry(WebdatasetConfig, load, "webdataset's tar shards of images with captions or labels")
)

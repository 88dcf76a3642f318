"""Shards of webdataset: tar files of images, captions and labels.

Images are read in place by their offsets when they are asked for; nothing is unpacked.
"""

import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from clip_geometry.data.base import Dataset, DatasetEntry, FilesConfig, Side, datasets, is_unicode, revision
from clip_geometry.data.images import IMAGE_SUFFIXES, load_image
from clip_geometry.data.prompts import class_prompts
from clip_geometry.data.tables import read_lines
from clip_geometry.io.reading import damaged, parse_json, reading_with
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.registry import InputError, listed, shown

WHAT = "a shard of webdataset (.tar)"
PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
RANGE = re.compile(r"\{(\d{1,9})\.\.(\d{1,9})\}")
# as in webdataset: a key ends at the first dot of the file name; members such as __meta__ are no samples
MEMBER = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
META = re.compile(r"__[^/]*__($|/)|__[^/]*__$")
MOST_SHARDS, MOST_TEXT, MOST_IMAGE = 10**5, 2**24, 2**28  # bytes of a member


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


# --- shards and their members, of embeddings too


@dataclass(frozen=True)
class Member:
    """A file in a shard."""

    shard: Path
    name: str
    start: int
    size: int

    @property
    def source(self) -> str:
        return f"{shown(self.name)} in {shown(self.shard)}"

    def read(self, most: int = MOST_TEXT) -> bytes:
        """The content. OSError if it is more than `most` bytes, or if the shard became shorter."""
        if self.size > most:
            raise OSError(f"it has {self.size} bytes, more than {most}")
        with self.shard.open("rb") as file:
            file.seek(self.start)
            content = file.read(self.size)
        if len(content) < self.size:
            raise OSError(f"{self.shard.name} ends within it")
        return content

    def text(self) -> str:
        try:
            return self.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError(f"{self.source} is not a text in UTF-8") from None
        except OSError as error:
            raise InputError(f"{self.source} cannot be read: {error}") from None


def is_shard(path: Path) -> bool:
    return path.name.lower().endswith((".tar", *PACKED)) and not path.name.startswith(".") and path.is_file()


def shards_of(path: Path) -> list[Path]:
    """The shards that a path stands for, in the order in which they are read."""
    if path.is_dir() and not RANGE.search(str(path)):
        paths = sorted(filter(is_shard, path.iterdir()))
        if not paths:
            raise InputError(f"{shown(path)} holds no .tar; a folder of webdataset's shards was expected")
    else:
        paths = [Path(each) for each in islice(_numbered(str(path)), MOST_SHARDS + 1)]
        if len(paths) > MOST_SHARDS:
            raise InputError(f"{shown(path)} stands for too many shards; at most {MOST_SHARDS} were expected")
    for each in paths:
        existing_file(each, WHAT)
        if each.name.lower().endswith(PACKED):
            raise InputError(f"{shown(each)} is compressed; unpack it to a .tar, so that single images can be read")
        if not is_unicode(str(each)):
            raise InputError(f"the name of {shown(each)} is not UTF-8; rename it")
    return paths


def _numbered(path: str) -> Iterator[str]:
    """The paths for the ranges {0..3} in one, as a shell's: a leading zero makes all numbers as wide as the wider."""
    if (match := RANGE.search(path)) is None:
        yield path
        return
    first, last = match.groups()
    is_padded = any(each[0] == "0" and len(each) > 1 for each in (first, last))
    width = max(len(first), len(last)) if is_padded else 0
    step = 1 if int(first) <= int(last) else -1
    for number in range(int(first), int(last) + step, step):
        yield from _numbered(f"{path[: match.start()]}{number:0{width}}{path[match.end() :]}")


def samples(path: Path) -> Iterator[tuple[str, dict[str, Member]]]:
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
        members[extension] = Member(path, member.name, member.offset_data, member.size)
    if members:
        yield str(current), members


def _members(path: Path) -> Iterator[tarfile.TarInfo]:
    with reading_with(path, ".tar"), path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
        size, before = path.stat().st_size, -1
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


def distinct_ids(keys: Sequence[tuple[Path, str]]) -> list[str]:
    """Keys of samples, after the name of their shard if several shards have the same key."""
    distinct = len({key for _, key in keys}) == len(keys)
    return [key if distinct else f"{shard.stem}/{key}" for shard, key in keys]


# --- images, captions and labels


def load(config: WebdatasetConfig) -> Dataset:
    """Load items in webdataset's own order, shard by shard; the captions of an item follow each other.

    item_id is the key, after the name of its shard if several shards have the same key. There are labels if every image
    has a .cls.
    """
    shards = shards_of(config.path)
    keys, labels, silent = [], [], 0  # of items: shard and key
    images, pictured = [], []  # the shard's number, first byte and size of each image, and its item
    captions, captioned = [], []  # each caption, and its item
    for number, path in enumerate(shards):
        for key, members in samples(path):
            found = [each for each in members if f".{each.rpartition('.')[2]}" in IMAGE_SUFFIXES]
            texts = _captions(members, config.caption_key)
            if len(found) > 1:
                given = f"{shown(path)} has {len(found)} images of {shown(key)} ({listed(found)})"
                raise InputError(f"{given}; one was expected")
            for each in found:
                images.append((number, members[each].start, members[each].size))
                pictured.append(len(keys))
                labels.append(_label(members["cls"]) if "cls" in members else None)
            captions += texts
            captioned += [len(keys)] * len(texts)
            if found or texts:
                keys.append((path, key))
                silent += not texts
    if not keys:
        raise InputError(f"{shown(config.path)} holds neither images nor captions (KEY.jpg, KEY.txt, KEY.json)")
    if config.caption_key and not captions:
        raise InputError(f"no .json in {shown(config.path)} has captions under {shown(config.caption_key)}")
    if 0 < silent < len(keys):
        note(f"{silent} of {len(keys)} items of {shown(config.path)} have no caption")
    ids = distinct_ids(keys)
    image = text = class_names = codes = None
    root, files = shards[0].parent, list(shards)
    if images:
        if None not in labels:
            codes = np.array(labels, np.int64)
            places = (folder / "classnames.txt" for folder in (root, root.parent))
            if path := next((each for each in places if each.is_file()), None):
                class_names, files = tuple(read_lines(path)), [*shards, path]
                if not 0 <= codes.min() <= codes.max() < len(class_names):
                    said = f"labels are {codes.min()} to {codes.max()}"
                    raise InputError(f"{shown(path)} names {len(class_names)} classes, and {said}")
        loaded = partial(_image, shards, np.array(images, np.int64))
        image = Side("image", [ids[k] for k in pictured], loaded, labels=codes)
    if config.prompt is not None:
        if class_names is None:
            raise InputError(f"prompt {config.prompt!r} needs labels (.cls) and their names in classnames.txt")
        text = class_prompts(class_names, config.prompt, config.language)
    elif captions:
        text = Side("text", [ids[k] for k in captioned], captions.__getitem__, language=config.language)
    return Dataset(config, revision(root, [os.path.relpath(each, root) for each in files]), image, text, class_names)


def _image(shards: Sequence[Path], places: np.ndarray, k: int) -> Image.Image:
    shard, start, size = map(int, places[k])
    return load_image(io.BytesIO(Member(shards[shard], "", start, size).read(MOST_IMAGE)))


def _captions(members: dict[str, Member], key: str | None) -> list[str]:
    """The lines of the texts that are not blank; without any, or with a key, the captions of the JSON."""
    kinds = {each: each.rpartition(".")[2] for each in members}
    texts = [members[each].text() for each in members if kinds[each] == "txt" and key is None]
    lines = [line.removesuffix("\r") for text in texts for line in text.split("\n") if line.strip()]
    for each in () if lines else (members[each] for each in members if kinds[each] == "json"):
        given = parse_json(each.text(), each.source, dict[str, Any], ": write it again").get(key or "caption")
        captions = given if isinstance(given, list) else [] if given is None else [given]
        if not all(isinstance(caption, str) for caption in captions):
            raise InputError(
                f"{each.source} has {shown(given)} under {shown(key or 'caption')}; a text or texts were expected"
            )
        lines += [caption for caption in captions if caption.strip()]
    return lines


def _label(member: Member) -> int:
    text = member.text()
    try:
        return int(np.int64(int(text)))
    except (ValueError, OverflowError):
        raise InputError(f"{member.source} is {shown(text, 40)}; the number of a class was expected") from None


datasets.add("webdataset", DatasetEntry(WebdatasetConfig, load))

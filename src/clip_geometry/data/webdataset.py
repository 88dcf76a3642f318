"""Reader for webdataset shards: tar files of images with captions.

Images are read on demand, in place, by their offsets in the tar file; nothing is unpacked.
"""

import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from PIL import Image

from clip_geometry.data import base
from clip_geometry.data.images import IMAGE_SUFFIXES, load_image
from clip_geometry.io.reading import checked, damaged, parse_json, reading_with
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.registry import InputError, listed, shown

WHAT = "a shard of webdataset (.tar)"
SHARD = re.compile(r"\.(tar(\.(gz|bz2|xz|zst))?|tgz|tbz2|txz)$", re.IGNORECASE)
# as in webdataset: a key ends at the first dot of the file name, and members such as __meta__ are not samples
MEMBER = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
META = re.compile(r"__[^/]*__($|/)|__[^/]*__$")
MAX_TEXT = 2**24  # bytes of a member with text or numbers
MAX_IMAGE = 2**28  # bytes of a member with an image


class WebdatasetConfig(base.FilesConfig, base.WithoutClasses):
    """Options of webdataset shards: KEY.jpg (.png, .webp, …) with captions in KEY.txt or KEY.json.

    Attributes:
        path: A .tar file, or a folder of them.
        caption_key: Key of the captions in KEY.json, which are a text or a list of texts. Default: the captions are
            the lines of KEY.txt, or "caption" of KEY.json for items without KEY.txt.
    """

    name: str = "webdataset"
    caption_key: str | None = None


# --- shards and their members, also used for embeddings


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

    def read(self, limit: int = MAX_TEXT) -> bytes:
        """Return the content. Raises OSError if it has more than `limit` bytes or if the shard became shorter."""
        if self.size > limit:
            raise OSError(f"it has {self.size} bytes, more than {limit}")
        with self.shard.open("rb") as file:
            file.seek(self.start)
            content = file.read(self.size)
        if len(content) < self.size:
            raise OSError(f"{self.shard.name} ends within it")
        return content

    def text(self) -> str:
        with reading_with(self.source, "text"):
            return self.read().decode("utf-8-sig")


def is_shard(path: Path) -> bool:
    return SHARD.search(path.name) is not None and not path.name.startswith(".") and path.is_file()


def shards_of(path: Path) -> list[Path]:
    """Return the shards at a path, in the order in which they are read."""
    paths = sorted(filter(is_shard, path.iterdir())) if path.is_dir() else [existing_file(path, WHAT)]
    if not paths:
        raise InputError(f"{shown(path)} has no .tar file; a folder of webdataset shards was expected")
    for shard in paths:
        existing_file(shard, WHAT)
        if shard.suffix.lower() != ".tar":
            raise InputError(f"{shown(shard)} is compressed; unpack it to a .tar, so that single images can be read")
        if not base.is_unicode(str(shard)):
            raise InputError(f"the name of {shown(shard)} is not UTF-8; rename it")
    return paths


def samples(path: Path) -> Iterator[tuple[str, dict[str, Member]]]:
    """Yield (key, members by extension) for each sample of a shard; a sample is consecutive members with one key."""
    seen = set()
    matches = ((member, MEMBER.fullmatch(member.name)) for member in _members(path) if not META.match(member.name))
    named = ((match[1], match[2].lower(), member) for member, match in matches if match is not None)
    for key, group in groupby(named, key=itemgetter(0)):
        if not base.is_unicode(key):
            raise InputError(f"{shown(path)} has a member whose key {shown(key)} is not UTF-8; rename it")
        if key in seen:
            raise InputError(f"{shown(path)} has two samples {shown(key)}; each key was expected once")
        seen.add(key)
        members: dict[str, Member] = {}
        for _, extension, member in group:
            if extension in members:
                raise InputError(f"{shown(path)} has two members {shown(member.name)}; each was expected once")
            members[extension] = Member(path, member.name, member.offset_data, member.size)
        yield key, members


def _members(path: Path) -> Iterator[tarfile.TarInfo]:
    """Yield the regular files of a .tar file; raise InputError if it is damaged or cut off."""
    with reading_with(path, ".tar"), path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
        size = path.stat().st_size
        last_offset = -1
        while (member := tar.next()) is not None:
            tar.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  # tarfile would keep all of them
            if member.issparse() or not 0 <= member.size <= size - member.offset_data or tar.offset <= last_offset:
                raise damaged(path, ".tar", f"{member.name} is not complete")
            last_offset = tar.offset  # a negative size would move the offset back
            if member.isreg():
                yield member
        file.seek(tar.offset)
        if file.read(512) != bytes(512):  # tarfile mistakes a damaged header for the end
            raise damaged(path, ".tar", f"it has neither a member nor an end mark at byte {tar.offset}")


def distinct_ids(keys: Sequence[tuple[Path, str]]) -> list[str]:
    """Return the keys of samples, prefixed by the names of their shards if several shards have the same key."""
    is_distinct = len({key for _, key in keys}) == len(keys)
    return [key if is_distinct else f"{shard.stem}/{key}" for shard, key in keys]


# --- images and captions


def load(config: WebdatasetConfig) -> base.Dataset:
    """Load items in webdataset's order, shard by shard; the captions of an item are consecutive.

    item_id is the key, prefixed by the name of its shard if several shards have the same key.
    """
    shards = shards_of(config.path)
    keys: list[tuple[Path, str]] = []  # shard and key of each item
    images: list[Member | None] = []  # image of each item
    captions: list[list[str]] = []  # captions of each item
    for path in shards:
        for key, members in samples(path):
            names = [name for name in members if f".{name.rpartition('.')[2]}" in IMAGE_SUFFIXES]
            if len(names) > 1:
                raise InputError(
                    f"{shown(path)} has {len(names)} images of {shown(key)} ({listed(names)}); one was expected"
                )
            texts = _captions(members, config.caption_key)
            if names or texts:
                keys.append((path, key))
                images.append(members[names[0]] if names else None)
                captions.append(texts)
    if not keys:
        raise InputError(f"{shown(config.path)} holds neither images nor captions (KEY.jpg, KEY.txt, KEY.json)")
    if config.caption_key and not any(captions):
        raise InputError(f"no .json in {shown(config.path)} has captions under {shown(config.caption_key)}")
    without_caption = captions.count([])
    if any(captions) and without_caption:
        note(f"{without_caption} of {len(keys)} items of {shown(config.path)} have no caption")
    ids = distinct_ids(keys)
    image_ids = [item for item, member in zip(ids, images, strict=True) if member is not None]
    text_ids = [item for item, texts in zip(ids, captions, strict=True) for _ in texts]
    image = text = None
    if image_ids:
        image = base.Side("image", image_ids, partial(_image, [member for member in images if member is not None]))
    if text_ids:
        texts = [caption for texts in captions for caption in texts]
        text = base.Side("text", text_ids, texts.__getitem__, language=config.language)
    root = shards[0].parent
    revision = base.revision(root, [os.path.relpath(shard, root) for shard in shards])
    return base.Dataset(config, revision, image, text)


def _image(members: Sequence[Member], k: int) -> Image.Image:
    return load_image(io.BytesIO(members[k].read(MAX_IMAGE)))


def _captions(members: dict[str, Member], key: str | None) -> list[str]:
    """Return the non-blank lines of the texts, or, if there are none or a key is given, the captions in the JSON."""
    texts = [member.text() for name, member in members.items() if name.rpartition(".")[2] == "txt" and key is None]
    lines = [line.removesuffix("\r") for text in texts for line in text.split("\n") if line.strip()]
    if lines:
        return lines
    for name, member in members.items():
        if name.rpartition(".")[2] != "json":
            continue
        value = parse_json(member.text(), member.source, dict[str, Any], ": write it again").get(key or "caption")
        if value is None:
            continue
        captions = value if isinstance(value, list) else [value]
        checked(captions, f"{shown(key or 'caption')} of {member.source}", list[str])
        lines += [caption for caption in captions if caption.strip()]
    return lines


base.datasets.add("webdataset", base.DatasetEntry(WebdatasetConfig, load))

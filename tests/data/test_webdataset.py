"""Shards of webdataset: written by its own writers, compared with its own reader; damaged and odd ones."""

import io
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image

from clip_geometry.data import load_dataset, resolve_dataset
from clip_geometry.embedding.loop import embed
from clip_geometry.embedding.store import read_store
from clip_geometry.encoders import resolve_encoder
from clip_geometry.progress import quiet
from clip_geometry.registry import InputError

webdataset = pytest.importorskip("webdataset", exc_type=ImportError)
from webdataset.tariterators import group_by_keys, tar_file_expander  # noqa: E402


def image_bytes(seed, form="PNG", size=(9, 7)):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)).save(buffer, form)
    return buffer.getvalue()


def sample(k, **members):
    return {"__key__": f"{k:05d}", "jpg": image_bytes(k, "JPEG"), "txt": f"caption {k}", **members}


def write(path, samples):
    with webdataset.TarWriter(str(path)) as sink:
        for each in samples:
            sink.write(each)
    return path


def write_tar(path, **members):
    """A tar of these members, "_" in a name for the dot before its extension."""
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("_", ".", 1))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def load(path, **options):
    return load_dataset(str(path), **options)


@pytest.fixture
def shards(tmp_path):
    """Ten items in three shards, as ShardWriter cuts them."""
    folder = tmp_path / "shards"
    folder.mkdir()
    with webdataset.ShardWriter(str(folder / "%06d.tar"), maxcount=4, verbose=0) as sink:
        for k in range(10):
            sink.write(sample(k))
    return folder


def read_by_webdataset(paths):
    """(key, pixels, text) of each sample in webdataset's own order; WebDataset itself leaves files open."""
    found = []
    for path in paths:
        with path.open("rb") as stream:
            files = tar_file_expander([{"url": str(path), "stream": stream}])
            found += [each for each in group_by_keys(files) if "jpg" in each]
    return [(each["__key__"], np.asarray(decode_image(each["jpg"])), each["txt"].decode()) for each in found]


def decode_image(content):
    return Image.open(io.BytesIO(content)).convert("RGB")


def test_order_and_content_are_webdatasets(shards):
    expected = read_by_webdataset(sorted(shards.glob("*.tar")))
    dataset = load(shards)
    assert dataset.config.name == "webdataset" and len(expected) == 10
    assert list(dataset.image.item_id) == list(dataset.text.item_id) == [key for key, _, _ in expected]
    for k, (_, pixels, text) in enumerate(expected):
        assert np.array_equal(dataset.image.load(k), pixels) and dataset.text.load(k) == text
    one = load(shards / "000001.tar")
    assert list(one.image.item_id) == [f"{k:05d}" for k in range(4, 8)] and one.text.load(3) == "caption 7"


def test_the_members_of_any_layout_are_grouped_as_webdataset_does(tmp_path):
    path = tmp_path / "odd.tar"
    members = {
        "__index__.json": b"{}",
        "a/x.jpg": image_bytes(1, "JPEG"),
        "a/x.txt": b"first",
        "__skip__/y.jpg": b"",
        "./b.c/x.JPG": image_bytes(2, "JPEG"),
        "./b.c/x.txt": b"zweite",
        ".hidden.jpg": b"",
        "noextension": b"",
        f"{'long' * 50}.jpg": image_bytes(3, "JPEG"),
        f"{'long' * 50}.txt": "drїtte — ".encode(),
    }
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        folder = tarfile.TarInfo("folder.jpg")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    expected = read_by_webdataset([path])
    dataset = load(path)
    assert list(dataset.image.item_id) == [key for key, _, _ in expected] and len(expected) == 3
    for k, (_, pixels, text) in enumerate(expected):
        assert np.array_equal(dataset.image.load(k), pixels) and dataset.text.load(k) == text


def test_captions_are_the_lines_of_the_text_or_those_of_the_json(tmp_path):
    path = write(
        tmp_path / "c.tar",
        [
            {"__key__": "a", "png": image_bytes(0), "txt": "one\ntwo\r\n\n three \n", "json": {"caption": "other"}},
            {"__key__": "b", "webp": image_bytes(1, "WEBP"), "json": {"caption": "four", "caption_de": ["vier", "4"]}},
            {"__key__": "c", "bmp": image_bytes(2, "BMP"), "json": {"caption": ["five", ""]}},
            {"__key__": "d", "0.txt": "six", "1.txt": "seven", "jpeg": image_bytes(3, "JPEG")},
        ],
    )
    dataset = load(path)
    texts = [(item, dataset.text.load(k)) for k, item in enumerate(dataset.text.item_id)]
    assert texts == [
        *(("a", text) for text in ("one", "two", " three ")),
        *(("b", "four"), ("c", "five"), ("d", "six"), ("d", "seven")),
    ]
    assert list(dataset.image.item_id) == ["a", "b", "c", "d"]
    assert {dataset.image.load(k).size for k in range(4)} == {(9, 7)}
    german = load(path, caption_key="caption_de", language="de").text
    assert [german.load(k) for k in range(len(german))] == ["vier", "4"] and german.language == "de"
    assert german.item_id == ["b", "b"]
    with pytest.raises(InputError, match=r"no \.json in .* has captions under 'captoin'"):
        load(path, caption_key="captoin")


def test_items_may_lack_an_image_or_a_caption(tmp_path, capsys):
    path = write(tmp_path / "x.tar", [sample(0), {"__key__": "1", "jpg": b"x"}, {"__key__": "2", "txt": "t"}])
    dataset = load(path)
    assert (list(dataset.image.item_id), list(dataset.text.item_id)) == (["00000", "1"], ["00000", "2"])
    assert "1 of 3 items" in capsys.readouterr().err
    assert load(write(tmp_path / "t.tar", [{"__key__": "2", "txt": "t"}])).image is None
    assert load(write(tmp_path / "i.tar", [{"__key__": "2", "png": b""}])).text is None
    with pytest.raises(InputError, match="holds neither images nor captions"):
        load(write(tmp_path / "n.tar", [{"__key__": "2", "npy": b"x", "txt": " \n"}]))


def test_keys_that_several_shards_have_follow_the_name_of_their_shard(tmp_path):
    for name in ("b", "a"):
        write(tmp_path / f"{name}.tar", [sample(0, txt=f"of {name}"), sample(1)])
    dataset = load(tmp_path)
    assert list(dataset.image.item_id) == ["a/00000", "a/00001", "b/00000", "b/00001"] == list(dataset.text.item_id)
    assert dataset.text.load(2) == "of b"


# --- embedding


def embedded(path, folder, **options):
    model = resolve_encoder("scenes-clip/fresh")
    embed(model, load(path), folder, device="cpu", progress=quiet, batch_size=4, **options)
    return read_store(folder)


def test_embedded_rows_are_those_of_a_folder_of_the_same_images(tmp_path, shards):
    (tmp_path / "photos").mkdir()
    for k in range(10):
        (tmp_path / "photos" / f"{k:05d}.jpg").write_bytes(image_bytes(k, "JPEG"))
    stored = embedded(shards, tmp_path / "store")
    assert np.array_equal(stored["image"].vectors, embedded(tmp_path / "photos", tmp_path / "other")["image"].vectors)
    assert list(stored["text"].metadata["text"]) == [f"caption {k}" for k in range(10)]
    assert len(embedded(shards, tmp_path / "few", limit=3)["text"]) == 3


def test_no_more_than_the_index_is_held(tmp_path):
    """A shard of 300 MB under a limit of 200 MB above what the program itself takes."""
    path = tmp_path / "large.tar"
    with tarfile.open(path, "w") as tar:
        for k in range(100):
            info = tarfile.TarInfo(f"{k}.png")
            info.size = 3 * 2**20
            tar.addfile(info, io.BytesIO(bytes(info.size)))
            info = tarfile.TarInfo(f"{k}.txt")
            info.size = 5
            tar.addfile(info, io.BytesIO(b"hello"))
    code = (
        "import resource, sys; from clip_geometry.data import load_dataset, resolve_dataset\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "data = load_dataset(sys.argv[1]); assert data.text.load(99) == 'hello'\n"
        "print(len(data.image), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    count, megabytes = map(int, out.split())
    assert count == 100 and megabytes < 50


# --- refusals


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def test_damaged_shards_are_one_sentence(shards):
    path = shards / "000000.tar"
    whole = path.read_bytes()
    with tarfile.open(path) as tar:
        members = tar.getmembers()
    last = members[-1]
    ends = {
        0: "is empty",
        100: "cut short",
        members[0].offset_data + 10: "is not complete",
        last.offset: "has neither a member nor an end",
        last.offset_data: "is not complete",
    }
    for size, sentence in ends.items():
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=sentence) as caught:
            load(shards)
        assert "000000.tar" in str(caught.value)
    damaged = bytearray(whole)
    damaged[members[2].offset + 150] ^= 0xFF  # a checksum in the middle, where tarfile itself would stop silently
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="it has neither a member nor an end mark at byte"):
        load(shards)
    path.write_bytes(b"GIF89a" * 1000)
    with pytest.raises(InputError, match=r"is not a readable \.tar file"):
        load(path)


def test_a_shard_that_became_shorter_after_it_was_read(shards):
    dataset = load(shards)
    cut(shards / "000002.tar", 600)
    with pytest.raises(OSError, match=r"000002\.tar ends within it"):
        dataset.image.load(9)
    assert dataset.text.load(9) == "caption 9"


def header(name, size=0, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "content",
    [
        header("a.txt") * 2 + header("b.txt", -512) + bytes(1024),  # back to itself, for ever
        header("a.txt") + header("b.txt", -1024) + bytes(1024),
        header("a.txt", 2**60) + bytes(1024),
        b"".join(header("x", 512, tarfile.GNUTYPE_LONGNAME) + b"y".ljust(512, b"\0") for _ in range(3000))
        + bytes(1024),
        header("a.txt")
        + header("x", 20, tarfile.XHDTYPE)
        + b"19 size=-99999999999".ljust(512, b"\0")
        + header("b.txt"),
        header("a.txt", 10, tarfile.GNUTYPE_SPARSE) + bytes(2048),
    ],
    ids=["back", "further back", "huge", "nested", "negative in pax", "sparse"],
)
def test_hostile_headers_end_in_one_sentence(tmp_path, content):
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.tar (is not a readable \.tar file|has two members)"):
        load(path)


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"a_txt": b"\xff\xfe"}, r"'a\.txt' in .* is not a readable text file: it is damaged"),
        ({"a_json": b"{"}, r"'a\.json' in .* is not readable JSON"),
        ({"a_json": b"[1]"}, r"'a\.json' in .* is \[1\]"),
        ({"a_json": b'{"caption": 7}'}, "of 'caption' of .* is 7: input should be a valid string"),
        ({"a_jpg": b"", "a_png": b""}, r"has 2 images of 'a' \(jpg, png\); one was expected"),
        ({"a_txt": b"x", "b_txt": b"x", "a_jpg": b""}, "has two samples 'a'; each key was expected once"),
        ({"a_txt": b"x", "a.txt": b"y"}, r"has two members 'a\.txt'; each was expected once"),
        ({"a\udcff_jpg": b""}, "is not UTF-8; rename it"),
    ],
)
def test_odd_members_are_one_sentence(tmp_path, members, sentence):
    with pytest.raises(InputError, match=sentence):
        load(write_tar(tmp_path / "x.tar", **members))


def test_links_and_sparse_members(tmp_path):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        link = tarfile.TarInfo("a.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        info = tarfile.TarInfo("a.txt")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"hi"))
    dataset = load(path)
    assert dataset.image is None and dataset.text.load(0) == "hi"


def test_compressed_and_missing_shards_are_refused(tmp_path):
    (tmp_path / "x.tar.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(InputError, match=r"x\.tar\.gz is compressed; unpack it to a \.tar"):
        load(tmp_path / "x.tar.gz")
    with pytest.raises(InputError, match=r"x\.tar\.gz is compressed"):
        load(tmp_path)  # rather than leave it out
    with pytest.raises(InputError, match=r"has no \.tar file"):
        (tmp_path / "empty").mkdir()
        load_dataset("webdataset", path=tmp_path / "empty")


def test_a_folder_of_images_with_an_archive_beside_them_is_a_folder_of_images(tmp_path, write_image):
    write_image(tmp_path / "a.png")
    write(tmp_path / "backup.tar", [sample(0)])
    assert resolve_dataset(str(tmp_path)).name == "folder"
    assert len(load_dataset("webdataset", path=tmp_path).image) == 1

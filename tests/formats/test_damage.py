"""Files of every format that were cut, altered, emptied or lack a piece: one clear sentence, and nothing is run."""

import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.formats import read_any
from clip_geometry.registry import InputError
from fuzz.outcome import require_sentence
from support import format_clients as written
from support.format_clients import ALL, IMAGE, N


def read_whole(path):
    """The rows of every modality; None where they were refused in a sentence. Any other exception fails."""
    try:
        return {name: np.asarray(side.vectors) for name, side in read_any(path).items()}
    except InputError as error:
        require_sentence(str(error))
        return None


def files_of(path):
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


# what no reader needs: transactions and hints of Lance, attributes of zarr
NEEDLESS = (
    "_transactions",
    "latest_version_hint.json",
    "dataset_info.json",
    ".zattrs",
    ".zgroup",
    ".manifest",
)


@pytest.fixture(params=[10**9, 1], ids=["in memory", "streamed"])
def held(request, monkeypatch):
    monkeypatch.setattr("clip_geometry.embeddings.LARGE", request.param)


@pytest.mark.parametrize("name", ALL)
def test_a_file_that_was_cut_short(tmp_path, name, held, capsys):
    """Every file that a reader needs, at several lengths: refused, or what was cut off was not needed. Text that ends
    in the middle of a number gets a note."""
    path = ALL[name](tmp_path)
    whole = read_whole(path)
    for file in files_of(path):
        if any(part in str(file.relative_to(tmp_path)) for part in NEEDLESS):
            continue
        content = file.read_bytes()
        for share in (0, 0.02, 0.3, 0.7, 0.95):
            file.write_bytes(content[: int(len(content) * share)])
            found, said = read_whole(path), capsys.readouterr().err
            if found is not None and "if it was cut short" not in said:
                for modality, rows in whole.items():
                    assert np.array_equal(found[modality], rows), (file, share)
        file.write_bytes(content)
    assert read_whole(path)["image"].shape == IMAGE.shape


@pytest.mark.parametrize("name", [name for name in ALL if name != "lance"])
def test_a_file_that_is_missing(tmp_path, name, held):
    path = ALL[name](tmp_path)
    for file in files_of(path):
        if any(part in str(file.relative_to(tmp_path)) for part in NEEDLESS):
            continue
        away = file.rename(tmp_path / "away")
        found = read_whole(path)
        # a shard, or an array with its description, may be gone without a trace, but never part of one
        assert found is None or all(len(rows) in (N, 25, 35, 50) for rows in found.values())
        away.rename(file)


@pytest.mark.parametrize("piece", ["data", "_versions"])
def test_a_table_without_one_of_its_folders(tmp_path, piece):
    path = written.lance(tmp_path)
    shutil.rmtree(path / piece)
    with pytest.raises(InputError, match="is no readable LanceDB file"):
        read_any(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_bytes_that_were_altered(tmp_path, name):
    """Values or a sentence, whatever byte has changed. In a process of its own, which a library could take with it."""
    path = ALL[name](tmp_path)
    rng = np.random.default_rng(3)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from formats.test_damage import read_whole\n"
        "for line in sys.stdin:\n"
        "    read_whole(Path(sys.argv[2])); print('read', flush=True)\n"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(Path(__file__).parents[1]), str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as p:
        for k in range(24):
            files = files_of(path)
            file = files[rng.integers(len(files))]
            content = file.read_bytes()
            other = bytearray(content)
            start = rng.integers(len(other) if k % 2 else min(len(other), 400))  # headers are at the beginning
            size = int(rng.integers(1, 9))
            other[start : start + size] = (
                b"\xff" * size if k % 3 == 0 else rng.integers(0, 256, size, np.uint8).tobytes()
            )
            file.write_bytes(other)
            p.stdin.write("again\n")
            p.stdin.flush()
            said = p.stdout.readline()
            if said != "read\n":
                p.stdin.close()
                pytest.fail(f"{file.name}, {size} bytes from {start}: {p.stderr.read()[-2000:]}")
            file.write_bytes(content)
        p.stdin.close()
        assert p.wait() == 0


@pytest.mark.parametrize("name", ["x.h5", "x.faiss", "x.index", "x.tar", "x.csv", "x.tsv"])
@pytest.mark.parametrize("content", [b"\0" * 600, b"x", bytes(range(256)) * 4, b"PK\x05\x06" + bytes(18)])
def test_a_file_of_something_else(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_any(tmp_path / name)
    require_sentence(str(caught.value))


class Canary:
    """Whoever unpickles it makes a file."""

    def __reduce__(self):
        return exec, ("open('canary', 'w').close()",)


def test_a_codec_that_unpickles_is_refused(tmp_path, monkeypatch):
    import numcodecs
    import zarr

    monkeypatch.chdir(tmp_path)
    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    group.create_array("image", data=IMAGE)
    (tmp_path / "x.zarr" / "note").mkdir()
    described = json.loads((tmp_path / "x.zarr" / "image" / ".zarray").read_text())
    described |= {"shape": [N], "chunks": [N], "dtype": "|O", "compressor": None, "filters": [{"id": "pickle"}]}
    (tmp_path / "x.zarr" / "note" / ".zarray").write_text(json.dumps(described))
    (tmp_path / "x.zarr" / "note" / "0").write_bytes(bytes(numcodecs.Pickle().encode(np.array([Canary()] * N, object))))
    with pytest.raises(InputError, match=r"'note/.zarray', asks for the codec 'pickle'"):
        read_any(tmp_path / "x.zarr")
    for codecs in (
        [{"name": "numcodecs.pickle", "configuration": {}}],
        [{"name": "sharding_indexed", "configuration": {"codecs": [{"name": "numcodecs.pickle"}]}}],
        "pickle",
        [7],
    ):
        zarr.save_array(tmp_path / "y.zarr", IMAGE)
        description = tmp_path / "y.zarr" / "zarr.json"
        description.write_text(json.dumps(json.loads(description.read_text()) | {"codecs": codecs}))
        with pytest.raises(InputError, match="asks for the codec"):
            read_any(tmp_path / "y.zarr")
        shutil.rmtree(tmp_path / "y.zarr")
    assert not (tmp_path / "canary").exists()


def test_chunks_that_are_missing_are_not_taken_for_zeros(tmp_path):
    import h5py

    path = written.zarr(tmp_path, chunks=(7, 8))
    (path / "image" / "c" / "3" / "0").unlink()
    with pytest.raises(InputError, match=r"array 'image', lacks 1 of 9 chunks, where zarr fills in 0.0"):
        read_any(path)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("image", (N, 8), "f4", chunks=(7, 8))[: N // 2] = IMAGE[: N // 2]
    with pytest.raises(InputError, match="has declared image as 60, 8 values and not written all of them"):
        read_any(tmp_path / "x.h5")


def test_values_in_other_files_are_not_read(tmp_path):
    import h5py

    (tmp_path / "secret").write_bytes(bytes(1000))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("image", (10, 4), "f4", external=[(str(tmp_path / "secret"), 0, 160)])
    with pytest.raises(InputError, match="keeps the values of 'image' in other files, which are not followed"):
        read_any(tmp_path / "x.h5")
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file["image"] = IMAGE
    with h5py.File(tmp_path / "z.h5", "w") as file:
        file["image"] = h5py.ExternalLink("y.h5", "image")
    with pytest.raises(InputError, match="has no rows"):
        read_any(tmp_path / "z.h5")
    with h5py.File(tmp_path / "v.h5", "w") as file:
        layout = h5py.VirtualLayout((N, 8), "f4")
        layout[:] = h5py.VirtualSource("y.h5", "image", (N, 8))
        file.create_virtual_dataset("image", layout)
    with pytest.raises(InputError, match="in other files, which are not followed"):
        read_any(tmp_path / "v.h5")


@pytest.mark.parametrize("name", ["../y.arrow", "/etc/passwd", "", None, 3, ".."])
def test_files_outside_of_a_dataset_are_not_read(tmp_path, name):
    path = written.datasets(tmp_path)
    state = json.loads((path / "state.json").read_text())
    state["_data_files"][0]["filename"] = name
    (path / "state.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match=r"state\.json is no readable datasets file|is a directory"):
        read_any(path)


def tar_of(path, members):
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"0.npy": npy(np.array([Canary()]), allow_pickle=True)}, "holds pickled Python objects"),
        ({"0.npy": npy(IMAGE)}, r"has the shape \[60, 8\]; expected one vector"),
        ({"0.npy": npy(IMAGE[0]), "1.npy": npy(IMAGE[1, :3])}, "is 3 × float32 and those before it 8 × float32"),
        ({"0.npy": npy(IMAGE[0]), "1.npy": npy(IMAGE[1].astype("f8"))}, "is 8 × float64 and those before it"),
        ({"0.npy": npy(np.arange(4))}, "holds int64 values; embeddings are"),
        ({"0.npy": b"x" * 99}, r"is no \.npy file"),
        ({"0.npy": npy(IMAGE[0])[:-1]}, "its header declares 32 bytes, it has 31"),
        ({"0.jpg": b"x", "0.txt": b"y"}, "has no vectors: expected .npy files"),
        ({"0.npy": npy(IMAGE[0]), "0.json": b"{"}, "is no readable JSON"),
        ({"0.npy": npy(IMAGE[0]), "0.txt": b"\xff"}, "is not text in UTF-8"),
        ({"0.npy": npy(IMAGE[0]), "1.npy": npy(IMAGE[0]), "0.NPY": npy(IMAGE[0])}, "two samples '0'; each key"),
        ({"0.npy": npy(IMAGE[0]), "0.image.npy": npy(IMAGE[0])}, "kinds of vector '' is no name of a modality"),
    ],
)  # fmt: skip
def test_tars_of_what_is_no_set_of_vectors(tmp_path, monkeypatch, members, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        read_any(tar_of(tmp_path / "x.tar", members))
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5,1.5\n2.5\n", "Expected 2 columns, got 1"),
        ("0.5,1.5\n2.5,3.5,4.5\n", "Expected 2 columns, got 3"),
        ("0.5,1.5,1.0\n2.5,3.x,4.5\n3.5,4.5,5.5\n", r"has '3\.x' in row 1 of column 'f1', where a number was expected"),
        ("0.5,abc,1.0\n2.5,def,4.5\n", "has 'abc' in row 0 of column 'f1', where a number was expected"),
        ("0.5,1.5,1.0\n2.5,3.5,4.5\nx,4.5,5.5\n", "has 'x' in row 2 of column 'f0', where a number was expected"),
        ("0.5,1.5,1.0\n2.5,,4.5\n", "has no number in 1 of 2 rows of column 'f1'"),
        ("v0,v1\n0.5,1.5\n2.5,3_5\n", "has '3_5' in row 1 of column 'v1', where a number was expected"),
        ("v0,v1\n0.5,1.5\n2.5,3-5\n", "has '3-5' in row 1 of column 'v1', where a number was expected"),
        ("a,b\n", "has no rows"),
        ("a,b\nx,y\n", "has no columns of numbers: its columns are a, b"),
        ("a,a\n1,2\n", "has two columns of one name"),
        ("item_id,v0,v1\n,1,2\nb,3,4\n", "item_id of embeddings is missing or empty in row 0"),
        ("a\0b,c\n1,2\n", "does not begin with a line of text"),
    ],
)  # fmt: skip
def test_text_that_is_no_table_of_numbers(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_any(tmp_path / "x.csv")


def test_text_that_ends_within_a_number_is_said(tmp_path, capsys):
    (tmp_path / "x.csv").write_text("0.5,1.5\n2.5,3.5")
    read_any(tmp_path / "x.csv")
    assert "if it was cut short, its last number is wrong" in capsys.readouterr().err


def test_arrays_of_which_none_are_rows(tmp_path):
    import h5py
    import zarr

    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"], file["b"] = np.arange(6).reshape(2, 3), ["x"]
    with pytest.raises(InputError, match=r"has no rows: none of its arrays \(a int64\[2, 3\], b object\[1\]\)"):
        read_any(tmp_path / "x.h5")
    zarr.save_group(tmp_path / "x.zarr", image=IMAGE, label=np.arange(4))
    with pytest.raises(InputError, match=r"has labels of shape \(4,\) for 60 rows; expected one label per row"):
        read_any(tmp_path / "x.zarr")
    (tmp_path / "y.zarr").mkdir()
    with pytest.raises(InputError, match="has no zarr arrays"):
        read_any(tmp_path / "y.zarr")


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_sizes_are_checked_before_anything_is_allocated(tmp_path, suffix):
    """A description of 10¹⁵ values, of which none are there."""
    import h5py
    import zarr

    if suffix == ".h5":
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("image", (10**12, 1000), "f4", chunks=(10**4, 1000))
    else:
        zarr.create_array(tmp_path / "x.zarr", shape=(10**12, 1000), chunks=(10**9, 1000), dtype="f4")
    with pytest.raises(InputError, match=r"not written all of them|a chunk of .* takes .* in memory"):
        read_any(tmp_path / f"x{suffix}")


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_blosc_chunk_that_was_cut_short_never_reaches_blosc(tmp_path, share):
    """Blosc trusts the length in the header of a chunk and reads memory behind a chunk that is shorter."""
    import zarr

    blosc = zarr.codecs.BloscCodec(cname="lz4")
    group = zarr.create_group(tmp_path / "x.zarr")
    group.create_array("image", data=IMAGE, chunks=(20, 8), compressors=blosc)
    assert read_whole(tmp_path / "x.zarr")["image"].shape == IMAGE.shape
    chunk = tmp_path / "x.zarr" / "image" / "c" / "1" / "0"
    content = chunk.read_bytes()
    chunk.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match="is no readable zarr file"):
        read_any(tmp_path / "x.zarr")


def test_shards_and_blosc_within_blosc_are_refused(tmp_path):
    """zarr 3.1 reads zeros from a shard that was cut short, and Blosc reads behind a chunk that is inside another."""
    import numcodecs
    import zarr

    sharded = zarr.create_group(tmp_path / "x.zarr")
    sharded.create_array("image", data=IMAGE, chunks=(10, 8), shards=(20, 8))
    twice = zarr.create_group(tmp_path / "y.zarr", zarr_format=2)
    twice.create_array("image", data=IMAGE, filters=[numcodecs.Blosc()], compressors=numcodecs.Blosc())
    for name in ("x", "y"):
        with pytest.raises(InputError, match="is sharded or packed twice with Blosc"):
            read_any(tmp_path / f"{name}.zarr")


def test_a_zip_archive_is_no_format(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    with pytest.raises(InputError, match=r"has the unknown extension '\.zip'"):
        read_any(tmp_path / "x.zip")


@pytest.mark.timeout(20)
def test_groups_that_contain_each_other_are_visited_once(tmp_path):
    """Along every path, 12 groups that each contain all 12 would be visited 12^16 times."""
    import h5py

    with h5py.File(tmp_path / "x.h5", "w") as file:
        groups = [file.create_group(f"g{k}") for k in range(12)]
        for group in groups:
            for k, other in enumerate(groups):
                group[f"to{k}"] = other
        groups[0]["image"] = IMAGE
    assert read_whole(tmp_path / "x.h5")["image"].shape == IMAGE.shape

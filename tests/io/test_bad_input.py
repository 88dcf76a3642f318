"""Bad input in every format: one clear sentence each, and nothing is run."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from clip_geometry.embeddings import FileRows
from clip_geometry.io.sources import read
from clip_geometry.registry import InputError
from fuzz.outcome import require_sentence
from support import format_clients as written
from support.format_cases import FORMATS, cloud, write
from support.format_clients import ALL, IMAGE, N


class Canary:
    """Whoever unpickles it makes a file."""

    def __reduce__(self):
        return exec, ("open('canary', 'w').close()",)


# --- what a file may hold: name → content, or a function that writes the path; and what is said of it


def array(values):
    """Write an array as what the suffix says."""

    def save(path):
        if path.suffix == ".npz":
            np.savez(path, values)
        else:
            write(path, values)

    return save


def arrays(**named):
    tensors = {name: torch.from_numpy(np.asarray(each)) for name, each in named.items()}
    savers = {".npz": lambda path: np.savez(path, **named), ".pt": lambda path: torch.save(tensors, path)}
    return lambda path: savers.get(path.suffix, lambda path: save_file(tensors, path))(path)


def table(facts=None, **columns):
    found = pa.table(columns)
    if facts is not None:
        found = found.replace_schema_metadata({b"clip_geometry": facts.encode(errors="surrogatepass")})
    return lambda path: pq.write_table(found, path)


def npy(values, **options):
    file = io.BytesIO()
    np.save(file, values, **options)
    return file.getvalue()


def header(text):
    text = text.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(12)


def tar(**members):
    """A tar of these members, `_` in a name for a dot."""

    def save(path):
        with tarfile.open(path, "w") as file:
            for name, content in members.items():
                entry = tarfile.TarInfo(name.removeprefix("k").replace("_", "."))
                entry.size = len(content)
                file.addfile(entry, io.BytesIO(content))

    return save


def hdf5(write):
    def save(path):
        import h5py

        with h5py.File(path, "w") as file:
            write(file, path)

    return save


def virtual(file, path):
    import h5py

    with h5py.File(path.with_name("y.h5"), "w") as other:
        other["image"] = IMAGE
    layout = h5py.VirtualLayout((N, 8), "f4")
    layout[:] = h5py.VirtualSource("y.h5", "image", (N, 8))
    file.create_virtual_dataset("image", layout)


def linked(file, path):
    import h5py

    file["image"] = h5py.ExternalLink("y.h5", "image")


def external(file, path):
    path.with_name("secret").write_bytes(bytes(1000))
    file.create_dataset("image", (10, 4), "f4", external=[(str(path.with_name("secret")), 0, 160)])


def half_written(file, path):
    file.create_dataset("image", (N, 8), "f4", chunks=(7, 8))[: N // 2] = IMAGE[: N // 2]


def zarr(version=3, change=None, **storage):
    """An array whose description `change` alters."""

    def save(path):
        import zarr

        group = zarr.create_group(path, zarr_format=version)
        group.create_array("image", data=IMAGE, **storage)
        if change:
            description = path / "image" / ("zarr.json" if version == 3 else ".zarray")
            description.write_text(json.dumps(json.loads(description.read_text()) | change))

    return save


def zarr_with_pickle(path):
    import numcodecs

    zarr(2)(path)
    (path / "note").mkdir()
    described = json.loads((path / "image" / ".zarray").read_text())
    described |= {"shape": [N], "chunks": [N], "dtype": "|O", "compressor": None, "filters": [{"id": "pickle"}]}
    (path / "note" / ".zarray").write_text(json.dumps(described))
    (path / "note" / "0").write_bytes(bytes(numcodecs.Pickle().encode(np.array([Canary()] * N, object))))


def zarr_cut(share, **storage):
    """A chunk that is cut short, or is missing."""

    def save(path):
        zarr(chunks=(20, 8), **storage)(path)
        chunk = path / "image" / "c" / "1" / "0"
        content = chunk.read_bytes()
        chunk.write_bytes(content[: int(share * len(content))]) if share else chunk.unlink()

    return save


def zarr_blosc_twice(path):
    import numcodecs

    zarr(2, filters=[numcodecs.Blosc()], compressors=numcodecs.Blosc())(path)


def blosc():
    import zarr

    return zarr.codecs.BloscCodec(cname="lz4")


def zarr_save(**arrays):
    def save(path):
        import zarr

        zarr.save_group(path, **arrays)

    return save


def huge(path):
    import zarr

    zarr.create_array(path, shape=(10**12, 1000), chunks=(10**9, 1000), dtype="f4")


def dataset_of(name):
    def save(path):
        folder = written.datasets(path.parent)
        state = json.loads((folder / "state.json").read_text())
        state["_data_files"][0]["filename"] = name
        (folder / "state.json").write_text(json.dumps(state))
        folder.rename(path.with_name("train"))
        shutil.rmtree(path)
        path.with_name("train").rename(path)

    return save


def lance_without(piece):
    def save(path):
        shutil.rmtree(written.lance(path.parent) / piece)
        (path.parent / "db" / "x.lance").rename(path)

    return save


ROW = IMAGE[0]
NO_ROWS = r"has no rows: none of its arrays .* is a matrix of floats"
NO_NAME = "is not a modality name"
EMPTY = pa.table({"image": pa.array([[], []], pa.list_(pa.float32()))})
CODECS = [{"name": "numcodecs.pickle", "configuration": {}}]
BAD = {
    "x.npy": [
        (array(np.ones(12, "f4")), r"has the shape \(12,\); embeddings are rows and columns"),
        (array(np.ones((2, 3, 2))), r"has the shape \(2, 3, 2\)"),
        (array(np.ones(())), r"has the shape \(\)"),
        (array(np.ones((3, 2), "complex64")), "holds complex64 values; embeddings are float16, float32 or float64"),
        (array(np.ones((3, 2), int)), "holds int64 values; embeddings are"),
        (array(np.ones((3, 2), bool)), "holds bool values; embeddings are"),
        (array(np.array([["a", "b"]])), "values; embeddings are"),
        (array(np.ones((2, 2), np.longdouble)), "values; embeddings are"),
        (array(np.zeros((2, 2), "f4,f4")), "values; embeddings are"),
        (array(cloud(3, 0)), "rows without columns"),
        (npy(np.array([Canary()]), allow_pickle=True), "holds pickled Python objects, which can run code"),
        (header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (True, 3), }"), r"declares the shape \(True, 3\)"),
    ],
    "x.npz": [
        (array(np.ones((2, 3, 2))), NO_ROWS),
        (array(np.ones((3, 2), int)), NO_ROWS),
        (array(np.array([Canary()])), "holds pickled Python objects, which can run code"),
        (arrays(), NO_ROWS),
        (arrays(**{"<b>": cloud(), "text": cloud()}), NO_NAME),
        (arrays(**{"0": cloud(), "text": cloud()}), NO_NAME),
        (arrays(**{"a-to-b": cloud(), "text": cloud()}), NO_NAME),
        (arrays(image=cloud(), images=cloud()), "several arrays of rows for image, image and images; keep one"),
        (
            arrays(rows=cloud(), labels=np.arange(6)),
            r"has labels of shape \(6,\) for 7 rows; expected one label per",
        ),
        (arrays(rows=cloud(), Label=np.ones((7, 1))), "label"),
    ],
    "x.safetensors": [
        (array(np.ones(12, "f4")), NO_ROWS),
        (
            lambda path: save_file({"image": torch.ones(2, 2).to(torch.float8_e4m3fn)}, path),
            "holds torch.float8_e4m3fn values; embeddings are bfloat16",
        ),
    ],
    "x.pt": [
        (lambda path: torch.save({"a": 1}, path), "holds a dict; expected a tensor, or a dict of tensors by name"),
        (lambda path: torch.save(Canary(), path), "holds other pickled objects, which are refused"),
        (arrays(**{"a-to-b": cloud(), "text": cloud()}), NO_NAME),
    ],
    "x.parquet": [
        (table(a=[1, 2], b=["x", "y"]), "has no vector column: none of a, b holds lists of floating point"),
        (table(a1=["x", "y"], a2=["x", "y"]), "has no vector column: none of a1, a2 holds"),
        (table(v=[[1, 2], [3, 4]]), "has no vector column"),
        (table(v=[[1.0, 2.0], [3.0, 4.0], [5.0]]), "'v', is ragged: row 0 has 2 values and row 2 has 1"),
        (table(v=[[1.0, 2.0], None]), "has no vector in 1 of 2 rows"),
        (table(v=[None, "[1,2]"]), "'v', has '' in row 0; expected numbers as in"),
        (table(v=["[1,2]", "[1,true]"]), r"'v', has '\[1,true\]' in row 1; expected numbers"),
        (table(v=[[1.0, 2.0], [None, 4.0]]), "has 1 missing values inside its vectors"),
        (table(v=[[], []], k=[1, 2]), "has no vector column|rows without columns"),
        (table(v=[[1.0]], **{"0": [[2.0]]}), "vector column '0' is not a modality name"),
        *(
            (table(item_id=ids, embedding=cloud(3).tolist()), "missing ids would be paired")
            for ids in (["a", None, None], [1, None, 2], ["a", "", "b"])
        ),
        (
            table(id=[0.5, float("nan"), 1.0], embedding=cloud(3).tolist()),
            "missing ids would be paired",
        ),
        *(
            (table(facts, embedding=cloud(3).tolist()), r"the metadata of .*x\.parquet")
            for facts in ("{", "[]", '{"modality": "pooled"}', '{"pair_on": 3}', "[" * 10_000, "\ud800")
        ),
        *(
            (table(json.dumps({"provenance": {key: value}}), embedding=[[1.0]]), rf"{key}.* should be a valid")
            for key, value in {"maps": 3, "model_options": "x", "data_options": [1], "encoder": 3}.items()
        ),
        *((table(embedding=[[1.0]], modality=[value]), rf"'modality': .* {NO_NAME}") for value in (None, "pooled", 3)),
    ],
    "x.feather": [
        (b"ARROW1\0\0" + bytes(100), r"is not a readable \.feather file: it is damaged or cut short"),
        (lambda path: feather.write_feather(EMPTY, path, compression="uncompressed"), "rows without columns"),
    ],
    "x.arrow": [(b"ARROW1\0\0" + bytes(100), r"is not a readable \.arrow file: it is damaged or cut short")],
    "x.csv": [
        ("0.5,1.5\n2.5\n", "Expected 2 columns, got 1"),
        ("0.5,1.5\n2.5,3.5,4.5\n", "Expected 2 columns, got 3"),
        ("0.5,1.5,1.0\n2.5,3.x,4.5\n3.5,4.5,5.5\n", r"'f1', is not all numbers: Failed to parse string: '3\.x'"),
        ("a,0.5,1.5\nb,2.5,3.5\n", "'f0', is not all numbers: Failed to parse string: '[ab]'"),
        ("0.5,1.5,1.0\n2.5,,4.5\n", "'f1', has no number in 1 of 2 rows"),
        ("v0,v1\n0.5,1.5\n2.5,3_5\n", "'v1', is not all numbers: Failed to parse string: '3_5'"),
        ("v0,v1\n0.5,1.5\n2.5,3-5\n", "'v1', is not all numbers: Failed to parse string: '3-5'"),
        ("a,b\n", "has no rows"),
        ("x,y\n0.5,1.5\n", r"has no vector column: none of x, y holds .* texts such as \[0\.1,0\.2\]"),
        ('id,v\n1,"[0.5,1]"\n2,"[0.5,1"\n', r"'v', has '\[0\.5,1' in row 1; expected numbers as in"),
        ('id,v\n1,"[0.5,1]"\n2,"[0.5]"\n', "'v', is ragged: row 0 has 2 values and row 1 has 1"),
        ("a,a\n1,2\n", "has two columns with the same name"),
        ("item_id,v0,v1\n,1,2\nb,3,4\n", "item_id of embeddings is missing or empty in row 0"),
        ("a\0b,c\n1,2\n", "does not begin with a line of text"),
        (b"a,\xff\n1,2\n", "does not begin with a line of text"),
    ],
    "x.h5": [
        (hdf5(lambda file, _: file.update(a=np.arange(6).reshape(2, 3), b=["x"])), NO_ROWS),
        (hdf5(lambda file, _: file.create_dataset("image", data=np.zeros((5, 0), "f4"))), "rows without columns"),
        (hdf5(external), "does not hold all values of 'image'"),
        (hdf5(virtual), "does not hold all values of 'image'"),
        (hdf5(linked), "has no rows"),
        (hdf5(half_written), "does not hold all values of 'image'"),
        (
            hdf5(lambda file, _: file.create_dataset("image", (10**12, 1000), "f4", chunks=(10**4, 1000))),
            "does not hold all values of 'image'",
        ),
    ],
    "x.zarr": [
        (lambda path: path.mkdir(), "has no rows"),
        (
            zarr_save(image=IMAGE, label=np.arange(4)),
            r"has labels of shape \(4,\) for 60 rows; expected one label",
        ),
        (zarr_with_pickle, r"note/\.zarray asks for the codec 'pickle'"),
        (zarr(change={"codecs": CODECS}), "asks for the codec 'pickle'"),
        (zarr(change={"codecs": "pickle"}), "asks for the codec"),
        (zarr(change={"codecs": [7]}), "asks for the codec '7'"),
        (zarr(change={"codecs": 7}), "is not a readable zarr file"),
        (zarr(chunks=(10, 8), shards=(20, 8)), "asks for the codec 'sharding_indexed'"),
        (zarr_blosc_twice, "asks for the codec 'blosc', which is not allowed in this place"),
        (zarr(change={"codecs": [{"name": "blosc"}, {"name": "zstd"}]}), "asks for the codec 'blosc'"),
        (zarr_cut(0), "is not a readable zarr file.*it has 2 of 3 chunks"),
        (lambda path: zarr_cut(0.3, compressors=blosc())(path), "is not a readable zarr file"),
        (lambda path: zarr_cut(0.9, compressors=blosc())(path), "is not a readable zarr file"),
        (huge, "a chunk of .* takes .* of memory"),
    ],
    "x.tar": [
        (tar(k0_npy=npy(np.array([Canary()]), allow_pickle=True)), "holds pickled Python objects"),
        (tar(k0_npy=npy(IMAGE)), "are not all vectors of the same length and type"),
        (tar(k0_npy=npy(ROW), k1_npy=npy(ROW[:3])), "are not all vectors of the same length and type"),
        (tar(k0_npy=npy(ROW), k1_npy=npy(ROW.astype("f8"))), "are not all vectors of the same length and type"),
        (tar(k0_npy=npy(np.arange(4))), "holds int64 values; embeddings are"),
        (tar(k0_npy=b"x" * 99), r"is not a \.npy file"),
        (tar(k0_npy=npy(ROW)[:-1]), "its header declares 32 bytes, but it has 31"),
        (tar(k0_jpg=b"x", k0_txt=b"y"), "has no vectors: expected .npy files"),
        (tar(k0_npy=npy(ROW), k0_json=b"{"), "is not readable JSON"),
        (tar(k0_npy=npy(ROW), k0_json=b"[1]"), "is .*: input should be a valid object"),
        (tar(k0_npy=npy(ROW), k0_txt=b"\xff"), "is not a readable text file"),
        (tar(k0_npy=npy(ROW), k1_npy=npy(ROW), k0_NPY=npy(ROW)), "two samples '0'; each key"),
        (tar(k0_npy=npy(ROW), k0_image_npy=npy(ROW)), f"kinds of vector '' {NO_NAME}"),
    ],
    "x": [
        *(
            (dataset_of(name), r"state\.json is not a readable datasets file|is a directory")
            for name in ("../y.arrow", "/etc/passwd", "", None, 3, "..")
        ),
        (lambda path: path.write_text("x"), "unknown extension.*known are"),
        (lambda path: path.mkdir(), "is a directory without embeddings; expected a store, a clip-retrieval folder"),
        (lambda path: None, "x does not exist"),
    ],
    "x.lance": [(lance_without(piece), "is not a readable LanceDB file") for piece in ("data", "_versions")],
    "x.parqet": [("x", "unknown extension.*did you mean '.parquet'")],
    "x.zip": [(b"PK\x05\x06" + bytes(18), r"has the unknown extension '\.zip'")],
}
CASES = [(name, *case) for name, cases in BAD.items() for case in cases]
NUMBERS = [f"{name}-{k}" for name, cases in BAD.items() for k in range(len(cases))]


@pytest.mark.parametrize(("name", "make", "message"), CASES, ids=NUMBERS)
def test_bad_input(tmp_path, monkeypatch, name, make, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    if callable(make):
        make(path)
    else:
        path.write_bytes(make if isinstance(make, bytes) else make.encode())
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    require_sentence(str(caught.value))
    assert not Path("canary").exists()


ANY = [*(f"x{suffix}" for suffix in FORMATS), "x.h5", "x.faiss", "x.index", "x.tar", "x.csv", "x.tsv", "x.arrow"]
OTHERS = {
    "nothing": b"",
    "text": b"1.0 2.0\n3.0 4.0\n" * 9,
    "zeros": b"\0" * 600,
    "x": b"x",
    "bytes": bytes(range(256)) * 4,
    "an empty zip": b"PK\x05\x06" + bytes(18),
}


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("content", OTHERS)
def test_a_file_of_something_else(tmp_path, name, content):
    (tmp_path / name).write_bytes(OTHERS[content])
    if content == "text" and name in ("x.csv", "x.tsv"):
        return
    with pytest.raises(InputError) as caught:
        read(tmp_path / name)
    require_sentence(str(caught.value))
    assert "unsafe" not in str(caught.value) and ("is empty (0 bytes)" in str(caught.value)) == (content == "nothing")


# --- files that were cut short, altered, or lack a piece


def read_whole(path):
    """The rows of every modality; None where they were refused in a sentence. Any other exception fails."""
    try:
        return {name: np.asarray(side.vectors) for name, side in read(path).items()}
    except InputError as error:
        require_sentence(str(error))
        return None


def files_of(path):
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


# what no reader needs: transactions and hints of Lance, attributes of zarr
NEEDLESS = ("_transactions", "latest_version_hint.json", "dataset_info.json", ".zattrs", ".zgroup", ".manifest")


@pytest.fixture
def streamed(monkeypatch):
    """Rows are read when they are asked for, wherever the format can."""
    monkeypatch.setattr("clip_geometry.embeddings.LARGE", 1)


@pytest.mark.parametrize("name", ALL)
def test_a_file_that_was_cut_short(tmp_path, name, streamed, capsys):
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
def test_a_file_that_is_missing(tmp_path, name, streamed):
    path = ALL[name](tmp_path)
    for file in files_of(path):
        if any(part in str(file.relative_to(tmp_path)) for part in NEEDLESS):
            continue
        away = file.rename(tmp_path / "away")
        found = read_whole(path)
        # a shard, or an array with its description, may be gone without a trace, but never part of one
        assert found is None or all(len(rows) in (N, 25, 35, 50) for rows in found.values())
        away.rename(file)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_bytes_that_were_altered(tmp_path, name):
    """Values or a sentence, whatever byte has changed. In a process of its own, which a library could take with it."""
    rng, paths = np.random.default_rng(3), []
    for k in range(24):
        (tmp_path / str(k)).mkdir()
        paths.append(ALL[name](tmp_path / str(k)))
        files = files_of(paths[-1])
        file = files[rng.integers(len(files))]
        content = bytearray(file.read_bytes())
        start = rng.integers(len(content) if k % 2 else min(len(content), 400))  # headers are at the beginning
        size = int(rng.integers(1, 9))
        content[start : start + size] = b"\xff" * size if k % 3 == 0 else rng.bytes(size)
        file.write_bytes(content)
    code = (
        "import sys; from pathlib import Path; from test_bad_input import read_whole\n"
        "for path in sys.argv[1:]: print(path, flush=True); read_whole(Path(path))"
    )
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-W", "error", "-c", code, *map(str, paths)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, (done.stdout.splitlines()[-1], done.stderr[-2000:])


def test_text_that_ends_within_a_number_is_said(tmp_path, capsys):
    (tmp_path / "x.csv").write_text("0.5,1.5\n2.5,3.5")
    read(tmp_path / "x.csv")
    assert "if it was cut short, its last number is wrong" in capsys.readouterr().err


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


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "header",
    ["_" * 60_000 + "x1,b," + "_" * 60_000 + "x2", ",".join(f"image_{k}" for k in range(16_000))],
    ids=["underscores", "columns"],
)
def test_a_header_of_any_length_is_read_in_linear_time(tmp_path, header):
    """A regular expression took minutes for the first, and looking columns up by name for the second."""
    line = ",".join("0.5" for _ in header.split(","))
    (tmp_path / "x.csv").write_text(f"{header}\n{line}\n{line}\n")
    (side,) = read(tmp_path / "x.csv").values()
    assert side.vectors.shape in ((2, 2), (2, 16_000))


@pytest.mark.parametrize("value", [3, "x", [1], [[1]]])
def test_an_origin_beside_a_file_of_the_wrong_type_is_one_sentence(tmp_path, value):
    """It ended in a traceback when the rows were measured."""
    np.save(tmp_path / "image.npy", cloud())
    (tmp_path / "image.npy.json").write_text(json.dumps({"clip_geometry": {"maps": value}}))
    with pytest.raises(InputError, match=r"maps.* should be a valid"):
        read(tmp_path / "image.npy")


# --- sizes: what a reader would allocate is compared with the memory before it reads, one case for each check

VECTORS = pa.FixedSizeListArray.from_arrays(pa.array(cloud(500).reshape(-1)), 4)
STREAMED = 2 * FileRows.SPAN  # rows of which only a block has to fit


def in_folder(write, name):
    return lambda folder: write(folder / name) or folder / name


def large_hdf5(path):
    import h5py

    with h5py.File(path, "w") as file:
        file["image"], file["note"] = np.ones((STREAMED, 4), "f4"), np.ones((STREAMED, 3), int)


def zarr_with_a_chunk_larger_than_its_array(path):
    import zarr

    zarr.create_group(path).create_array("image", shape=(5, 4), chunks=(10**5, 4), dtype="f4")[:] = cloud(5)


def mapped_vectors_with_texts(path):
    table = pa.table({"image": VECTORS[:5], "text": ["x" * 1000] * 5})
    feather.write_feather(table, path, compression="uncompressed")


def compressed_table(path):
    feather.write_feather(pa.table({"image": VECTORS}), path, compression="lz4")


def size(path):
    return sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else [path]))


def vectors_as_texts(path):
    """Of two bytes a number, which become eight in a list and eight in a row."""
    pq.write_table(pa.table({"image": [f"[{','.join('1' * 100)}]"] * 500}), path)


# (what writes the file, how many bytes are enough for it, what is said of one less)
SIZES = {
    "text, its columns and their matrix": (written.csv, lambda path: 4 * size(path), ""),
    "a block of rows": (in_folder(large_hdf5, "x.h5"), lambda _: 16 * FileRows.SPAN, "array 'image', "),
    "a whole column": (in_folder(large_hdf5, "x.h5"), lambda _: 8 * 3 * STREAMED, "array 'note', "),
    "a chunk": (in_folder(zarr_with_a_chunk_larger_than_its_array, "x.zarr"), lambda _: 16 * 10**5, "a chunk of "),
    "columns beside mapped rows": (in_folder(mapped_vectors_with_texts, "x.feather"), lambda _: 5000, "columns text, "),
    "a compressed table": (in_folder(compressed_table, "x.feather"), lambda _: 8000, ""),
    "vectors as texts": (in_folder(vectors_as_texts, "x.parquet"), lambda _: 804_000, "column "),
    "a table of LanceDB": (written.lance, lambda _: 60 * 13 * 4, ""),
    "shards": (written.webdataset, size, ""),
}


@pytest.mark.parametrize("case", SIZES)
def test_what_does_not_fit_is_refused(tmp_path, monkeypatch, case):
    write, needed, what = SIZES[case]
    path = write(tmp_path)
    monkeypatch.setattr("clip_geometry.memory.memory", lambda: needed(path) - 1)
    with pytest.raises(InputError, match=f"{what}.*of memory, but only"):
        read(path)
    monkeypatch.setattr("clip_geometry.memory.memory", lambda: 4 * needed(path))
    assert len(read(path)["image"]) in (5, 60, 500, STREAMED)


def test_an_index_that_declares_more_than_its_file_has(tmp_path):
    """FAISS would allocate the 2^33 ids that 2 kB declare. Its limits are those of the file, and then as before."""
    import faiss

    limits = faiss.get_deserialization_vector_byte_limit, faiss.get_deserialization_loop_limit
    before = [limit() for limit in limits]
    content = bytearray((path := written.faiss(tmp_path, "IDMap,Flat", range(N))).read_bytes())
    place = content.rindex(N.to_bytes(8, "little"))
    content[place : place + 8] = (2**33).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is not a readable FAISS file.*limit") as caught:
        read(path)
    assert "bad_alloc" not in str(caught.value) and "memory" not in str(caught.value)
    assert [limit() for limit in limits] == before


def test_an_old_faiss_is_a_sentence(tmp_path, monkeypatch):
    import faiss

    path = written.faiss(tmp_path, "Flat")
    monkeypatch.delattr(faiss, "get_deserialization_vector_byte_limit")
    with pytest.raises(InputError, match=r"needs faiss-cpu 1\.14\.2 or later, and .* is installed"):
        read(path)


def test_an_index_with_an_id_more_than_rows(tmp_path):
    """Whether FAISS or the reader finds it: rows and ids of three places have to agree."""
    content = bytearray((path := written.faiss(tmp_path, "IDMap,Flat", range(N))).read_bytes())
    ids = content.rindex(N.to_bytes(8, "little"))
    for place in (8, ids):  # the rows of the outer index, the length of its ids
        assert content[place : place + 8] == N.to_bytes(8, "little")
        content[place : place + 8] = (N + 1).to_bytes(8, "little")
    path.write_bytes(content + N.to_bytes(8, "little"))
    with pytest.raises(InputError, match="is not a readable FAISS file"):
        read(path)


def test_an_index_of_more_rows_than_it_has_bytes(tmp_path, monkeypatch):
    """An older FAISS reads it: its rows would lie in foreign memory."""
    import faiss

    path = written.faiss(tmp_path, "Flat")
    index = faiss.read_index(str(path))
    index.ntotal += 1
    monkeypatch.setattr(faiss, "read_index", lambda *_: index)
    with pytest.raises(InputError, match=rf"is not a readable FAISS file.*bytes for {N + 1} rows"):
        read(path)

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clip_geometry.embeddings import Embeddings
from clip_geometry.io.labels import read_labels, with_labels
from clip_geometry.registry import InputError
from support.format_cases import cloud

LABELS = [3, 1, 4, 1]


def label_file(folder, name, values):
    path = folder / name
    match path.suffix:
        case ".npy":
            np.save(path, np.array(values))
        case ".txt":
            path.write_text("".join(f"{value}\n" for value in values))
        case ".csv":
            path.write_text("id,label\n" + "".join(f'{k},"{value}"\n' for k, value in enumerate(values)))
        case ".parquet":
            pq.write_table(pa.table({"id": range(len(values)), "label": values}), path)
    return path


@pytest.mark.parametrize("suffix", [".npy", ".txt", ".csv", ".parquet"])
def test_labels_of_every_format(tmp_path, suffix):
    numbers = read_labels(label_file(tmp_path, f"a{suffix}", LABELS))
    assert numbers.dtype == np.int64 and numbers.tolist() == LABELS
    names = ["кот", "a, b", "кот", "7"]
    assert read_labels(label_file(tmp_path, f"b{suffix}", names)).tolist() == names


def test_the_only_column_of_a_table_needs_no_name(tmp_path):
    (tmp_path / "x.csv").write_text("species\nape\nbee\n")
    assert read_labels(tmp_path / "x.csv").tolist() == ["ape", "bee"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"a,b\n1,2\n", "has the columns a, b; expected a single column, or one called 'label'"),
        ("x.csv", b"a,label\n1,2\n3,\n", "has no label for 1 of 2 rows, first in row 1"),
        ("x.csv", b"a,label\n1,2\n3\n", "Expected 2 columns, got 1: 3"),
        ("x.txt", b"ape\n\nbee\n", "has no label for 1 of 3 rows, first in row 1"),
        ("x.txt", b"\xff\xfe\x00", "is not a text file in UTF-8"),
        ("x.txt", b"", r"is empty \(0 bytes\)"),
        ("x.npy", b"ape\nbee\n", r"is not a \.npy file"),
        ("x.parquet", b"ape\nbee\n", r"is not a readable \.parquet file"),
        ("x.xlsx", b"x", r"is not a label file; expected \.npy, \.pt, \.txt"),
    ],
)
def test_label_files_that_are_wrong(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_labels(tmp_path / name)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((2, 2), int), r"int64 values of shape \(2, 2\); expected one label per row"),
        (np.ones(2, complex), "complex128 values"),
        (np.array([1.0, np.nan]), "no label for 1 of 2 rows, first in row 1"),
        (np.array([{}, 1], dtype=object), "pickled Python objects"),
    ],
)
def test_label_arrays_that_are_wrong(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(InputError, match=message):
        read_labels(tmp_path / "x.npy")


@pytest.mark.parametrize("texts", [["1_0", "10"], ["007", "7"], ["9" * 6000, "1"], ["+1", "1"], ["a\0b", "c"]])
def test_what_is_not_written_as_an_integer_stays_text(tmp_path, texts):
    """`int` takes 1_0 for 10, so that two classes became one."""
    (tmp_path / "labels.txt").write_text("\n".join(texts))
    assert read_labels(tmp_path / "labels.txt").tolist() == texts


def test_labels_belong_to_the_sets_of_their_length(capsys):
    sets = {"image": Embeddings(cloud(4), "image"), "text": Embeddings(cloud(5), "text")}
    found = with_labels(sets, LABELS)
    assert list(found["image"].labels) == LABELS and found["text"].labels is None
    assert "the 4 labels do not belong to the 5 text rows" in capsys.readouterr().err
    with pytest.raises(InputError, match="3 labels were given for 4 image rows and 5 text rows"):
        with_labels(sets, LABELS[:3])
    with pytest.raises(InputError, match="label"):
        with_labels(sets, [1, 1, 1, 1])

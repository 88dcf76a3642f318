import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clip_geometry.embeddings import pair
from clip_geometry.io.sources import read_any, read_embeddings
from clip_geometry.registry import InputError
from support.format_cases import assert_same_bits, cloud


def write_folder(folder, shards, *, digits=1, dtype=np.float16, distinct=True, metadata=True):
    """A folder as clip-retrieval writes it; `shards` maps a number to its rows."""
    for name in ("img_emb", "text_emb", "metadata"):
        (folder / name).mkdir(parents=True)
    for number, n in shards.items():
        name = f"{number:0{digits}d}"
        np.save(folder / "img_emb" / f"img_emb_{name}.npy", cloud(n, dtype=dtype, seed=number))
        np.save(folder / "text_emb" / f"text_emb_{name}.npy", cloud(n, dtype=dtype, seed=100 + number))
        paths = [f"{number}-{k if distinct else 0}.jpg" for k in range(n)]
        table = {"image_path": paths, "caption": [f"caption {k}" for k in range(n)]}
        pq.write_table(pa.table(table), folder / "metadata" / f"metadata_{name}.parquet")
    return folder


@pytest.mark.parametrize("digits", [1, 4])
def test_clip_retrieval_shards_come_in_numeric_order(tmp_path, digits):
    shards = {2: 3, 10: 4, 0: 2}
    sides = read_any(write_folder(tmp_path, shards, digits=digits))
    expected = [cloud(n, dtype=np.float16, seed=number) for number, n in sorted(shards.items())]
    assert_same_bits(sides["image"].vectors, np.concatenate(expected))
    assert list(sides["image"].item_id[:3]) == ["0-0.jpg", "0-1.jpg", "2-0.jpg"]
    assert list(sides["text"].metadata["text"][:3]) == ["caption 0", "caption 1", "caption 0"]
    assert sides["text"].provenance["dtype"] == "float16"
    i, j = pair(sides["image"], sides["text"])
    assert list(i) == list(j) == list(range(9))


def test_clip_retrieval_rows_of_one_image_pair_by_position(tmp_path):
    sides = read_any(write_folder(tmp_path, {0: 3}, distinct=False))
    assert isinstance(sides["image"].vectors, np.memmap)
    assert sides["image"].item_id is None and sides["image"].metadata["image_path"][1] == "0-0.jpg"
    assert [list(index) for index in pair(sides["image"], sides["text"])] == [[0, 1, 2], [0, 1, 2]]


def test_clip_retrieval_of_images_alone_without_metadata(tmp_path):
    (tmp_path / "img_emb").mkdir()
    np.save(tmp_path / "img_emb" / "img_emb_0.npy", cloud())
    sides = read_any(tmp_path)
    assert list(sides) == ["image"] and sides["image"].item_id is None
    with pytest.raises(InputError, match="holds image embeddings; text embeddings were expected"):
        read_embeddings(tmp_path, modality="text")


def _other_width(folder):
    np.save(folder / "img_emb" / "img_emb_1.npy", cloud(3, 5))


def _short_metadata(folder):
    pq.write_table(pa.table({"caption": ["a"]}), folder / "metadata" / "metadata_1.parquet")


def _no_metadata(folder):
    (folder / "metadata" / "metadata_1.parquet").unlink()


def _twice(folder):
    np.save(folder / "text_emb" / "text_emb_01.npy", cloud(3))


def _no_shards(folder):
    for path in folder.glob("*_emb/*"):
        path.unlink()


def _truncated(folder):
    path = folder / "img_emb" / "img_emb_1.npy"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_other_width, r"img_emb_1\.npy has 5 columns and the shard before it 4"),
        (_short_metadata, r"img_emb_1\.npy has 3 rows and its metadata 1"),
        (_no_metadata, "metadata lacks shard 1, which another folder has"),
        (_twice, r"text_emb_1\.npy and text_emb_01\.npy are the same shard twice"),
        (_no_shards, r"has no shards such as img_emb/img_emb_0\.npy"),
        (_truncated, r"img_emb_1\.npy is no readable \.npy file"),
    ],
)
def test_clip_retrieval_folders_that_do_not_fit(tmp_path, spoil, message):
    write_folder(tmp_path, {0: 2, 1: 3})
    spoil(tmp_path)
    with pytest.raises(InputError, match=message):
        read_any(tmp_path)


def test_a_shard_that_one_side_lacks_is_an_error(tmp_path):
    folder = write_folder(tmp_path, {0: 3, 1: 4, 2: 2}, metadata=False)
    (folder / "img_emb" / "img_emb_1.npy").unlink()
    with pytest.raises(InputError, match=r"img_emb lacks shard 1, which another folder has"):
        read_any(folder)

import numpy as np
import pyarrow.parquet as pq

from clip_geometry.embeddings import Embeddings, pair
from clip_geometry.io.export import export
from clip_geometry.io.sources import read_any
from support.format_cases import assert_same_bits, cloud


def both_sides():
    ids = np.array(["a", "b", "c"], dtype=object)
    image = Embeddings(cloud(3), "image", ids, np.array([2, 0, 2]), provenance={"model": "m", "n": 3})
    captions = {"text": np.array(["p", "q", "r", "s"], dtype=object)}
    text = Embeddings(
        cloud(4, seed=1),
        "text",
        np.array(["c", "a", "b", "a"], dtype=object),
        None,
        "de",
        metadata=captions,
    )
    return {"image": image, "text": text}


def test_a_table_keeps_what_belongs_to_its_rows(tmp_path):
    sides = both_sides()
    assert list(export(sides, tmp_path / "out", to="parquet")) == ["image.parquet", "text.parquet"]
    paths = sorted((tmp_path / "out").iterdir())
    for again in (read_any(tmp_path / "out"), {path.stem: read_any(path)[path.stem] for path in paths}):
        for modality, side in sides.items():
            assert_same_bits(again[modality].vectors, side.vectors)
            assert list(again[modality].item_id) == list(side.item_id)
            assert again[modality].language == side.language
        assert list(again["image"].labels) == [2, 0, 2] and again["text"].labels is None
        assert list(again["text"].metadata["text"]) == ["p", "q", "r", "s"]
        assert again["image"].provenance["model"] == "m"
    assert not list(tmp_path.rglob("*.tmp"))


def test_clip_retrieval_repeats_an_image_for_each_of_its_captions(tmp_path):
    sides = both_sides()
    export(sides, tmp_path / "out", to="clip-retrieval")
    again = read_any(tmp_path / "out")
    i, j = pair(sides["image"], sides["text"])
    assert list(i) == [0, 0, 1, 2]
    assert_same_bits(again["image"].vectors, sides["image"].vectors[i])
    assert_same_bits(again["text"].vectors, sides["text"].vectors[j])
    assert [list(index) for index in pair(again["image"], again["text"])] == [[0, 1, 2, 3]] * 2
    assert list(again["image"].labels) == [2, 2, 0, 2] and list(again["text"].metadata["text"]) == ["q", "s", "r", "p"]
    table = pq.read_table(tmp_path / "out" / "metadata" / "metadata_0.parquet").to_pydict()
    assert table["image_path"] == ["a", "a", "b", "c"] and table["caption"] == ["q", "s", "r", "p"]


def test_clip_retrieval_of_bare_rows_has_metadata_too(tmp_path):
    export(Embeddings(cloud(2), "image"), tmp_path / "out", to="clip-retrieval")
    assert pq.read_table(tmp_path / "out" / "metadata" / "metadata_0.parquet").num_rows == 2


def test_an_export_reads_what_a_path_holds(tmp_path):
    np.savez(tmp_path / "x.npz", image=cloud(seed=1), text=cloud(seed=2))
    export(tmp_path / "x.npz", tmp_path / "out", to="clip-retrieval")
    again = read_any(tmp_path / "out")
    assert_same_bits(again["text"].vectors, cloud(seed=2))

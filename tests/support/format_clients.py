"""The same 60 rows of two modalities, written by each format's own client."""

from pathlib import Path

import numpy as np
import pandas as pd

N = 60
_rng = np.random.default_rng(7)
IMAGE = _rng.normal(size=(N, 8)).astype(np.float32)
TEXT = _rng.normal(size=(N, 5)).astype(np.float32)
IDS = [f"item é{k}" for k in range(N)]
LABELS = [k % 3 for k in range(N)]
NOTES = [f"a note, {k}" for k in range(N)]


def npz(folder: Path) -> Path:
    notes = np.array([note.encode() for note in NOTES])
    np.savez(folder / "x.npz", img_emb=IMAGE, text_emb=TEXT, item_id=np.array(IDS), labels=np.array(LABELS), note=notes)
    return folder / "x.npz"


def arrow_table():
    import pyarrow as pa

    columns = {"id": IDS, "image_embedding": list(IMAGE), "text_embedding": list(TEXT), "label": LABELS, "note": NOTES}
    return pa.table(columns)


def parquet(folder: Path) -> Path:
    import pyarrow.parquet as pq

    pq.write_table(arrow_table(), folder / "x.parquet", row_group_size=25)
    return folder / "x.parquet"


def feather(folder: Path) -> Path:
    import pyarrow.feather

    pyarrow.feather.write_feather(arrow_table(), folder / "x.feather", compression="lz4")
    return folder / "x.feather"


def arrow(folder: Path) -> Path:
    """A stream, as the datasets package writes."""
    import pyarrow as pa

    table = arrow_table()
    with pa.OSFile(str(folder / "x.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=25)
    return folder / "x.arrow"


def hdf5(folder: Path, **storage) -> Path:
    import h5py

    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("image", data=IMAGE, **storage)
        file.create_dataset("text", data=TEXT, **storage)
        file["item_id"], file["label"], file["note"] = IDS, LABELS, NOTES
    return folder / "x.h5"


def hdf5_chunked(folder: Path) -> Path:
    return hdf5(folder, chunks=(7, 4), compression="gzip", shuffle=True, fletcher32=True)


def zarr(folder: Path, version: int = 3, **storage) -> Path:
    import zarr

    path = folder / "x.zarr"
    group = zarr.create_group(path, zarr_format=version)
    for name, values in {"image": IMAGE, "text": TEXT, "label": np.array(LABELS)}.items():
        group.create_array(name, data=values, **(storage if values.ndim == 2 else {}))
    for name, texts in {"item_id": IDS, "note": NOTES}.items():
        group.create_array(name, data=np.array(texts, "U" if version == 2 else "T"))
    return path


def zarr_2(folder: Path) -> Path:
    return zarr(folder, 2, chunks=(25, 3))


def datasets(folder: Path) -> Path:
    import datasets

    columns = {"id": IDS, "image_embedding": IMAGE, "text_embedding": TEXT, "label": LABELS, "note": NOTES}
    features = datasets.Features(
        {
            "id": datasets.Value("string"),
            "image_embedding": datasets.List(datasets.Value("float32"), length=8),
            "text_embedding": datasets.List(datasets.Value("float32")),
            "label": datasets.ClassLabel(names=["a", "b", "c"]),
            "note": datasets.Value("string"),
        }
    )
    datasets.disable_progress_bars()
    made = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict({"train": made}).save_to_disk(folder / "x", num_shards={"train": 2})
    return folder / "x" / "train"


def lance(folder: Path) -> Path:
    import lancedb
    import pyarrow as pa

    def part(rows: slice) -> pa.Table:
        vectors = {
            name: pa.FixedSizeListArray.from_arrays(pa.array(x[rows].reshape(-1)), x.shape[1])
            for name, x in {"image": IMAGE, "text": TEXT}.items()
        }
        return pa.table({"id": IDS[rows], "label": LABELS[rows], "note": NOTES[rows], **vectors})

    table = lancedb.connect(folder / "db").create_table("x", part(slice(0, 25)))
    table.add(part(slice(25, N)))
    return folder / "db" / "x.lance"


def webdataset(folder: Path) -> Path:
    import webdataset

    (folder / "shards").mkdir()
    with webdataset.ShardWriter(str(folder / "shards" / "%03d.tar"), maxcount=25, verbose=0) as shards:
        for k in range(N):
            sample = {"__key__": f"{k:03}", "image.npy": IMAGE[k], "text.npy": TEXT[k], "cls": LABELS[k]}
            shards.write({**sample, "json": {"item_id": IDS[k], "note": NOTES[k]}})
    return folder / "shards"


def csv(folder: Path) -> Path:
    table = pd.DataFrame({"item_id": IDS, "label": LABELS, "note": NOTES})
    for name, x in {"image": IMAGE, "text": TEXT}.items():
        table = table.join(pd.DataFrame(x, columns=[f"{name}_{k}" for k in range(x.shape[1])]))
    table.to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


def faiss(folder: Path, factory: str = "Flat", ids=None) -> Path:
    import faiss

    index = faiss.index_factory(8, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(IMAGE)
    if ids is None:
        index.add(IMAGE)
    else:
        index.add_with_ids(IMAGE, np.asarray(ids, np.int64))
    path = folder / "image.faiss"
    faiss.write_index(index, str(path))
    return path


# formats that hold both modalities, item_id, label and note
WHOLE = {
    "npz": npz,
    "parquet": parquet,
    "feather": feather,
    "arrow": arrow,
    "hdf5": hdf5,
    "hdf5-chunked": hdf5_chunked,
    "zarr": zarr,
    "zarr-2": zarr_2,
    "datasets": datasets,
    "lance": lance,
    "webdataset": webdataset,
    "csv": csv,
}
ALL = {
    **WHOLE,
    "faiss": faiss,
    "faiss-hnsw": lambda folder: faiss(folder, "HNSW4,Flat"),
    "faiss-ids": lambda folder: faiss(folder, "IDMap,Flat", range(7, 7 + N)),
}

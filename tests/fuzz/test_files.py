"""Files that were valid once, damaged, through everything that reads files."""

import io
import json
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import strategies as st
from safetensors.numpy import load, save

import clip_geometry as cg
from clip_geometry.config import digest
from clip_geometry.files import parquet_bytes
from clip_geometry.io import reading
from clip_geometry.io.labels import read_labels
from clip_geometry.transforms.map_file import KEY, checksum
from fuzz.outcome import contents, fuzzed, outcome, sandbox
from fuzz.strategies import altered, altered_file, damaged, one_damaged
from support.format_cases import vector_column

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
Y, IDS, LABELS = X[::-1].copy(), [f"item {k}" for k in range(6)], [0, 0, 1, 1, 2, 2]


def written(write):
    """The bytes that `write` puts into a file."""
    write(buffer := io.BytesIO())
    return buffer.getvalue()


class Canary:
    """Pickled, a caveat: whoever loads it runs code, which leaves a file behind."""

    def __reduce__(self):
        return exec, ("open('canary', 'w').close()",)


TABLE = pd.DataFrame({"item_id": IDS, "label": LABELS, "caption": [f"a caption {k}" for k in range(6)], "file": IDS})
ARRAYS = {
    "x.npy": written(lambda f: np.save(f, X)),
    "f.npy": written(lambda f: np.save(f, np.asfortranarray(X.astype(">f8")))),
    "objects.npy": written(lambda f: np.save(f, np.array([[Canary()]]), allow_pickle=True)),
    "x.npz": written(lambda f: np.savez(f, image=X, text=Y, labels=LABELS)),
    "small.npz": written(lambda f: np.savez_compressed(f, image=X)),
    "x.safetensors": save({"image": X, "text": Y}, {"a": "b"}),
    "x.parquet": written(TABLE.assign(embedding=list(X)).to_parquet),
    "two.parquet": parquet_bytes(pa.table({"image": vector_column(X), "text": vector_column(Y), "label": LABELS})),
}
LABEL_FILES = {
    "l.npy": written(lambda f: np.save(f, np.array(LABELS))),
    "l.txt": "\n".join(IDS).encode(),
    "l.csv": TABLE.to_csv(index=False).encode(),
    "l.parquet": written(TABLE.to_parquet),
}
TABLES = {
    "t.csv": TABLE.to_csv(index=False).encode(),
    "t.tsv": TABLE.to_csv(index=False, sep="\t").encode(),
    "t.jsonl": TABLE.to_json(orient="records", lines=True).encode(),
    "t.parquet": written(TABLE.to_parquet),
    "t.json": json.dumps(
        {
            "images": [{"id": k, "file_name": f"{k}.png"} for k in range(3)],
            "annotations": [{"id": k, "image_id": k // 2, "caption": f"caption {k}"} for k in range(6)],
        }
    ).encode(),
}
PICKLES = {
    "c.pt": written(lambda f: torch.save({"w": torch.ones(2, 2), "n": 1}, f)),
    "old.pt": written(lambda f: torch.save({"w": torch.ones(2, 2)}, f, _use_new_zipfile_serialization=False)),
    "caveat.pt": written(lambda f: torch.save({"w": Canary()}, f)),
}


def read_sides(path):
    for side in (*cg.read(path).values(), cg.read_embeddings(path, modality="text")):
        assert np.asarray(side.vectors).shape == (len(side), side.dim)


def read_captions(path):
    for side in cg.data.load_dataset(path).sides:
        side.load(0)


READ = {
    "embeddings": (50, ARRAYS, read_sides),
    "labels": (25, LABEL_FILES, read_labels),
    "captions": (25, TABLES, read_captions),
    "checkpoint": (15, PICKLES, reading.read_checkpoint),
}


@pytest.mark.parametrize("kind", READ)
def test_files(kind):
    examples, files, read = READ[kind]

    @fuzzed(examples, name=st.sampled_from(sorted(files)), data=st.data())
    def holds(name, data):
        with sandbox({name: data.draw(altered_file(name, files[name]))}) as folder:
            outcome(read, folder / name, refusals=FileNotFoundError)  # of an image that a table of captions names

    holds()


@cache
def folders():
    """A store of `embed`, a folder of clip-retrieval and one with image.npy and text.npy, each as name → bytes."""
    with sandbox({}, "store", "retrieval", "files") as here:
        data = cg.data.load_dataset("scenes", size=6)
        cg.embed(cg.encoders.resolve_encoder("scenes-clip/fresh"), data, here / "store", shard_size=4)
        for modality, side in cg.read_store(here / "store").items():
            folder = here / "retrieval" / {"image": "img_emb"}.get(modality, f"{modality}_emb")
            folder.mkdir(parents=True)
            np.save(folder / f"{folder.name}_0.npy", side.vectors)
        (here / "retrieval" / "metadata").mkdir()
        TABLE.to_parquet(here / "retrieval" / "metadata" / "metadata_0.parquet")
        cg.export(here / "store", here / "files", to="parquet")
        return [contents(here / name) for name in ("store", "retrieval", "files")]


@st.composite
def resigned(draw, values, sign):
    """JSON of other values whose checksum holds, where they have one."""
    values = draw(altered({key: value for key, value in values.items() if key != "checksum"}))
    try:
        return json.dumps(values | {"checksum": sign(values)})
    except (TypeError, UnicodeEncodeError):  # no object, or no Unicode
        return json.dumps(values)


@fuzzed(25, data=st.data())
def test_folders(data):
    files = data.draw(st.sampled_from(folders()).flatmap(one_damaged))
    with sandbox(files) as folder:
        for read in (cg.read, cg.read_store):
            sides = outcome(read, folder)
            assert sides is None or all(np.asarray(side.vectors).ndim == 2 for side in sides.values())


@fuzzed(25, data=st.data())
def test_stores_with_sound_checksums(data):
    files = folders()[0]
    name = data.draw(st.sampled_from([name for name in files if name.endswith(".json")]))
    with sandbox(files | {name: data.draw(resigned(json.loads(files[name]), digest)).encode()}) as folder:
        sides = outcome(cg.read_store, folder)
        assert sides is None or all(np.asarray(side.vectors).ndim == 2 for side in sides.values())


@cache
def a_map():
    with sandbox({}, "m.safetensors") as folder:
        steps = "normalize,whiten(2)[pooled],procrustes[text-to-image],cluster_center(2)[image]"
        pairs = np.arange(6), np.arange(6)
        cg.Pipeline(steps).fit({"image": X, "text": Y}, pairs).save(folder / "m.safetensors")
        return (folder / "m.safetensors").read_bytes()


@fuzzed(25, data=st.data(), signed=st.booleans())
def test_maps(data, signed):
    content = a_map()
    if signed:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        facts, tensors = json.loads(header["__metadata__"][KEY]), load(content)
        content = save(tensors, {KEY: data.draw(resigned(facts, lambda facts: checksum(facts, tensors)))})
    else:
        content = data.draw(damaged(content))
    with sandbox({"m.safetensors": content}) as folder:
        fitted = outcome(cg.Pipeline.load, folder / "m.safetensors")
        if fitted:
            outcome(fitted.transform, {"image": X, "text": Y})
            outcome(fitted.affine, "image")


ROW = {"measure": "isoscore", "value": 0.5, "at": {"modality": "image"}, "cell": "c", "cell_row": 0, "cell_rows": 1}
ROW |= {"n": 6, "d": 3, "null_value": 0.9, "standard_error": 0.1, "pipeline": ["normalize"], "dtype": "float32"}
ROW |= {"dataset": "scenes", "split": "test", "model_options": {"seed": 0}, "maps": None, "seed": 0}


@fuzzed(25, lines=st.lists(altered_file(".json", json.dumps(ROW).encode()), max_size=3))
def test_rows(lines):
    with sandbox({"r.jsonl": b"\n".join([json.dumps(ROW).encode(), *lines])}) as folder:
        rows = outcome(cg.read_rows, folder / "r.jsonl")
        if rows:
            outcome(cg.to_frame, rows)


@pytest.mark.parametrize("name", ["objects.npy", "caveat.pt"])
def test_the_canary_sings(name):
    """Without the guard it would."""
    with sandbox({name: {**ARRAYS, **PICKLES}[name]}, "canary") as folder:
        np.load(name, allow_pickle=True) if name.endswith(".npy") else torch.load(name, weights_only=False)
        assert (folder / "canary").exists()

"""webdataset shards of vectors: tars of KEY.npy, or KEY.image.npy and KEY.text.npy, with KEY.json, .txt and .cls."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.data.webdataset import Member, distinct_ids, samples
from clip_geometry.formats.format import Sides, register
from clip_geometry.formats.labels import INTEGER
from clip_geometry.formats.tables import sides_of_columns
from clip_geometry.formats.vectors import check_vectors, modality_of, sides_by_name
from clip_geometry.paths import existing_file
from clip_geometry.reading import parse_json, parse_npy, require_memory
from clip_geometry.registry import InputError, shown


def read_webdataset(path: Path) -> Sides:
    """Read a tar, or all tars of a folder by name: the vectors of each name are a modality, the keys are item_id.

    A .txt is the column text, a .cls the label, and the keys of a .json are columns.
    """
    import pandas as pd

    shards = sorted(path.glob("*.tar")) if path.is_dir() else [existing_file(path, "a tar of vectors")]
    require_memory(sum(shard.stat().st_size for shard in shards), shown(path))
    found = [(shard, key, members) for shard in shards for key, members in samples(shard)]
    ids = distinct_ids([(shard, key) for shard, key, _ in found])
    kinds = dict.fromkeys(kind[:-4] for *_, members in found for kind in members if f".{kind}".endswith(".npy"))
    if not kinds:
        raise InputError(f"{shown(path)} has no vectors: expected .npy files, KEY.npy or KEY.image.npy")
    sides: Sides = {}
    for modality, kind in sides_by_name(kinds, path, "kinds of vectors").items():
        name = f"{kind}.npy".removeprefix(".")
        chosen = [k for k, (*_, members) in enumerate(found) if name in members]
        rows = _rows([found[k][2][name] for k in chosen], f"{shown(path)}: the files {name}")
        beside = pd.DataFrame([{"key": ids[k]} | _columns(found[k][2]) for k in chosen])
        beside = beside if "item_id" in beside else beside.rename(columns={"key": "item_id"})
        sides |= sides_of_columns({modality: rows}, {str(name): each.to_numpy() for name, each in beside.items()}, path)
    return sides


def _rows(members: list[Member], source: str) -> np.ndarray:
    rows = [np.atleast_2d(parse_npy(member.read(member.size), member.source)) for member in members]
    if len({(row.shape, row.dtype) for row in rows}) > 1 or len(rows[0]) != 1:
        raise InputError(f"{source} are no vectors of one length and type, (d,) or (1, d)")
    return check_vectors(np.concatenate(rows), source)


def _columns(members: dict[str, Member]) -> dict[str, Any]:
    """Return what is beside a vector."""
    found = parse_json(members["json"].text(), members["json"].source, dict[str, Any]) if "json" in members else {}
    if "txt" in members:
        found["text"] = members["txt"].text()
    if "cls" in members:
        label = members["cls"].text().strip()
        found["label"] = int(label) if re.fullmatch(INTEGER, label) else label
    return found


def is_webdataset(folder: Path) -> bool:
    """Whether a folder has tars, and no files beside that are called after modalities, image.npy and text.npy."""
    return any(folder.glob("*.tar")) and not any(modality_of(path.stem) for path in folder.glob("*.*"))


register("webdataset", read_webdataset, is_webdataset)

"""Reader for webdataset shards of vectors: tars of KEY.npy or KEY.image.npy, …, with KEY.json, .txt and .cls."""

from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.data.webdataset import Member, distinct_ids, samples, shards_of
from clip_geometry.io.labels import integer_or_text
from clip_geometry.io.reading import parse_json, parse_npy, require_memory
from clip_geometry.io.sides import Sides, check_vectors, modality_of, sides_by_name, sides_of_columns
from clip_geometry.registry import InputError, shown


def read(path: Path) -> Sides:
    """Read a tar, or all tars of a folder in the order of their names.

    The vectors of each name (KEY.image.npy, KEY.text.npy) are a modality, and the keys are the item_id. A .txt file is
    the column text, a .cls file the label, and the keys of a .json file are columns.
    """
    import pandas as pd

    shards = shards_of(path)
    require_memory(sum(shard.stat().st_size for shard in shards), shown(path))
    found = [(shard, key, members) for shard in shards for key, members in samples(shard)]
    ids = distinct_ids([(shard, key) for shard, key, _ in found])
    kinds = dict.fromkeys(kind[:-4] for *_, members in found for kind in members if f".{kind}".endswith(".npy"))
    if not kinds:
        raise InputError(f"{shown(path)} has no vectors: expected .npy files, KEY.npy or KEY.image.npy")
    sides: Sides = {}
    for modality, kind in sides_by_name(kinds, path, "kinds of vectors").items():
        name = f"{kind}.npy".removeprefix(".")
        chosen = [(own, members) for own, (*_, members) in zip(ids, found, strict=True) if name in members]
        files = [members[name] for _, members in chosen]
        rows = [np.atleast_2d(parse_npy(file.read(file.size), file.source)) for file in files]
        if len({(row.shape, row.dtype) for row in rows}) > 1 or len(rows[0]) != 1:
            raise InputError(f"{shown(path)}: the files {name} are no vectors of one length and type, (d,) or (1, d)")
        beside: Any = pd.DataFrame([{"item_id": own} | _columns(members) for own, members in chosen]).to_dict("series")
        vectors = check_vectors(np.concatenate(rows), f"{shown(path)}: the files {name}")
        sides |= sides_of_columns({modality: vectors}, beside, path)
    return sides


def _columns(members: dict[str, Member]) -> dict[str, Any]:
    """Return the text, label and other columns of a sample."""
    found = parse_json(members["json"].text(), members["json"].source, dict[str, Any]) if "json" in members else {}
    if "txt" in members:
        found["text"] = members["txt"].text()
    if "cls" in members:
        found["label"] = integer_or_text(members["cls"].text().strip())
    return found


def recognizes(folder: Path) -> bool:
    """Return whether a folder has tars and no files that are named after modalities, such as image.npy."""
    return any(folder.glob("*.tar")) and not any(modality_of(path.stem) for path in folder.glob("*.*"))

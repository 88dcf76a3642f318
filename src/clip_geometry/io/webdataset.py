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
    keys: list[tuple[Path, str]] = []
    members_of_samples: list[dict[str, Member]] = []
    for shard in shards:
        for key, members in samples(shard):
            keys.append((shard, key))
            members_of_samples.append(members)
    ids = distinct_ids(keys)
    # extensions without .npy: "image" for KEY.image.npy, "" for KEY.npy
    names = dict.fromkeys(name for members in members_of_samples for name in members)
    kinds = dict.fromkeys(name[:-4] for name in names if f".{name}".endswith(".npy"))
    if not kinds:
        raise InputError(f"{shown(path)} has no vectors: expected .npy files, KEY.npy or KEY.image.npy")
    sides: Sides = {}
    for modality, kind in sides_by_name(kinds, path, "kinds of vectors").items():
        name = f"{kind}.npy".removeprefix(".")
        with_vector = [
            (item_id, members) for item_id, members in zip(ids, members_of_samples, strict=True) if name in members
        ]
        files = [members[name] for _, members in with_vector]
        rows = [np.atleast_2d(parse_npy(file.read(file.size), file.source)) for file in files]
        if len({(row.shape, row.dtype) for row in rows}) > 1 or len(rows[0]) != 1:
            raise InputError(
                f"{shown(path)}: the files {name} are not all vectors of the same length and type, (d,) or (1, d)"
            )
        records = [{"item_id": item_id} | _columns(members) for item_id, members in with_vector]
        columns: Any = pd.DataFrame(records).to_dict("series")
        vectors = check_vectors(np.concatenate(rows), f"{shown(path)}: the files {name}")
        sides |= sides_of_columns({modality: vectors}, columns, path)
    return sides


def _columns(members: dict[str, Member]) -> dict[str, Any]:
    """Return the text, label and other columns of a sample."""
    columns = parse_json(members["json"].text(), members["json"].source, dict[str, Any]) if "json" in members else {}
    if "txt" in members:
        columns["text"] = members["txt"].text()
    if "cls" in members:
        columns["label"] = integer_or_text(members["cls"].text().strip())
    return columns


def recognizes(folder: Path) -> bool:
    """Return whether a folder has tars and no files that are named after modalities, such as image.npy."""
    return any(folder.glob("*.tar")) and not any(modality_of(path.stem) for path in folder.glob("*.*"))

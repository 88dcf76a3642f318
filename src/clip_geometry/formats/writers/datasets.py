"""Hugging Face datasets: a folder for `load_from_disk`, one row per pair, the vectors in MODALITY_embedding."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clip_geometry.formats.tables import columns_beside, vectors_of
from clip_geometry.formats.vectors import GROUP, dtype_of
from clip_geometry.formats.writers.base import Sets, aligned, writers
from clip_geometry.registry import library

if TYPE_CHECKING:
    import pyarrow as pa

SHARD = 5 * 10**8  # bytes of vectors in a file, as in `save_to_disk`


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write Arrow files with a column of vectors for each modality, and what belongs to their rows."""
    import pyarrow as pa

    datasets = library("datasets", "datasets", "a folder of datasets")
    sets = {f"{name}_embedding": side for name, side in aligned(sets).items()}
    n = len(next(iter(sets.values())))
    beside = _beside(sets)
    features = datasets.Features.from_arrow_schema(pa.schema([(name, x.type) for name, x in beside.items()]))
    for name, side in sets.items():
        features[name] = datasets.List(datasets.Value(str(dtype_of(side))), length=side.dim)
    schema = features.arrow_schema
    each = max(1, SHARD // sum(side.dim * dtype_of(side).itemsize for side in sets.values()) // GROUP) * GROUP
    count = math.ceil(n / each)
    files = [f"data-{k:05d}-of-{count:05d}.arrow" for k in range(count)]
    for k, file in enumerate(files):
        with pa.OSFile(str(place / file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for start in range(k * each, min(n, (k + 1) * each), GROUP):
                part = slice(start, start + GROUP)
                rows = [vectors_of(np.asarray(side.vectors[part])) for side in sets.values()]
                arrays = [*(column[part] for column in beside.values()), *rows]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
    datasets.DatasetInfo(features=features).write_to_directory(str(place))
    state = {"_data_files": [{"filename": file} for file in files], "_format_kwargs": {}}
    state |= {"_fingerprint": datasets.fingerprint.generate_random_fingerprint(), "_output_all_columns": False}
    state |= dict.fromkeys(("_format_columns", "_format_type", "_split"))
    (place / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
    return {".": f"{n} rows, {', '.join(f'{name} {dtype_of(side)}' for name, side in sets.items())}"}


def _beside(sets: Sets) -> "dict[str, pa.Array]":
    """The columns besides the vectors; one that differs between modalities is named after each."""
    found: dict[str, Any] = {}
    for side in sets.values():
        for name, column in columns_beside(side).items():
            own = name if name not in found or found[name].equals(column) else f"{side.modality}_{name}"
            found |= {own: column} if own not in sets else {}
    return found


writers.add("datasets", write)

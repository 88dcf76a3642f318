"""FAISS: an index of repaired rows, and the transforms that lead from a raw query to it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.repairs import InnerProduct
from clip_geometry.shipping.base import Shipment, Target, library, targets
from clip_geometry.shipping.layout import script
from clip_geometry.shipping.rows import Step, item_map, query_map

BLOCK = 2**14  # rows that are repaired at a time


class FaissIndex(Target):
    """Write one index for all items, or one per group of modalities where queries see them through different views."""

    summary = "an index of repaired rows, and transforms of raw queries"
    takes = "embeddings"

    def write(self, shipment: Shipment, folder: Path) -> dict[str, str]:
        faiss = library("faiss", "faiss-cpu")
        repair, sets = shipment.inner_product, shipment.sets
        files, parts, first = {}, {name: [] for name in repair.modalities}, 0
        groups = _groups(repair, list(sets))
        for group in groups:
            called = "items" if len(groups) == 1 else f"items.{'+'.join(group)}"
            index, rows = faiss.IndexFlatIP(item_map(repair, group[0]).d_out), sum(len(sets[name]) for name in group)
            for name in group:
                for start in range(0, len(sets[name]), BLOCK):
                    raw = np.asarray(sets[name].vectors[start : start + BLOCK], dtype=np.float64)
                    index.add(repair.item_rows(name, raw).astype(np.float32))
            faiss.write_index(index, str(folder / f"{called}.faiss"))
            files[f"{called}.faiss"] = f"{rows} × {index.d} rows, inner product"
            for query in parts:
                mapped = query_map(repair, query)
                steps = mapped.only(repair.terms_[query, group[0]].view).chain()
                kind = query if len(groups) == 1 else f"{query}-to-{'+'.join(group)}"
                chain = [f"{kind}.{k}.vt" for k in range(len(steps))]
                for file, step, d in zip(chain, steps, _dimensions(steps, mapped.d_in), strict=True):
                    faiss.write_VectorTransform(_transform(faiss, step, d), str(folder / file))
                parts[query].append({"index": f"{called}.faiss", "first": first, "transforms": chain})
            first += rows
        files[f"{'|'.join(parts)}.*.vt"] = "transforms of raw queries, in order"
        _write_items({name: sets[name] for group in groups for name in group}, folder / "items.parquet")
        files["items.parquet"] = "modality, item_id and columns of each row"
        (folder / "search.json").write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
        (folder / "search.py").write_text(script("search.py.j2", repair), encoding="utf-8")
        files["search.py"] = (
            "search(modality, raw_queries, k), needs faiss and numpy; search.json is its table of files"
        )
        return files


def _groups(repair: InnerProduct, names: list[str]) -> list[list[str]]:
    """Return the modalities of items by the views that queries of each modality see them through."""
    found: dict[tuple[int, ...], list[str]] = {}
    for item in names:
        repair._term(item, item)  # raises InputError for another modality
        views = tuple(repair.terms_[query, item].view for query in repair.modalities)
        found.setdefault(views, []).append(item)
    return list(found.values())


def _dimensions(steps: list[Step], d: int) -> list[int]:
    """Return the dimension of the rows before each step."""
    found = []
    for step in steps:
        found.append(d)
        d = d if step == "normalize" else step.W.shape[1]
    return found


def _transform(faiss: Any, step: Step, d: int) -> Any:
    if step == "normalize":
        return faiss.NormalizationTransform(d, 2.0)
    transform = faiss.LinearTransform(*step.W.shape, True)
    faiss.copy_array_to_vector(step.W.T.astype(np.float32).ravel(), transform.A)
    faiss.copy_array_to_vector(step.b.astype(np.float32), transform.b)
    transform.is_trained = True
    return transform


def _write_items(sets: Mapping[str, Embeddings], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for name, side in sets.items():
        ids = [str(row) for row in range(len(side))] if side.item_id is None else side.item_id
        columns = {"modality": [name] * len(side), "item_id": ids, "label": side.labels, **side.metadata}
        tables.append(pa.table({key: pa.array(column) for key, column in columns.items() if column is not None}))
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowTypeError:  # numbers in one modality, words in the other
        tables = [
            pa.table({name: pa.array(map(_text, each[name].to_pylist())) for name in each.column_names})
            for each in tables
        ]
        table = pa.concat_tables(tables, promote_options="permissive")
    pq.write_table(table, path)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


targets.add("faiss", FaissIndex())

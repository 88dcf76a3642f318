"""FAISS: an index of repaired rows, and the transforms that lead from a raw query to it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.io.export import blocks, item_table
from clip_geometry.io.faiss import write_flat_index
from clip_geometry.registry import library
from clip_geometry.search.repairs import Repair
from clip_geometry.search.shipping import Target, require_inner_product, targets
from clip_geometry.search.shipping.layout import script
from clip_geometry.search.shipping.rows import ChainStep, groups_of, item_map, query_map, used_copies


class FaissIndex(Target):
    """Write one index for all items, or one per group of modalities where queries see them through different views."""

    stores_rows = True

    def write(self, repair: Repair, sets: Mapping[str, Embeddings], folder: Path) -> dict[str, str]:
        import pyarrow.parquet as pq

        faiss = library("faiss", "faiss-cpu", "a FAISS index")
        repair = require_inner_product(repair)
        files, parts, first = {}, {name: [] for name in repair.modalities}, 0
        groups = groups_of(repair, list(sets))
        for group in groups:
            called = "items" if len(groups) == 1 else f"items.{'+'.join(group)}"
            kept = used_copies(repair, group)
            maps = {name: item_map(repair, name).keep(kept) for name in group}
            d, rows = maps[group[0]].d_out, sum(len(sets[name]) for name in group)
            items = (maps[name](block.astype(np.float64)) for name in group for block in blocks(sets[name]))
            write_flat_index(folder / f"{called}.faiss", items, rows, d)
            files[f"{called}.faiss"] = f"{rows} × {d} rows, inner product"
            for query in parts:
                mapped = query_map(repair, query).keep(kept)
                transforms = _transforms(faiss, mapped.only(repair.terms_[query, group[0]].view).chain(), mapped.d_in)
                kind = query if len(groups) == 1 else f"{query}-to-{'+'.join(group)}"
                chain = [f"{kind}.{k}.vt" for k in range(len(transforms))]
                for file, transform in zip(chain, transforms, strict=True):
                    faiss.write_VectorTransform(transform, str(folder / file))
                parts[query].append({"index": f"{called}.faiss", "first": first, "transforms": chain})
            first += rows
        files[f"{'|'.join(parts)}.*.vt"] = "transforms of raw queries, in order"
        pq.write_table(item_table({name: sets[name] for group in groups for name in group}), folder / "items.parquet")
        files["items.parquet"] = "modality, item_id and columns of each row"
        (folder / "search.json").write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
        (folder / "search.py").write_text(script("search.py.j2", repair), encoding="utf-8")
        files["search.py"] = (
            "search(modality, raw_queries, k), needs faiss and numpy; search.json is its table of files"
        )
        return files


def _transforms(faiss: Any, steps: list[ChainStep], d: int) -> list[Any]:
    found = []
    for step in steps:
        if step == "normalize":
            found.append(faiss.NormalizationTransform(d, 2.0))
            continue
        transform = faiss.LinearTransform(*step.W.shape, True)
        faiss.copy_array_to_vector(step.W.T.astype(np.float32).ravel(), transform.A)
        faiss.copy_array_to_vector(step.b.astype(np.float32), transform.b)
        transform.is_trained, d = True, step.W.shape[1]
        found.append(transform)
    return found


targets.add("faiss", FaissIndex())

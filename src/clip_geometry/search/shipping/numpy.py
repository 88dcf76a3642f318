"""NumPy: a script of a few lines with its constants, for rows of an index or, where there are none, for its scores."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import InputError
from clip_geometry.search.repairs import InnerProduct, Repair
from clip_geometry.search.repairs.calibration import ORDER, Curved
from clip_geometry.search.repairs.fusion import TIE, ReciprocalRank
from clip_geometry.search.repairs.neighborhoods import QBNorm
from clip_geometry.search.shipping import Target, targets
from clip_geometry.search.shipping.layout import Arrays, layout_of, script


class NumpyScript(Target):
    """Write repair.py for an inner product and rerank.py for other repairs, with layout.json and arrays.npz."""

    def write(self, repair: Repair, sets: Mapping[str, Embeddings], folder: Path) -> dict[str, str]:
        if isinstance(repair, InnerProduct):
            layout, arrays = layout_of(repair)
            banks = any(each["statistics"] for side in layout.values() for each in side.values())
            name, text = "repair.py", script("repair.py.j2", repair, banks=banks)
            says = "rows(role, modality, raw) and top(query, raw, index, k)"
        else:
            kind, layout, arrays = _reranker(repair)
            name, text = "rerank.py", script("rerank.py.j2", repair, kind=kind)
            says = "scores(query, raw, items) and top(query, raw, items, k)"
        np.savez(folder / "arrays.npz", **arrays)  # pyright: ignore[reportArgumentType]
        (folder / "layout.json").write_text(json.dumps(layout, indent=1) + "\n", encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
        return {name: f"{says}; needs numpy only", "layout.json": "its constants", "arrays.npz": "its arrays"}


def _reranker(repair: Repair) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    """Return the kind of script, its constants and its arrays."""
    if isinstance(repair, QBNorm):
        banks = {name: f"bank{k}" for k, name in enumerate(repair.queries_)}
        return "qb_norm", {"beta": repair.beta, "banks": banks}, {banks[m]: x for m, x in repair.queries_.items()}
    if not isinstance(repair, Curved | ReciprocalRank):
        raise InputError(f"{repair.name} has no form that can be shipped")
    arrays, curves = Arrays(), {}
    kinds: dict[str, dict[str, Any]] = {query: {} for query in repair.modalities}
    for query in kinds:
        for item in kinds:
            view = repair.view(query, item)
            kinds[query][item] = {"query": arrays.view(view.queries[query]), "item": arrays.view(view.items[item])}
            if isinstance(repair, Curved):
                kinds[query][item]["curve"] = name = f"curve{len(curves)}"
                curves[name] = np.stack(repair.knots_[query, item])
    if isinstance(repair, Curved):
        return "curve", {"kinds": kinds, "slope": ORDER}, arrays.by_name | curves
    order = {"constant": repair.constant, "own_first": repair.own_first, "tie": TIE}
    return "rrf", {"kinds": kinds, **order}, arrays.by_name


targets.add("numpy", NumpyScript())

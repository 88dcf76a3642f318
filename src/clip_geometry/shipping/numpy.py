"""NumPy: a script of a few lines with its constants, for rows of an index or, where there are none, for its scores."""

import json
from pathlib import Path

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.repairs import InnerProduct
from clip_geometry.repairs.calibration import ORDER, Curved
from clip_geometry.report.words import render
from clip_geometry.shipping.base import Shipment, Target, targets
from clip_geometry.shipping.layout import Arrays, layout_of


class NumpyScript(Target):
    """Write repair.py for an inner product and rerank.py for other repairs, with layout.json and arrays.npz."""

    summary = "a script of a few lines for NumPy; for repairs that are no index, a reranker"

    def write(self, shipment: Shipment, folder: Path) -> dict[str, str]:
        repair = shipment.repair
        if isinstance(repair, InnerProduct):
            script, (layout, arrays) = "repair", layout_of(repair)
            says = "rows(role, modality, raw) and top(query, raw, items, k), needs numpy only"
        elif isinstance(repair, Curved):
            script, (layout, arrays) = "rerank", _curves_of(repair)
            says = "scores(query, q, item, x) and top(query, q, items, k), needs numpy only"
        else:
            raise InputError(
                f"{repair.name} cannot be shipped: only inner products and curves of cosines have a script"
            )
        np.savez(folder / "arrays.npz", **arrays)
        (folder / "layout.json").write_text(json.dumps(layout, indent=1) + "\n", encoding="utf-8")
        template = Path(__file__).with_name(f"{script}.py.j2")
        (folder / f"{script}.py").write_text(render(template, name=repair.name), encoding="utf-8")
        return {f"{script}.py": says, "layout.json": "its constants", "arrays.npz": "its arrays"}


def _curves_of(repair: Curved) -> tuple[dict, dict[str, np.ndarray]]:
    arrays, knots, kinds = Arrays(), {}, {}
    for k, ((query, item), curve) in enumerate(repair.knots_.items()):
        view = repair.views_[repair._view((query, item))]
        kinds[f"{query} {item}"] = {
            "query": arrays.view(view.queries[query]),
            "item": arrays.view(view.items[item]),
            "curve": f"curve{k}",
        }
        knots[f"curve{k}"] = np.stack(curve)
    return {"kinds": kinds, "slope": ORDER}, arrays.by_name | knots


targets.add("numpy", NumpyScript())

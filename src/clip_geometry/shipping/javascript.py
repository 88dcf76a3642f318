"""JavaScript: an ES module without dependencies, its constants in JSON and its arrays in one file of float32."""

import json
from pathlib import Path

import numpy as np

from clip_geometry.shipping.base import Shipment, Target, targets
from clip_geometry.shipping.layout import has_banks, layout_of, script


class JavaScriptModule(Target):
    """Write repair.mjs, layout.json and arrays.bin."""

    summary = "an ES module without dependencies"

    def write(self, shipment: Shipment, folder: Path) -> dict[str, str]:
        layout, arrays = layout_of(shipment.inner_product)
        offset, places = 0, {}
        for name, array in arrays.items():
            places[name] = {"offset": offset, "shape": list(array.shape)}
            offset += array.size
        flat = [np.ascontiguousarray(array, dtype="<f4").ravel() for array in arrays.values()]
        (folder / "arrays.bin").write_bytes(b"".join(array.tobytes() for array in flat))
        text = json.dumps(layout | {"arrays": places}, indent=1)
        (folder / "layout.json").write_text(text + "\n", encoding="utf-8")
        module = script("repair.mjs.j2", shipment.repair, banks=has_banks(layout))
        (folder / "repair.mjs").write_text(module, encoding="utf-8")
        return {
            "repair.mjs": "load, row and top, for browsers and Node.js",
            "layout.json": "its constants",
            "arrays.bin": "its arrays, float32, little-endian",
        }


targets.add("javascript", JavaScriptModule())

"""ONNX: a model for the queries and one for the items of each modality, a raw row in and a repaired row out."""

from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.shipping.base import Shipment, Target, library, targets
from clip_geometry.shipping.rows import RowMap, is_unmixed, item_map, query_map
from clip_geometry.transforms import Affine

OPSET, IR = 17, 8  # of 2022, which every runtime of since then reads


class OnnxModels(Target):
    """Write MODALITY.query.onnx and MODALITY.item.onnx, with the input "raw" and the output "row" in float32."""

    summary = "a model for queries and one for items of each modality"

    def write(self, shipment: Shipment, folder: Path) -> dict[str, str]:
        onnx = library("onnx", "onnx")
        repair, files = shipment.inner_product, {}
        for role, make in (("query", query_map), ("item", item_map)):
            for name in repair.modalities:
                mapped = make(repair, name)
                graph = _Graph(onnx)
                model = graph.model(mapped, f"{name} {role} after {repair.name}")
                onnx.checker.check_model(model, full_check=True)
                onnx.save(model, str(folder / f"{name}.{role}.onnx"))
                files[f"{name}.{role}.onnx"] = f"raw: n × {mapped.d_in} → row: n × {mapped.d_out}, float32"
        return files


class _Graph:
    """Nodes and constants of one model."""

    def __init__(self, onnx: Any):
        self.onnx, self.nodes, self.constants = onnx, [], []

    def model(self, mapped: RowMap, description: str) -> Any:
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        views = {v: self.view(mapped.views[v]) for v, _ in mapped.copies}
        columns = [self.add("Mul", views[v], self.constant(np.array(weight))) for v, weight in mapped.copies]
        if len(mapped.constants):
            rows = self.add("Gather", self.add("Shape", "raw"), self.constant(np.array([0])))
            shape = self.add("Concat", rows, self.constant(np.array([len(mapped.constants)])), axis=0)
            columns.append(self.add("Expand", self.constant(mapped.constants[None]), shape))
        self.nodes.append(helper.make_node("Concat", columns, ["row"], axis=1))
        graph = helper.make_graph(
            self.nodes,
            "repair",
            [helper.make_tensor_value_info("raw", kind, ["n", mapped.d_in])],
            [helper.make_tensor_value_info("row", kind, ["n", mapped.d_out])],
            self.constants,
            doc_string=description,
        )
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=IR, producer_name="clip-geometry")

    def view(self, view: Affine) -> str:
        rows = self.add("LpNormalization", "raw", axis=1, p=2) if view.unit_rows_in else "raw"
        if not is_unmixed(view):
            rows = self.add("MatMul", rows, self.constant(view.W))
        rows = self.add("Add", rows, self.constant(view.b))
        return self.add("LpNormalization", rows, axis=1, p=2) if view.renormalise else rows

    def add(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = f"{operation}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, inputs, [name], **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        """Add a constant, float32 or int64, and return its name."""
        name = f"constant{len(self.constants)}"
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name


targets.add("onnx", OnnxModels())

"""ONNX: a model for the queries and one for the items of each modality, a raw row in and a repaired row out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import library
from clip_geometry.search.repairs import Repair
from clip_geometry.search.repairs.neighborhoods import SAME, BankStatistic
from clip_geometry.search.shipping import Target, require_inner_product, targets
from clip_geometry.search.shipping.rows import RowMap, item_map, query_map
from clip_geometry.transforms import Affine

OPSET, IR = 17, 8  # of 2022, which every runtime of since then reads


class OnnxModels(Target):
    """Write MODALITY.query.onnx and MODALITY.item.onnx, with the input "raw" and the output "row" in float32."""

    def write(self, repair: Repair, sets: Mapping[str, Embeddings], folder: Path) -> dict[str, str]:
        onnx = library("onnx", "onnx", "an ONNX model")
        repair, files = require_inner_product(repair), {}
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
        statistics = {column: self.statistic(each, views[view]) for column, view, each in mapped.statistics}
        shape = ""
        if len(mapped.constants):
            rows = self.add("Gather", self.add("Shape", "raw"), self.constant(np.array([0])))
            shape = self.add("Concat", rows, self.constant(np.array([1])), axis=0)
        for column, value in enumerate(mapped.constants):
            constant = self.add("Expand", self.constant(np.array([[value]])), shape)
            columns.append(self.add("Add", constant, statistics[column]) if column in statistics else constant)
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
        if not view.identity:
            rows = self.add("MatMul", rows, self.constant(view.W))
        rows = self.add("Add", rows, self.constant(view.b))
        return self.add("LpNormalization", rows, axis=1, p=2) if view.renormalise else rows

    def statistic(self, statistic: BankStatistic, rows: str) -> str:
        """Add a statistic of viewed rows and return the name of its column, (n, 1)."""
        cosines = self.add("MatMul", rows, self.constant(statistic.bank.T))
        if statistic.own:  # the nearest bank row does not count where it is the row itself
            nearest = self.add("ReduceMax", cosines, axes=[1])
            itself = self.add("Greater", nearest, self.constant(np.array(1 - SAME)))
            which = self.add("And", self.add("Equal", cosines, nearest), itself)
            cosines = self.add("Where", which, self.constant(np.array(-1e4)), cosines)
        if statistic.neighbors:
            best = self.add("TopK", cosines, self.constant(np.array([statistic.neighbors])), outputs=2)
            found = self.add("ReduceMean", best, axes=[1])
        else:
            scaled = self.add("Mul", cosines, self.constant(np.array(statistic.beta)))
            found = self.add("ReduceLogSumExp", scaled, axes=[1])
        return self.add("Mul", found, self.constant(np.array(statistic.factor)))

    def add(self, operation: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return the name of its first output."""
        name = f"{operation}{len(self.nodes)}"
        names = [name, *(f"{name}.{k}" for k in range(1, outputs))]
        self.nodes.append(self.onnx.helper.make_node(operation, inputs, names, **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        """Add a constant, float32 or int64, and return its name."""
        name = f"constant{len(self.constants)}"
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name


targets.add("onnx", OnnxModels())

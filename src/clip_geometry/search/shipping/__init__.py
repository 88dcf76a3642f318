"""Fitted pipelines and repairs in the formats of other programs: a vector index, an inference runtime, a script."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from clip_geometry.display.words import render
from clip_geometry.embeddings import Embeddings
from clip_geometry.files import new_folder
from clip_geometry.io.export import blocks, item_table
from clip_geometry.io.faiss import write_flat_index
from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, Registry, library
from clip_geometry.search.repairs import InnerProduct, Repair
from clip_geometry.search.repairs.calibration import ORDER, Curved
from clip_geometry.search.repairs.maps import CONSTANT, TIE, ReciprocalRank
from clip_geometry.search.repairs.neighborhoods import SAME, BankStatistic, QBNorm
from clip_geometry.search.shipping.rows import RowMap, SavedPipeline, indexes_of, item_map, query_map
from clip_geometry.transforms import ANY, Affine

__all__ = ["RowMap", "SavedPipeline", "Target", "item_map", "query_map", "targets", "write_shipment"]

OPSET, IR = 17, 8  # of ONNX in 2022, which every runtime of since then reads

Sets: TypeAlias = Mapping[str, Embeddings]


@dataclass(frozen=True)
class Target:
    """A format.

    Attributes:
        write: Writes the files of a repair into a folder and returns file → what it is.
        stores_rows: Whether it needs the rows of the index.
    """

    write: Callable[[Repair, Sets, Path], dict[str, str]]
    stores_rows: bool = False


targets: Registry[Target] = Registry("target", "clip-geometry ship --help")


def write_shipment(repair: Repair, to: str, out: Path, sets: Sets | None = None) -> dict[str, str]:
    """Write the new folder `out`, completely or not at all.

    Args:
        repair: A fitted repair.
        to: Name of the target.
        out: A folder that does not exist or is empty.
        sets: Modality → items of the index, for a target that stores them.

    Returns:
        File → what it is.

    Raises:
        InputError: The target cannot express the repair, needs a package that is not installed, or `out` has files.
    """
    target = targets[to]
    for modality in getattr(repair, "modalities", ()):  # they become names of files
        if modality != ANY:
            modality_name(modality, f"{repair.name}:")
    with new_folder(out) as temporary:
        return target.write(repair, sets or {}, temporary)


def _inner_product(repair: Repair) -> InnerProduct:
    if not isinstance(repair, InnerProduct):
        raise InputError(
            f"{repair.name} is no inner product of rows, so an index cannot hold it: ship it --to numpy, "
            "which writes a reranker"
        )
    return repair


def _write_script(path: Path, template: str, repair: Repair, **values: Any) -> None:
    """Write a script from its template; the name of the repair, which a file may have said, cannot become code."""
    name = re.sub(r"[^\w ,.()\[\]=→-]", "", repair.name)
    text = render(Path(__file__).with_name(template), name=name, same=SAME, **values)
    path.write_text(text, encoding="utf-8")


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


# -- NumPy: a script of a few lines with its constants, for rows of an index or, where there are none, for its scores


def to_numpy(repair: Repair, sets: Sets, folder: Path) -> dict[str, str]:
    """Write repair.py for an inner product and rerank.py for other repairs, with layout.json and arrays.npz."""
    if isinstance(repair, InnerProduct):
        says = "rows(role, modality, raw) and top(query, raw, index, k); needs numpy only"
        return {"repair.py": says} | _write_rows_script(repair, folder, "repair.py")
    arrays = _Arrays()
    kind, layout = _reranker(repair, arrays)
    _write_script(folder / "rerank.py", "rerank.py.j2", repair, kind=kind)
    says = "scores(query, raw, items) and top(query, raw, items, k); needs numpy only"
    return {"rerank.py": says} | arrays.write(folder, layout)


def _write_rows_script(repair: InnerProduct, folder: Path, name: str, *, faiss: bool = False) -> dict[str, str]:
    """Write the script that makes rows of an index of raw queries and items, and return the files of its constants."""
    arrays = _Arrays()
    maps = {"queries": query_map, "items": item_map}
    layout = {role: {m: arrays.rows(make(repair, m)) for m in repair.modalities} for role, make in maps.items()}
    banks = any(each["statistics"] for side in layout.values() for each in side.values())
    _write_script(folder / name, "repair.py.j2", repair, banks=banks, faiss=faiss)
    return arrays.write(folder, layout)


class _Arrays:
    """The arrays behind a layout, each once, whatever uses it."""

    def __init__(self) -> None:
        self.by_name: dict[str, np.ndarray] = {}

    def write(self, folder: Path, layout: Mapping[str, Any]) -> dict[str, str]:
        """Write the layout and its arrays, and return file → what it is."""
        np.savez(folder / "arrays.npz", **self.by_name)  # pyright: ignore[reportArgumentType]
        _write_json(folder / "layout.json", layout)
        return {"layout.json": "the constants of the script", "arrays.npz": "its arrays"}

    def name(self, array: np.ndarray, kind: str = "array") -> str:
        for name, known in self.by_name.items():
            if known is array:
                return name
        name = f"{kind}{sum(each.startswith(kind) for each in self.by_name)}"
        self.by_name[name] = array
        return name

    def view(self, view: Affine) -> dict[str, Any]:
        return {
            "unit_before": view.unit_rows_in,
            "W": None if view.identity else self.name(view.W),
            "b": self.name(view.b) if view.b.any() else None,
            "unit_after": view.renormalise,
        }

    def rows(self, mapped: RowMap) -> dict[str, Any]:
        return {
            "views": [self.view(view) for view in mapped.views],
            "copies": [[v, float(weight)] for v, weight in mapped.copies],
            "constants": [float(value) for value in mapped.constants],
            "statistics": [self.statistic(*each) for each in mapped.statistics],
            "dimensions": [mapped.d_in, mapped.d_out],
        }

    def statistic(self, column: int, view: int, each: BankStatistic) -> dict[str, Any]:
        """k is 0 for the log sum."""
        facts = {"own": each.own, "factor": each.factor, "k": each.neighbors, "beta": each.beta}
        return {"column": column, "view": view, "bank": self.name(each.bank), **facts}


def _reranker(repair: Repair, arrays: _Arrays) -> tuple[str, dict[str, Any]]:
    """Return the kind of script and its constants."""
    if isinstance(repair, QBNorm):
        banks = {modality: arrays.name(rows, "bank") for modality, rows in repair.bank_.items()}
        return "qb_norm", {"beta": repair.beta, "banks": banks}
    if not isinstance(repair, Curved | ReciprocalRank):
        raise InputError(f"{repair.name} has no form that can be shipped")
    kinds: dict[str, dict[str, Any]] = {query: {} for query in repair.modalities}
    curves = []
    for query in kinds:
        for item in kinds:
            view = repair.view(query, item)
            kinds[query][item] = {"query": arrays.view(view.maps[query]), "item": arrays.view(view.maps[item])}
            if isinstance(repair, Curved):
                kinds[query][item]["curve"] = f"curve{len(curves)}"
                curves.append(np.stack(repair.knots_[query, item]))
    if isinstance(repair, Curved):
        arrays.by_name |= {f"curve{k}": curve for k, curve in enumerate(curves)}
        return "curve", {"kinds": kinds, "slope": ORDER}
    order = {"constant": CONSTANT, "own_first": repair.own_first, "tie": TIE}
    return "rrf", {"kinds": kinds, **order}


# -- FAISS: an index of repaired rows, and the script that searches it with raw queries


def to_faiss(repair: Repair, sets: Sets, folder: Path) -> dict[str, str]:
    """Write one index for all items, or one per group of modalities where queries see them through different views."""
    import pyarrow.parquet as pq

    library("faiss", "faiss-cpu", "a FAISS index")
    repair = _inner_product(repair)
    files, parts, first = {}, [], 0
    indexes = indexes_of(repair, sets)
    for maps, kept in indexes:
        file = "items.faiss" if len(indexes) == 1 else f"items.{'+'.join(maps)}.faiss"
        d, rows = next(iter(maps.values())).d_out, sum(len(sets[name]) for name in maps)
        items = (each(block.astype(np.float64)) for name, each in maps.items() for block in blocks(sets[name]))
        write_flat_index(folder / file, items, rows, d)
        files[file] = f"{rows} × {d} rows, inner product"
        columns = np.flatnonzero(item_map(repair, next(iter(maps))).columns_of(kept))
        parts.append({"index": file, "first": first, "columns": columns.tolist()})
        first += rows
    pq.write_table(item_table({name: sets[name] for maps, _ in indexes for name in maps}), folder / "items.parquet")
    _write_json(folder / "search.json", parts)
    files |= _write_rows_script(repair, folder, "search.py", faiss=True)
    return files | {
        "items.parquet": "modality, item_id and columns of each row",
        "search.py": "search(modality, raw_queries, k), needs faiss and numpy; search.json is its table of files",
    }


# -- ONNX: a model for the queries and one for the items of each modality, a raw row in and a repaired row out


def to_onnx(repair: Repair, sets: Sets, folder: Path) -> dict[str, str]:
    """Write MODALITY.query.onnx and MODALITY.item.onnx, with the input "raw" and the output "row" in float32."""
    onnx = library("onnx", "onnx", "an ONNX model")
    repair, files = _inner_product(repair), {}
    for role, make in (("query", query_map), ("item", item_map)):
        for name in repair.modalities:
            mapped, file = make(repair, name), f"{name}.{role}.onnx"
            model = _OnnxGraph(onnx).model(mapped, f"{name} {role} after {repair.name}")
            onnx.checker.check_model(model, full_check=True)
            onnx.save(model, str(folder / file))
            files[file] = f"raw: n × {mapped.d_in} → row: n × {mapped.d_out}, float32"
    return files


class _OnnxGraph:
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


targets.add("faiss", Target(to_faiss, stores_rows=True))
targets.add("onnx", Target(to_onnx))
targets.add("numpy", Target(to_numpy))

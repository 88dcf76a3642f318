"""Export of pipelines, repairs and match models to other programs: a vector index, an inference runtime, a script."""

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
from clip_geometry.registry import InputError, Registry, library, shown
from clip_geometry.search.matching import Match
from clip_geometry.search.matching.model import MatchModel
from clip_geometry.search.repairs import InnerProduct, Repair
from clip_geometry.search.repairs.neighborhoods import SAME, BankStatistic
from clip_geometry.search.shipping.rows import RowMap, SavedPipeline, indexes_of, item_map, query_map
from clip_geometry.steps import ANY
from clip_geometry.transforms import Affine

__all__ = ["RowMap", "SavedPipeline", "Target", "item_map", "query_map", "targets", "write_match", "write_shipment"]

OPSET, IR = 17, 8  # ONNX versions of 2022, which every later runtime reads

Sets: TypeAlias = Mapping[str, Embeddings]


@dataclass(frozen=True)
class Target:
    """A format to export to.

    Attributes:
        write: Writes the files of a repair into a folder and returns file → description.
        stores_rows: Whether the format stores the rows of the index.
    """

    write: Callable[[InnerProduct, Sets, Path], dict[str, str]]
    stores_rows: bool = False


targets: Registry[Target] = Registry("target", "clip-geometry ship --help")


def write_shipment(repair: Repair, to: str, out: Path, sets: Sets | None = None) -> dict[str, str]:
    """Write a repair in another format to the new folder `out`, completely or not at all.

    Args:
        repair: A fitted repair.
        to: Name of the target.
        out: A folder that does not exist or is empty.
        sets: Modality → items of the index, for a target that stores them.

    Returns:
        File → description.

    Raises:
        InputError: The target cannot express the repair, a required package is not installed, or `out` is not empty.
    """
    target = targets[to]
    if not isinstance(repair, InnerProduct):
        raise InputError(
            f"{repair.name} is not an inner product of rows, so an index cannot hold it; sort search results by the "
            "scores of cg.search.Repair.load(file)"
        )
    for modality in repair.modalities:  # modalities become file names
        if modality != ANY:
            modality_name(modality, f"{repair.name}:")
    with new_folder(out) as temporary:
        return target.write(repair, sets or {}, temporary)


def write_match(fitted: Match, to: str, out: Path) -> dict[str, str]:
    """Write match models to the new folder `out`, as a NumPy script ("numpy") or as ONNX models ("onnx").

    Returns:
        File → description.

    Raises:
        InputError: There is another target, a model has no probabilities, or `out` is not empty.
    """
    if to not in ("numpy", "onnx"):
        raise InputError(f"--to {shown(to)} stores rows, and match models have none; choose numpy or onnx")
    for direction, model in fitted.items():
        if model.coefficients is None or not model.identifies:
            raise InputError(f"the model of {direction} has no probabilities that identify matches")
    with new_folder(out) as folder:
        if to == "numpy":
            template = Path(__file__).with_name("match.py.j2")
            (folder / "match.py").write_text(render(template, directions=", ".join(fitted)), encoding="utf-8")
            fitted.save(folder / "match.json")
            return {"match.py": "probability(…) and cutoff(…); needs numpy only", "match.json": "its constants"}
        onnx, files = library("onnx", "onnx", "an ONNX model"), {}
        for direction, model in fitted.items():
            graph = _OnnxGraph(onnx).match_model(model)
            onnx.checker.check_model(graph, full_check=True)
            onnx.save(graph, str(folder / f"{direction}.onnx"))
            files[f"{direction}.onnx"] = "top: q × 2, mean and std: q, m: 1 → probability: q, in float32"
        return files


# -- NumPy: a script of a few lines with its constants, for rows of an index


def to_numpy(repair: InnerProduct, sets: Sets, folder: Path) -> dict[str, str]:
    """Write repair.py, with its constants in layout.json and arrays.npz."""
    description = "rows(role, modality, raw) and top(query, raw, index, k); needs numpy only"
    return {"repair.py": description} | _write_script(repair, folder / "repair.py")


def _write_script(repair: InnerProduct, path: Path, indexes: list[dict[str, Any]] | None = None) -> dict[str, str]:
    """Write a script that maps raw queries and items to index rows and, if there are indexes, searches them.

    The name of the repair, which may come from a file, is sanitized so that it cannot become code. Returns the files of
    the constants.
    """
    name = re.sub(r"[^\w ,.()\[\]=→-]", "", repair.name)
    maps = {"queries": query_map, "items": item_map}
    layout = {role: {name: _layout(make(repair, name)) for name in repair.modalities} for role, make in maps.items()}
    banks = any(fields["statistics"] for modalities in layout.values() for fields in modalities.values())
    template = Path(__file__).with_name("repair.py.j2")
    path.write_text(render(template, name=name, same=SAME, banks=banks, faiss=bool(indexes)), encoding="utf-8")
    arrays: dict[int, tuple[str, np.ndarray]] = {}  # each array once, even if several entries use it

    def name_of(array: np.ndarray) -> str:
        return arrays.setdefault(id(array), (f"array{len(arrays)}", array))[0]

    text = json.dumps(layout | {"indexes": indexes or []}, indent=1, default=name_of)
    path.with_name("layout.json").write_text(text + "\n", encoding="utf-8")
    np.savez(path.with_name("arrays.npz"), **dict(arrays.values()))  # pyright: ignore[reportArgumentType]
    return {"layout.json": "the constants of the script", "arrays.npz": "its arrays"}


def _layout(mapped: RowMap) -> dict[str, Any]:
    """Return the fields of a map for the script; in statistics, k is 0 for the log sum."""
    views = [
        {
            "unit_before": view.unit_rows_in,
            "W": None if view.identity else view.W,
            "b": view.b if view.b.any() else None,
            "unit_after": view.renormalise,
        }
        for view in mapped.views
    ]
    statistics = [
        {"column": column, "view": view, "bank": statistic.bank, "own": statistic.own, "factor": statistic.factor}
        | {"k": statistic.neighbors, "beta": statistic.beta}
        for column, view, statistic in mapped.statistics
    ]
    return {
        "views": views,
        "copies": [[v, float(weight)] for v, weight in mapped.copies],
        "constants": mapped.constants.tolist(),
        "statistics": statistics,
        "dimensions": [mapped.d_in, mapped.d_out],
    }


# -- FAISS: an index of repaired rows, and the script that searches it with raw queries


def to_faiss(repair: InnerProduct, sets: Sets, folder: Path) -> dict[str, str]:
    """Write one index for all items, or one per group of modalities if queries see them through different views."""
    import pyarrow.parquet as pq

    library("faiss", "faiss-cpu", "a FAISS index")
    files, layouts = {}, []
    first = 0
    indexes = indexes_of(repair, sets)
    for maps, kept in indexes:
        file = "items.faiss" if len(indexes) == 1 else f"items.{'+'.join(maps)}.faiss"
        d = next(iter(maps.values())).d_out
        rows = sum(len(sets[name]) for name in maps)
        items = (mapped(block.astype(np.float64)) for name, mapped in maps.items() for block in blocks(sets[name]))
        write_flat_index(folder / file, items, rows, d)
        files[file] = f"{rows} × {d} rows, inner product"
        columns = np.flatnonzero(item_map(repair, next(iter(maps))).columns_of(kept))
        layouts.append({"index": file, "first": first, "columns": columns.tolist()})
        first += rows
    pq.write_table(item_table({name: sets[name] for maps, _ in indexes for name in maps}), folder / "items.parquet")
    files |= _write_script(repair, folder / "search.py", layouts)
    return files | {
        "items.parquet": "modality, item_id and columns of each row",
        "search.py": "search(modality, raw_queries, k), needs faiss and numpy",
    }


# -- ONNX: for each modality, a model for queries and one for items; each maps raw rows to repaired rows


def to_onnx(repair: InnerProduct, sets: Sets, folder: Path) -> dict[str, str]:
    """Write MODALITY.query.onnx and MODALITY.item.onnx, with the input "raw" and the output "row" in float32."""
    onnx = library("onnx", "onnx", "an ONNX model")
    files = {}
    for role, make in (("query", query_map), ("item", item_map)):
        for name in repair.modalities:
            mapped = make(repair, name)
            file = f"{name}.{role}.onnx"
            model = _OnnxGraph(onnx).model(mapped, f"{name} {role} after {repair.name}")
            onnx.checker.check_model(model, full_check=True)
            onnx.save(model, str(folder / file))
            files[file] = f"raw: n × {mapped.d_in} → row: n × {mapped.d_out}, float32"
    return files


class _OnnxGraph:
    """The nodes and constants of one ONNX model."""

    def __init__(self, onnx: Any):
        self.onnx = onnx
        self.nodes, self.constants = [], []

    def model(self, mapped: RowMap, description: str) -> Any:
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        views = {v: self.view(mapped.views[v]) for v, _ in mapped.copies}
        columns = [self.add("Mul", views[v], self.constant(np.array(weight))) for v, weight in mapped.copies]
        statistics = {column: self.statistic(statistic, views[view]) for column, view, statistic in mapped.statistics}
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
        return self._model(graph)

    def match_model(self, model: MatchModel) -> Any:
        """Return the probability of a match model, for the two best scores of each query."""
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        intercept, *weights = map(np.array, model.coefficients or ())
        best, second = (self.add("Gather", "top", self.constant(np.array(k)), axis=1) for k in (0, 1))
        log_m = self.add("Log", "m")
        scale = self.add("Mul", "std", self.add("Sqrt", self.add("Mul", log_m, self.constant(np.array(2.0)))))
        z = self.add("Div", self.add("Sub", best, "mean"), scale)
        margin = self.add("Sqrt", self.add("Sub", best, second))
        log_odds = self.constant(intercept)
        for column, weight in zip((best, z, margin, log_m), weights, strict=True):
            log_odds = self.add("Add", log_odds, self.add("Mul", column, self.constant(weight)))
        self.nodes.append(helper.make_node("Sigmoid", [log_odds], ["probability"]))
        shapes = {"top": ["q", 2], "mean": ["q"], "std": ["q"], "m": [1]}
        inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
        output = helper.make_tensor_value_info("probability", kind, ["q"])
        return self._model(helper.make_graph(self.nodes, "match", inputs, [output], self.constants))

    def _model(self, graph: Any) -> Any:
        opset = [self.onnx.helper.make_opsetid("", OPSET)]
        return self.onnx.helper.make_model(graph, opset_imports=opset, ir_version=IR, producer_name="clip-geometry")

    def view(self, view: Affine) -> str:
        rows = self.add("LpNormalization", "raw", axis=1, p=2) if view.unit_rows_in else "raw"
        if not view.identity:
            rows = self.add("MatMul", rows, self.constant(view.W))
        rows = self.add("Add", rows, self.constant(view.b))
        return self.add("LpNormalization", rows, axis=1, p=2) if view.renormalise else rows

    def statistic(self, statistic: BankStatistic, rows: str) -> str:
        """Add a statistic of rows after a view, and return the name of its column, (n, 1)."""
        cosines = self.add("MatMul", rows, self.constant(statistic.bank.T))
        if statistic.own:  # exclude the nearest bank row if it is the row itself
            nearest = self.add("ReduceMax", cosines, axes=[1])
            itself = self.add("Greater", nearest, self.constant(np.array(1 - SAME)))
            which = self.add("And", self.add("Equal", cosines, nearest), itself)
            cosines = self.add("Where", which, self.constant(np.array(-1e4)), cosines)
        if statistic.neighbors:
            best = self.add("TopK", cosines, self.constant(np.array([statistic.neighbors])), outputs=2)
            value = self.add("ReduceMean", best, axes=[1])
        else:
            scaled = self.add("Mul", cosines, self.constant(np.array(statistic.beta)))
            value = self.add("ReduceLogSumExp", scaled, axes=[1])
        return self.add("Mul", value, self.constant(np.array(statistic.factor)))

    def add(self, operation: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return the name of its first output."""
        name = f"{operation}{len(self.nodes)}"
        names = [name, *(f"{name}.{k}" for k in range(1, outputs))]
        self.nodes.append(self.onnx.helper.make_node(operation, inputs, names, **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        """Add a constant as float32 or int64, and return its name."""
        name = f"constant{len(self.constants)}"
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name


targets.add("faiss", Target(to_faiss, stores_rows=True))
targets.add("onnx", Target(to_onnx))
targets.add("numpy", Target(to_numpy))

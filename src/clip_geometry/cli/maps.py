"""The commands that fit maps, apply them, and write them for other programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

import clip_geometry as cg
from clip_geometry.cli import options
from clip_geometry.paths import existing_file, expanded
from clip_geometry.progress import note
from clip_geometry.registry import InputError, library_versions, printable, shown

if TYPE_CHECKING:
    from clip_geometry.rows.streamed import StreamedRows

MAP = "a map (.safetensors) written by fit, or a repair written by diagnose"


def fit(
    pipeline: Annotated[str, options.STEPS.argument("PIPELINE", "e.g. normalize,whiten(128); list transforms")],
    paths: options.Sources,
    *,
    out: Annotated[Path, Option("-o", "--out", help="the .safetensors file to write")],
) -> None:
    """Fits a pipeline to embeddings and writes it as a map.

    The map is for apply, and for programs without this package.

    A single set gives one map for all modalities. With several sets, a scope in brackets says what a step is fitted
    on, as in measure: whiten(128)[pooled], procrustes[text-to-image]. Steps that are fitted on pairs match rows by
    item_id, or by position if there is none.
    """
    options.check_ending("-o", out, ".safetensors")
    options.check_paths(*paths)

    from clip_geometry.embeddings import is_large, naming_files, pair_of
    from clip_geometry.files import claimed
    from clip_geometry.io.sources import read_sets, read_sides
    from clip_geometry.measuring.sets import stream
    from clip_geometry.measuring.views import origin_of
    from clip_geometry.steps import ANY, SCOPES

    with claimed(out) as target:
        steps = cg.transforms.parse_pipeline(pipeline)
        if not steps:
            raise InputError(
                "the pipeline is empty, so there is nothing to fit; give steps, e.g. normalize,center[pooled]"
            )
        sets = read_sides(paths[0]) if len(paths) == 1 else read_sets(*paths)
        if len(sets) == 1:  # a map for all modalities; whatever their scope, steps are fitted on this set
            ((modality, side),) = sets.items()
            steps = tuple(replace(step, scope=None) if step.scope in (*SCOPES, modality) else step for step in steps)
            sets = {ANY: side}
        if is_large(*(side.vectors.shape for side in sets.values())):
            rows = stream(sets)
        else:
            rows = {modality: side.vectors for modality, side in sets.items()}
        with naming_files(sets):
            fitted = cg.Pipeline(steps).fit(rows, pair_of(sets), origin=origin_of(sets))
        if fitted.refusal:
            raise InputError(fitted.refusal)
        fitted.save(target)
    _print(f"pipeline: {' → '.join(map(str, fitted.steps))}")
    _print(f"fitted on: {fitted.fitted_on or 'nothing, because no step is fitted'}")
    for modality, (d_in, d_out) in fitted.dimensions.items():
        _print(f"{'rows' if modality == ANY else modality}: {d_in} → {d_out}")
    _print(f"map: {out}")


def apply(
    map_file: Annotated[Path, Argument(metavar="MAP", help="a .safetensors file that fit wrote")],
    source: options.Source,
    *,
    out: options.NewFolder,
    modality: options.Modality = None,
    no_normalize: options.NoNormalize = False,
) -> None:
    """Applies a map to embeddings and writes the result.

    OUT/image.parquet and OUT/text.parquet have the ids, the labels and the map's origin.

    Rows are scaled to unit length after the map. If the source is .npy files, the results are too: OUT/image.npy and
    OUT/text.npy. A saved repair can be applied if it changes only the rows.
    """
    out = expanded(out)
    existing_file(map_file, MAP)
    options.check_paths(source)

    import numpy as np
    import torch

    from clip_geometry.embeddings import naming_files
    from clip_geometry.files import new_folder, require_new_folder
    from clip_geometry.io.arrays import write_npy
    from clip_geometry.io.sources import read_sides
    from clip_geometry.io.tables import write_parquet
    from clip_geometry.measuring.sets import stream

    require_new_folder(out)
    fitted = _read(map_file)
    sides = _named(read_sides(source), source, fitted, modality)
    if isinstance(fitted, cg.search.Repair):
        steps = [fitted.name]
        fitted_on = "known rows"
        normalizes = False
    else:
        steps = [str(step) for step in fitted.steps]
        fitted_on = fitted.fitted_on
        normalizes = not no_normalize and steps[-1:] != ["normalize"]
        if normalizes:
            steps.append("normalize")
    version = library_versions().get("clip-geometry")
    origin = {"file": str(map_file), "pipeline": steps, "fitted_on": fitted_on, "version": version}
    applied = {}
    files = {}
    for name, side in sides.items():  # rows are computed when they are written
        rows = stream({name: side})
        is_repair = isinstance(fitted, cg.search.Repair)
        mapped = _repaired(fitted, rows[name], name) if is_repair else fitted.transform(rows)[name]
        mapped.name = f"{name} after the map"
        mapped = cg.transforms.Normalize().apply(mapped) if normalizes else mapped
        dtype = torch.float64 if side.vectors.dtype == np.float64 else torch.float32
        written = mapped.map(lambda block, _, dtype=dtype: block.to(dtype), mapped.shape[1], dtype=dtype)
        written.name = mapped.name
        provenance = {**side.provenance, "maps": [*side.provenance.get("maps", ()), origin]}
        applied[name] = replace(side, vectors=written, provenance=provenance)
        files[name] = f"{name}.npy" if str(side.provenance.get("source")).endswith(".npy") else f"{name}.parquet"
    with naming_files(sides), new_folder(out) as temporary:
        for name, file in files.items():
            write = write_npy if file.endswith(".npy") else write_parquet
            write(applied[name], temporary / file)
    for name, side in applied.items():
        _print(f"{name}: {len(side)} × {side.dim}, {files[name]}")
    _print(f"pipeline: {' → '.join(steps)}")
    if normalizes:
        _print("rows were scaled to unit length after the map; --no-normalize keeps the lengths after the map")
    _print(f"embeddings: {out}")


def ship(
    map_file: Annotated[Path, Argument(metavar="MAP", help="a map that fit wrote, a repair, or models of match")],
    paths: Annotated[list[Path] | None, Argument(metavar="IMAGE [TEXT]", help="rows of the index, for faiss")] = None,
    *,
    out: options.NewFolder,
    to: Annotated[Literal["faiss", "onnx", "numpy"], Option(help="the format")],
    modality: options.Modality = None,
    no_normalize: options.NoNormalize = False,
) -> None:
    """Writes a map, a repair or match models for other programs.

    These need no clip-geometry.

    faiss: an index of the given rows, and transforms for raw queries. onnx: models that take raw rows. numpy: a short
    script with its constants.
    """
    from clip_geometry.files import require_new_folder

    out = expanded(out)
    paths = paths or []
    options.check_paths(*paths)
    require_new_folder(out)
    if map_file.suffix == ".json":
        from clip_geometry.search.shipping import write_match

        if paths or modality or no_normalize:
            raise InputError("match models hold no rows; leave out FOLDER, --as and --no-normalize")
        for name, says in {**write_match(cg.read_match(map_file), to, out), to: str(out)}.items():
            _print(f"{name}: {says}")
        return
    _check_dimensions(existing_file(map_file, MAP), paths, modality)

    from clip_geometry.io.sources import read_sets, read_sides
    from clip_geometry.search.shipping import SavedPipeline, targets, write_shipment
    from clip_geometry.steps import ANY

    if targets[to].stores_rows and not paths:
        raise InputError(
            f"--to {to} needs FOLDER, the embeddings of the index: clip-geometry ship MAP FOLDER -o {shown(out)} "
            f"--to {to}"
        )
    if (paths or modality) and not targets[to].stores_rows:
        raise InputError(f"--to {to} writes only the map, for all its modalities; leave out FOLDER and --as")
    fitted = _read(map_file)
    sets = {}
    if paths:
        sides = read_sides(paths[0]) if len(paths) == 1 else read_sets(*paths)
        sets = _named(sides, paths[0], fitted, modality)
    if isinstance(fitted, cg.search.Repair):
        repair = fitted
        if no_normalize:
            note(f"--no-normalize is for maps; {fitted.name} scales its rows to the lengths that its scores need")
    else:
        modalities = sets or None  # a map for all modalities is shipped for the given ones
        repair = SavedPipeline(fitted, modalities if ANY in fitted.chains else None, normalize=not no_normalize)
    files = write_shipment(repair, to, out, sets)
    _print(f"repair: {repair.name}")
    for name, description in {**files, to: out}.items():
        _print(f"{name}: {description}")


def _check_dimensions(map_file: Path, paths: Sequence[Path], modality: str | None) -> None:
    """Compare the dimensions in the headers of .npy files and of the map, before torch is imported.

    Damaged files are skipped; the readers report them later.
    """
    from clip_geometry.io.reading import npy_header

    dimensions = _dimensions(map_file)
    for path in map(expanded, paths):
        for file in sorted(path.glob("*.npy")) if path.is_dir() else [path]:
            try:
                with file.open("rb") as opened:
                    (_, d), _ = npy_header(opened, file, file.stat().st_size)
            except (OSError, ValueError):
                continue
            is_same_for_all = len(set(dimensions.values())) == 1
            d_in = next(iter(dimensions.values())) if is_same_for_all else dimensions.get(modality or file.stem)
            if d_in is not None and d != d_in:
                raise InputError(
                    f"{shown(file)} has rows of dimension {d}, but {shown(map_file)} takes rows of dimension {d_in}; "
                    "give the embeddings that it was fitted for"
                )


def _dimensions(map_file: Path) -> Mapping[str, int]:
    """Return modality → dimension of the rows that a map or repair takes, from its header; {} if it cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(map_file), "np") as file:
            (facts,) = map(json.loads, (file.metadata() or {}).values())
            if "dimensions" in facts:  # a map, not a repair
                return {name: int(d_in) for name, (d_in, _) in facts["dimensions"].items()}
            dimensions = {}
            tensors = {*file.keys()}
            for name, number in facts["views"][0].items():
                weights = f"map.{number}.W" if f"map.{number}.W" in tensors else f"map.{number}.b"
                dimensions[name] = int(file.get_slice(weights).get_shape()[0])
            return dimensions
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return {}


def _read(path: Path) -> "cg.Pipeline | cg.search.Repair":
    """Read a map written by `fit`, or a saved repair."""
    from clip_geometry.io.reading import read_safetensors
    from clip_geometry.search.repairs.repair_file import KEY

    metadata, _ = read_safetensors(path, MAP, framework="pt")
    return cg.search.Repair.load(path) if KEY in metadata else cg.Pipeline.load(path)


def _named(
    sides: "Mapping[str, cg.Embeddings]", source: Path, fitted: "cg.Pipeline | cg.search.Repair", modality: str | None
) -> "dict[str, cg.Embeddings]":
    """Name the sides by the modalities that the map knows, with the value of --as for a single unnamed side."""
    from clip_geometry.io.sides import UNNAMED
    from clip_geometry.io.sources import own_name
    from clip_geometry.steps import ANY

    if modality is not None:
        if len(sides) > 1:
            raise InputError(
                f"--as {modality} was given, but {shown(source)} holds {' and '.join(sides)} rows; give a file "
                "with one modality"
            )
        return {modality: replace(next(iter(sides.values())), modality=modality)}
    if len(sides) > 1 and isinstance(fitted, cg.Pipeline) and fitted.refusal:
        raise InputError(fitted.refusal)
    known = list(fitted.chains if isinstance(fitted, cg.Pipeline) else getattr(fitted, "modalities", ()))
    if UNNAMED in sides and known and ANY not in known:
        raise InputError(
            f"{shown(source)} does not name the modality of its rows, and the map treats {' and '.join(known)} rows "
            f"differently: add --as {' or --as '.join(known)}"
        )
    named = {name or own_name(source): side for name, side in sides.items()}
    return {name: replace(side, modality=name) for name, side in named.items()}


def _repaired(repair: "cg.search.Repair", rows: "StreamedRows", modality: str) -> "StreamedRows":
    """Apply a repair to the rows of items; raise InputError if the repair is not a map of rows."""
    from torch import from_numpy

    from clip_geometry.search.repairs import InnerProduct
    from clip_geometry.search.shipping import item_map

    mapped = item_map(repair, modality) if isinstance(repair, InnerProduct) else None
    if mapped is None or not mapped.is_view:
        raise InputError(
            f"{repair.name} changes scores, not only rows, so it cannot be applied to embeddings; write it for an "
            "index with clip-geometry ship"
        )
    (affine,) = mapped.views
    return rows.map(lambda block, _: from_numpy(affine(block.double().numpy())), mapped.d_out)


def _print(line: str) -> None:
    print(printable(line))

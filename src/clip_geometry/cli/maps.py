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
    import numpy as np

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


def migrate(
    old: Annotated[Path, Argument(metavar="OLD", help="all rows of the index, from the old model")],
    new: Annotated[Path, Argument(metavar="NEW", help="a random sample of its items, from the new model")],
    *,
    queries: Annotated[Path | None, Option(help="queries from the new model; default: the items of NEW")] = None,
    rows: Annotated[
        Path | None, Option(help=".npy file with the row of OLD of each row of NEW; default: by item_id")
    ] = None,
    side: Annotated[Literal["items", "queries"] | None, Option(help="what to map; default: what finds more")] = None,
    k: Annotated[int, Option("-k", help="number of neighbors of the search", min=1)] = 10,
    modality: options.Modality = None,
    seed: Annotated[int, Option(help="seed of the folds", min=0, max=2**32 - 1)] = 0,
    write: Annotated[Path | None, Option(help="save the map to this .safetensors file")] = None,
) -> None:
    """Says whether a map lets an old index serve a new model.

    Re-embed about 1,000 random items with the new model. Maps are fitted on them, either of the items of the index
    into the space of the new model, or of the queries into the space of the index, which then stays untouched. What a
    search will find is predicted, compared with re-embedding the whole index.
    """
    options.check_ending("--write", write, ".safetensors")
    options.check_paths(old, new, queries, rows)

    from contextlib import ExitStack

    from clip_geometry.display.numbers import percent
    from clip_geometry.display.table import Table, TableColumn
    from clip_geometry.files import claimed
    from clip_geometry.progress import duration
    from clip_geometry.search.index_map import SIDES

    index, sample = _only(old, modality), _only(new, modality)
    asked = None if queries is None else _only(queries, None).vectors
    numbers = _rows_of(index, sample, rows)
    with ExitStack() as stack:
        target = None if write is None else stack.enter_context(claimed(write))
        maps = [
            cg.search.map_index(index.vectors, sample.vectors, numbers, side=name, queries=asked, k=k, seed=seed)
            for name in (SIDES if side is None else (side,))
        ]
        best = max(maps, key=lambda index_map: index_map.recall)
        if target is not None:
            best.save(target)
    low, high = best.interval
    verdict = [
        f"With {best.side} mapped by {best.candidates[0].steps}, a search finds {percent(best.recall)} "
        f"({percent(low)} to {percent(high)}) of the {k} items that it would find if all {best.size:,} rows were "
        "re-embedded."
    ]
    left = best.size - best.rows
    rate = _rows_per_second(new, sample.modality)
    verdict.append(
        f"Re-embedding the other {left:,} rows takes {duration(left / rate)} at the speed of {new}."
        if rate
        else f"The alternative is to re-embed the other {left:,} rows."
    )
    names = "map", f"recall at {k}", "95% interval", f"recall at {k} of {best.rows // 5} rows"
    groups = {
        f"{index_map.side} mapped": [
            [tried.steps, *cells, f"{tried.recall:.3f} ± {tried.standard_error:.3f}"]
            for tried, cells in zip(
                index_map.candidates,
                [[f"{index_map.recall:.3f}", "{:.3f} to {:.3f}".format(*index_map.interval)]]
                + [["", ""]] * len(index_map.candidates),
                strict=False,
            )
        ]
        for index_map in maps
    }
    columns = [TableColumn(name, "number" if number else "text") for number, name in enumerate(names)]
    legend = [
        f"recall at {k}: predicted for the whole index, with the best map; last column: measured among a fifth of NEW, "
        "with maps fitted on the other rows of NEW"
    ]
    Table(columns, groups, verdict=verdict, legend=legend, named_groups=True).print()
    if write is not None:
        _print(f"map of the {best.side}: {write}")
        source = f"{old} -o mapped" if best.side == "items" else "QUERIES -o mapped_queries"
        _print(f"apply it: clip-geometry apply {write} {source}")


def _only(path: Path, modality: str | None) -> "cg.Embeddings":
    """Return the only set in a file or folder, or the one of a modality."""
    from clip_geometry.io.sources import read

    if modality is not None:
        return cg.read_embeddings(path, modality=modality)
    sets = read(path)
    if len(sets) > 1:
        raise InputError(f"{shown(path)} holds {' and '.join(sets)} embeddings; choose one with --as")
    return next(iter(sets.values()))


def _rows_of(index: "cg.Embeddings", sample: "cg.Embeddings", rows: Path | None) -> "np.ndarray":
    """Return the number in the index of each row of the sample, (s,), from a file or from the ids of both."""
    import numpy as np

    if rows is not None:
        from clip_geometry.io.reading import read_npy

        return read_npy(rows)
    if index.item_id is None or sample.item_id is None:
        raise InputError(
            "OLD or NEW has no item_id; give --rows, a .npy file with the number of the row of OLD for each row of NEW"
        )
    numbers = {item: number for number, item in enumerate(index.item_id.tolist())}
    unknown = [item for item in sample.item_id.tolist() if item not in numbers]
    if unknown:
        raise InputError(f"{len(unknown)} items of NEW are not in OLD, such as {shown(unknown[0])}")
    return np.array([numbers[item] for item in sample.item_id.tolist()])


def _rows_per_second(path: Path, modality: str) -> float | None:
    """Return the speed at which embed wrote a store; None for other files."""
    from clip_geometry.embedding.store import Store

    manifest = Store(path).manifest() if path.is_dir() else None
    run = ((manifest or {}).get("run") or {}).get(modality) or {}
    return run["items"] / run["seconds"] if run.get("seconds") and run.get("items") else None


def ship(
    map_file: Annotated[Path, Argument(metavar="MAP", help="a map, a repair, a compressor, or models of match")],
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
    if _is_compressor(existing_file(map_file, MAP)):
        from clip_geometry.io.sources import read_sets
        from clip_geometry.search.shipping.compressed import write_compressed

        if to != "numpy" or modality or no_normalize or not paths:
            raise InputError("a compressor needs the rows of the index and --to numpy, without --as and --no-normalize")
        compressor = cg.search.read_compressor(map_file)
        for name, says in {**write_compressed(compressor, read_sets(*paths), out), to: str(out)}.items():
            _print(f"{name}: {says}")
        return
    _check_dimensions(map_file, paths, modality)

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


def _is_compressor(map_file: Path) -> bool:
    """Return whether a file says that it is a compressor, before torch is imported."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(map_file), "np") as file:
            return "clip_geometry_compressor" in (file.metadata() or {})
    except (SafetensorError, OSError, ValueError):
        return False


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

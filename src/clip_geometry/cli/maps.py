"""`clip-geometry fit`, `apply` and `ship`: a pipeline fitted on some embeddings, applied to others, or written for
another program."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from clip_geometry.embeddings import Embeddings, is_large, naming_files, pair_of
from clip_geometry.files import new_folder, require_new_file, require_new_folder
from clip_geometry.io.arrays import write_npy
from clip_geometry.io.reading import read_safetensors
from clip_geometry.io.sides import UNNAMED
from clip_geometry.io.sources import own_name, read_sets, read_sides
from clip_geometry.io.tables import write_parquet
from clip_geometry.measuring.sets import stream
from clip_geometry.measuring.views import origin_of
from clip_geometry.modalities import modality_name
from clip_geometry.progress import note
from clip_geometry.registry import InputError, printable, shown
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.repairs import InnerProduct, Repair
from clip_geometry.search.repairs.repair_file import KEY as REPAIR
from clip_geometry.search.shipping import SavedPipeline, item_map, targets, write_shipment
from clip_geometry.transforms import ANY, Normalize, Pipeline, Step, parse_pipeline
from clip_geometry.transforms.pipeline import SCOPES
from clip_geometry.versions import library_versions

Sides = Mapping[str, Embeddings]
UNSAID = ("source", "target")  # modalities of a map between two paths that name none


def fit_map(pipeline: str, source: Path, target: Path | None, out: Path) -> None:
    """Fits the pipeline and writes it to `out`, a file that does not exist yet."""
    out = out.expanduser()
    if out.suffix != ".safetensors":
        raise InputError(
            f"-o {shown(out)} is no .safetensors file, which is what a map is; call it {out.name}.safetensors"
        )
    out = require_new_file(out)
    steps = parse_pipeline(pipeline)
    if not steps:
        raise InputError("the pipeline is empty, so there is nothing to fit; give steps, e.g. normalize,center[pooled]")
    steps, sets = _one_side(steps, source) if target is None else _both_sides(steps, source, target)
    large = is_large(*(each.vectors.shape for each in sets.values()))
    rows = stream(sets) if large else {modality: each.vectors for modality, each in sets.items()}
    with naming_files(sets):
        fitted = Pipeline(steps).fit(rows, pair_of(sets), origin=origin_of(sets))
    if fitted.refusal:
        raise InputError(fitted.refusal)
    if "source" in sets:  # whoever applies the map says what is moved
        fitted = fitted.only("source")
    fitted.save(out)
    _print(f"pipeline: {_words(fitted)}")
    _print(f"fitted on: {fitted.fitted_on or 'nothing, no step learns'}")
    for modality, (d_in, d_out) in fitted.dimensions.items():
        try:
            affine = fitted.affine(modality)
            before, after = " of unit rows" * affine.unit_rows_in, ", then unit length" * affine.renormalise
            form = f", x W + b{before}{after}"
        except InputError as error:
            form = f" ({error})"
        _print(f"{'rows' if modality == ANY else modality}: {d_in} → {d_out}{form}")
    _print(f"map: {out}")


def apply_map(map_file: Path, source: Path, out: Path, modality: str | None, *, normalize: bool = True) -> None:
    """Applies the map to the embeddings and writes the new folder `out`, a file for each modality, .npy or a table."""
    require_new_folder(out)
    fitted = read_saved(map_file)
    sides = named_sides(read_sides(source), source, fitted, modality)
    if isinstance(fitted, Repair):
        steps, fitted_on, lengthens = [fitted.name], "known rows", False
    else:
        steps, fitted_on = [str(step) for step in fitted.steps], fitted.fitted_on
        lengthens = normalize and steps[-1:] != ["normalize"]
    steps += ["normalize"] * lengthens
    version = library_versions().get("clip-geometry")
    origin = {"file": str(map_file), "pipeline": steps, "fitted_on": fitted_on, "version": version}
    applied = {}
    for name, side in sides.items():  # computed while it is written
        rows = stream({name: side})
        mapped = _repaired(fitted, rows, name) if isinstance(fitted, Repair) else fitted.transform(rows)[name]
        mapped.name = f"{name} after the map"
        mapped = Normalize().apply(mapped) if lengthens else mapped
        dtype = torch.float64 if side.vectors.dtype == np.float64 else torch.float32
        written = mapped.map(lambda block, _, dtype=dtype: block.to(dtype), mapped.shape[1], dtype=dtype)
        written.name = mapped.name
        provenance = {**side.provenance, "maps": [*side.provenance.get("maps", ()), origin]}
        applied[name] = replace(side, vectors=written, provenance=provenance)
    files = {}
    with naming_files(sides), new_folder(out) as temporary:
        for name, side in applied.items():
            of_numpy = str(side.provenance.get("source")).endswith(".npy")
            files[name] = f"{name}.npy" if of_numpy else f"{name}.parquet"
            write = write_npy if of_numpy else write_parquet
            write(side, temporary / files[name])
    for name, side in applied.items():
        _print(f"{name}: {len(side)} × {side.dim}, {files[name]}")
    _print(f"pipeline: {' → '.join(steps)}")
    if lengthens:
        _print("rows were made unit length after the map; --no-normalize leaves the lengths that it gives")
    _print(f"embeddings: {out}")


def ship_map(
    map_file: Path, sources: Sequence[Path], out: Path, to: str, modality: str | None, *, normalize: bool
) -> None:
    """Writes the map for the target `to` into the new folder `out`."""
    require_new_folder(out)
    stores_rows = targets[to].stores_rows
    if stores_rows and not sources:
        raise InputError(
            f"--to {to} needs FOLDER, embeddings of the index: clip-geometry ship MAP FOLDER -o {shown(out)} --to {to}"
        )
    if sources and not stores_rows:
        raise InputError(f"{shown(sources[0])} was given, but --to {to} writes the map alone; leave it out")
    if modality is not None and not stores_rows:
        raise InputError(f"--as {modality} was given, but --to {to} writes all modalities of the map; leave it out")
    fitted, sets = read_saved(map_file), {}
    if stores_rows:
        sides = read_sides(sources[0]) if len(sources) == 1 else read_sets(*sources)
        sets = named_sides(sides, sources[0], fitted, modality)
    if isinstance(fitted, Repair):
        if not normalize:
            note(f"--no-normalize is for maps; {fitted.name} gives its rows the lengths that its scores need")
        repair = fitted
    else:  # a map of every modality is one of those that are given
        repair = SavedPipeline(fitted, sets or None if ANY in fitted.chains else None, normalize=normalize)
    for name, side in sets.items():
        if isinstance(repair, InnerProduct) and side.dim != (expected := item_map(repair, name).d_in):
            raise InputError(
                f"{shown(Path(str(side.provenance.get('source'))))} has rows of dimension {side.dim}, but "
                f"{shown(map_file)} takes rows of dimension {expected}; give the embeddings that it was fitted for"
            )
    files = write_shipment(repair, to, out, sets)
    _print(f"repair: {repair.name}")
    for name, says in {**files, to: out}.items():
        _print(f"{name}: {says}")
    lacking = sorted({*getattr(repair, "modalities", ())} - sets.keys()) if stores_rows else []
    if lacking:
        note(
            f"{shown(sources[0])} has no {' and no '.join(lacking)} rows, which the repair knows too; "
            "a folder may have all"
        )


def read_saved(path: Path) -> Pipeline | Repair:
    """Reads a map that `fit` wrote, or a saved repair."""
    metadata, _ = read_safetensors(
        path, "a map (.safetensors) written by fit, or a repair written by diagnose", framework="pt"
    )
    return Repair.load(path) if REPAIR in metadata else Pipeline.load(path)


def _repaired(repair: Repair, rows: Mapping[str, StreamedRows], modality: str) -> StreamedRows:
    """The rows of items after a repair that is a map of rows."""
    mapped = item_map(repair, modality) if isinstance(repair, InnerProduct) else None
    if mapped is None or not mapped.is_view:
        raise InputError(
            f"{repair.name} changes scores, not only rows, so it cannot be applied to embeddings: "
            "clip-geometry ship writes it for an index"
        )
    (affine,), x = mapped.views, rows[modality]
    return x.map(lambda block, _: torch.from_numpy(affine(block.double().numpy())), mapped.d_out)


def _one_side(steps: tuple[Step, ...], source: Path) -> tuple[tuple[Step, ...], dict[str, Embeddings]]:
    """The sets of one path. One set alone gives a map of every modality."""
    sides = read_sides(source)
    if len(sides) > 1:
        return steps, sides
    modality, side = next(iter(sides.items()))
    for step in steps:
        if len(step.kind.sets) == 2:
            does = "is fitted on two modalities" if step.kind.joint else "maps one set onto another"
            raise InputError(f"{step} {does}, but only {shown(source)} was given: give the TARGET too")
        if step.scope not in (None, *SCOPES, modality):
            raise InputError(
                f"{step} is to be fitted on {step.scope} rows, but {shown(source)} holds {modality or 'unnamed'} rows "
                "only"
            )
    # one set is what every step is fitted on, whatever its scope says of several
    return tuple(replace(step, scope=None) for step in steps), {ANY: side}


def _both_sides(steps: tuple[Step, ...], source: Path, target: Path) -> tuple[tuple[Step, ...], dict[str, Embeddings]]:
    """The sets of two paths, and the steps with their direction, which is from the first to the second."""
    stated = list(dict.fromkeys(step.sides() for step in steps if step.kind.onto and step.scope))
    if len(stated) > 1:
        both = " and ".join("-to-".join(sides) for sides in stated)
        raise InputError(f"the pipeline maps in two directions, {both}, but with a TARGET only SOURCE is moved")
    source_side = _side(source, stated[0][0] if stated else None)
    target_side = _side(target, stated[0][1] if stated else None)
    known = (source_side.modality, target_side.modality)
    names = stated[0] if stated else known if UNNAMED not in known and len({*known}) == 2 else UNSAID
    if names == UNSAID and not any(step.kind.onto for step in steps):
        raise InputError(
            f"it is not clear which modalities {shown(source)} and {shown(target)} hold: call the files by them, "
            "image.npy and text.npy, or give one folder with both"
        )
    for step in steps if names[0] == "source" else ():
        if step.kind.fits and len(step.kind.sets) == 1 and step.scope != "pooled":
            raise InputError(  # a map of the source rows cannot carry what was fitted on the target alone
                f"{step} would be fitted on SOURCE and TARGET each, but the map moves SOURCE rows only; "
                f"write {replace(step, scope='pooled')}, or transform both before"
            )
    steps = tuple(replace(step, scope="-to-".join(names)) if step.kind.onto else step for step in steps)
    sides = zip(names, (source_side, target_side), strict=True)
    return steps, {name: replace(side, modality=name) for name, side in sides}


def _side(path: Path, modality: str | None) -> Embeddings:
    """The rows of the modality in a path; None for its only one."""
    sides = read_sides(path)
    if len(sides) > 1 and modality not in sides:
        raise InputError(f"{shown(path)} holds {' and '.join(sides)} rows; say which, e.g. procrustes[text-to-image]")
    name = modality if modality in sides else next(iter(sides))
    if name not in (modality, UNNAMED) and modality not in (None, *UNSAID):
        raise InputError(f"{shown(path)} holds {name} rows, but the pipeline takes it for {modality} rows")
    return sides[name]


def named_sides(sides: Sides, source: Path, fitted: Pipeline | Repair, modality: str | None) -> dict[str, Embeddings]:
    """The sides by the modality under which the map treats them."""
    if modality is not None:
        modality_name(modality, "--as")
        if len(sides) > 1:
            raise InputError(
                f"--as {modality} was given, but {shown(source)} holds {' and '.join(sides)} rows: give one file"
            )
        return {modality: replace(next(iter(sides.values())), modality=modality)}
    known = list(fitted.chains if isinstance(fitted, Pipeline) else getattr(fitted, "modalities", ()))
    if isinstance(fitted, Pipeline) and len(sides) > 1:
        if fitted.refusal:
            raise InputError(fitted.refusal)
        if ANY in known and any(step.kind.onto for step in fitted.steps):
            raise InputError(
                f"the map moves one set onto another ({_words(fitted)}), but {shown(source)} holds "
                f"{' and '.join(sides)} rows: give the file to be moved"
            )
    if UNNAMED in sides and known and ANY not in known:
        raise InputError(
            f"{shown(source)} does not say what its rows are, and the map treats {' and '.join(known)} rows "
            f"differently: add --as {' or --as '.join(known)}"
        )
    names = {name: name or own_name(source) for name in sides}
    return {names[name]: replace(side, modality=names[name]) for name, side in sides.items()}


def _words(fitted: Pipeline) -> str:
    return " → ".join(map(str, fitted.steps))


def _print(line: str) -> None:
    print(printable(line))

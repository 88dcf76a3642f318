"""Maps from the command line: fitted, applied, shipped."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from clip_geometry.cli import completion
from clip_geometry.cli.arguments import check_embeddings, check_pipeline, require, step_names
from clip_geometry.cli.commands.options import Modality, NoNormalize
from clip_geometry.paths import existing_file, expanded
from clip_geometry.registry import InputError, shown

TARGETS = ("faiss", "onnx", "numpy")


def fit(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE",
            help="e.g. normalize,whiten(128); list transforms",
            autocompletion=completion.several(step_names),
        ),
    ],
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="embeddings: a file or a folder")],
    target: Annotated[Path | None, typer.Argument(metavar="TARGET", help="what SOURCE is mapped onto")] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="the .safetensors file to write")] = ...,  # pyright: ignore
) -> None:
    """Fits a pipeline to embeddings and writes it as a map.

    The map is for apply, and for programs without this package.

    A single set gives one map for all modalities. For a folder with images and texts, steps say what they are fitted
    on, as in measure: whiten(128)[pooled], procrustes[text-to-image]. With a TARGET, steps that map one set onto
    another, such as procrustes or realign, map SOURCE onto it; steps fitted on pairs pair rows by item_id, or by
    position without one.
    """
    check_pipeline(pipeline)
    check_embeddings(source, target)

    from clip_geometry.cli.maps import fit_map
    from clip_geometry.files import claimed

    with claimed(out) as mine:
        fit_map(pipeline, source, target, mine)


def apply(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help="a .safetensors file that fit wrote")],
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="embeddings: a folder or a file")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the new folder to write")] = ...,  # pyright: ignore
    modality: Modality = None,
    no_normalize: NoNormalize = False,
) -> None:
    """Applies a map to embeddings and writes the result.

    OUT/image.parquet and OUT/text.parquet have the ids, the labels and the map's origin.

    Rows are made unit length after the map. Of .npy files it writes .npy files: OUT/image.npy and OUT/text.npy. A saved
    repair is applied too where it changes the rows only.
    """
    from clip_geometry.cli.maps import apply_map

    apply_map(map_file, source, expanded(out), modality, normalize=not no_normalize)


def ship(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help="a map that fit wrote, or a saved repair")],
    sources: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER | IMAGE TEXT", help="embeddings of the index, for faiss"),
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="the new folder to write")] = ...,  # pyright: ignore
    to: Annotated[
        str,
        typer.Option(
            help="faiss, onnx or numpy",
            autocompletion=completion.one_of(*TARGETS),
        ),
    ] = ...,  # pyright: ignore
    modality: Modality = None,
    no_normalize: NoNormalize = False,
) -> None:
    """Writes a map or a repair as an index, a model or a script.

    Other programs then need no clip-geometry.

    faiss: an index of the rows given, and transforms of raw queries. onnx: models of raw rows. numpy: a short script
    with its constants.
    """
    _check_shipment(to, map_file, sources or (), out, modality)
    check_embeddings(*sources or ())

    from clip_geometry.cli.maps import ship_map

    ship_map(map_file, sources or (), expanded(out), to, modality, normalize=not no_normalize)


def _check_shipment(to: str, map_file: Path, sources: Sequence[Path], out: Path, modality: str | None) -> None:
    """Checks the target, the new folder, and whether rows in .npy files have the dimension that the map takes."""
    from clip_geometry.files import require_new_folder

    require("target", to, TARGETS, "clip-geometry ship --help")
    require_new_folder(expanded(out))
    dimensions = _dimensions(
        existing_file(map_file, "a map (.safetensors) written by fit, or a repair written by diagnose")
    )
    equal = len(set(dimensions.values())) == 1
    for source in map(expanded, sources):
        for path in sorted(source.glob("*.npy")) if source.is_dir() else [source]:
            d = _columns(path)
            expected = next(iter(dimensions.values())) if equal else dimensions.get(modality or path.stem)
            if None not in (d, expected) and d != expected:
                raise InputError(
                    f"{shown(path)} has rows of dimension {d}, but {shown(map_file)} takes rows of dimension "
                    f"{expected}; give the embeddings that it was fitted for"
                )


def _dimensions(map_file: Path) -> Mapping[str, int]:
    """Modality → dimension of the rows that a map or a repair takes, as its header says; empty where it does not, which
    reading the file explains."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(map_file), "np") as file:
            for facts in map(json.loads, (file.metadata() or {}).values()):
                if "dimensions" in facts:  # of a map
                    return {name: int(d_in) for name, (d_in, _) in facts["dimensions"].items()}
                names = {*file.keys()}
                of_map = {name: f"map.{number}" for name, number in facts["views"][0]["items"].items()}
                tensors = {name: f"{each}.W" if f"{each}.W" in names else f"{each}.b" for name, each in of_map.items()}
                return {name: int(file.get_slice(tensor).get_shape()[0]) for name, tensor in tensors.items()}
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        pass
    return {}


def _columns(path: Path) -> int | None:
    """Number of columns of the matrix in a .npy file; None of any other file."""
    from clip_geometry.io.reading import npy_header

    try:
        with path.open("rb") as file:
            shape, _ = npy_header(file, path, path.stat().st_size)
    except (OSError, InputError):
        return None
    return shape[1] if len(shape) == 2 else None

"""Maps from the command line: fitted, applied, shipped."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from clip_geometry.cli import completion
from clip_geometry.cli.arguments import check_embeddings, check_pipeline, step_names
from clip_geometry.cli.options import Modality, NoNormalize
from clip_geometry.paths import existing_file, expanded
from clip_geometry.registry import InputError, shown


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
    to: Annotated[Literal["faiss", "onnx", "numpy"], typer.Option(help="the format")] = ...,  # pyright: ignore
    modality: Modality = None,
    no_normalize: NoNormalize = False,
) -> None:
    """Writes a map or a repair as an index, a model or a script.

    Other programs then need no clip-geometry.

    faiss: an index of the rows given, and transforms of raw queries. onnx: models of raw rows. numpy: a short script
    with its constants.
    """
    check_embeddings(*sources or ())
    _check_shipment(map_file, sources or (), out, modality)

    from clip_geometry.cli.maps import ship_map

    ship_map(map_file, sources or (), expanded(out), to, modality, normalize=not no_normalize)


def _check_shipment(map_file: Path, sources: Sequence[Path], out: Path, modality: str | None) -> None:
    """Checks the new folder, and whether rows in .npy files have the dimension that the map takes."""
    from clip_geometry.files import require_new_folder
    from clip_geometry.io.reading import npy_header

    require_new_folder(expanded(out))
    takes = _dimensions(existing_file(map_file, "a map (.safetensors) written by fit, or a repair written by diagnose"))
    for source in map(expanded, sources):
        for path in sorted(source.glob("*.npy")) if source.is_dir() else [source]:
            name = modality or path.stem
            d = next(iter(takes.values())) if len(set(takes.values())) == 1 else takes.get(name)
            try:
                with path.open("rb") as file:
                    shape, _ = npy_header(file, path, path.stat().st_size)
            except (OSError, InputError):  # no .npy file, or one whose fault its reader explains
                continue
            if d is not None and len(shape) == 2 and shape[1] != d:
                raise InputError(
                    f"{shown(path)} has rows of dimension {shape[1]}, but {shown(map_file)} takes rows of dimension "
                    f"{d}; give the embeddings that it was fitted for"
                )


def _dimensions(map_file: Path) -> Mapping[str, int]:
    """Modality → dimension of the rows that a map or a repair takes, by its header; {} where reading it would fail."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(map_file), "np") as file:
            (facts,) = map(json.loads, (file.metadata() or {}).values())
            if "dimensions" in facts:  # of a map
                return {name: int(d_in) for name, (d_in, _) in facts["dimensions"].items()}
            found, tensors = {}, {*file.keys()}
            for name, number in facts["views"][0]["items"].items():
                weights = f"map.{number}.W" if f"map.{number}.W" in tensors else f"map.{number}.b"
                found[name] = int(file.get_slice(weights).get_shape()[0])
            return found
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return {}

"""`clip-geometry embed`: names in, a store out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clip_geometry.config import parse_overrides
from clip_geometry.data import load_dataset, resolve_dataset
from clip_geometry.embed import embed
from clip_geometry.encoders import resolve_encoder
from clip_geometry.registry import InputError, did_you_mean

EXPORTS = ("clip-retrieval", "parquet")


def embed_named(
    model: str,
    dataset: str,
    out: Path,
    *,
    model_options: Mapping[str, Any],
    data_options: Mapping[str, Any],
    overrides: Sequence[str],
    export: str | None,
    **settings: Any,
) -> None:
    """Embeds `dataset` with `model` into `out`; settings are those of embed."""
    if export is not None and export not in EXPORTS:
        raise InputError(f"--export {export!r} is unknown; known are {', '.join(EXPORTS)}")
    for_model, for_data = share_out(parse_overrides(overrides), model, dataset)
    encoder = resolve_encoder(model, **{**model_options, **for_model})
    data = load_dataset(resolve_dataset(dataset, **{**data_options, **for_data}))
    manifest = embed(encoder, data, out, **settings)
    for modality, side in manifest["sides"].items():
        print(f"{modality}: {side['n']} × {side['d']}")
    print(f"store: {out}")
    if export is not None:
        from clip_geometry import formats

        write = formats.export_clip_retrieval if export == "clip-retrieval" else formats.export_parquet
        write(out, out / "export")
        print(f"{export}: {out / 'export'}")


def share_out(options: Mapping[str, Any], model: str, dataset: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Which options are the encoder's and which the data set's: by prefix, else by who has the field."""
    encoder_fields = type(resolve_encoder(model)).model_fields
    data_fields = type(resolve_dataset(dataset)).model_fields
    for_model, for_data = {}, {}
    for key, value in options.items():
        owner, _, name = key.rpartition(".")
        if owner not in ("", "model", "data"):
            raise InputError(f"option {key!r} has the unknown prefix {owner!r}; known are 'model' and 'data'")
        if owner == "model" or (owner == "" and name in encoder_fields):
            for_model[name] = value
        elif owner == "data" or name in data_fields:
            for_data[name] = value
        else:
            known = sorted({*encoder_fields, *data_fields} - {"model", "name"})
            near = did_you_mean(name, known)
            raise InputError(f"unknown option {name!r}{near or '; known are ' + ', '.join(known)}")
    return for_model, for_data

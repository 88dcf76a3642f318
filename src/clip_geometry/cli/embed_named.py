"""`clip-geometry embed`: embeds a named data set with a named model into a store."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clip_geometry import data, encoders
from clip_geometry.config import parse_overrides, validate
from clip_geometry.embedding.loop import embed
from clip_geometry.embedding.reading import read_store
from clip_geometry.embedding.supply import Throughput
from clip_geometry.modalities import modality_name
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, printable, shown

EXPORTS = ("clip-retrieval", "parquet")
LISTED = "clip-geometry list models, and list datasets,"


def embed_named(
    model: str,
    dataset: str,
    out: Path,
    *,
    model_options: Mapping[str, Any],
    data_options: Mapping[str, Any],
    overrides: Sequence[str],
    export: str | None,
    only: str | None = None,
    **settings: Any,
) -> None:
    """Embeds `dataset` with `model` into `out`; `settings` are those of `embed`.

    Of several languages, comma-separated, each has a store in `out`, the first one with the images.
    """
    if export is not None and export not in EXPORTS:
        raise InputError(f"--export {shown(export)} is unknown; known are {', '.join(EXPORTS)}")
    if only not in (None, "image", "text"):
        raise InputError(f"--only {shown(only)} is unknown; known are image, text")
    more = next((each for each in overrides if "=" not in each and Path(each).exists()), None)
    if more is not None:  # the shell has expanded {000..123} or *
        raise InputError(f"{shown(more)} is a second data set; quote 'shards/{{000..123}}.tar', or give the folder")
    out = expanded(out)
    for_model, for_data, for_speed = share_out(parse_overrides(overrides), model, dataset)
    throughput = validate(Throughput, for_speed, "embed")
    config = encoders.resolve_encoder(model, **{**model_options, **for_model})
    options = {**data_options, **for_data}
    languages = str(options.get("language", "")).split(",")
    stores = {}
    for language in map(str.strip, languages):
        each, folder = options, out
        if len(languages) > 1:
            each, folder = {**options, "language": language}, out / modality_name(language, "the language")
        items = data.load_dataset(data.resolve_dataset(dataset, **each))
        part = only or ("text" if stores else None)  # the images are those of the first language
        stores[folder] = items if part is None else items.only(part)
    for folder, items in stores.items():
        manifest = embed(config, items, folder, throughput=throughput, **settings)
        limit = settings.get("limit")
        for modality, side in manifest["sides"].items():
            print(f"{modality}: {side['n']} × {side['d']}{left_out(side)}")
        print(printable(f"store: {folder}"))
        sides = read_store(folder, limit=limit)
        if any(len(sides[modality]) < side["n"] for modality, side in manifest["sides"].items()):
            print(f"the store holds more than --limit {limit}, which is a view of it: measure reads all of it")
        if export is not None:
            from clip_geometry import formats

            write = formats.export_clip_retrieval if export == "clip-retrieval" else formats.export_parquet
            write(sides, folder / "export" / export)
            print(printable(f"{export}: {folder / 'export' / export}"))


def left_out(side: Mapping[str, Any]) -> str:
    """Lists what the rows leave out: unreadable images, the ends of long texts, words without tokens, captions."""
    skipped, truncated, lost = len(side.get("skipped") or ()), side.get("truncated") or 0, side.get("lost") or 0
    words = [f"{skipped} unreadable and skipped"] * (skipped > 0) + [f"{truncated} truncated"] * (truncated > 0)
    words += [f"{lost} words without a row"] * (lost > 0)
    dropped = side.get("dropped") or 0
    words += [f"{dropped} more captions of these images left out by captions_per_image"] * (dropped > 0)
    return f" ({', '.join(words)})" if words else ""


def share_out(options: Mapping[str, Any], model: str, dataset: str) -> tuple[dict[str, Any], ...]:
    """Sorts options into those of the encoder, the data set and Throughput: by prefix, otherwise by who has the field.

    Only config classes are looked up, because a valid config may need these very options.
    """
    fields = {
        "model": encoders.config_class(model).model_fields.keys() - {"model"},
        "data": data.config_class(dataset).model_fields.keys() - {"name"},
        "throughput": Throughput.model_fields.keys(),
    }
    shares: dict[str, dict[str, Any]] = {owner: {} for owner in fields}
    for key, value in options.items():
        prefix, _, name = key.rpartition(".")
        if prefix not in ("", *fields):
            known = ", ".join(map(repr, fields))
            raise InputError(f"option {shown(key)} has the unknown prefix {shown(prefix)}; known are {known}")
        asked = [prefix] if prefix else list(fields)
        owner = next((owner for owner in asked if name in fields[owner]), None)
        if owner is None:
            known = sorted(set().union(*(fields[each] for each in asked)))
            raise InputError(f"unknown option {shown(key)}{did_you_mean(name, known, listed_by=LISTED)}")
        shares[owner][name] = value
    return tuple(shares.values())

"""The commands that write embeddings: those that a model computes, and exports for other programs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

import clip_geometry as cg
from clip_geometry.cli import options
from clip_geometry.cli.lists import entries_of
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, printable, shown


def _datasets() -> list[str]:
    return [entry.name for entry in entries_of("datasets")]


def embed(
    model: Annotated[str, Argument(metavar="MODEL", help="a name (list models)", autocompletion=options.model_names)],
    dataset: Annotated[str, Argument(metavar="DATASET", help="a name or a path", autocompletion=_datasets)],
    overrides: options.Overrides = None,
    *,
    out: Annotated[Path, Option("-o", "--out", help="the folder to write")],
    split: Annotated[str | None, Option(help="split of the data set")] = None,
    prompt: Annotated[str | None, Option(help='class names as prompts, e.g. "a photo of a {}"')] = None,
    language: Annotated[str | None, Option(help="of the captions; en,de: a store for each, OUT/en, …")] = None,
    only: Annotated[Literal["image", "text"] | None, Option(help="embed one side only")] = None,
    limit: Annotated[int | None, Option(help="use only the first N items", min=1)] = None,
    batch_size: Annotated[int, Option(min=1)] = 64,
    shard_size: Annotated[int | None, Option(help="items per shard", min=1)] = None,
    device: options.Device = "auto",
    precision: Annotated[str | None, Option(help="fp32 (default), bf16 or fp16")] = None,
    features: Annotated[str | None, Option(help="projected (default) or pooled")] = None,
    max_corrupt: Annotated[float, Option(help="share of images that may fail to decode", min=0, max=1)] = 0.01,
    engine: options.EngineName = "local",
    address: options.Address = None,
) -> None:
    """Embeds a data set; run again, it computes what is missing.

    Several languages are modalities of their own: each has a store in OUT, the first one with the images.

    KEY=VALUE sets any other field of the encoder's or the data set's config: seed=1 zero_bias=true. Where both
    have a field, the encoder's is set; data.seed=1 sets the data set's.
    """
    from clip_geometry import data, encoders
    from clip_geometry.config import parse_overrides, validate
    from clip_geometry.embedding.supply import Throughput
    from clip_geometry.modalities import modality_name

    out = expanded(out)
    fields = {
        "model": encoders.config_class(model).model_fields.keys() - {"model"},
        "data": data.config_class(dataset).model_fields.keys() - {"name"},
        "throughput": Throughput.model_fields.keys(),
    }
    shares = _share_out(parse_overrides(overrides or []), fields)
    throughput = validate(Throughput, shares["throughput"], "embed")
    for_model = _given({"precision": precision, "features": features})
    config = cg.encoders.resolve_encoder(model, **{**for_model, **shares["model"]})
    fields_of_data = {**_given({"split": split, "prompt": prompt, "language": language}), **shares["data"]}
    languages = [each.strip() for each in str(fields_of_data.get("language", "")).split(",")]
    stores = {}
    for spoken in languages:
        each, folder = fields_of_data, out
        if len(languages) > 1:
            each, folder = {**fields_of_data, "language": spoken}, out / modality_name(spoken, "the language")
        items = cg.data.load_dataset(dataset, **each)
        part = only or ("text" if stores else None)  # only the first language's store has images
        stores[folder] = items if part is None else items.only(part)
    for folder, items in stores.items():
        manifest = cg.embed(
            config,
            items,
            folder,
            limit=limit,
            batch_size=batch_size,
            shard_size=shard_size,
            device=device,
            throughput=throughput,
            max_corrupt=max_corrupt,
            engine=engine,
            address=address,
        )
        sides = manifest["sides"]
        for modality, side in sides.items():
            print(f"{modality}: {side['n']} × {side['d']}{left_out(side)}")
        print(printable(f"store: {folder}"))
        found = cg.read_store(folder, limit=limit)
        if any(len(found[modality]) < side["n"] for modality, side in sides.items()):
            print(f"the store holds more than --limit {limit}, which is a view of it: measure reads all of it")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _share_out(given: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Assign options to the owners of their fields, by prefix or else to the first owner that has the field."""
    shares: dict[str, dict[str, Any]] = {owner: {} for owner in fields}
    for key, value in given.items():
        prefix, _, name = key.rpartition(".")
        if prefix not in ("", *fields):
            known = ", ".join(map(repr, fields))
            raise InputError(f"option {shown(key)} has the unknown prefix {shown(prefix)}; known are {known}")
        asked = [prefix] if prefix else list(fields)
        owner = next((owner for owner in asked if name in fields[owner]), None)
        if owner is None:
            known = sorted(set().union(*(fields[each] for each in asked)))
            listed_by = "clip-geometry list models, and list datasets,"
            raise InputError(f"unknown option {shown(key)}{did_you_mean(name, known, listed_by=listed_by)}")
        shares[owner][name] = value
    return shares


def left_out(side: Mapping[str, Any]) -> str:
    """Describe what a store leaves out: unreadable images, ends of long texts, words without tokens, captions."""
    counts = {
        "unreadable and skipped": len(side.get("skipped") or ()),
        "truncated": side.get("truncated") or 0,
        "words without a row": side.get("lost") or 0,
        "more captions of these images left out by captions_per_image": side.get("dropped") or 0,
    }
    words = [f"{count} {what}" for what, count in counts.items() if count > 0]
    return f" ({', '.join(words)})" if words else ""


def export(
    source: options.Source,
    *,
    out: Annotated[Path, Option("-o", "--out", help="the new folder or file to write")],
    to: Annotated[str, Option(help="the format")],
    normalize: Annotated[bool, Option("--normalize", help="make rows unit length first")] = False,
) -> None:
    """Writes embeddings for another program."""
    options.check_paths(source)
    out = expanded(out)
    for name, says in cg.export(source, out, to=to, normalize=normalize).items():
        print(printable(f"{name}: {says}"))
    print(printable(f"{to}: {out}"))

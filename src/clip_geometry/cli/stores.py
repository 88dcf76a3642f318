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
    language: Annotated[str | None, Option(help="of the captions; en,de writes a store for each: OUT/en, …")] = None,
    only: Annotated[Literal["image", "text"] | None, Option(help="embed only this modality")] = None,
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

    Several languages are separate modalities: each has a store in OUT, and the first also has the images.

    KEY=VALUE sets any other field of the encoder's or the data set's config: seed=1 zero_bias=true. If both have the
    field, the encoder's is set; data.seed=1 sets the data set's.
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
    overrides_of = _by_owner(parse_overrides(overrides or []), fields)
    throughput = validate(Throughput, overrides_of["throughput"], "embed")
    model_options = _without_none({"precision": precision, "features": features})
    config = cg.encoders.resolve_encoder(model, **{**model_options, **overrides_of["model"]})
    data_options = _without_none({"split": split, "prompt": prompt, "language": language})
    data_options |= overrides_of["data"]
    languages = [code.strip() for code in str(data_options.get("language", "")).split(",")]
    data_of_store = {}
    for code in languages:
        folder = out
        if len(languages) > 1:
            folder = out / modality_name(code, "the language")
            data_options = {**data_options, "language": code}
        data_set = cg.data.load_dataset(dataset, **data_options)
        modality = only or ("text" if data_of_store else None)  # only the first language's store has images
        data_of_store[folder] = data_set if modality is None else data_set.only(modality)
    for folder, data_set in data_of_store.items():
        manifest = cg.embed(
            config,
            data_set,
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
        limited = cg.read_store(folder, limit=limit)
        if any(len(limited[modality]) < side["n"] for modality, side in sides.items()):
            print(f"the store holds more than --limit {limit} items, and measure reads all of them")


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _by_owner(overrides: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Assign options to the owners of their fields, by prefix or else to the first owner that has the field."""
    by_owner: dict[str, dict[str, Any]] = {owner: {} for owner in fields}
    for key, value in overrides.items():
        prefix, _, name = key.rpartition(".")
        if prefix not in ("", *fields):
            known = ", ".join(map(repr, fields))
            raise InputError(f"option {shown(key)} has the unknown prefix {shown(prefix)}; known are {known}")
        candidates = [prefix] if prefix else list(fields)
        owner = next((owner for owner in candidates if name in fields[owner]), None)
        if owner is None:
            known = sorted(set().union(*(fields[owner] for owner in candidates)))
            listed_by = "clip-geometry list models, and list datasets,"
            raise InputError(f"unknown option {shown(key)}{did_you_mean(name, known, listed_by=listed_by)}")
        by_owner[owner][name] = value
    return by_owner


def left_out(side: Mapping[str, Any]) -> str:
    """Describe what a side of a store leaves out: unreadable images, truncated texts, words without rows, captions."""
    counts = {
        "unreadable and skipped": len(side.get("skipped") or ()),
        "truncated": side.get("truncated") or 0,
        "words without a row": side.get("lost") or 0,
        "more captions of these images left out by captions_per_image": side.get("dropped") or 0,
    }
    phrases = [f"{count} {what}" for what, count in counts.items() if count > 0]
    return f" ({', '.join(phrases)})" if phrases else ""


def export(
    source: options.Source,
    *,
    out: Annotated[Path, Option("-o", "--out", help="the new folder or file to write")],
    to: Annotated[str, Option(help="the format")],
    normalize: Annotated[bool, Option("--normalize", help="scale rows to unit length first")] = False,
) -> None:
    """Writes embeddings for another program."""
    options.check_paths(source)
    out = expanded(out)
    for name, description in cg.export(source, out, to=to, normalize=normalize).items():
        print(printable(f"{name}: {description}"))
    print(printable(f"{to}: {out}"))

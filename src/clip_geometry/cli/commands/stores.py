"""Embeddings and models from the command line: computed, and written for other programs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from clip_geometry.cli import completion
from clip_geometry.cli.arguments import check_embeddings
from clip_geometry.cli.commands.options import Address, Device, EngineName, Overrides
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, printable, shown


def embed(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="e.g. open_clip:ViT-B-32/fresh; see list models", autocompletion=completion.model
        ),
    ],
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET", help="a name or a path; see list datasets", autocompletion=completion.dataset
        ),
    ],
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="the folder to write")] = ...,  # pyright: ignore
    split: Annotated[str | None, typer.Option(help="split of the data set")] = None,
    prompt: Annotated[str | None, typer.Option(help='class names as prompts, e.g. "a photo of a {}"')] = None,
    language: Annotated[
        str | None, typer.Option(help="of the captions; several (en,de,fr) are a store each, OUT/en, …")
    ] = None,
    only: Annotated[Literal["image", "text"] | None, typer.Option(help="embed one side only")] = None,
    limit: Annotated[int | None, typer.Option(help="use only the first N items", min=1)] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    shard_size: Annotated[int | None, typer.Option(help="items per shard", min=1)] = None,
    device: Device = "auto",
    precision: Annotated[str | None, typer.Option(help="fp32 (default), bf16 or fp16")] = None,
    features: Annotated[str | None, typer.Option(help="projected (default) or pooled")] = None,
    max_corrupt: Annotated[float, typer.Option(help="share of images that may fail to decode", min=0, max=1)] = 0.01,
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """Embeds a data set; run again, it computes what is missing.

    Several languages are modalities of their own: each has a store in OUT, the first one with the images.

    KEY=VALUE sets any other field of the encoder's or the data set's config: seed=1 zero_bias=true. Where both
    have a field, the encoder's is set; data.seed=1 sets the data set's.
    """
    more = next((each for each in overrides or () if "=" not in each and Path(each).exists()), None)
    if more is not None:  # the shell has expanded {000..123} or *
        raise InputError(f"{shown(more)} is a second data set; quote 'shards/{{000..123}}.tar', or give the folder")

    from clip_geometry import data, encoders
    from clip_geometry.config import parse_overrides, validate
    from clip_geometry.embedding.loop import embed as embed_data
    from clip_geometry.embedding.store import read_store
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
    for_model = {"precision": precision, "features": features}
    config = encoders.resolve_encoder(model, **{**_given(for_model), **shares["model"]})
    for_data = {"split": split, "prompt": prompt, "language": language}
    options = {**_given(for_data), **shares["data"]}
    languages = str(options.get("language", "")).split(",")
    stores = {}
    for spoken in map(str.strip, languages):
        each, folder = options, out
        if len(languages) > 1:
            each, folder = {**options, "language": spoken}, out / modality_name(spoken, "the language")
        items = data.load_dataset(data.resolve_dataset(dataset, **each))
        part = only or ("text" if stores else None)  # the images are those of the first language
        stores[folder] = items if part is None else items.only(part)
    for folder, items in stores.items():
        manifest = embed_data(
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
        for modality, side in manifest["sides"].items():
            print(f"{modality}: {side['n']} × {side['d']}{_left_out(side)}")
        print(printable(f"store: {folder}"))
        sides = read_store(folder, limit=limit)
        if any(len(sides[modality]) < side["n"] for modality, side in manifest["sides"].items()):
            print(f"the store holds more than --limit {limit}, which is a view of it: measure reads all of it")


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _share_out(options: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The options of each owner of fields: by prefix, otherwise the first owner that has the field."""
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
            listed_by = "clip-geometry list models, and list datasets,"
            raise InputError(f"unknown option {shown(key)}{did_you_mean(name, known, listed_by=listed_by)}")
        shares[owner][name] = value
    return shares


def _left_out(side: Mapping[str, Any]) -> str:
    """What the rows leave out: unreadable images, the ends of long texts, words without tokens, captions."""
    counts = {
        "unreadable and skipped": len(side.get("skipped") or ()),
        "truncated": side.get("truncated") or 0,
        "words without a row": side.get("lost") or 0,
        "more captions of these images left out by captions_per_image": side.get("dropped") or 0,
    }
    words = [f"{count} {what}" for what, count in counts.items() if count > 0]
    return f" ({', '.join(words)})" if words else ""


def export(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="embeddings: a file or a folder")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the new folder or file to write")] = ...,  # pyright: ignore
    to: Annotated[str, typer.Option(help="the format")] = ...,  # pyright: ignore
    normalize: Annotated[bool, typer.Option("--normalize", help="make rows unit length first")] = False,
) -> None:
    """Writes embeddings for another program.

    clip-retrieval and datasets have one row per pair, so that an image with five captions appears five times; the
    others have all rows, with a column for their modality.
    """
    check_embeddings(source)

    from clip_geometry.io.export import export as export_embeddings

    out = expanded(out)
    for name, says in export_embeddings(source, out, to=to, normalize=normalize).items():
        print(printable(f"{name}: {says}"))
    print(printable(f"{to}: {out}"))

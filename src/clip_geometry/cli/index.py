"""A mixed index from the command line: what is wrong with it, and how it looks."""

import io
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from clip_geometry.cli import completion
from clip_geometry.cli.arguments import check_embeddings, check_pipeline, check_repairs, repair_names
from clip_geometry.progress import note
from clip_geometry.registry import InputError, parts, shown


def diagnose(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGE [TEXT]...", help="embeddings: files, or a folder with one for each modality"),
    ],
    labels: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="one label per row; MODALITY=FILE, once for each, tells sets apart"),
    ] = None,
    other: Annotated[Path | None, typer.Option(help="another split, in which copies of these rows are leakage")] = None,
    relevant: Annotated[str | None, typer.Option(help="labels or pairs: what a query should find")] = None,
    want: Annotated[
        str, typer.Option(help="the goal: both, a list with relevant items of both modalities, or pairs, the partner")
    ] = "both",
    repairs: Annotated[
        str | None,
        typer.Option(help="names (list repairs); '' compares none", autocompletion=completion.several(repair_names)),
    ] = None,
    splits: Annotated[int, typer.Option(help="random halves that repairs are compared on", min=1, max=1000)] = 10,
    seed: Annotated[int, typer.Option(help="seed of samples and splits", min=0, max=2**32 - 1)] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="also write everything to this new file")] = None,
    figure: Annotated[Path | None, typer.Option(help="also draw what repairs find and cost: .png, .svg, .pdf")] = None,
    write: Annotated[
        Path | None,
        typer.Option(help="save the recommended repair to this .safetensors file, or the best one beside a baseline"),
    ] = None,
    repair: Annotated[
        str | None,
        typer.Option(
            help="save this repair instead of the recommended one", autocompletion=completion.several(repair_names)
        ),
    ] = None,
) -> None:
    """Says whether an index is broken, and which repair helps.

    Checks (list checks) look for faults: shuffled pairs, copies, mixed models, lost precision, …. Repairs are fitted
    on random halves of the items and tried on the others.
    """
    if relevant not in (None, "labels", "pairs"):
        raise InputError(f"--relevant {shown(relevant)} is unknown; expected labels or pairs")
    if want not in ("pairs", "both"):
        raise InputError(f"--want {shown(want)} is unknown; expected pairs or both")
    if repair is not None and write is None:
        raise InputError("--repair says which repair is saved, but there is no --write; give the file too")
    check_embeddings(*paths, other)
    check_repairs(repairs)
    check_repairs(repair)

    from clip_geometry.cli.diagnose_files import (
        all_or_none,
        check_targets,
        labels_of,
        print_diagnosis,
        shipping_command,
    )
    from clip_geometry.display.table import say
    from clip_geometry.files import write_atomically
    from clip_geometry.progress import progress
    from clip_geometry.search.diagnosis import diagnose as diagnose_sets

    check_targets(figure, write)
    said, refused = [], []
    with all_or_none(json_file, figure, write) as targets:
        found = diagnose_sets(
            *paths,
            labels=labels_of(labels or []),
            other=other,
            relevant=relevant,  # pyright: ignore[reportArgumentType] # checked above
            want=want,  # pyright: ignore[reportArgumentType]
            repairs=None if repairs is None else [part.strip() for part in repairs.split(",") if part.strip()],
            splits=splits,
            seed=seed,
            progress=progress,
        )
        if json_file is not None:
            write_atomically(targets[json_file], found.to_json().encode())
            said.append(f"diagnosis: {json_file}")
        try:
            if figure is not None:
                drawn = io.BytesIO()
                found.figure().savefig(drawn, dpi=200, format=figure.suffix[1:])
                write_atomically(targets[figure], drawn.getvalue())
                said.append(f"figure: {figure}")
        except InputError as error:
            refused.append(str(error))
        try:
            if write is not None:
                fitted = found.fitted(repair)
                fitted.save(targets[write])
                said.append(f"repair: {fitted.name} in {write}, fitted on all items (at most 2,000)")
                command = shipping_command(fitted, write, paths)
                if command.endswith("faiss"):
                    said.append("a vector database takes the rows of --to numpy instead (docs/howto/databases.md)")
                said.append(f"next: {command}")
        except InputError as error:
            refused.append(f"{write} was not written: {error}")
    print_diagnosis(found)  # after everything is written, since a reader such as head may end the output
    for line in said:
        say(line)
    if refused:
        raise InputError("; ".join(refused))


def explore(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGE [TEXT]...", help="embeddings: files, or a folder with one for each modality"),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="the new .html file to write")] = ...,  # pyright: ignore
    labels: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="one label per row; MODALITY=FILE, once for each, tells sets apart"),
    ] = None,
    repairs: Annotated[
        str | None, typer.Option(help="names (list repairs) or steps of a pipeline, e.g. center,whiten(32)[pooled]")
    ] = None,
    pipeline: Annotated[str | None, typer.Option(help="steps before everything, e.g. center[each]")] = None,
    limit: Annotated[int, typer.Option(help="points; of more rows, a random sample", min=10, max=100_000)] = 100_000,
    data: Annotated[
        str | None, typer.Option(help="data set of the rows, a name or a path (a folder of images), for images, texts")
    ] = None,
    captions: Annotated[Path | None, typer.Option(help="a file with one caption for each text")] = None,
    no_umap: Annotated[bool, typer.Option("--no-umap", help="principal components only, which is faster")] = False,
    title: Annotated[str | None, typer.Option(help="of the page")] = None,
    seed: Annotated[int, typer.Option(help="seed of samples, fits and UMAP", min=0, max=2**32 - 1)] = 0,
) -> None:
    """Writes an HTML page that shows embeddings as points.

    It has repairs on a slider, and the neighbors of each point. It needs no network and no server. Stores of embed
    bring captions and thumbnails where their data set can be read.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{shown(out)} is no .html file, which the explorer is; add the ending")
    check_embeddings(*paths, captions)
    check_pipeline(pipeline)
    check_repairs(repairs, steps=True)
    note(f"exploring {' and '.join(map(str, paths))}: first the rows, then the neighbors of points and their planes")

    from clip_geometry.cli.diagnose_files import labels_of  # these imports take seconds
    from clip_geometry.display.table import say
    from clip_geometry.explorer import explore as explore_sets
    from clip_geometry.files import claimed, write_atomically
    from clip_geometry.progress import progress

    with claimed(out) as target:
        found = explore_sets(
            *paths,
            repairs=None if repairs is None else parts(repairs),
            labels=labels_of(labels or []),
            pipeline=pipeline or "",
            limit=limit,
            data=data,
            captions=captions,
            umap=not no_umap,
            title=title,
            seed=seed,
            progress=progress,
        )
        page = found.to_html(shlex.join(["clip-geometry", *sys.argv[1:]])).encode()
        write_atomically(target, page)
    for each in found.notes:
        say(f"· {each}", indent="  ")
    say(f"explorer: {out} ({len(page) / 1e6:.1f} MB; opens in a browser, without a network)")

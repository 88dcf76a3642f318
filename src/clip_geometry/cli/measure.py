"""Numbers of embeddings from the command line, of one set and of several next to each other."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from clip_geometry.cli.arguments import check_embeddings, check_measures, check_pipeline
from clip_geometry.cli.options import (
    Address,
    Blocks,
    EngineName,
    Everything,
    JsonFile,
    Labels,
    MeasureNames,
    Steps,
)
from clip_geometry.registry import InputError, shown


def _check_choice(everything: bool, measures: str | None) -> None:
    if everything and measures is not None:
        raise InputError("--all and --measures were both given; --measures takes the named ones only")


def measure(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGE [TEXT]...", help="embeddings: files, or a folder with one for each modality"),
    ],
    labels: Labels = None,
    pipeline: Steps = None,
    raw: Annotated[bool, typer.Option("--raw", help="use the rows as given, without a pipeline")] = False,
    measures: MeasureNames = None,
    everything: Everything = False,
    by: Annotated[str | None, typer.Option(help="measure each value of this column: label, language, …")] = None,
    json_file: JsonFile = None,
    seed: Annotated[int, typer.Option(help="seed of null values and jackknife", min=0, max=2**63 - 1)] = 0,
    blocks: Blocks = None,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="also measure what depends on n at n/2, n/4 and n/8 items")
    ] = False,
    full_size: Annotated[
        int | None, typer.Option(help="items of the set that this is a sample of: what to expect there", min=3)
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """Measures embeddings: a verdict and a table in seconds.

    Rows are made unit length first unless --raw.
    """
    _check_choice(everything, measures)
    if raw and pipeline is not None:
        raise InputError("--raw and --pipeline were both given; --raw is the empty pipeline")
    check_pipeline(pipeline)
    check_measures(measures)
    check_embeddings(*paths)

    from clip_geometry.embedding.engines import open_engine
    from clip_geometry.files import claimed
    from clip_geometry.measuring.measurement import DEFAULT_STEPS
    from clip_geometry.measuring.measurement import measure as measure_sets
    from clip_geometry.measuring.names import ALL
    from clip_geometry.progress import progress

    with nullcontext() if json_file is None else claimed(json_file) as target, open_engine(engine, address) as opened:
        found = measure_sets(
            *paths,
            labels=labels,
            pipeline="" if raw else DEFAULT_STEPS if pipeline is None else pipeline,
            measures=ALL if everything else measures,
            by=by,
            seed=seed,
            blocks=blocks,
            engine=None if engine == "local" else opened,  # in this process what fits is kept in memory
            scaling=scaling,
            full_size=full_size,
            progress=progress,
        )
        found.table.print()
        if target is not None:
            found.to_json(target)


def compare(
    paths: Annotated[
        list[Path], typer.Argument(metavar="A B...", help="embeddings, run folders or files of measure --json")
    ],
    pipeline: Annotated[
        list[str] | None, typer.Option(help="steps before measuring; once for all, or once for each column")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="use the rows as given; --pipeline raw for one column")] = False,
    measures: MeasureNames = None,
    everything: Everything = False,
    labels: Labels = None,
    csv: Annotated[Path | None, typer.Option(help="also write the table to this file, with all digits")] = None,
    latex: Annotated[
        Path | None,
        typer.Option(help="also write the table to this .tex file, and what it cites to a .bib file beside"),
    ] = None,
    json_file: JsonFile = None,
    seed: Annotated[int, typer.Option(help="seed of blocks, null values and sign flips", min=0, max=2**63 - 1)] = 0,
    blocks: Blocks = None,
) -> None:
    """Says whether a change helped, number by number.

    Each number of B less that of A, with its standard error.

    Of one path, pipelines are compared: compare coco500 --pipeline normalize --pipeline normalize,center[each]. Where
    the items are the same, the error is paired.
    """
    _check_choice(everything, measures)
    if raw and pipeline:
        raise InputError("--raw and --pipeline were both given; --pipeline raw is the empty pipeline of one column")
    for steps in pipeline or ():
        check_pipeline("" if steps == "raw" else steps)
    check_measures(measures)

    from clip_geometry.display.latex import BIBLIOGRAPHY
    from clip_geometry.files import write_text
    from clip_geometry.measuring.comparison import compare as compare_sets
    from clip_geometry.measuring.names import ALL

    bibliography = None if latex is None else latex.resolve().with_suffix(".bib")
    before = bibliography.read_bytes() if bibliography is not None and bibliography.exists() else None
    if before is not None and not before.startswith(BIBLIOGRAPHY.encode()):
        what = f"{shown(bibliography)}, where the BibTeX entries of the table go, has others"
        raise InputError(f"{what}; rename --latex")
    columns = ["raw"] if raw else pipeline or []
    chosen = ALL if everything else measures
    found = compare_sets(*paths, pipelines=columns, measures=chosen, labels=labels, blocks=blocks, seed=seed)
    found.table.print()
    if csv is not None:
        write_text(csv, found.frame.to_csv(index=False))
    if json_file is not None:
        write_text(json_file, found.to_json())
    if latex is not None and bibliography is not None:
        write_text(latex, found.to_latex())
        write_text(bibliography, found.to_bibtex())

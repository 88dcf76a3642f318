"""The commands that measure and compare embeddings."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import clip_geometry as cg
from clip_geometry.cli import options
from clip_geometry.registry import InputError, shown

COLUMN_STEPS = options.NameList("pipeline step", lambda: [*options.names_in("transforms"), "raw"], "transforms")


def _measures_option(everything: bool, measures: str | None) -> str | None:
    """Return the value of `measures` in Python for the options --all and --measures."""
    if everything and measures is not None:
        raise InputError("--all and --measures were both given; --measures computes only the named measures")
    return "all" if everything else measures


def measure(
    paths: options.Sources,
    labels: options.Labels = None,
    pipeline: options.Steps = None,
    raw: Annotated[bool, Option("--raw", help="use the rows as given, without a pipeline")] = False,
    measures: options.MeasureNames = None,
    everything: options.Everything = False,
    by: Annotated[str | None, Option(help="measure each value of this column: label, language, …")] = None,
    json_file: options.JsonFile = None,
    seed: Annotated[int, Option(help="seed of null values and jackknife", min=0, max=2**63 - 1)] = 0,
    blocks: options.Blocks = None,
    scaling: Annotated[bool, Option("--scaling", help="also measure what depends on n at n/2, n/4 and n/8")] = False,
    full_size: Annotated[int | None, Option(help="items of the whole set, to extrapolate to", min=3)] = None,
    engine: options.EngineName = "local",
    address: options.Address = None,
) -> None:
    """Measures embeddings: a verdict and a table in seconds.

    Rows are scaled to unit length first, unless --raw is given.
    """
    if raw and pipeline is not None:
        raise InputError("--raw and --pipeline were both given; --raw is the empty pipeline")
    if raw:
        pipeline = ""
    steps = {} if pipeline is None else {"pipeline": pipeline}
    measure_names = _measures_option(everything, measures)
    options.check_paths(*paths)

    from clip_geometry.files import claimed
    from clip_geometry.progress import progress

    target = nullcontext() if json_file is None else claimed(json_file)
    is_local = (engine, address) == ("local", None)  # in this process, rows that fit are kept in memory
    with target as new_file, nullcontext() if is_local else cg.open_engine(engine, address) as opened:
        measurement = cg.measure(
            *paths,
            labels=labels,
            **steps,
            measures=measure_names,
            by=by,
            seed=seed,
            blocks=blocks,
            engine=opened,
            scaling=scaling,
            full_size=full_size,
            progress=progress,
        )
        measurement.table.print()
        if new_file is not None:
            measurement.to_json(new_file)


def compare(
    paths: Annotated[list[Path], Argument(metavar="A B...", help="embeddings, run folders, files of measure --json")],
    pipeline: Annotated[list[str] | None, COLUMN_STEPS.option("steps, once for all or once for each column")] = None,
    raw: Annotated[bool, Option("--raw", help="use the rows as given; --pipeline raw for one column")] = False,
    measures: options.MeasureNames = None,
    everything: options.Everything = False,
    labels: options.Labels = None,
    csv: Annotated[Path | None, Option(help="also write the table to this file, with all digits")] = None,
    latex: Annotated[Path | None, Option(help="also write it to this .tex file, and citations to a .bib file")] = None,
    json_file: options.JsonFile = None,
    seed: Annotated[int, Option(help="seed of blocks, null values and sign flips", min=0, max=2**63 - 1)] = 0,
    blocks: options.Blocks = None,
) -> None:
    """Says whether a change helped, number by number.

    The table has the differences B - A with their standard errors.

    With one path, pipelines are compared: compare coco500 --pipeline normalize --pipeline normalize,center[each]. If
    the items are the same, the standard error is paired.
    """
    if raw and pipeline:
        raise InputError("--raw and --pipeline were both given; --pipeline raw is the empty pipeline of one column")
    columns = ["raw"] if raw else pipeline or []
    measure_names = _measures_option(everything, measures)

    from clip_geometry.display.table import BIBLIOGRAPHY
    from clip_geometry.files import write_text

    bibliography = None if latex is None else latex.resolve().with_suffix(".bib")
    existing = bibliography.read_bytes() if bibliography is not None and bibliography.exists() else None
    if existing is not None and not existing.startswith(BIBLIOGRAPHY.encode()):
        raise InputError(
            f"the citations of the table would overwrite {shown(bibliography)}, which has other entries; choose "
            "another name for --latex"
        )
    comparison = cg.compare(*paths, pipelines=columns, measures=measure_names, labels=labels, blocks=blocks, seed=seed)
    comparison.table.print()
    if csv is not None:
        write_text(csv, comparison.frame.to_csv(index=False))
    if json_file is not None:
        write_text(json_file, comparison.to_json())
    if latex is not None and bibliography is not None:
        write_text(latex, comparison.to_latex())
        write_text(bibliography, comparison.to_bibtex())

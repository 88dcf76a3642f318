"""The commands for a mixed index, which show what is wrong with it, which repair helps, and how it looks."""

import io
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

import clip_geometry as cg
from clip_geometry.cli import options
from clip_geometry.progress import note
from clip_geometry.registry import InputError, parts, printable

if TYPE_CHECKING:
    from clip_geometry.display.table import Table

MARK = {"error": "✗", "warning": "!", "note": "·"}
STYLE = {"error": "bold red", "warning": "bold yellow", "note": "bold"}
REPAIRS_AND_STEPS = options.NameList(
    "repair", lambda: [*options.names_in("search/repairs"), *options.names_in("transforms")], "repairs"
)


def diagnose(
    paths: options.Sources,
    labels: options.SetLabels = None,
    other: Annotated[Path | None, Option(help="another split; copies of these rows in it are leakage")] = None,
    relevant: Annotated[Literal["labels", "pairs"] | None, Option(help="what makes an item relevant")] = None,
    want: Annotated[
        Literal["both", "pairs"], Option(help="the goal: relevant items of both modalities, or only the partner")
    ] = "both",
    repairs: Annotated[str | None, options.REPAIRS.option("names (list repairs); '' for none")] = None,
    splits: Annotated[int, Option(help="number of random halves to compare repairs on", min=1, max=1000)] = 10,
    seed: Annotated[int, Option(help="seed of samples and splits", min=0, max=2**32 - 1)] = 0,
    json_file: Annotated[Path | None, Option("--json", help="also write everything to this new file")] = None,
    figure: Annotated[Path | None, Option(help="also plot what repairs find and cost: .png, .svg, .pdf")] = None,
    write: Annotated[Path | None, Option(help="save the recommended repair to this .safetensors file")] = None,
    repair: Annotated[str | None, options.REPAIRS.option("save this repair instead of the recommended one")] = None,
) -> None:
    """Says whether an index is broken, and which repair helps.

    Checks (list checks) look for faults: shuffled pairs, copies, mixed models, lost precision, …. Repairs are fitted
    on random halves of the items and tested on the other halves.
    """
    if repair is not None and write is None:
        raise InputError("--repair was given without --write; give the file to save the repair in with --write")
    options.check_ending("--figure", figure, ".png", ".svg", ".pdf")
    options.check_ending("--write", write, ".safetensors")
    options.check_paths(*paths, other)

    from clip_geometry.display.table import say
    from clip_geometry.files import write_atomically
    from clip_geometry.progress import progress

    reports = []
    failures = []
    with _all_or_none(json_file, figure, write) as targets:
        diagnosis = cg.diagnose(
            *paths,
            labels=options.labels_of(labels),
            other=other,
            relevant=relevant,
            want=want,
            repairs=None if repairs is None else parts(repairs),
            splits=splits,
            seed=seed,
            progress=progress,
        )

        def write_figure(path: Path) -> None:
            content = io.BytesIO()
            diagnosis.figure().savefig(content, dpi=200, format=path.suffix[1:])
            write_atomically(targets[path], content.getvalue())
            reports.append(f"figure: {path}")

        def write_repair(path: Path) -> None:
            fitted = diagnosis.fitted(repair)
            fitted.save(targets[path])
            reports.append(f"repair: {fitted.name} in {path}, fitted on all items (at most 2,000)")
            reports.extend(_next_steps(fitted, path, paths))

        if json_file is not None:
            write_atomically(targets[json_file], diagnosis.to_json().encode())
            reports.append(f"diagnosis: {json_file}")
        for path, write_file in ((figure, write_figure), (write, write_repair)):
            if path is not None:
                try:
                    write_file(path)
                except InputError as error:
                    failures.append(f"{path} was not written: {error}")
    _table(diagnosis).print()  # after writing files, since a reader such as head may end the output
    for line in reports:
        say(line)
    if failures:
        raise InputError("; ".join(failures))


def compress(
    paths: options.Sources,
    labels: options.SetLabels = None,
    lose: Annotated[float, Option(help="share of the ten nearest that may be lost", min=0, max=0.999)] = 0.01,
    types: Annotated[str | None, Option(help="number types that your database has: float16,binary")] = None,
    full_size: Annotated[
        int | None, Option(help="rows of each set in the full index, of which these are a sample")
    ] = None,
    cut: Annotated[str | None, Option(help="with --write: this cut instead of the chosen one, such as first")] = None,
    columns: Annotated[int | None, Option(help="with --write: this number of columns")] = None,
    dtype: Annotated[str | None, Option(help="with --write: this type, such as int8")] = None,
    seed: Annotated[int, Option(help="seed of folds and random columns", min=0, max=2**32 - 1)] = 0,
    json_file: Annotated[Path | None, Option("--json", help="also write the table of all numbers to this file")] = None,
    figure: Annotated[Path | None, Option(help="also draw loss against size: .png, .svg, .pdf")] = None,
    write: Annotated[Path | None, Option(help="save the fitted compressor to this .safetensors file")] = None,
) -> None:
    """Says how small the vectors can get.

    Measures what a search of held-out items loses with fewer columns (the first, random ones, principal axes), smaller
    number types (float16, int8, binary, product quantization) and rescoring.
    """
    options.check_ending("--figure", figure, ".png", ".svg", ".pdf")
    options.check_ending("--write", write, ".safetensors")
    options.check_paths(*paths)
    wanted = {"cut": cut, "columns": columns, "dtype": dtype}
    if write is None and any(value is not None for value in wanted.values()):
        raise InputError("--cut, --columns and --dtype say what to save; give a file for it with --write")

    from clip_geometry.display.table import say
    from clip_geometry.progress import progress

    with _all_or_none(json_file, figure, write) as targets:
        result = cg.compress(
            *paths,
            lose=lose,
            labels=options.labels_of(labels),
            **({} if types is None else {"types": [each.strip() for each in types.split(",")]}),
            full_size=full_size,
            seed=seed,
            progress=progress,
        )
        said = _write_numbers(result, json_file, figure, targets)
        if write is not None:
            compressor = result.fit(**wanted)
            compressor.save(targets[write])
            said.append(f"compressor: {compressor.cut}, {compressor.columns} columns, {compressor.dtype} in {write}")
            rows = " ".join(map(str, paths))
            if result.frame.pool_factor.max() == 1:  # ship takes one vector per item
                said.append(f"codes and queries: clip-geometry ship {write} {rows} -o index --to numpy")
    result.table().print()
    for line in said:
        say(line)


@contextmanager
def _all_or_none(*paths: Path | None) -> Iterator[dict[Path, Path]]:
    """Reserve new files and give path → target; remove them after an error, so that the command can be repeated."""
    from clip_geometry.files import claimed, is_device

    with ExitStack() as claims:
        targets = {path: claims.enter_context(claimed(path)) for path in paths if path is not None}
        try:
            yield targets
        except BaseException:
            for target in targets.values():
                if not is_device(target):
                    target.unlink(missing_ok=True)
            raise


def _write_numbers(
    result: "cg.Compression | cg.Match", json_file: Path | None, figure: Path | None, targets: Mapping[Path, Path]
) -> list[str]:
    """Write the table of all numbers and the figure, if asked for, and return a line that names each file."""
    from clip_geometry.files import write_atomically

    said = []
    if json_file is not None:
        text = str(result.frame.to_json(orient="records", indent=1, double_precision=15))
        write_atomically(targets[json_file], text.encode())
        said.append(f"numbers: {json_file}")
    if figure is not None:
        drawn = io.BytesIO()
        result.figure().savefig(drawn, dpi=200, format=figure.suffix[1:])
        write_atomically(targets[figure], drawn.getvalue())
        said.append(f"figure: {figure}")
    return said


def _next_steps(repair: "cg.search.Repair", written: Path, paths: Sequence[Path]) -> list[str]:
    """Return lines that say how to use the repair: by `ship` to an index, or in Python if FAISS cannot express it."""
    from clip_geometry.search.repairs import InnerProduct

    command = f"next: clip-geometry ship {shlex.quote(printable(str(written)))}"
    if not isinstance(repair, InnerProduct):
        return [
            f"in Python: cg.search.Repair.load({str(written)!r}).scores(query_modality, queries, item_modality, items)"
        ]
    rows = " ".join(shlex.quote(printable(str(path))) for path in paths)
    databases = "a vector database takes the rows of --to numpy instead (docs/howto/databases.md)"
    return [databases, f"{command} {rows} -o index --to faiss"]


def _table(diagnosis: "cg.Diagnosis") -> "Table":
    """Return the table of the verdict, the findings and the repairs."""
    from clip_geometry.display.table import Table
    from clip_geometry.search.checks import checks

    tables = []
    for finding in diagnosis.findings:
        where = f" ({', '.join(finding.modalities)})" if finding.modalities else ""
        title = f"{MARK[finding.severity]} {finding.check}: {checks[finding.check].title}{where}"
        texts = finding.evidence, finding.consequence, f"→ {finding.remedy}"
        tables.append(Table(title=title, heading=texts, style=STYLE[finding.severity]))
    if diagnosis.comparison is not None:
        tables.append(diagnosis.comparison.table())
    sizes = "; ".join(f"{n:,} {name} rows × {d}" for name, (n, d) in diagnosis.shapes.items())
    return Table(verdict=diagnosis.verdict, heading=[sizes], more=tables)


def match(
    paths: options.Sources,
    labels: options.SetLabels = None,
    answerable: Annotated[
        float,
        Option(
            help="share of the queries that have an answer, such as 0.3; a fact about your users", min=0.001, max=0.999
        ),
    ] = 0.5,
    relevant: Annotated[Literal["labels", "pairs"] | None, Option(help="what a query should find")] = None,
    anchors: Annotated[
        list[str] | None, Option(metavar="MODALITY=FILE", help="without pairs: queries that match nothing")
    ] = None,
    seed: Annotated[int, Option(help="seed of samples and folds", min=0, max=2**32 - 1)] = 0,
    json_file: Annotated[Path | None, Option("--json", help="also write the table of all numbers to this file")] = None,
    figure: Annotated[Path | None, Option(help="also draw reliability, risk and scores: .png, .svg, .pdf")] = None,
    write: Annotated[Path | None, Option(help="save the fitted models to this .json file, for programs")] = None,
) -> None:
    """Says which scores are matches.

    Fits the probability that the first result of a search is right, on pairs or labels of a sample of your data, and
    finds cutoffs for it on other pairs.
    """
    options.check_ending("--figure", figure, ".png", ".svg", ".pdf")
    options.check_ending("--write", write, ".json")
    options.check_paths(*paths)

    from clip_geometry.display.table import say
    from clip_geometry.progress import progress

    with _all_or_none(json_file, figure, write) as targets:
        fitted = cg.match(
            *paths,
            labels=options.labels_of(labels),
            answerable=answerable,
            relevant=relevant,
            anchors=options.by_modality(anchors, "--anchors") if anchors else None,
            seed=seed,
            progress=progress,
        )
        said = _write_numbers(fitted, json_file, figure, targets)
        if write is not None:
            fitted.save(targets[write])
            said.append(f"models: {write}")
            method = "accepts" if anchors else "probability"
            usable = [direction for direction, model in fitted.items() if model.identifies]
            said += [f"in Python: cg.read_match({str(write)!r})[{name!r}].{method}(top, …)" for name in usable[:1]]
    fitted.table().print()
    for line in said:
        say(line)


def explore(
    paths: options.Sources,
    *,
    out: Annotated[Path, Option("-o", "--out", help="the new .html file to write")],
    labels: options.SetLabels = None,
    repairs: Annotated[str | None, REPAIRS_AND_STEPS.option("repairs or steps, e.g. csls,whiten(32)[pooled]")] = None,
    pipeline: Annotated[str, options.STEPS.option("steps to apply first, e.g. center[each]")] = "",
    limit: Annotated[
        int, Option(help="maximum number of points; more rows are sampled", min=10, max=100_000)
    ] = 100_000,
    data: Annotated[str | None, Option(help="data set of the rows, by name or path: shows images and texts")] = None,
    captions: Annotated[Path | None, Option(help="a file with one caption for each text")] = None,
    no_umap: Annotated[bool, Option("--no-umap", help="principal components only, which is faster")] = False,
    title: Annotated[str | None, Option(help="title of the page")] = None,
    seed: Annotated[int, Option(help="seed of samples, fits and UMAP", min=0, max=2**32 - 1)] = 0,
) -> None:
    """Writes an HTML page that shows embeddings as points.

    It has a slider for repairs, and shows the neighbors of each point. It needs no network and no server. For stores
    that embed wrote, it also shows captions and thumbnails if their data set can be read.
    """
    options.check_ending("-o", out, ".html", ".htm")
    options.check_paths(*paths, captions)
    names = " and ".join(map(str, paths))
    note(f"exploring {names}: reads the rows, then computes neighbors and two-dimensional projections of the points")

    from clip_geometry.display.table import say  # these imports take seconds
    from clip_geometry.files import claimed, write_atomically
    from clip_geometry.progress import progress

    with claimed(out) as target:
        explorer = cg.explore(
            *paths,
            repairs=None if repairs is None else parts(repairs),
            labels=options.labels_of(labels),
            pipeline=pipeline,
            limit=limit,
            data=data,
            captions=captions,
            umap=not no_umap,
            title=title,
            seed=seed,
            progress=progress,
        )
        page = explorer.to_html(shlex.join(["clip-geometry", *sys.argv[1:]])).encode()
        write_atomically(target, page)
    for remark in explorer.notes:
        say(f"· {remark}", indent="  ")
    say(f"explorer: {out} ({len(page) / 1e6:.1f} MB; opens in a browser, without a network)")

"""The command line. Each command imports what is slow to import itself."""

import io
import os
import shlex
import sys
import warnings
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from clip_geometry.cli import completion
from clip_geometry.cli.early import (
    check_config,
    check_embeddings,
    check_measures,
    check_pipeline,
    check_repairs,
    check_shown_repairs,
    shipped,
)
from clip_geometry.progress import Settings, note
from clip_geometry.registry import MOST, InputError, printable, shortened, shown


def examples() -> dict[str, str]:
    """Examples of each command, and of the whole under its own name, as they end the help."""
    text = Path(__file__).with_name("examples.txt").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in text.strip().split("\n\n"))
    return {name: lines for name, _, lines in blocks}


class _WithExamples(TyperGroup):
    """Commands whose help ends with examples, line by line."""

    def __init__(self, **given: Any):
        super().__init__(**given)
        found = examples()
        for name, command in (("clip-geometry", self), *self.commands.items()):
            if name in found:
                command.epilog = f"\b\nExamples:\n{found[name]}"  # \b keeps lines as they are


app = typer.Typer(
    name="clip-geometry",
    cls=_WithExamples,
    help="Measures, explains and changes the geometry of multimodal (CLIP) embeddings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130
Overrides = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", show_default=False)]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="local, or ray: processes on this machine or a cluster",
        autocompletion=completion.one_of("local", "ray"),
    ),
]
Steps = Annotated[
    str | None,
    typer.Option(
        help="steps before measuring, e.g. normalize,center[pooled]", autocompletion=completion.several("pipeline step")
    ),
]
MeasureNames = Annotated[
    str | None,
    typer.Option(help="names, e.g. isoscore,silhouette[cosine]", autocompletion=completion.several("measure")),
]
Address = Annotated[str | None, typer.Option(help="address of a Ray cluster; auto on one of its machines")]
Modality = Annotated[
    str | None,
    typer.Option("--as", help="modality of the rows: image or text", autocompletion=completion.one_of("image", "text")),
]
NoNormalize = Annotated[bool, typer.Option("--no-normalize", help="leave the rows the lengths that the map gives")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …; auto uses a GPU if there is one")]


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"clip-geometry {version('clip-geometry')}")
        raise typer.Exit


def _check_choice(everything: bool, measures: str | None) -> None:
    if everything and measures is not None:
        raise InputError("--all and --measures were both given; --measures takes the named ones only")


@app.callback()
def _global(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="show throughput; may be given anywhere")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks of errors; may be given anywhere")] = False,
) -> None:
    pass


@app.command("run")
def run_command(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="a YAML file, or a name: list configs", autocompletion=completion.config),
    ],
    overrides: Overrides = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="run the small version of the config, in seconds")] = False,
    runs: Annotated[Path, typer.Option(help="folder of all runs")] = Path("runs"),
    device: Device = "auto",
) -> None:
    """Runs a config and writes a report; run again, it resumes.

    The folder runs/NAME-HASH has config.yaml, results.jsonl, figures and report.html.
    """
    check_config(config, overrides or [])

    from clip_geometry.config import parse_overrides
    from clip_geometry.paths import expanded
    from clip_geometry.runner import run

    command = shlex.join(["clip-geometry", *sys.argv[1:]])
    report = run(
        config, parse_overrides(overrides or []), smoke=smoke, runs=expanded(runs), device=device, command=command
    )
    print(printable(f"report: {report}"))


@app.command("init")
def init_command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="diagnose|measure|train",
            help="what the config is for",
            autocompletion=completion.one_of("diagnose", "measure", "train"),
        ),
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="the new file", show_default="WHAT.yaml")] = None,
) -> None:
    """Writes a commented config to start from.

    It runs as it is, and says which lines to change for your own data.
    """
    from clip_geometry.cli.init import write_template

    write_template(what, out)


@app.command()
def measure(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGE [TEXT]...", help="embeddings: files, or a folder with one for each modality"),
    ],
    labels: Annotated[Path | None, typer.Option(help="one label per row: .npy, .txt, .csv, .parquet, .json")] = None,
    pipeline: Steps = None,
    raw: Annotated[bool, typer.Option("--raw", help="use the rows as given, without a pipeline")] = False,
    measures: MeasureNames = None,
    everything: Annotated[bool, typer.Option("--all", help="take all default measures, not only the core")] = False,
    by: Annotated[str | None, typer.Option(help="measure each value of this column: label, language, …")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="also write the records to this new file")] = None,
    seed: Annotated[int, typer.Option(help="seed of null values and jackknife", min=0, max=2**63 - 1)] = 0,
    blocks: Annotated[
        int | None, typer.Option(help="jackknife blocks behind ±; 0 for no standard errors", min=0, show_default="20")
    ] = None,
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

    from clip_geometry.cli.measure_files import measure_files
    from clip_geometry.files import claimed

    with nullcontext() if json_file is None else claimed(json_file) as target:
        measure_files(
            paths,
            labels=labels,
            steps="" if raw else pipeline,
            names=measures,
            everything=everything,
            by=by,
            json_file=target,
            seed=seed,
            blocks=blocks,
            engine=engine,
            address=address,
            scaling=scaling,
            full_size=full_size,
        )


@app.command("embed")
def embed_command(
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
    only: Annotated[str | None, typer.Option(help="embed one side only: image or text")] = None,
    limit: Annotated[int | None, typer.Option(help="use only the first N items", min=1)] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    shard_size: Annotated[int | None, typer.Option(help="items per shard", min=1)] = None,
    device: Device = "auto",
    precision: Annotated[str | None, typer.Option(help="fp32 (default), bf16 or fp16")] = None,
    features: Annotated[str | None, typer.Option(help="projected (default) or pooled")] = None,
    export: Annotated[str | None, typer.Option(help="clip-retrieval or parquet, into OUT/export/")] = None,
    max_corrupt: Annotated[float, typer.Option(help="share of images that may fail to decode", min=0, max=1)] = 0.01,
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """Embeds a data set; run again, it computes what is missing.

    Several languages are modalities of their own: each has a store in OUT, the first one with the images.

    KEY=VALUE sets any other field of the encoder's or the data set's config: seed=1 zero_bias=true. Where both
    have a field, the encoder's is set; data.seed=1 sets the data set's.
    """
    from clip_geometry.cli.embed_named import embed_named

    data_options = {"split": split, "prompt": prompt, "language": language}
    model_options = {"precision": precision, "features": features}
    embed_named(
        model,
        dataset,
        out,
        model_options={key: value for key, value in model_options.items() if value is not None},
        data_options={key: value for key, value in data_options.items() if value is not None},
        overrides=overrides or [],
        export=export,
        only=only,
        limit=limit,
        batch_size=batch_size,
        shard_size=shard_size,
        device=device,
        max_corrupt=max_corrupt,
        engine=engine,
        address=address,
    )


@app.command("fit")
def fit_command(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE",
            help="e.g. normalize,whiten(128); list transforms",
            autocompletion=completion.several("pipeline step"),
        ),
    ],
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="embeddings: a file or a folder")],
    target: Annotated[Path | None, typer.Argument(metavar="TARGET", help="what SOURCE is mapped onto")] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="the .safetensors file to write")] = ...,  # pyright: ignore
) -> None:
    """Fits a pipeline to embeddings and writes it as a map.

    The map is for apply, and for programs without this package.

    A single set gives one map for all modalities. For a folder with images and texts, steps say what they are fitted
    on, as in measure: whiten(128)[pooled], procrustes[text-to-image]. With a TARGET, procrustes and least_squares map
    SOURCE onto it; rows are paired by item_id, or by position without one.
    """
    check_pipeline(pipeline)
    check_embeddings(source, target)

    from clip_geometry.cli.maps import fit_map
    from clip_geometry.files import claimed

    with claimed(out) as mine:
        fit_map(pipeline, source, target, mine)


@app.command("apply")
def apply_command(
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
    from clip_geometry.paths import expanded

    apply_map(map_file, source, expanded(out), modality, normalize=not no_normalize)


@app.command("ship")
def ship_command(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help="a map that fit wrote, or a saved repair")],
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FOLDER | IMAGE TEXT", help="embeddings, for faiss; a saved model, for sentence-transformers"
        ),
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="the new folder to write")] = ...,  # pyright: ignore
    to: Annotated[
        str,
        typer.Option(
            help="faiss, onnx, sentence-transformers, numpy or javascript",
            autocompletion=completion.one_of("faiss", "onnx", "sentence-transformers", "numpy", "javascript"),
        ),
    ] = ...,  # pyright: ignore
    modality: Modality = None,
    no_normalize: NoNormalize = False,
) -> None:
    """Writes a map or a repair as an index, a model or a script.

    Other programs then need no clip-geometry.

    faiss: an index of the rows given, and transforms of raw queries. onnx: models of raw rows. sentence-transformers: a
    copy of the encoder in FOLDER that gives repaired rows. numpy, javascript: a short script with its constants.
    """
    from clip_geometry.cli.ship import ship
    from clip_geometry.paths import expanded

    ship(map_file, sources or (), expanded(out), to, modality, normalize=not no_normalize)


@app.command("export")
def export_command(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="embeddings: a file or a folder")],
    options: Overrides = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="the new folder or file to write")] = ...,  # pyright: ignore
    to: Annotated[
        str,
        typer.Option(
            help="clip-retrieval, parquet, embedding-atlas, datasets, faiss or lancedb",
            autocompletion=completion.one_of(
                "clip-retrieval", "parquet", "embedding-atlas", "datasets", "faiss", "lancedb"
            ),
        ),
    ] = ...,  # pyright: ignore
    normalize: Annotated[bool, typer.Option("--normalize", help="make rows unit length first")] = False,
) -> None:
    """Writes embeddings for another program.

    clip-retrieval and datasets have one row per pair, so that an image with five captions appears five times; the
    others have all rows, with a column for their modality. For embedding-atlas, projection=pca or umap and neighbors=15
    add what it would compute.
    """
    check_embeddings(source)

    from clip_geometry.cli.export import export_embeddings
    from clip_geometry.paths import expanded

    export_embeddings(source, expanded(out), to, options or [], normalize=normalize)


@app.command("export-model")
def export_model_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="a name, see list models, or the folder of a model", autocompletion=completion.model
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="the new folder to write")] = ...,  # pyright: ignore
    license: Annotated[str | None, typer.Option(help="of the weights, for the model card: mit, apache-2.0, …")] = None,
) -> None:
    """Writes a model as a folder that transformers loads.

    It has a model card, and sentence-transformers loads it, too.

    A CLIP of open_clip becomes a CLIPModel, or a VisionTextDualEncoderModel where timm has its image tower; a text
    tower of Multilingual-CLIP a SentenceTransformer. Rows are compared with the model's own first.
    """
    from clip_geometry.shipping.models import export_model

    print(printable(f"model: {export_model(model, out, license=license)}"))


@app.command("compare")
def compare_command(
    paths: Annotated[
        list[Path], typer.Argument(metavar="A B...", help="embeddings, run folders or files of measure --json")
    ],
    pipeline: Annotated[
        list[str] | None, typer.Option(help="steps before measuring; once for all, or once for each column")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="use the rows as given; --pipeline raw for one column")] = False,
    measures: MeasureNames = None,
    everything: Annotated[bool, typer.Option("--all", help="take all default measures, not only the core")] = False,
    labels: Annotated[Path | None, typer.Option(help="one label per row: .npy, .txt, .csv, .parquet, .json")] = None,
    csv: Annotated[Path | None, typer.Option(help="also write the table to this file, with all digits")] = None,
    latex: Annotated[Path | None, typer.Option(help="also write the table to this .tex file")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="also write the table to this file")] = None,
    seed: Annotated[int, typer.Option(help="seed of blocks, null values and sign flips", min=0, max=2**63 - 1)] = 0,
    blocks: Annotated[
        int | None, typer.Option(help="jackknife blocks behind ±; 0 for no standard errors", min=0, show_default="20")
    ] = None,
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

    from clip_geometry.cli.comparison import compare_paths

    compare_paths(
        paths,
        ["raw"] if raw else pipeline or [],
        measures=measures,
        everything=everything,
        labels=labels,
        seed=seed,
        blocks=blocks,
        csv=csv,
        latex=latex,
        json_file=json_file,
    )


@app.command("diagnose")
def diagnose_command(
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
    repairs: Annotated[
        str | None,
        typer.Option(help="names (list repairs); '' compares none", autocompletion=completion.several("repair")),
    ] = None,
    splits: Annotated[int, typer.Option(help="random halves that repairs are compared on", min=1, max=1000)] = 10,
    seed: Annotated[int, typer.Option(help="seed of samples and splits", min=0, max=2**32 - 1)] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="also write everything to this new file")] = None,
    figure: Annotated[Path | None, typer.Option(help="also draw what repairs find and cost: .png, .svg, .pdf")] = None,
    write: Annotated[Path | None, typer.Option(help="save the recommended repair to this .safetensors file")] = None,
    repair: Annotated[
        str | None,
        typer.Option(
            help="save this repair instead of the recommended one", autocompletion=completion.several("repair")
        ),
    ] = None,
) -> None:
    """Says whether an index is broken, and which repair helps.

    Seventeen checks look for faults: shuffled pairs, copies, mixed models, lost precision, …. Repairs are fitted on
    random halves of the items and tried on the others.
    """
    if relevant not in (None, "labels", "pairs"):
        raise InputError(f"--relevant {shown(relevant)} is unknown; expected labels or pairs")
    if repair is not None and write is None:
        raise InputError("--repair says which repair is saved, but there is no --write; give the file too")
    check_embeddings(*paths, other)
    check_repairs(repairs)
    check_repairs(repair)

    from clip_geometry.cli.diagnose_files import diagnose_files

    diagnose_files(
        paths,
        labels=labels or [],
        other=other,
        relevant=relevant,
        names=repairs,
        splits=splits,
        seed=seed,
        json_file=json_file,
        figure_file=figure,
        write=write,
        write_repair=repair,
    )


@app.command("explore")
def explore_command(
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
        str | None, typer.Option(help="data set of the rows, a name or a path, for images and texts")
    ] = None,
    captions: Annotated[Path | None, typer.Option(help="a file with one caption for each text")] = None,
    images: Annotated[Path | None, typer.Option(help="folder of the images, by id or in order of their names")] = None,
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
    check_embeddings(*paths, captions, images)
    check_pipeline(pipeline)
    check_shown_repairs(repairs)

    from clip_geometry.cli.explore_files import explore_files

    explore_files(
        paths,
        out,
        repairs=repairs,
        command=shlex.join(["clip-geometry", *sys.argv[1:]]),
        labels=labels or [],
        pipeline=pipeline or "",
        limit=limit,
        data=data,
        captions=captions,
        images=images,
        umap=not no_umap,
        title=title,
        seed=seed,
    )


@app.command("list")
def list_command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="measures|evaluators|models|datasets|formats|tasks|transforms|repairs|checks|experiments|configs",
            autocompletion=lambda incomplete: [*shipped()["index"], "models"],
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="explain this one in full", autocompletion=completion.listed_name),
    ] = None,
) -> None:
    """Lists what is available, or explains one of it."""
    from clip_geometry.cli.lists import print_list

    print_list(what, name)


def main() -> None:
    """Runs the command line. Errors of the user are one sentence and status 2, with a traceback only under --debug."""
    # Before torch is imported, which reads it: threads of OpenMP spin 300,000 times before they sleep. Where others use
    # the same cores, that makes a table of 500 pairs take 50 to 70 s instead of 20 to 34. Not spinning at all
    # (OMP_WAIT_POLICY=PASSIVE) is as good there, but takes 15 s instead of 8 on an idle machine.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    _prepare_streams()
    seen, show_foreign = set(), warnings.showwarning

    def show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        """Prints a warning of ours in one line, like an error, and the same line once."""
        if not category.__module__.startswith("clip_geometry."):
            show_foreign(message, category, *place, **more)
        elif str(message) not in seen:
            seen.add(str(message))
            _complain(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        try:
            _run()
        finally:
            Settings.verbose = Settings.resumes = False  # for who calls main() and goes on
            try:
                sys.stdout.flush()  # before Python does so at exit, where an error could no longer be reported
            except OSError as error:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                if not isinstance(error, BrokenPipeError):  # which is `| head`, and no error
                    _complain(f"standard output cannot be written to: {error.strerror}")
                raise SystemExit(1 if isinstance(error, BrokenPipeError) else 2) from None


def _prepare_streams() -> None:
    """Opens closed streams on /dev/null, so that no other file takes their number and receives what is written to them,
    and replaces characters that the terminal's encoding lacks by question marks."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.fstat(number)
                continue
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if number == 0 else "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _complain(message: str) -> None:
    """One line, however long the names in it are."""
    note(f"clip-geometry: {shortened(printable(message), MOST)}")


def _run() -> None:
    anywhere = {"--debug", "-v", "--verbose"}
    arguments = [argument for argument in sys.argv[1:] if argument not in anywhere]
    given = anywhere.intersection(sys.argv[1:])
    debug = "--debug" in given
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    Settings.verbose, Settings.resumes = bool(given - {"--debug"}), command in ("embed", "run")
    try:
        status = app(args=arguments, prog_name="clip-geometry", standalone_mode=False)
    except InputError as error:
        if debug:
            raise
        _complain(str(error))
        raise SystemExit(2) from None
    except BrokenPipeError:  # `| head` has seen enough
        raise SystemExit(1) from None
    except OSError as error:  # permissions, a full disk
        if debug:
            raise
        _complain_of_memory(error)
        what = (
            f"cannot use {shown(Path(str(error.filename)))}" if error.filename else "a file cannot be written or read"
        )
        _complain(f"{what}: {error.strerror or error}")
        raise SystemExit(2) from None
    except Exception as error:
        usage = getattr(error, "format_message", None)  # typer's, of a command line that it cannot read
        if usage is None:
            if not debug:
                _complain_of_memory(error)
            raise
        path = getattr(getattr(error, "ctx", None), "command_path", "clip-geometry")
        if "\n" in usage():  # the help, where no command was given
            print(usage())
        else:
            _complain(f"{usage().rstrip('.')} (see {path} --help)")
        raise SystemExit(2) from None
    if status == INTERRUPTED:  # typer's way of Ctrl-C
        resumes = f"; the same {command} command continues" if Settings.resumes else ""
        _complain(f"interrupted{resumes}")
    raise SystemExit(status)  # None, as a command gives, is success


def _complain_of_memory(error: Exception) -> None:
    """Ends the command where memory ran out, which libraries report by several kinds of errors."""
    from clip_geometry.memory import is_out_of_memory, out_of_memory

    if is_out_of_memory(error):
        _complain(out_of_memory(error))
        raise SystemExit(2) from None

"""Published beside ours, as tables of text: for docs/reproduction.md and for the report of a run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from clip_geometry.ledger import Entry, Line, Ours, compare
from clip_geometry.report.numbers import MISSING, fixed, plus_minus
from clip_geometry.report.origin import option_words, pipeline_words, with_options
from clip_geometry.results import ORIGIN, Row

UNLIKE = {
    "dataset": "data",
    "data_options.path": "data",
    "data_options.prompt": "prompt",
    "model_options.layer": "layer",
    "at.batch": "batch",
    "at.sample": "sample",
    "at.measure_every": "states",
    "n": "number of rows",
    "fitted_on": "fitted on",
}  # how a field is called where it is not the paper's
MOST_DECIMALS = 4  # of a difference, however many are printed
# of a place, which the published labels say too
LABELS = (
    "row", "split", "modality", "source", "language", "classifier.seed", "layer", "of", "with",
    "method", "lambda", "training.seed", "metric",
)  # fmt: skip
SAME_ROWS = (*ORIGIN, "at", "n", "d")
NOT_RUN = "not run here"


@dataclass(frozen=True)
class Cells:
    """One row of a table. first: whether it is the first of its published number. cause: what is not the paper's, and
    the numbers of the table's causes."""

    label: str
    published: str
    ours: str = MISSING
    difference: str = MISSING
    how: str = ""
    size: str = ""
    setup: str = ""
    cause: str = ""
    first: bool = True


@dataclass
class Table:
    """A table of a paper. setups: model, data and run of ours, with their letters; causes: sentences, numbered from 1.

    missing: what the paper's own setups need that were not run.
    """

    title: str
    rows: list[Cells] = field(default_factory=list)
    setups: dict[str, str] = field(default_factory=dict)
    causes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def tables(lines: Iterable[Line]) -> list[Table]:
    """One for each section of a paper, in the order of the lines."""
    found: dict[tuple[str, str], Table] = {}
    for line in lines:
        entry = line.entry
        table = found.setdefault((entry.published.paper, entry.published.section), Table(entry.title))
        table.rows += _cells(table, line)
    return list(found.values())


def beside(rows: Sequence[Row], run: str) -> list[Table]:
    """What the report of a run shows: the published numbers that its rows stand beside."""
    return tables(line for line in compare(rows, run) if line.ours)


def _cells(table: Table, line: Line) -> list[Cells]:
    entry = line.entry
    label = " · ".join(entry.published.keys) or entry.published.section
    if not line.comparable and (wanted := _wanted(entry)) not in ("", *table.missing):
        table.missing.append(wanted)
    if not line.ours:
        cause = _numbers(table.causes, [entry.rule.reason]) if entry.rule.reason else NOT_RUN
        return [Cells(label, entry.published.text, cause=cause)]
    return [_cell(table, line, label, ours, line.ours[k - 1] if k else None) for k, ours in enumerate(line.ours)]


def _cell(table: Table, line: Line, label: str, ours: Ours, above: Ours | None) -> Cells:
    counted = ours.error is None and float(ours.value).is_integer() and abs(ours.value) >= 10
    value = f"{ours.value:.0f}" if counted else plus_minus(ours.value, ours.error)
    printed = min(line.entry.published.decimals, MOST_DECIMALS)
    decimals = max(len(value.partition(" ")[0].partition(".")[2]), printed)
    causes = [*line.entry.causes, *filter(None, [ours.variant.cause])]
    unlike = ", ".join(UNLIKE.get(key, key) for key in ours.unlike)
    return Cells(
        label=label,
        published=line.entry.published.text,
        ours=value,
        difference=_signed(line.difference(ours), decimals) + (" ✓" if line.agrees(ours) else ""),
        how=_how(ours, above),
        size=" × ".join(str(ours.row[key]) for key in ("n", "d") if ours.row.get(key) is not None),
        setup=_letter(table.setups, _setup(ours)),
        cause="; ".join(filter(None, (unlike, _numbers(table.causes, causes)))),
        first=above is None,
    )


def _wanted(entry: Entry) -> str:
    """What the paper's own setup needs, and the command; "" where nothing here computes it."""
    needs = f"it needs {entry.rule.needs}: " if entry.rule.needs else ""
    return f"{needs}`{entry.command}`" if entry.command else ""


def _how(ours: Ours, above: Ours | None) -> str:
    """The variant, the pipeline, what it was fitted on, and what else tells the row from others; of the same rows as
    the line above only the variant."""
    row = ours.row
    if above is not None and ours.variant.label and all(row.get(key) == above.row.get(key) for key in SAME_ROWS):
        return ours.variant.label
    rest = {key: value for key, value in (row.get("at") or {}).items() if key not in LABELS}
    fitted = f"fitted on {row['fitted_on']}" if row.get("fitted_on") else ""
    seeds = f"mean of {ours.seeds} seeds ± their standard deviation" if ours.seeds > 1 else ""
    steps = pipeline_words(row["pipeline"]) if "pipeline" in row else ""
    return "; ".join(filter(None, (ours.variant.label, steps, fitted, option_words(rest), seeds)))


def _setup(ours: Ours) -> str:
    row = ours.row
    options = {
        key: value for key, value in (row.get("model_options") or {}).items() if ours.seeds == 1 or key != "seed"
    }
    model = with_options(str(row.get("model") or "a model that is not named"), options)
    data = with_options(str(row.get("dataset") or "data that are not named"), row.get("data_options"))
    where = ", ".join(filter(None, (f"{model} on {data}", row.get("split"))))
    command = f"`{row['command']}`" if row.get("command") else ""
    when = ", ".join(filter(None, (row.get("date"), row.get("version") and f"clip-geometry {row['version']}")))
    return "; ".join(filter(None, (where, command, when)))


def _letter(setups: dict[str, str], setup: str) -> str:
    """A, B, …, Z, A2, B2, …"""
    known = {text: letter for letter, text in setups.items()}
    if setup not in known:
        place = len(setups)
        known[setup] = chr(ord("A") + place % 26) + (str(place // 26 + 1) if place >= 26 else "")
        setups[known[setup]] = setup
    return known[setup]


def _numbers(known: list[str], causes: Iterable[str]) -> str:
    """Their numbers among the causes of the table, new ones added."""
    places = []
    for cause in causes:
        if cause not in known:
            known.append(cause)
        places.append(str(known.index(cause) + 1))
    return ", ".join(places)


def _signed(value: float | None, decimals: int) -> str:
    if value is None:
        return MISSING
    text = fixed(value, decimals)
    return text if text.startswith("−") or not float(text) else f"+{text}"

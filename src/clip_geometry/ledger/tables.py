"""Published beside ours, as tables of text: for docs/reproduction.md and for the report of a run."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clip_geometry.ledger.comparing import Line, Ours, compare
from clip_geometry.ledger.entries import entries, findings, has_ledger
from clip_geometry.ledger.published import papers
from clip_geometry.report.numbers import MISSING, fixed, plus_minus
from clip_geometry.report.origin import option_words, pipeline_words, with_options
from clip_geometry.report.words import render
from clip_geometry.results import ORIGIN, Row

UNLIKE = {
    "dataset": "data",
    "data_options.path": "data",
    "data_options.prompt": "prompt",
    "data_options.window": "sentences instead of windows",
    "data_options.captions_per_image": "captions per image",
    "at.seeds": "number of seeds",
    "seeds": "number of seeds",
    "model_options.layer": "layer",
    "at.batch": "batch",
    "at.sample": "sample",
    "at.measure_every": "states",
    "n": "number of rows",
    "fitted_on": "fitted on",
}  # names of fields that differ from the paper's setup
MOST_DECIMALS = 4  # of a difference, however many are printed
# keys of `at` that the published labels already state
LABELS = (
    "row", "split", "modality", "source", "language", "classifier.seed", "layer", "of", "with",
    "method", "lambda", "training.seed", "metric",
)  # fmt: skip
SAME_ROWS = (*ORIGIN, "at", "n", "d")
NOT_RUN = "not run here"


@dataclass(frozen=True)
class Cells:
    """One row of a table. first: whether it is the first of its published number. cause: what differs from the paper's
    setup, and the numbers of the table's causes."""

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
    """A table of a paper.

    Args:
        title: Its heading.
        rows: Its rows.
        setups: Letter → model, data and run of ours.
        causes: Sentences, numbered from 1.
        missing: What the paper's own setups need, where they were not run.
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
        causes, text = table.causes, entry.published.text
        label = " · ".join(entry.published.keys) or entry.published.section
        needs = [f"it needs {entry.rule.needs}"] if entry.rule.needs else []
        wanted = ": ".join(needs + ([f"`{entry.command}`"] if entry.command else []))
        if not line.comparable and wanted and wanted not in table.missing:
            table.missing.append(wanted)
        if not line.ours:
            cause = _numbers(causes, [entry.rule.reason]) if entry.rule.reason else NOT_RUN
            table.rows.append(Cells(label, text, cause=cause))
        above = (None, *line.ours)
        table.rows += [_cells(table, line, label, *each) for each in zip(line.ours, above, strict=False)]
    return list(found.values())


def beside(rows: Sequence[Row], run: str) -> list[Table]:
    """The tables for the report of a run: the published numbers that its rows stand beside."""
    return tables(line for line in compare(rows, run) if line.ours)


def reproduction_page(recorded: Mapping[str, Sequence[Row]]) -> str:
    """docs/reproduction.md: every published number, ours, the difference and the cause.

    Args:
        recorded: Name of a run → its recorded rows.
    """
    about: list[Mapping[str, Any]] = []
    for paper in papers().values():
        # a line for every published number, with all that was recorded for it
        lines = []
        for entry in entries(paper.name) if has_ledger(paper.name) else ():
            found = [line for run in entry.runs for line in compare(recorded.get(run, ()), run, [entry])]
            lines.append(Line(entry, tuple(ours for line in found for ours in line.ours)))
        own = sum(line.comparable for line in lines)
        others = sum(bool(line.ours) for line in lines) - own
        reasons = sum(bool(line.entry.rule.reason) for line in lines)
        about.append(
            {
                "title": paper.title,
                "reference": paper.reference,
                "has_ledger": has_ledger(paper.name),
                "counts": (len(lines), own, others, reasons, len(lines) - own - others - reasons),
                "findings": findings(paper.name),
                "tables": tables(lines),
            }
        )
    return render(
        Path(__file__).with_name("reproduction.md.j2"),
        papers=about,
        wrapped=lambda text: textwrap.fill(
            text,
            120,
            subsequent_indent="  " if text.startswith(("- ", "  ")) else "",
            break_long_words=False,
            break_on_hyphens=False,
        ),
        cited=lambda evidence: ", ".join(f"`{each}`" if each.startswith("tests/") else each for each in evidence),
    )


def _cells(table: Table, line: Line, label: str, ours: Ours, above: Ours | None) -> Cells:
    counted = ours.error is None and float(ours.value).is_integer() and abs(ours.value) >= 10
    value = f"{ours.value:.0f}" if counted else plus_minus(ours.value, ours.error)
    printed = min(line.entry.published.decimals, MOST_DECIMALS)
    decimals = max(len(value.partition(" ")[0].partition(".")[2]), printed)
    difference = MISSING
    # How far chance is from a trained model tells nothing, nor how far an accuracy is from one among other classes.
    untrained = "/fresh" in str(ours.row.get("model"))
    other_classes = line.entry.rule.unit == "percent" and "dataset" in ours.unlike
    if (exact := line.difference(ours)) is not None and (ours.comparable or not (untrained or other_classes)):
        text = fixed(exact, decimals)
        difference = text if text.startswith("−") or not float(text) else f"+{text}"
    causes = _numbers(table.causes, [*line.entry.causes, *filter(None, [ours.variant.cause])])
    letters = {setup: letter for letter, setup in table.setups.items()}
    if (setup := _setup(ours)) not in letters:  # A, B, …, Z, A2, B2, …
        round_, place = divmod(len(letters), 26)
        letters[setup] = chr(ord("A") + place) + (str(round_ + 1) if round_ else "")
        table.setups[letters[setup]] = setup
    return Cells(
        label=label,
        published=line.entry.published.text,
        ours=value,
        difference=difference + (" ✓" if line.agrees(ours) else ""),
        how=_how(ours, above),
        size=" × ".join(str(ours.row[key]) for key in ("n", "d") if ours.row.get(key) is not None),
        setup=letters[setup],
        cause="; ".join(filter(None, (_unlike(ours), causes))),
        first=above is None,
    )


def _unlike(ours: Ours) -> str:
    """What differs from the paper's setup. Other data have other options, another split and as many rows as they have,
    and a training with other settings has other states: none of these is a cause of its own then."""
    other_data = "dataset" in ours.unlike
    told = [
        key
        for key in ours.unlike
        if not (other_data and (key.startswith("data_options.") or key in ("split", "n")))
        and not (key == "n" and len(ours.unlike) > 1)
    ]
    return ", ".join(dict.fromkeys(UNLIKE.get(key, key) for key in told))


def _how(ours: Ours, above: Ours | None) -> str:
    """The variant, the pipeline, what it was fitted on, and what else distinguishes the row; only the variant if the
    line above is of the same rows."""
    row = ours.row
    if above is not None and ours.variant.label and all(row.get(key) == above.row.get(key) for key in SAME_ROWS):
        return ours.variant.label
    rest = {key: value for key, value in (row.get("at") or {}).items() if key not in LABELS}
    fitted = f"fitted on {row['fitted_on']}" if row.get("fitted_on") else ""
    seeds = f"mean of {ours.seeds} seeds ± their standard deviation" if ours.seeds > 1 else ""
    null = f"null {fixed(row['null_value'], 3)}" if row.get("null_value") is not None else ""
    steps = pipeline_words(row["pipeline"]) if "pipeline" in row else ""
    return "; ".join(filter(None, (ours.variant.label, steps, fitted, option_words(rest), seeds, null)))


def _setup(ours: Ours) -> str:
    row = ours.row
    options = {
        key: value for key, value in (row.get("model_options") or {}).items() if ours.seeds == 1 or key != "seed"
    }
    model = with_options(str(row["model"]), options) if row.get("model") else ""  # drawn clouds have none
    data = with_options(str(row.get("dataset") or "data that are not named"), row.get("data_options"))
    where = ", ".join(filter(None, (" on ".join(filter(None, (model, data))), row.get("split"))))
    command = f"`{row['command']}`" if row.get("command") else ""
    when = ", ".join(filter(None, (row.get("date"), row.get("version") and f"clip-geometry {row['version']}")))
    return "; ".join(filter(None, (where, command, when)))


def _numbers(known: list[str], causes: Iterable[str]) -> str:
    """Their numbers among the causes of the table; new ones are added."""
    places = []
    for cause in causes:
        if cause not in known:
            known.append(cause)
        places.append(str(known.index(cause) + 1))
    return ", ".join(places)

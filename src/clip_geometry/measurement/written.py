"""A measurement as text, HTML and LaTeX, from one table."""

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from clip_geometry import display
from clip_geometry.catalog import descriptions
from clip_geometry.display import latex
from clip_geometry.display.couples import couples, matrices
from clip_geometry.display.explained import facts
from clip_geometry.display.origin import data_words, model_words, pipeline_words, roles_of
from clip_geometry.display.table import SIZE_FIELDS, Block, Table, build_table, explain
from clip_geometry.display.verdict import verdict
from clip_geometry.display.words import html_templates
from clip_geometry.registry import printable
from clip_geometry.results import Record

WIDTH = 100  # of sentences as text
NULL = "null: the same measure on an isotropic Gaussian of this n and d, through this pipeline"


def as_text(records: Sequence[Record]) -> str:
    """The verdict, then lines as wide as the table needs."""
    head, blocks = _lines(
        build_table(_computed(records), descriptions), lambda block: block.name + f" ({block.unit})" * bool(block.unit)
    )
    rows = [head, *(line for block in blocks for line in block)]
    lines = justified(rows, [name in (*SIZE_FIELDS, "value", "null") for name in head])
    said = textwrap.wrap(verdict(records), WIDTH)
    head_lines, notes = ([printable(line) for line in part] for part in (heading(records), footnotes(records)))
    parts = (said, head_lines, lines if blocks else ["no numbers"], notes)
    text = "\n\n".join("\n".join(part) for part in parts if part)
    return text.replace("−", "-").rstrip()


def justified(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Printable lines of cells in columns. right: whether a column is flush right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def as_html(records: Sequence[Record]) -> str:
    """The verdict, then a table in the colors of the notebook; couples of three modalities as modality × modality."""
    computed = _computed(records)
    crossed = couples(records)
    template = html_templates(Path(__file__).parent, *display.__path__).get_template("table.html")
    return template.render(
        verdict=verdict(records),
        heading=heading(records),
        table=build_table([record for record in computed if record not in crossed], descriptions),
        crossed=matrices(crossed),
        footnotes=footnotes(records),
        about=about,
    )


def as_latex(records: Sequence[Record]) -> str:
    """A table with booktabs' rules."""
    computed = _computed(records)
    head, blocks = _lines(build_table(computed, descriptions), lambda block: latex.measure_title(block.name))
    meaning = [f"{line}." for line in footnotes(computed) if line.startswith(("±", "[ ]", "null"))]
    return latex.table(
        head,
        blocks,
        numbers=[name in (*SIZE_FIELDS, "value", "null") for name in head],
        title=" ".join([f"{'; '.join(heading(records))}.", *meaning]),
        label="tab:geometry",
        names=dict.fromkeys(record.measure for record in computed),
    )


def heading(records: Sequence[Record]) -> list[str]:
    """What was measured: the data and the model where they are known, the pipeline, and the size if all share it."""
    first: dict = dict(records[0]) if records else {}
    origin = ", ".join(filter(None, (model_words(first), data_words(first))))
    sizes = {name: {record.get(name) for record in _computed(records)} for name in SIZE_FIELDS}
    facts = [f"pipeline: {pipeline_words(first.get('pipeline') or ())}"]
    facts += [f"{name} = {found.pop()}" for name, found in sizes.items() if len(found) == 1]
    return [line for line in (origin, "; ".join(facts)) if line]


def footnotes(records: Sequence[Record]) -> list[str]:
    """What ± and null mean, remarks on the sets, notes on numbers, and why some could not be computed."""
    computed = _computed(records)
    lines = []
    if any(record.low is not None for record in computed):
        lines.append("[ ]: 95% interval of a share, over queries and items, with the pipeline as it was fitted")
    if any(record.standard_error is not None and record.low is None for record in computed):
        blocks = {record.get("jackknife_blocks") for record in computed} - {None, 0}
        many = f", jackknife over {blocks.pop()} blocks of items" if len(blocks) == 1 else ""
        lines.append(f"±: standard error{many}")
    lines += [roles] if (roles := roles_of(records)) else []
    lines += [NULL] if any(record.null_value is not None for record in computed) else []
    remarks = dict.fromkeys(
        (each, " ".join(str(value) for key, value in record.at.items() if key != "modality"))
        for record in records
        for each in record.get("remarks", ())
    )
    lines += [f"remark{f' on {group}' if group else ''}: {each}" for each, group in remarks]
    notes: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        place = f" of {' '.join(map(str, record.at.values()))}" if record.at else ""
        if record.note:
            start = "not computed: " if record.value is None else ""
            notes.setdefault((start, f"{place}: {record.note}"), {})[record.measure] = None
    return lines + [f"{start}{', '.join(names)}{end}" for (start, end), names in notes.items()]


def about(name: str) -> str:
    """How a measure is read, in one paragraph."""
    found = explain(name, descriptions)
    return "" if found is None else f"{found.title}: {found.summary} {found.reading} ({facts(found)})"


def _computed(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.value is not None]


def _lines(table: Table, name_of: Callable[[Block], str]) -> tuple[list[str], list[list[list[str]]]]:
    """The head of the table, and the cells of its lines, group by group."""
    blocks = []
    for _, members in table.groups:
        numbers = [(block, line) for block in members for line in block.lines]
        blocks.append(
            [[name_of(block), each.modality, *each.varying, each.value, each.null] for block, each in numbers]
        )
    return ["measure", "set", *table.columns, "value", "null"], blocks

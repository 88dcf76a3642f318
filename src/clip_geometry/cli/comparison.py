"""`clip-geometry compare`: embeddings, runs or measurements side by side, and whether the change helped."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from clip_geometry.cli.tables import console, print_table, say
from clip_geometry.files import write_atomically
from clip_geometry.measurement.compared import cells_of, legend, names, tables
from clip_geometry.measurement.comparison import Comparison, compare
from clip_geometry.measuring.records import ALL


def compare_paths(
    paths: Sequence[Path],
    pipelines: Sequence[str],
    *,
    measures: str | None,
    everything: bool,
    labels: Path | None,
    seed: int,
    blocks: int | None,
    csv: Path | None,
    latex: Path | None,
    json_file: Path | None,
) -> None:
    """Compares what lies at the paths with the first, prints a table for each and writes the files."""
    chosen = ALL if everything else measures
    found = compare(*paths, pipelines=pipelines, measures=chosen, labels=labels, blocks=blocks, seed=seed)
    print_comparison(found)
    if csv is not None:
        write_atomically(csv.resolve(), found.frame.to_csv(index=False).encode())
    if json_file is not None:
        content = {"flips": found.flips, "seed": found.seed, "changes": list(found.rows())}
        write_atomically(json_file.resolve(), (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    if latex is not None:
        write_atomically(latex.resolve(), ("\n".join(_latex(found)) + "\n").encode())


def print_comparison(found: Comparison) -> None:
    """Prints what is compared, what the change means, and a table for each column but the first."""
    out = console()
    for line in names(found):
        say(out, line)
    for said, heads, rows in tables(found):
        out.print()
        for line in said:
            say(out, line)
        print_table(out, heads, rows)
    for line in legend(found):
        say(out, line, style="dim")


def _latex(found: Comparison) -> Iterable[str]:
    """A table for booktabs: each measure and set, both values, the change and p."""
    typeset = {"_": r"\_", "%": r"\%", "&": r"\&", "±": r"$\pm$", "<": "$<$", "–": "--"}
    for column, changes in zip(found.columns[1:], found.changes, strict=True):
        yield f"% {found.columns[0].name} (A) and {column.name} (B), clip-geometry compare"
        yield r"\begin{tabular}{llrrrr}"
        yield r"\toprule"
        yield r"measure & set & A & B & B $-$ A & $p$ \\"
        yield r"\midrule"
        for change in changes:
            if change.value is not None:
                cells = ["".join(typeset.get(sign, sign) for sign in cell) for cell in cells_of(change)]
                minus = [f"$-${cell[1:]}" if cell[:1] == "-" and cell != "--" else cell for cell in cells]
                yield f"{' & '.join(minus)} \\\\"
        yield r"\bottomrule"
        yield r"\end{tabular}"

"""`clip-geometry diagnose`: is this index broken, which repair helps, what does it cost."""

import io
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clip_geometry.cli.tables import console, print_table, say
from clip_geometry.diagnosis import Diagnosis, diagnose
from clip_geometry.diagnosis.checks import checks
from clip_geometry.diagnosis.search import NUMBERS, Estimate
from clip_geometry.files import claimed, write_atomically
from clip_geometry.progress import progress
from clip_geometry.registry import InputError, printable, shown
from clip_geometry.repairs import InnerProduct, Repair
from clip_geometry.repairs import repairs as registered

FIGURES = (".png", ".svg", ".pdf")
MARK = {"error": "✗", "warning": "!", "note": "·"}
STYLE = {"error": "bold red", "warning": "bold yellow", "note": "bold"}


def diagnose_files(
    paths: Sequence[Path],
    *,
    labels: Sequence[str],
    other: Path | None,
    relevant: Any,
    names: str | None,
    splits: int,
    seed: int,
    json_file: Path | None,
    figure_file: Path | None,
    write: Path | None,
    write_repair: str | None,
) -> None:
    """Prints the diagnosis and writes what was asked for."""
    if figure_file is not None and figure_file.suffix not in FIGURES:
        raise InputError(f"--figure {shown(figure_file)} is no {', '.join(FIGURES)} file; choose one of these endings")
    if write is not None and write.suffix != ".safetensors":
        raise InputError(f"--write {shown(write)} is no .safetensors file, which is what a repair is; add the ending")
    repairs = None if names is None else [part.strip() for part in names.split(",") if part.strip()]
    with ExitStack() as claims:
        targets = {
            path: claims.enter_context(claimed(path)) for path in (json_file, figure_file, write) if path is not None
        }
        bar = _Bar(claims)
        found = diagnose(
            *paths,
            labels=_labels(labels),
            other=other,
            relevant=relevant,
            repairs=repairs,
            splits=splits,
            seed=seed,
            progress=bar,
        )
        print_diagnosis(found)
        out = console()
        if json_file is not None:
            write_atomically(targets[json_file], found.to_json().encode())
            say(out, f"diagnosis: {json_file}")
        if figure_file is not None:
            drawn = io.BytesIO()
            found.figure().savefig(drawn, dpi=200, format=figure_file.suffix[1:])
            write_atomically(targets[figure_file], drawn.getvalue())
            say(out, f"figure: {figure_file}")
        if write is not None:
            repair = found.fitted(write_repair)
            repair.save(targets[write])
            say(out, f"repair: {repair.name} in {write}, fitted on all items (at most 2,000)")
            say(out, f"next: {_ship(repair, write, paths)}")


def _ship(repair: Repair, written: Path, paths: Sequence[Path]) -> str:
    """The command that ships the repair: into an index, or for a reranker as a script."""
    command = f"clip-geometry ship {shlex.quote(printable(str(written)))}"
    if not isinstance(repair, InnerProduct):
        return f"{command} -o reranker --to numpy"
    folders = {path.parent for path in paths}
    source = paths[0] if len(paths) == 1 else folders.pop() if len(folders) == 1 else "FOLDER"
    return f"{command} {shlex.quote(printable(str(source)))} -o index --to faiss"


class _Bar:
    """Progress of the fits, whose number is known when the first is done."""

    def __init__(self, stack: ExitStack):
        self.stack, self.advance = stack, None

    def __call__(self, done: int, total: int) -> None:
        if self.advance is None:
            self.advance = self.stack.enter_context(progress("repairs", total))
        self.advance(1)


def print_diagnosis(found: Diagnosis) -> None:
    """Prints the verdict, the findings and the repairs."""
    out = console()
    sizes = [f"{n:,} {name} rows × {d}" for name, (n, d) in found.shapes.items()]
    say(out, "; ".join(sizes))
    for sentence in found.verdict:
        say(out, sentence, style="bold")
    for each in found.findings:
        where = f" ({', '.join(each.modalities)})" if each.modalities else ""
        out.print()
        say(out, f"{MARK[each.severity]} {each.check}: {checks[each.check].title}{where}", style=STYLE[each.severity])
        for text in (each.evidence, each.consequence, f"→ {each.remedy}"):
            say(out, f"  {text}", indent="  ")
    if found.comparison is not None:
        out.print()
        _print_repairs(out, found)


def _print_repairs(out: Any, found: Diagnosis) -> None:
    compared = found.comparison
    assert compared is not None
    labelled = compared.facts["relevant_by"] == "labels"
    shown_numbers = [
        "mrr",
        "r_at_1",
        "hit_at_10",
        "own_share",
        "cross_r_at_1",
        "neighbors",
        *(["precision", "ndcg"] if labelled else []),
    ]
    order = sorted(compared.candidates.values(), key=lambda each: -each.numbers["mrr"].value)
    rows = []
    for each in order:
        mark = "recommended" if each.name == compared.recommended else "tie" if each.name in compared.ties else ""
        mark = "baseline" if registered[each.name].baseline else mark
        costs = [
            f"{of} ({', '.join(c.query for c in each.costs if c.of == of)})"
            for of in ("recall", "neighbors", "precision")
        ]
        costs = [cost for cost in costs if not cost.endswith("()")]
        verdict = f"costs {', '.join(costs)}" if costs else mark
        rows.append([each.name, *(_cell(each.numbers.get(number)) for number in shown_numbers), verdict])
    print_table(out, ("repair", *(f">{number}" for number in shown_numbers), "verdict"), rows)
    for number in shown_numbers:
        say(out, f"{number}: {NUMBERS[number]}", style="dim", indent="  ")
    facts = compared.facts
    fitted, index, queries = (
        " and ".join(f"{n:,} {name}" for name, n in facts[key].items()) for key in ("fitted_on", "index", "queries")
    )
    say(
        out,
        f"relevant by {facts['relevant_by']}; {facts['splits']} random halves (seed {facts['seed']}): fitted on "
        f"{fitted} rows, an index of {index} rows searched with {queries} queries; ± standard error over items; costs "
        "and ties are judged by paired differences",
        style="dim",
        indent="  ",
    )
    for name, why in compared.failed.items():
        say(out, f"{name} was left out: {why}", style="dim", indent="  ")


def _cell(estimate: Estimate | None) -> str:
    return "–" if estimate is None else f"{estimate.value:.3f} ± {estimate.error:.3f}"


def _labels(given: Sequence[str]) -> Any:
    """One path for all sets of its length, or MODALITY=PATH for each."""
    if not given:
        return None
    if len(given) == 1 and ("=" not in given[0] or Path(given[0]).exists()):
        return Path(given[0])
    named = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not equals:
            raise InputError(
                f"--labels {printable(each)} was given with others; write MODALITY=FILE, as in image={each}"
            )
        named[name] = Path(path)
    return named

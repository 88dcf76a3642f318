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
from clip_geometry.diagnosis.table import SPARE, conditions, narrow
from clip_geometry.files import claimed, is_device, write_atomically
from clip_geometry.progress import progress
from clip_geometry.registry import InputError, printable, shown
from clip_geometry.repairs import InnerProduct, Repair
from clip_geometry.shipping import query_map

FIGURES = (".png", ".svg", ".pdf")
MARK = {"error": "✗", "warning": "!", "note": "·"}
STYLE = {"error": "bold red", "warning": "bold yellow", "note": "bold"}


def diagnose_files(
    paths: Sequence[Path],
    *,
    labels: Sequence[str],
    other: Path | None,
    relevant: Any,
    want: Any,
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
            labels=labels_of(labels),
            other=other,
            relevant=relevant,
            want=want,
            repairs=repairs,
            splits=splits,
            seed=seed,
            progress=bar,
        )
        said, refused = [], []
        try:
            if json_file is not None:
                write_atomically(targets[json_file], found.to_json().encode())
                said.append(f"diagnosis: {json_file}")
            try:
                if figure_file is not None:
                    drawn = io.BytesIO()
                    found.figure().savefig(drawn, dpi=200, format=figure_file.suffix[1:])
                    write_atomically(targets[figure_file], drawn.getvalue())
                    said.append(f"figure: {figure_file}")
            except InputError as error:
                refused.append(str(error))
            try:
                if write is not None:
                    repair = found.fitted(write_repair)
                    repair.save(targets[write])
                    said.append(f"repair: {repair.name} in {write}, fitted on all items (at most 2,000)")
                    said.append(f"next: {_ship(repair, write, paths)}")
            except InputError as error:
                refused.append(f"{write} was not written: {error}")
        except BaseException:  # all files or none: the same command would be refused where one of them exists
            for target in targets.values():
                if not is_device(target):
                    target.unlink(missing_ok=True)
            raise
        print_diagnosis(found)  # after everything is written, since a reader such as head may end the output
        for line in said:
            say(console(), line)
        if refused:
            raise InputError("; ".join(refused))


def _ship(repair: Repair, written: Path, paths: Sequence[Path]) -> str:
    """The command that ships the repair: into an index, or as a script where FAISS cannot express it."""
    command = f"clip-geometry ship {shlex.quote(printable(str(written)))}"
    if not isinstance(repair, InnerProduct):
        return f"{command} -o reranker --to numpy"
    if any(query_map(repair, name).statistics for name in repair.modalities):
        return f"{command} -o script --to numpy"
    return f"{command} {' '.join(shlex.quote(printable(str(path))) for path in paths)} -o index --to faiss"


class _Bar:
    """Progress of the fits, whose number is known when the first is done."""

    def __init__(self, stack: ExitStack):
        self.stack, self.advance = stack, None

    def __call__(self, done: int, total: int) -> None:
        if self.advance is None:
            self.advance = self.stack.enter_context(progress("fits of repairs", total, done))
        else:
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
        compared = found.comparison
        columns, rows, means = narrow(compared)
        out.print()
        print_table(out, columns, rows, [name for name in SPARE if name in columns])
        for name, meaning in means.items():
            say(out, f"{name}: {meaning}", style="dim", indent="  ")
        say(out, conditions(compared), style="dim", indent="  ")
        for name, why in compared.failed.items():
            say(out, f"{name} was left out: {why}", style="dim", indent="  ")


def labels_of(given: Sequence[str]) -> Any:
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

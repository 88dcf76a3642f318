"""`clip-geometry diagnose`: is this index broken, which repair helps, what does it cost."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from clip_geometry.display.table import Table
from clip_geometry.files import claimed, is_device
from clip_geometry.registry import InputError, printable, shown
from clip_geometry.search.checks import checks
from clip_geometry.search.diagnosis import Diagnosis
from clip_geometry.search.repairs import InnerProduct, Repair
from clip_geometry.search.shipping import query_map

FIGURES = (".png", ".svg", ".pdf")
MARK = {"error": "✗", "warning": "!", "note": "·"}
STYLE = {"error": "bold red", "warning": "bold yellow", "note": "bold"}


def check_targets(figure_file: Path | None, write: Path | None) -> None:
    """InputError for files whose endings are not those of a figure and of a repair."""
    if figure_file is not None and figure_file.suffix not in FIGURES:
        raise InputError(f"--figure {shown(figure_file)} is no {', '.join(FIGURES)} file; choose one of these endings")
    if write is not None and write.suffix != ".safetensors":
        raise InputError(f"--write {shown(write)} is no .safetensors file, which is what a repair is; add the ending")


@contextmanager
def all_or_none(*paths: Path | None) -> Iterator[dict[Path, Path]]:
    """New files by how they were given; none is left after an error, since the same command would be refused then."""
    with ExitStack() as claims:
        targets = {path: claims.enter_context(claimed(path)) for path in paths if path is not None}
        try:
            yield targets
        except BaseException:
            for target in targets.values():
                if not is_device(target):
                    target.unlink(missing_ok=True)
            raise


def shipping_command(repair: Repair, written: Path, paths: Sequence[Path]) -> str:
    """The command that ships the repair: into an index, or as a script where FAISS cannot express it."""
    command = f"clip-geometry ship {shlex.quote(printable(str(written)))}"
    if not isinstance(repair, InnerProduct):
        return f"{command} -o reranker --to numpy"
    if any(query_map(repair, name).statistics for name in repair.modalities):
        return f"{command} -o script --to numpy"
    return f"{command} {' '.join(shlex.quote(printable(str(path))) for path in paths)} -o index --to faiss"


def print_diagnosis(found: Diagnosis) -> None:
    """Prints the verdict, the findings and the repairs."""
    parts = []
    for each in found.findings:
        where = f" ({', '.join(each.modalities)})" if each.modalities else ""
        title = f"{MARK[each.severity]} {each.check}: {checks[each.check].title}{where}"
        texts = each.evidence, each.consequence, f"→ {each.remedy}"
        parts.append(Table(title=title, heading=texts, style=STYLE[each.severity]))
    if found.comparison is not None:
        parts.append(found.comparison.table())
    sizes = "; ".join(f"{n:,} {name} rows × {d}" for name, (n, d) in found.shapes.items())
    Table(verdict=found.verdict, heading=[sizes], more=parts).print()


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

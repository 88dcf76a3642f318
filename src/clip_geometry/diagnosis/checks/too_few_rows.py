"""Fewer rows than measures or maps need."""

from collections.abc import Iterator

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding

FEW = 100  # the standard error of a share near one half is then 5 points


@add_check
def too_few_rows(context: Context) -> Iterator[Finding]:
    for modality, each in context.sets.items():
        n, d = int(context.valid(modality).sum()), each.dim
        if n < max(FEW, 2 * d):
            severity = "warning" if n < FEW else "note"
            values = {"n": n, "d": d, "error": 50 / max(1, n) ** 0.5, "few": n < FEW}
            yield finding("too_few_rows", severity, modality, **values)

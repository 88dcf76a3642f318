"""Rows without a direction: zero, NaN or infinite."""

from collections.abc import Iterator

import numpy as np

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding


@add_check
def invalid_rows(context: Context) -> Iterator[Finding]:
    for modality in context.sets:
        bad = np.flatnonzero(~context.valid(modality))
        if len(bad):
            n = len(context.sets[modality])
            yield finding("invalid_rows", "error", modality, count=len(bad), n=n, rows=bad.tolist())

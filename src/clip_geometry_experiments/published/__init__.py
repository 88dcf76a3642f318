"""Published numbers, and which of our result rows stand beside them. Experiments know nothing of papers."""

from clip_geometry_experiments.published.comparing import Line, Ours, compare
from clip_geometry_experiments.published.entries import Entry, entries, findings, has_ledger
from clip_geometry_experiments.published.published import Paper, Published, papers, published
from clip_geometry_experiments.published.recorded import (
    read_recorded,
    record_lines,
    record_run,
    record_training,
    record_where,
)

__all__ = [
    "Entry",
    "Line",
    "Ours",
    "Paper",
    "Published",
    "compare",
    "entries",
    "findings",
    "has_ledger",
    "papers",
    "published",
    "read_recorded",
    "record_lines",
    "record_run",
    "record_training",
    "record_where",
]

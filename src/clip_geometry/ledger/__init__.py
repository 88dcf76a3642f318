"""Published numbers, and which of our result rows stand beside them. Experiments know nothing of papers."""

from clip_geometry.ledger.comparing import Line, Ours, compare
from clip_geometry.ledger.entries import Entry, entries, findings, has_ledger
from clip_geometry.ledger.published import Paper, Published, papers, published
from clip_geometry.ledger.recorded import read_recorded, record_lines, record_run, record_training, record_where

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

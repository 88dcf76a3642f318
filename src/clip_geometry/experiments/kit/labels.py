"""Labels of runs for headings, captions and legends."""

from collections.abc import Sequence


def distinct_labels(labels: Sequence[str]) -> list[str]:
    """Remove the comma-separated parts that all labels share, unless two labels would become equal."""
    parts = [label.split(", ") for label in labels]
    common = set(parts[0]).intersection(*parts[1:]) if len(parts) > 1 else set()
    short = [", ".join(part for part in each if part not in common) for each in parts]
    return short if len(set(short)) == len(short) else list(labels)

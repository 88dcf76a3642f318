"""Labels of data sets and runs for headings, captions and legends."""

from collections.abc import Sequence

from clip_geometry.data.base import DatasetConfig


def data_label(data: DatasetConfig) -> str:
    """Name, split and non-default options of a data set: `scenes, test, size 512`."""
    from clip_geometry.report.origin import option_words

    options = data.model_dump(mode="json", exclude_defaults=True, exclude={"name", "split"})
    return ", ".join(filter(None, (data.name, data.split, option_words(options))))


def distinct_labels(labels: Sequence[str]) -> list[str]:
    """Remove the comma-separated parts that all labels share, unless two labels would become equal."""
    parts = [label.split(", ") for label in labels]
    common = set(parts[0]).intersection(*parts[1:]) if len(parts) > 1 else set()
    short = [", ".join(part for part in each if part not in common) for each in parts]
    return short if len(set(short)) == len(short) else list(labels)

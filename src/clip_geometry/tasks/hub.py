"""Data sets of the Hugging Face hub through the package `datasets`, which is imported only here."""

from pathlib import Path

from clip_geometry.data.tables import Table
from clip_geometry.reading import first_line
from clip_geometry.registry import InputError


def hub_table(repository: str, subset: str | None, split: str, instead: str) -> Table:
    """A split of a data set as a table. instead: what to do without network, the end of the error's sentence."""
    what = f"{repository}{f' ({subset})' if subset else ''}, split {split}"
    try:
        from datasets import load_dataset  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(
            f"{what}, is fetched from huggingface.co by the package datasets, which is not installed: "
            f"pip install 'clip-geometry[text]'; or {instead}"
        ) from None
    try:
        rows = load_dataset(repository, subset, split=split)
    except (OSError, ValueError) as error:  # no network, no such data set or split, not in the cache
        raise InputError(
            f"{what}, could not be fetched from huggingface.co ({type(error).__name__}: {first_line(error)}); {instead}"
        ) from None
    return Table(Path(repository), tuple(rows.column_names), lambda name: list(rows[name]))

"""Tasks made of embeddings that carry labels: images or captions with a class."""

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import InputError
from clip_geometry.tasks.base import Task, distinct, make_task


def labelled_task(name: str, rows: Embeddings) -> tuple[Task, np.ndarray]:
    """(the task, (items,) int64 the row of `rows` that each item is). Every row is an example.

    Images are items one by one, named by their item_id or row number. Equal captions are one item, as equal sentences
    are; its row is the first. Class names are the manifest's where the labels are places in it, the labels otherwise.
    Raises InputError where the rows carry no labels.
    """
    if rows.labels is None:
        raise InputError(f"the {rows.modality} rows of {name} carry no labels; choose a data set with classes")
    names, labels = _classes(rows)
    items, examples = distinct([[item] for item in _names(rows)])
    first = np.unique(examples[:, 0], return_index=True)[1]
    return make_task(name, items, examples, labels, names), first


def _names(rows: Embeddings) -> list[str]:
    if rows.modality == "text" and "text" in rows.metadata:
        return [str(text) for text in rows.metadata["text"]]
    if rows.item_id is not None and len(set(rows.item_id)) == len(rows):
        return [str(item) for item in rows.item_id]
    return [str(k) for k in range(len(rows))]


def _classes(rows: Embeddings) -> tuple[list[str], np.ndarray]:
    """(the names of the classes that occur, (n,) int64 places in them)."""
    values, labels = np.unique(np.asarray(rows.labels), return_inverse=True)
    known = rows.provenance.get("class_names") or ()
    if values.dtype.kind in "iu" and all(value in range(len(known)) for value in values):
        return [str(known[value]) for value in values], labels.astype(np.int64)
    return [str(value) for value in values], labels.astype(np.int64)

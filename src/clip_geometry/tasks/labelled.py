"""Tasks made of embeddings that carry labels: images or captions with a class."""

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import InputError
from clip_geometry.tasks.base import Task, distinct, make_task


def labelled_task(name: str, rows: Embeddings) -> tuple[Task, np.ndarray]:
    """Return a task whose examples are the rows, and the row of each item, (items,) int64.

    Each image is an item, named by its item_id or row number. Equal captions are one item, as equal sentences are; its
    row is the first. Class names are those of the manifest if the labels are indices into them, else the labels.

    Raises:
        InputError: If the rows carry no labels.
    """
    if rows.labels is None:
        raise InputError(f"the {rows.modality} rows of {name} carry no labels; choose a data set with classes")
    values, labels = np.unique(np.asarray(rows.labels), return_inverse=True)
    known = rows.provenance.get("class_names") or ()
    if values.dtype.kind in "iu" and all(value in range(len(known)) for value in values):
        values = [known[value] for value in values]
    names = range(len(rows))
    if rows.modality == "text" and "text" in rows.metadata:
        names = rows.metadata["text"]
    elif rows.item_id is not None and len(set(rows.item_id)) == len(rows):
        names = rows.item_id
    items, examples = distinct([[str(item)] for item in names])
    first = np.unique(examples[:, 0], return_index=True)[1]
    return make_task(name, items, examples, labels.astype(np.int64), [str(value) for value in values]), first

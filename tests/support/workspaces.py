"""A workspace whose embeddings are made on the spot, so that experiments are tested without encoders."""

import numpy as np

from clip_geometry.embeddings import Embeddings

D, CLASSES = 12, 8


class FakeWorkspace:
    """Labeled images and prompts for data with a prompt, pairs otherwise, by split; `asked` lists what was loaded."""

    def __init__(self, folder, n=80):
        self.folder = folder
        self.n = n
        self.asked = []

    def embeddings(self, model, data, *, limit, batch_size, only=None):
        self.asked.append((data.split, data.prompt))
        n = self.n if limit is None else limit
        rng = np.random.default_rng([len(data.split), data.prompt is None])
        centres = np.random.default_rng(0).normal(size=(CLASSES, D)) + 1
        labels = np.arange(n) % CLASSES
        text = centres if data.prompt else centres[labels] + 0.4 * rng.normal(size=(n, D))
        turn = np.linalg.qr(np.random.default_rng(1).normal(size=(D, D)))[0]
        image = centres[labels] @ (np.eye(D) + 0.5 * turn) + 0.7 * rng.normal(size=(n, D)) + 0.5
        origin = {"model": "fake", "dataset": data.name, "split": data.split}
        ids = np.array([f"{data.split}-{k}" for k in range(n)])
        by_label = {"labels": np.arange(CLASSES), "pair_on": "label", "item_id": np.arange(CLASSES).astype(str)}
        own = by_label if data.prompt else {"labels": labels, "item_id": ids}
        return {
            "image": Embeddings(image.astype(np.float32), "image", item_id=ids, labels=labels, provenance=origin),
            "text": Embeddings(text.astype(np.float32), "text", provenance=origin, **own),
        }

    def revisions(self, model, data):
        return {"data_revision": "1"}

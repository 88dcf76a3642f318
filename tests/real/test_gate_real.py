"""`gate` on CLIP ViT-B/16 rows of 500 COCO pairs: poisoned captions, another model, and clean batches."""

import numpy as np
import pytest

import clip_geometry as cg


def unit(x):
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def coco(data):
    folder = data / "embeddings" / "coco500-clip-vit-b16"
    return {name: unit(np.load(folder / f"{name}.npy")) for name in ("image", "text")}


@pytest.mark.parametrize("size", [0.15, 0.25, 0.3])
def test_a_poisoned_caption_is_named(coco, size):
    baseline = cg.gate(coco)
    text = coco["text"].copy()
    text[123] = unit(text[123:124] + size * coco["image"].mean(0))[0]
    assert float(text[123] @ coco["text"][123]) > 0.97
    result = baseline.check({**coco, "text": text})
    assert (result.kind, result.cause.rows) == ("poisoned", (123,))


def test_an_untrained_model_is_another_one_and_a_clean_batch_is_not(coco, data):
    folder = data / "embeddings" / "coco500-clip-vit-b16-random-init"
    ids = np.array([f"item {k}" for k in range(500)])

    def half(rows, span):
        return {name: cg.Embeddings(x[span], name, item_id=ids[span]) for name, x in rows.items()}

    baseline = cg.gate(half(coco, slice(0, 250)))
    assert not baseline.check(half(coco, slice(250, 500))).changed
    other = {name: unit(np.load(folder / f"{name}.npy")) for name in coco}
    assert baseline.check(half(other, slice(0, 250))).kind == "model"

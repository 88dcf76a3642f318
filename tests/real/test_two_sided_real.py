"""A mixed index of CLIP ViT-B/16, 500 COCO pairs, in ten splits: what issue 21 measured before there was a measure."""

import numpy as np
import pytest

import clip_geometry as cg


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_centering_is_no_repair_of_the_mixed_index(data):
    folder = data / "embeddings/coco500-clip-vit-b16"
    image, text = (unit(np.load(folder / f"{name}.npy").astype(float)) for name in ("image", "text"))
    own = np.arange(250)
    relevance = cg.Relevance.of_pairs((own, own), image=250, text=250)
    found = []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(500)
        fit, test = order[:250], order[250:]
        u, v = unit(image[test] - image[fit].mean(0)), unit(text[test] - text[fit].mean(0))
        rows = cg.two_sided_retrieval(u, v, relevance)
        scores = cg.two_sided_scores({"image": u @ u.T, "text": u @ v.T}, relevance, "image")
        assert rows["image.ndcg_at_10"] == pytest.approx(scores["ndcg"].mean(), abs=1e-12)
        first = cg.two_sided_retrieval(u, v, relevance, k=1)["image.text_recall_at_1"]
        kept = cg.mutual_knn(image[test], u)
        found.append([rows["image.own_share_at_10"], first, kept])
    share, first, kept = np.mean(found, axis=0)
    assert (round(share, 3), round(first, 3)) == (0.896, 0.062)
    assert round(kept, 3) == 0.770
    raw = cg.two_sided_retrieval(image[:250], text[:250], relevance)
    assert (raw["image.own_share_at_10"], raw["text.own_share_at_10"], raw["image.ndcg_at_10"]) == (1, 1, 0)

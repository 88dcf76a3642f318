"""A mixed index of CLIP ViT-B/16, 500 COCO pairs, in ten splits: what issue 21 measured before there was a measure."""

import numpy as np

import clip_geometry as cg
from support.clouds import unit


def searched(image, text):
    return cg.search.search_index(
        cg.search.MixedIndex.of({"image": cg.Embeddings(image, "image"), "text": cg.Embeddings(text, "text")})
    )


def test_centering_is_no_repair_of_the_mixed_index(data):
    folder = data / "embeddings/coco500-clip-vit-b16"
    image, text = (unit(np.load(folder / f"{name}.npy").astype(float)) for name in ("image", "text"))
    found = []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(500)
        fit, test = order[:250], order[250:]
        u, v = unit(image[test] - image[fit].mean(0)), unit(text[test] - text[fit].mean(0))
        numbers = searched(u, v)
        kept = cg.geometry.mutual_knn(image[test], u)
        found.append([numbers["own_share.image"].value, numbers["r_at_1.image"].value, kept])
    share, first, kept = np.mean(found, axis=0)
    assert (round(share, 3), round(first, 3)) == (0.896, 0.062)
    assert round(kept, 3) == 0.770
    raw = searched(image[:250], text[:250])
    assert (raw["own_share.image"].value, raw["own_share.text"].value, raw["ndcg.image"].value) == (1, 1, 0)

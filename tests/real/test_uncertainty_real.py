"""Small-sample bias on real embeddings, and what the jackknife says of it."""

import numpy as np
import pytest

from clip_geometry import geometry as g


@pytest.mark.parametrize("modality", ["image", "text"])
def test_subsamples_agree_with_the_whole_within_four_errors(coco500, modality):
    """isoscore[unbiased] of 60 and 250 of 500 rows; the plain one is several errors too low on the small ones."""
    rows = coco500[["image", "text"].index(modality)]
    whole, plain = float(g.isoscore(rows, unbiased=True)), float(g.isoscore(rows))
    for n in (60, 250):
        for seed in range(2):
            part = rows[np.random.default_rng([n, seed]).choice(500, size=n, replace=False)]
            error = float(g.standard_error("isoscore[unbiased]", part, seed=seed))
            assert abs(float(g.isoscore(part, unbiased=True)) - whole) < 4 * error, (n, seed)
            if n == 60:
                assert plain - float(g.isoscore(part)) > 4 * float(g.standard_error("isoscore", part, seed=seed))


def test_pairing_and_modality_are_beyond_chance(coco500):
    image, text = coco500
    for name in ("matching_cosine", "modality_gap"):
        found = g.permutation_test(name, image, text, draws=99)
        assert float(found.p_value) == pytest.approx(2 / 100)
        assert float(found.value) > float(found.null_mean) + 10 * float(found.null_std)
    matching = g.permutation_test("matching_cosine", image, text, draws=99)
    # shuffled pairs are random pairs, but that 1 in 500 is still a match
    assert float(matching.null_mean) == pytest.approx(float(g.random_cosine(image, text)), abs=1e-3)

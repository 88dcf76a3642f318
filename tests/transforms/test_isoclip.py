"""IsoCLIP: the authors' projection of heads as oracle, on features before the heads."""

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.registry import InputError
from clip_geometry.transforms import IsoCLIP


def by_the_authors(image_head, text_head, top, bottom):
    """Heads (width, d) after their projection: with their W = headᵀ, W U Uᵀ and W V Vᵀ of Wᵢᵀ Wₜ = U S Vᵀ."""
    u, s, vt = np.linalg.svd(image_head @ text_head.T, full_matrices=False)
    u, v = u[:, top : len(s) - bottom], vt[top : len(s) - bottom].T
    return u @ u.T @ image_head, v @ v.T @ text_head


# widths of a ViT-B (wider than d, as wide as d) and of a ResNet (wider, narrower)
@pytest.mark.parametrize(("widths", "d"), [((12, 8), 8), ((14, 6), 8), ((8, 8), 8), ((30, 9), 8)])
@pytest.mark.parametrize(("top", "bottom"), [(0, 0), (2, 1), (1, 3)])
def test_stored_embeddings_are_enough(widths, d, top, bottom):
    """On stored rows f A, the map gives what the projected head gives on features f."""
    rng = np.random.default_rng(0)
    heads = [rng.normal(size=(width, d)) for width in widths]
    rank = min(*widths, d)
    extra = min(widths) - rank  # their code keeps empty directions where both towers are wider than d
    expected = by_the_authors(*heads, top, bottom + extra)
    for fitted, head, projected in zip(IsoCLIP(top, bottom).fit_sets(heads), heads, expected, strict=True):
        features = rng.normal(size=(5, len(head)))
        moved = fitted.transform(features @ head)
        assert np.allclose(moved, features @ projected, rtol=1e-8, atol=1e-9)
        assert np.linalg.matrix_rank(fitted.weights()[0], tol=1e-8) == rank - top - bottom
        assert np.allclose(fitted.transform(moved), moved, atol=1e-8)  # a projection


def test_what_is_refused():
    rng = np.random.default_rng(0)
    heads = rng.normal(size=(12, 6)), rng.normal(size=(4, 6))
    with pytest.raises(InputError, match=r"isoclip\(3, 1\) leaves no direction: the sets have 4 in common"):
        IsoCLIP(3, 1).fit_sets(heads)
    with pytest.raises(InputError, match=r"the sets have 1 in common \(1 sample\)"):
        IsoCLIP(1, 0).fit_sets([heads[0][:1], heads[1]])
    with pytest.raises(InputError, match="have 0 in common"):
        IsoCLIP(0, 0).fit_sets([np.zeros((3, 2)), np.ones((3, 2))])
    with pytest.raises(InputError, match="top of isoclip = -1; expected a whole number from 0"):
        cg.transforms.parse_pipeline("isoclip(-1, 0)")


def test_nothing_left_out_is_the_identity():
    rng = np.random.default_rng(0)
    heads = rng.normal(size=(12, 6)), rng.normal(size=(9, 6))
    x = rng.normal(size=(4, 6))
    for fitted in IsoCLIP(0, 0).fit_sets(heads):
        assert np.allclose(fitted.transform(x), x, atol=1e-10)


def test_embeddings_of_white_features_stand_for_the_heads():
    """Rows whose features have unit second moments give the same maps: only AᵀA and BᵀB enter."""
    rng = np.random.default_rng(0)
    heads = rng.normal(size=(12, 6)), rng.normal(size=(9, 6))
    rows = [np.linalg.qr(rng.normal(size=(40, len(head))))[0] @ head for head in heads]
    for of_heads, of_rows in zip(IsoCLIP(2, 1).fit_sets(heads), IsoCLIP(2, 1).fit_sets(rows), strict=True):
        assert np.allclose(of_heads.weights()[0], of_rows.weights()[0], atol=1e-9)

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.explorer.states import principal_plane, umap_plane


def rows(n=300, d=12, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, d)) @ np.diag(np.linspace(3, 0.3, d)) + generator.normal(size=d)


class TestPrincipalPlane:
    def test_it_is_that_of_all_sets_together(self):
        from sklearn.decomposition import PCA

        x, y = rows(), rows(200, seed=1) + 2
        found = principal_plane([x.astype(np.float32), y.astype(np.float32)])
        theirs = PCA(2, svd_solver="full").fit(np.concatenate([x, y]))
        points = theirs.transform(np.concatenate([x, y]))
        signs = np.sign((found.points * points).sum(0))
        assert found.points == pytest.approx(signs * points, abs=1e-4)
        assert found.shares == pytest.approx(theirs.explained_variance_ratio_, rel=1e-5)

    def test_signs_follow_other_points(self):
        x = rows()
        found = principal_plane([x])
        flipped = principal_plane([x], like=found.points * [-1, 1] + 5)
        assert flipped.points == pytest.approx(found.points * [-1, 1])

    def test_of_one_dimension_the_second_is_zero(self):
        found = principal_plane([rows(d=1)])
        assert found.points.shape == (300, 2) and not found.points[:, 1].any() and found.shares == (1.0, 0.0)


class TestUmapPlane:
    @pytest.mark.slow
    def test_clusters_stay_together_and_a_start_is_followed(self):
        generator = np.random.default_rng(0)
        code = np.repeat(np.arange(4), 100)
        x = (8 * generator.normal(size=(4, 16))[code] + generator.normal(size=(400, 16))).astype(np.float32)
        first, second = umap_plane(x, seed=1), umap_plane(x, seed=1)
        assert np.array_equal(first, second)
        assert float(cg.geometry.silhouette(first, code)) > 0.7
        mirrored = umap_plane(x, seed=1, start=first * [-1, 1])
        centers = [np.stack([plane[code == each].mean(0) for each in range(4)]) for plane in (first, mirrored)]
        centers = [each - each.mean(0) for each in centers]
        assert (centers[0] * centers[1] * [-1, 1]).sum() > 0.9 * np.linalg.norm(centers[0]) * np.linalg.norm(centers[1])

"""What the measures of the gap, of mixing and of hubs say of CLIP on 500 COCO pairs, before and after centering.

The value of `ilisi` after centering is the one of scib-metrics 0.5.10 (ilisi_knn with 91 neighbors, the row itself
among them, and perplexity 30).
"""

import numpy as np
import pytest

import clip_geometry as cg

# measure → unit rows, each modality centered, the same of the untrained model
TABLE = {
    "gap_shift_share": (0.9844, 0, 0.9488, 0),
    "sliced_wasserstein[centered]": (0.0047, 0.0047, 0.0117, 0.0117),
    "energy_distance": (0.6520, 0.0064, 1.2431, 0.0532),
    "energy_distance[centered]": (0.0064, 0.0064, 0.0532, 0.0532),
    "cross_uniformity": (-3.3343, -1.8463, -3.8831, -1.2345),
    "spectral_discrepancy": (0.0389, 0.0389, 0.7485, 0.7485),
    "ilisi": (0, 0.2626, 0, 0),
    "antihub_share[image_to_text]": (0.008, 0.014, 0.864, 0.516),
    "robin_hood[image_to_text]": (0.2834, 0.2734, 0.8942, 0.7144),
}


@pytest.fixture(scope="module")
def sets(data):
    found = []
    for model in ("coco500-clip-vit-b16", "coco500-clip-vit-b16-random-init"):
        rows = [np.load(data / "embeddings" / model / f"{name}.npy").astype(float) for name in ("image", "text")]
        unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in rows]
        found += [unit, [x - x.mean(0) for x in unit]]
    return found


@pytest.mark.parametrize("name", TABLE)
def test_values(sets, name):
    for (image, text), expected in zip(sets, TABLE[name], strict=True):
        assert cg.geometry.measures[name](image, text) == pytest.approx(expected, abs=1e-4)


def test_hubs_within_a_modality_and_what_centering_does_to_them(sets):
    for (before, after), lost in (((sets[0][0], sets[1][0]), 0.05), ((sets[0][1], sets[1][1]), 0.062)):
        assert cg.geometry.hubs(before).antihub_share == pytest.approx(lost, abs=1e-9)
        assert cg.geometry.hubs(after).antihub_share == pytest.approx(0.01, abs=1e-9)
        assert cg.geometry.hubs(after).robin_hood < cg.geometry.hubs(before).robin_hood - 0.1


def test_classes_of_photographs(data):
    """Ten classes of CIFAR-10: neighborhoods of one class, where the silhouette sees hardly any."""
    x = np.load(data / "embeddings" / "cifar10-500-clip-vit-b32" / "image.npy").astype(float)
    labels = np.load(data / "embeddings" / "cifar10-500-clip-vit-b32" / "labels.npy")
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert cg.geometry.clisi(x, labels) == pytest.approx(0.9370, abs=1e-4)
    assert cg.geometry.clisi(x, np.random.default_rng(0).permutation(labels)) == pytest.approx(0.4283, abs=1e-4)
    assert cg.geometry.silhouette(x, labels) == pytest.approx(0.079, abs=1e-3)

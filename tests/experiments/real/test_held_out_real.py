"""Figures 10, 11 and 13 of Tyshchuk et al. 2023 on 500 real COCO pairs: fitted on one part, drawn on the other."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from clip_geometry import Pipeline
from clip_geometry.config import read_yaml
from clip_geometry_experiments.kit.base import RunFolder
from clip_geometry_experiments.kit.stored import RandomSplit
from clip_geometry_experiments.published.ledger import ledger
from clip_geometry_experiments.run.runner import plan, resolve

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.filterwarnings("ignore::clip_geometry.transforms.RankWarning")


def cosines(image, text):
    text = text / np.linalg.norm(text, axis=1, keepdims=True)
    found = image @ text.T
    n = len(found)
    return np.trace(found) / n, (found.sum() - np.trace(found)) / (n * (n - 1))


def test_cosines_after_procrustes_on_held_out_pairs(coco500, data, monkeypatch, tmp_path):
    """The config draws 100 pairs that the map was not fitted on, first. scipy's completion stands for ours: n = 400 of
    512 leave little of it to choose (0.001). The notebook prints 0.73 and 0.49 for its held-out pairs; on the pairs of
    the fit it is 0.87."""
    monkeypatch.setenv("CLIP_GEOMETRY_DATA", str(data))
    planned = plan(resolve("tyshchuk2023/joint_distribution_coco500", {}, smoke=False), "test")
    settings = read_yaml(ROOT / "configs/tyshchuk2023/joint_distribution_coco500.yaml")["split"]
    split = RandomSplit(share=settings["share"], seed=settings["seed"])
    fit, held_out = split.items(500, "first"), split.items(500, "rest")
    assert not set(fit) & set(held_out) and (len(fit), len(held_out)) == (400, 100)
    image, text = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x.astype(float) for x in coco500))
    rotation, _ = orthogonal_procrustes(text[fit], image[fit])
    matching, random = cosines(image[held_out], text[held_out] @ rotation)
    assert 0.65 < matching < 0.75 and 0.45 < random < 0.56 < 0.85 < cosines(image[fit], text[fit] @ rotation)[0]
    assert [config.split.part for _, config in planned] == ["rest"] * 3 + ["first"] * 3
    kind, config = planned[1]
    assert list(config.pipeline) == ["normalize", "procrustes[text-to-image]"]
    sets = kind(config, RunFolder(tmp_path / "run", "cpu")).sets
    assert np.allclose(sets.rows["image"], image[held_out], atol=1e-6)
    assert cosines(sets.rows["image"], sets.rows["text"]) == pytest.approx((matching, random), abs=5e-3)


@pytest.mark.slow
def test_twenty_splits_have_the_means_that_the_finding_states(coco500):
    (text,) = (
        each.text for each in ledger("tyshchuk2023").findings if each.title.startswith("On the pairs of the fit")
    )
    sets, found = dict(zip(("image", "text"), coco500, strict=True)), []
    for seed in range(20):
        split = RandomSplit(share=0.8, seed=seed)
        fit, held_out = ({name: x[split.items(500, part)] for name, x in sets.items()} for part in ("first", "rest"))
        moved = Pipeline("normalize,procrustes[text-to-image]").fit(fit).transform(held_out)
        found.append(cosines(moved["image"], moved["text"]))
    means, deviations = np.mean(found, axis=0), np.std(found, axis=0, ddof=1)
    printed = r"Over 20 random splits, .* are (\S+) \(matching\) and (\S+) \(random\), .* of (\S+) and (\S+)\."
    said = [float(each) for each in re.findall(printed, text)[0]]
    # three decimals are printed; kernels of other CPUs change the fifth
    assert [*means, *deviations] == pytest.approx(said, abs=6e-4)

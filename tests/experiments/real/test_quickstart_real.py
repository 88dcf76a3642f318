"""What the quickstart says about COCO: the share of queries that find their partner, on pairs that nothing saw."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import clip_geometry as cg
from clip_geometry import Embeddings

CONFIG = Path(__file__).parents[3] / "configs" / "quickstart.yaml"
NEAR_TIES = 0.002  # of shares of 250 queries in ten halves: rounding that flips five of 2,500


@pytest.fixture(scope="module")
def part():
    parts = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["parts"]
    (found,) = (each for each in parts if each["experiment"] == "maps")
    return found


@pytest.mark.filterwarnings("ignore:least_squares was fitted")
def test_the_numbers_of_its_description(part, coco500):
    lines = {each["row"]: each for each in part["maps"]}
    least = cg.Pipeline(lines["least squares, text to image"]["pipeline"])
    found = []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(500)
        fit, held_out = (
            dict(zip(("image", "text"), (rows[np.sort(half)] for rows in coco500), strict=True))
            for half in (order[:250], order[250:])
        )
        repair = cg.search.make_repair(lines["calibrated score"]["repair"]).fit(index_of(fit).known())
        nothing, posterior = (cg.search.search_index(index_of(held_out), each) for each in (None, repair))
        mapped = least.fit(fit, (np.arange(250), np.arange(250))).transform(held_out)
        found.append(
            [
                nothing["cross_r_at_1.image"].value,
                cg.evaluate.retrieval(mapped["image"], mapped["text"])["image_to_text.r_at_1"],
                nothing["r_at_1.image"].value,
                posterior["r_at_1.image"].value,
            ]
        )
        assert posterior["cross_r_at_1.image"].value == nothing["cross_r_at_1.image"].value  # "leaves … as it is"
    said = re.search(
        r"from (\S+) ± (\S+) to (\S+) ± (\S+)\. The calibrated .* from 0 to (\S+) ± (\S+)\. ", part["description"]
    )
    before, its_deviation, after, deviation, first, first_deviation = map(float, said.groups())
    means, deviations = np.mean(found, 0), np.std(found, 0, ddof=1)
    assert means == pytest.approx([before, after, 0, first], abs=NEAR_TIES)
    assert deviations[[0, 1, 3]] == pytest.approx([its_deviation, deviation, first_deviation], abs=NEAR_TIES)


def index_of(rows):
    return cg.search.MixedIndex.of({modality: Embeddings(each, modality) for modality, each in rows.items()})

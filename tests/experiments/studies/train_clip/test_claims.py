"""A claim stands in the sentence that the rows put it into, and nowhere without them."""

import numpy as np
import pytest

from clip_geometry_experiments.studies.train_clip.claims import train_clip_findings
from clip_geometry_experiments.studies.train_clip.figures import SEPARABILITY


def state(measure, first, last, arm="clip", modality="both"):
    at = {"arm": arm, "modality": modality}
    return {"measure": measure, "at": at, "trajectory": [first, 0.5, last], "steps": [0, 1, 2], "seed": 0}


def correlation(value, arm="clip", modality="image"):
    at = {"arm": arm, "of": "silhouette", "with": "isoscore", "modality": modality}
    return {"measure": "train_clip.pearson", "at": at, "value": value, "seed": 0}


def told(*rows, seeds=3):
    """(what agrees, what does not), "" for none, where all seeds have the same values."""
    found = train_clip_findings([{**row, "seed": seed} for row in rows for seed in range(seeds)])
    return tuple(next((each for each in found if each.startswith(head)), "") for head in ("Agrees", "Disagrees"))


def test_without_rows_nothing_is_claimed():
    assert train_clip_findings([]) == [] == train_clip_findings([state("uniformity", -1.0, -2.0)])


@pytest.mark.parametrize(("text", "place"), [(0.41, 0), (0.29, 1)])
def test_cones_at_step_0_are_of_both_modalities(text, place):
    sentences = told(
        state("average_cosine", 0.52, 0.0, modality="image"), state("average_cosine", text, 0.0, modality="text")
    )
    assert f"average cosine 0.52 of images and {text} of texts at step 0" in sentences[place]
    assert not sentences[1 - place]


@pytest.mark.parametrize(("right", "place"), [(0.91, 0), (0.89, 1)])
def test_modalities_are_apart_where_a_classifier_tells_them(right, place):
    sentences = told(state("modality_gap", 0.9, 0.2), state(SEPARABILITY, 0.98, right))
    assert f"0.90 and 0.98 at first, 0.20 and {right} (ClipLoss) at the end" in sentences[place]
    assert not sentences[1 - place]
    assert told(state("modality_gap", 0.9, 0.2, "classes"), state(SEPARABILITY, 1.0, right, "classes")) == ("", "")


@pytest.mark.parametrize(("gap", "place"), [(0.1, 0), (0.5, 1)])
def test_gap_and_temperature_go_against_each_other(gap, place):
    rows = [state("modality_gap", 1.0, 0.3), state("train_clip.temperature", 0.07, 0.02)]
    fixed = [state("modality_gap", 1.0, gap, "fixed_temperature")]
    fixed += [state("train_clip.temperature", 0.07, 0.07, "fixed_temperature")]
    assert f"0.30 at 0.020, {gap:.2f} at 0.070" in told(*rows, *fixed)[place]
    assert told(*rows) == ("", "")


def test_istar_is_beside_cliploss():
    rows = [
        state("isoscore", 0.1, last, arm, modality)
        for arm, modality, last in [("clip", "image", 0.2), ("clip", "text", 0.2), ("istar", "image", 0.3)]
    ]
    agrees, does_not = told(*rows, state("isoscore", 0.1, 0.15, "istar", "text"))
    assert "0.300 against 0.200 of images" in agrees and "0.150 against 0.200 of texts" in does_not


@pytest.mark.parametrize(
    ("silhouette", "isoscore", "r", "place"),
    [((0, 0.3), (0.2, 0.1), -0.6, 0), ((0, 0.3), (0.2, 0.1), -0.4, 1), ((0, 0.3), (0.1, 0.2), -0.6, 1)],
)
def test_clusters_cost_isotropy_where_one_rises_the_other_falls_and_they_correlate(silhouette, isoscore, r, place):
    rows = [state("silhouette", *silhouette, modality="image"), state("isoscore", *isoscore, modality="image")]
    sentences = told(*rows, correlation(r))
    assert f"r of class silhouette and IsoScore of images −{-r:.2f} (ClipLoss)." in sentences[place]
    assert not sentences[1 - place]
    assert told(*rows, correlation(None)) == ("", "") == told(*rows)


def cones(*firsts, seeds=(0, 1, 2)):
    return [
        {**state("average_cosine", first, 0.0, modality=modality), "seed": seed}
        for modality in ("image", "text")
        for seed, first in zip(seeds, firsts, strict=True)
    ]


def test_fewer_than_three_seeds_claim_nothing():
    (found,) = train_clip_findings(cones(0.5, 0.5, seeds=(0, 1)))
    assert found.startswith("Published claims about trainings are judged from 3 seeds on; this run has 2 ")
    again = [{**row, "trajectory": [0.1, 0.1]} for row in cones(0.5, 0.5, 0.5)]
    (found,) = train_clip_findings(
        [*cones(0.5, 0.5, 0.5), *({**row, "at": {**row["at"], "tower": "x"}} for row in again)]
    )
    assert "0.50 of images" in found  # the first training of a loss and seed counts


def test_a_seed_that_a_loss_lacks_does_not_count():
    other = [{**row, "at": {**row["at"], "arm": "siglip"}} for row in cones(0.5, 0.5, seeds=(0, 2))]
    (found,) = train_clip_findings([*cones(0.5, 0.5, 0.5), *other])
    assert "this run has 2 " in found


def test_a_claim_of_some_seeds_is_neither_of_all_nor_of_none():
    (found,) = train_clip_findings(cones(0.4, 0.5, 0.2))
    assert found.startswith("Differs between the seeds, 3 seeds per loss: cones exist")
    assert f"{np.mean([0.4, 0.5, 0.2]):.2f} ± {np.std([0.4, 0.5, 0.2], ddof=1):.2f} of images" in found


def test_the_order_of_temperatures_is_that_of_each_seed():
    """ClipLoss has the lower temperature in two seeds and the higher in one, and always the larger gap."""
    rows = []
    for seed, temperature in enumerate((0.02, 0.03, 0.09)):
        both = [state("modality_gap", 1.0, 0.3), state("train_clip.temperature", 0.07, temperature)]
        both += [state("modality_gap", 1.0, 0.1, "fixed_temperature")]
        both += [state("train_clip.temperature", 0.07, 0.07, "fixed_temperature")]
        rows += [{**row, "seed": seed} for row in both]
    assert [each.split(",")[0] for each in train_clip_findings(rows)] == ["Differs between the seeds"]
    assert told(*rows[:4])[0]

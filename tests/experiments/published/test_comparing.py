import statistics

import pytest

from clip_geometry_experiments.published.comparing import compare

CLIP = "open_clip:ViT-B-32-quickgelu/openai"
RUN = "tyshchuk2023-zero_shot"


def row(measure="zero_shot.top_1", value=0.6309, row="CLIP", **fields):
    return {
        "measure": measure,
        "value": value,
        "standard_error": 0.004,
        "n": 10000,
        "d": 512,
        "pipeline": ["normalize"],
        "fitted_on": None,
        "model": CLIP,
        "model_options": {},
        "dataset": "cifar100",
        "data_options": {"prompt": "low-resolution photo of a {_}"},
        "seed": 0,
        "at": {"row": row, "split": "test"},
        **fields,
    }


def line(rows, path="CLIP", run=RUN):
    (found,) = [line for line in compare(rows, run) if line.path.endswith(f".{path}")]
    return found


def test_percent_and_difference():
    found = line([row(value=0.6321)])
    (ours,) = found.ours
    assert (ours.value, ours.error) == (pytest.approx(63.21), pytest.approx(0.4))
    assert (ours.variant.label, ours.unlike, ours.seeds) == ("cosine, as published", (), 1)
    assert found.comparable and not found.agrees(ours)


@pytest.mark.parametrize(("value", "agrees"), [(0.63094, True), (0.63086, True), (0.63096, False), (0.63084, False)])
def test_agreement_is_to_the_printed_digits(value, agrees):
    found = line([row(value=value)])
    assert found.agrees(found.ours[0]) == agrees


def test_another_model_or_other_data_are_a_proxy_and_say_which():
    found = line([row(model="scenes-clip/fresh"), row(dataset="scenes", value=0.5)])
    assert [ours.unlike for ours in found.ours] == [("model",), ("dataset",)]
    assert not found.comparable
    # transformers' preprocessing gives other pixels than open_clip's, so the same weights are another model
    assert line([row(model="hf-clip:openai/clip-vit-base-patch32")]).ours[0].unlike == ("model",)
    moved = line([row(row="LSTSQ on COCO", fitted_on="scenes/train:text-to-image")], "LSTSQ on COCO")
    assert moved.ours[0].unlike == ("fitted_on",)
    assert line([row(row="LSTSQ on COCO", fitted_on="coco/val:text-to-image")], "LSTSQ on COCO").comparable


def test_seeds_are_averaged_and_nothing_else_is():
    values = [0.61, 0.62, 0.66]
    seeds = [row(value=value, model_options={"seed": k}) for k, value in enumerate(values)]
    (ours,) = line(seeds).ours
    assert (ours.seeds, ours.value) == (3, pytest.approx(63))
    assert ours.error == pytest.approx(100 * statistics.stdev(values))
    assert len(line([*seeds, row(n=5000)]).ours) == 2
    assert len(line([row(model_options={"zero_bias": True}), row()]).ours) == 2


def test_an_error_of_0_is_none_and_a_share_of_0_or_1_has_a_limit():
    """The bootstrap error of 0 of 140 is 0, and says nothing: a rate of p has none with a chance of (1 − p)^140."""
    (ours,) = line([row(value=0.0, n=140, standard_error=0.0)]).ours
    assert (1 - ours.limit / 100) ** 140 == pytest.approx(0.05) and ours.limit == pytest.approx(2.117, abs=0.001)
    assert ours.error == pytest.approx(ours.limit / 2)
    (ours,) = line([row(value=1.0, n=140, standard_error=0.0)]).ours
    assert ours.limit == pytest.approx(100 - 2.117, abs=0.001) and ours.error == pytest.approx((100 - ours.limit) / 2)
    (ours,) = line([row(value=0.5, standard_error=0.0)]).ours
    assert (ours.error, ours.limit) == (None, None)
    (ours,) = line([row(value=0.0, standard_error=None)]).ours  # not known, not 0
    assert (ours.error, ours.limit) == (None, None)
    separable = {"n": 800, "at": {}, "split": "first part of a random 0.8 split, seed 0"}
    fits = ("train", "cross_validated")
    rows = [row(f"modality_separability.linear_svc.{fit}", 1.0, standard_error=None, **separable) for fit in fits]
    found = line(rows, "modality_linear_separability.linear_svc", "tyshchuk2023-joint_distribution_coco500").ours
    assert [ours.limit for ours in found] == [None, pytest.approx(0.05 ** (1 / 800))]  # none of the rows of the fit
    (ours,) = line([row(value=0.6, model_options={"seed": k}) for k in range(3)]).ours
    assert (ours.seeds, ours.error) == (3, None)


def test_a_setup_that_the_source_does_not_name_is_not_the_paper_s_own():
    at = {"estimator": "isoscore_star", "zeta": 0.0}
    cloud = row("stability.bias", -0.5, dataset="Gaussian", n=64, at=at, model=None)
    (found,) = [each for each in compare([cloud], "rudman2024-stability") if each.ours]
    assert found.path == "figures.fig4"
    assert found.ours[0].unlike == ("setup",) and not found.comparable


def test_null_values_have_the_unit_of_the_number():
    (ours,) = line([row(null_value=0.096)]).ours
    assert ours.null == pytest.approx(9.6)


def test_a_number_of_pooled_seeds_does_not_have_the_null_value_of_their_mean():
    seeds = {"standard_error": 0.1, "null_value": 0.096, "null_values": [0.09, 0.102]}
    (ours,) = line([row(**seeds, seed_values=[0.5, 0.7])]).ours
    assert ours.error == pytest.approx(10) and ours.null is None
    (ours,) = line([row(**seeds)]).ours
    assert ours.error == pytest.approx(10) and ours.null == pytest.approx(9.6)

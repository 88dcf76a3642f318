"""The torchmetrics metric equals `cg.measure` on all rows, in any batches, over processes and from a checkpoint."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch

import clip_geometry as cg
from clip_geometry.registry import InputError

torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")

from clip_geometry.training import EmbeddingGeometry  # noqa: E402
from support.distributed import run_several  # noqa: E402
from support.distributed_live import measured, metric_of_several, metrics, pairs  # noqa: E402

D = 24


def reference(image, text, names):
    """By the package's own functions on all rows at once."""
    valid = text.norm(dim=1) > 0
    image, text = image[valid].numpy(), text[valid].numpy()
    result = cg.measure(image, text, measures=list(names), blocks=0)
    found = {}
    for row in result.records:
        place = row["at"].get("modality", "both")
        found[row["measure"] if place == "both" else f"{row['measure']}/{place}"] = row["value"]
    return found


def close(values, expected, tolerance):
    assert set(values) == set(expected)
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, rel=tolerance, abs=tolerance), name


@pytest.mark.parametrize("size", [23, 330])
def test_batches_give_what_measure_gives_of_all_rows(size):
    image, text = pairs()
    metric = EmbeddingGeometry(kept=1000)
    values = measured(metric, image, text, size)
    assert values.pop("invalid_rows") == 1
    # eigenvalues of M2 are squares of the singular values that the reference takes: half the digits, and 1e-10 is left
    close(values, reference(image, text, metric.plan.names), 1e-10)


@pytest.mark.slow
def test_four_processes_give_what_one_gives(tmp_path):
    """Unequal parts of the rows, and one process without any."""
    world = 4
    image, text = pairs()
    alone = {name: measured(metric, image, text) for name, metric in metrics().items()}
    several = run_several(metric_of_several, world, tmp_path)
    for found in several:
        for name, expected in alone.items():
            close(found[name], expected, 1e-12)
        close(found["a process without rows"], alone["default"], 1e-12)
        assert found["monitor"].pop("collapse") == 0
        close(found["monitor"], alone["default"], 1e-12)
    for name in alone:  # after `compute`, each goes on with its own rows
        assert sum(found[f"{name}, alone again"]["n"] for found in several) == len(image) - 1


def test_the_sample_does_not_depend_on_order_or_batches_and_is_a_sample():
    image, text = pairs()
    order = torch.randperm(len(image), generator=torch.Generator().manual_seed(1))
    samples = []
    for size, chosen in ((10, order), (330, torch.arange(330))):
        metric = EmbeddingGeometry(kept=50)
        measured(metric, image[chosen], text[chosen], size)
        samples.append(metric.sums.sample)
    assert torch.equal(*samples) and samples[0].shape == (50, 1 + 2 * D)
    numbers = [int((image == row[1 : 1 + D]).all(1).nonzero()) for row in samples[0]]
    assert len(set(numbers)) == 50
    assert 100 < np.mean(numbers) < 230  # of 0 to 329; the standard error of the mean of 50 is 13
    other = EmbeddingGeometry(kept=50, seed=1)
    measured(other, image, text)
    assert not torch.equal(other.sums.sample, samples[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_row_is_as_likely_in_the_sample(dtype):
    """The keys of rows of few bits are uniform: 2,000 of 8,000, an eighth of them in each eighth of the order."""
    rows = torch.randn(8000, 6, generator=torch.Generator().manual_seed(0)).to(dtype).double().to(dtype)
    metric = EmbeddingGeometry("rows", measures=["isoscore"], kept=8000)
    metric.update(rows)
    keys = metric.sums.sample[:, 0]
    assert keys.unique().numel() > 7990  # bfloat16 has 2 equal rows or so
    counts = torch.histc(keys.float(), bins=20, min=0, max=1)
    assert float(((counts - 400) ** 2 / 400).sum()) < 45  # chi-square of 19 degrees: 45 is p < 0.001


def test_of_one_modality_and_of_three():
    image, text = pairs()
    one = EmbeddingGeometry("rows")
    one.update(image)
    assert {name.partition("/")[2] for name in one.compute()} == {"rows", ""}
    three = EmbeddingGeometry("text", "audio", "image", measures=["modality_gap", "alignment", "isoscore"])
    three.update(image=image, text=text, audio=image + text)
    values = three.compute()
    assert set(values) == {
        *(f"{name}/{a}" for name in ("modality_gap", "alignment") for a in ("audio+image", "audio+text", "image+text")),
        *(f"isoscore/{name}" for name in ("audio", "image", "text")),
        "invalid_rows",
    }
    valid = text.norm(dim=1) > 0
    units = [torch.nn.functional.normalize(each[valid], dim=1) for each in (image + text, text)]
    assert float(values["modality_gap/audio+text"]) == pytest.approx(float(cg.geometry.modality_gap(*units)), rel=1e-12)
    assert float(values["alignment/audio+text"]) == pytest.approx(float(cg.geometry.alignment(*units)), rel=1e-12)


@pytest.mark.parametrize(
    "name", ["cka", "hubness", "matching_cosine", "modality_silhouette", "two_nn", "cone_mean_cosine"]
)
def test_any_measure_of_rows_or_pairs_can_be_taken(name):
    image, text = (each[18:] for each in pairs())
    metric = EmbeddingGeometry(measures=[name], kept=400)
    values = measured(metric, image, text)
    del values["invalid_rows"]
    close(values, reference(image, text, [name]), 1e-9)


def test_features_of_a_training_step_leave_no_graph_and_may_be_half_precision():
    image, text = pairs()
    image = image.bfloat16().requires_grad_()
    metric = EmbeddingGeometry()
    metric.update(image=image * 2, text=text.half())
    assert not any(value.requires_grad for value in metric.compute().values())
    assert all(value.dtype == torch.float64 for value in metric.compute().values())


def test_invalid_rows_are_left_out_with_their_pairs_and_counted():
    image, text = pairs()
    broken = image.clone()
    broken[3, 5], broken[90, 0] = math.nan, math.inf
    values = measured(EmbeddingGeometry(), broken, text)
    kept = torch.tensor([k not in (3, 17, 90) for k in range(len(image))])
    expected = measured(EmbeddingGeometry(), image[kept], text[kept])
    assert (values.pop("invalid_rows"), expected.pop("invalid_rows")) == (3, 0)
    close(values, expected, 1e-12)


def test_what_is_undefined_is_nan_and_no_error():
    rows = torch.ones(20, 4)
    metric = EmbeddingGeometry()
    metric.update(image=rows, text=2 * rows)
    values = metric.compute()
    assert (
        values["isoscore/image"].isnan()
        and values["effective_rank/text"].isnan()
        and values["relative_modality_gap"].isnan()
    )
    assert float(values["average_cosine/image"]) == 1 and float(values["modality_gap"]) == 0
    metric.reset()
    metric.update(image=torch.zeros(3, 4), text=rows[:3])
    values = metric.compute()
    assert float(values.pop("invalid_rows")) == 3
    assert all(value.isnan() for value in values.values())
    metric.update(image=torch.randn(9, 4), text=torch.randn(9, 4))
    assert float(metric.compute()["modality_gap"]) > 0


def test_forward_gives_the_batch_and_adds_it():
    image, text = pairs()
    metric = EmbeddingGeometry()
    for start in range(0, 330, 110):
        part = {"image": image[start : start + 110], "text": text[start : start + 110]}
        batch = metric(**part)
        alone = EmbeddingGeometry()
        alone.update(**part)
        expected = {name: float(value) for name, value in alone.compute().items()}
        close({name: float(value) for name, value in batch.items()}, expected, 1e-12)
        assert len(metric.packed) == 1  # the state does not grow with calls
    whole = {name: float(value) for name, value in metric.compute().items()}
    close(whole, measured(EmbeddingGeometry(), image, text), 1e-12)


def test_it_continues_from_a_checkpoint_a_pickle_and_a_copy():
    image, text = pairs()
    metric, fresh = EmbeddingGeometry(), EmbeddingGeometry()
    assert metric.state_dict() == {}  # like every metric, unless it is persistent
    metric.persistent(True)
    measured(metric, image[:200], text[:200])
    fresh.load_state_dict(metric.state_dict())
    for other in (fresh, pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric), metric.clone()):
        other.update(image=image[200:], text=text[200:])
        values = {name: float(value) for name, value in other.compute().items()}
        close(values, measured(EmbeddingGeometry(), image, text), 1e-12)


def test_the_state_stays_float64():
    image, text = pairs()
    model = torch.nn.ModuleDict({"metric": EmbeddingGeometry(), "layer": torch.nn.Linear(2, 2)})
    model["metric"].update(image=image, text=text)
    before = model["metric"].compute()
    model.half().to(torch.bfloat16).to("cpu")
    assert model["layer"].weight.dtype == torch.bfloat16
    metric = model["metric"]
    assert metric.packed[0].dtype == torch.float64 and metric.dtype == torch.float64
    assert metric.compute() == before
    metric.to("meta")
    assert metric.packed[0].device.type == "meta"


def test_in_a_collection_it_takes_its_own_arguments():
    image, text = pairs()
    collection = torchmetrics.MetricCollection([EmbeddingGeometry(), torchmetrics.MeanSquaredError()])
    collection.update(image=image, text=text, preds=image[:, 0], target=text[:, 0])
    values = collection.compute()
    assert float(values["MeanSquaredError"]) == pytest.approx(float((image - text)[:, 0].square().mean()))
    assert float(values["modality_gap"]) == measured(EmbeddingGeometry(), image, text)["modality_gap"]
    for _ in range(3):
        collection(image=image, text=text, preds=image[:, 0], target=text[:, 0])
    assert len(collection["EmbeddingGeometry"].packed) == 1
    assert float(collection.compute()["modality_gap"]) == pytest.approx(float(values["modality_gap"]), rel=1e-12)


def test_compute_without_rows_is_empty():
    with pytest.warns(UserWarning, match="was called before the ``update``"):
        assert EmbeddingGeometry().compute() == {}
    metric = EmbeddingGeometry()
    metric.update(image=torch.zeros(0, 3), text=torch.zeros(0, 3))
    assert metric.compute() == {}


def dimensions(*several):
    metric = EmbeddingGeometry("rows")
    for d in several:
        metric.update(torch.randn(3, d))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EmbeddingGeometry("image", "image"), "modalities are image, image; expected different names"),
        (lambda: EmbeddingGeometry("image", "both"), "is not a modality name"),
        (lambda: EmbeddingGeometry(measures=["isoscor"]), "unknown measure 'isoscor'; did you mean 'isoscore'"),
        (lambda: EmbeddingGeometry(measures=3), "measures = 3; expected names"),
        (lambda: EmbeddingGeometry(measures=["silhouette"]), "silhouette takes labeled rows; a live metric has rows"),
        (
            lambda: EmbeddingGeometry("rows", measures=["modality_gap"]),
            "compares two modalities, but there is only one, rows",
        ),
        (
            lambda: EmbeddingGeometry(measures=[]),
            "measures is empty; expected names, or None for the usual ones",
        ),
        (lambda: dimensions(24, 5), "rows have dimension 5, but earlier rows had 24; reset the metric"),
        (lambda: EmbeddingGeometry(kept=1), "kept = 1; expected a whole number from 2 on"),
        (lambda: EmbeddingGeometry().update(torch.ones(2, 2)), r"expected update\(image=…, text=…\)"),
        (lambda: EmbeddingGeometry().update(image=torch.ones(2, 2)), "rows of image were given; expected update"),
        (
            lambda: EmbeddingGeometry().update(image=torch.ones(2, 2), text=torch.ones(3, 2)),
            r"image has shape \(2, 2\) and text has shape \(3, 2\); expected pairs in one space",
        ),
        (lambda: EmbeddingGeometry().update(image=torch.ones(2), text=torch.ones(2)), "image has shape"),
    ],
)
def test_wrong_arguments_are_a_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_states_are_merged_from_another_metric():
    image, text = pairs()
    metric, other = EmbeddingGeometry(), EmbeddingGeometry()
    metric.update(image=image[:100], text=text[:100])
    other.update(image=image[100:], text=text[100:])
    metric.merge_state(other)
    values = {name: float(value) for name, value in metric.compute().items()}
    close(values, measured(EmbeddingGeometry(), image, text), 1e-12)
    assert metric.items == 330 and len(metric.packed) == 1

"""Sets too large for the memory are measured as they would be in it, from blocks."""

import numpy as np
import pytest
import torch

from clip_geometry import embeddings
from clip_geometry.embeddings import Embeddings, ShardedRows, is_large, joined, memory
from clip_geometry.experiments.measuring import MeasuredSets, measure_sets
from clip_geometry.geometry.streamed import StreamedRows
from clip_geometry.registry import InputError
from clip_geometry.transforms import LeastSquares, Procrustes, RankWarning, parse_pipeline
from support.clouds import cone

N, D = 5000, 8


@pytest.fixture
def sets():
    """More rows than a block, of a text of each image in another order; labels of the images."""
    rng = np.random.default_rng(0)
    image = cone(N, D, rng).astype(np.float16)
    text = (image[::-1] + cone(N, D, rng)).astype(np.float16)
    ids = np.array([f"i{k}" for k in range(N)])
    return {
        "image": Embeddings(image, "image", ids, np.arange(N) % 4),
        "text": Embeddings(ShardedRows([text[:100], text[100:]]), "text", ids[::-1].copy()),
    }


@pytest.fixture
def rows_of(sets, monkeypatch):
    """Rows by measure and place, streamed or in memory."""

    def measured(steps, *, large, names=None, blocks=10):
        monkeypatch.setattr(embeddings, "LARGE", 0 if large else 2**60)
        found = MeasuredSets(sets, parse_pipeline(steps), blocks=blocks)
        assert found.streamed == large
        return {(row["measure"], row["at"].get("modality")): row for row in measure_sets(found, names)}

    return measured


QUICK = ["isoscore", "average_cosine", "modality_gap", "matching_cosine", "cka", "effective_rank", "inter_type_cosine"]
PIPELINES = [
    "",
    "normalize",
    "scale(3),center[pooled],normalize",
    "whiten(5)[image]",
    "normalize,all_but_the_top(2)[each]",
    "pca(4,center=false)[pooled]",
    "normalize,procrustes[text-to-image]",
    "least_squares[image-to-text]",
]


@pytest.mark.parametrize("steps", PIPELINES)
def test_every_pipeline_streams_to_the_same_numbers(rows_of, steps):
    expected = rows_of(steps, large=False, names=QUICK, blocks=0)
    found = rows_of(steps, large=True, names=QUICK, blocks=0)
    assert found.keys() == expected.keys()
    for key, row in found.items():
        assert row["value"] == pytest.approx(expected[key]["value"], rel=1e-9, abs=1e-11), key
        assert (row["n"], row["d"]) == (expected[key]["n"], expected[key]["d"])


def test_what_is_left_out_says_why(rows_of):
    found, expected = rows_of("normalize", large=True), rows_of("normalize", large=False)
    notes = {measure: row["note"] for (measure, _), row in found.items() if row["value"] is None}
    assert notes["silhouette"].startswith("needs all rows in memory, where they would take 0.00064 GB of")
    assert notes["uniformity"] == (
        "time grows with n² and the rows are streamed; --measures uniformity takes it all the same"
    )
    taken = {key for key, row in found.items() if row["value"] is not None}
    assert len(taken) > 30
    for key in taken:
        assert found[key]["value"] == pytest.approx(expected[key]["value"], rel=1e-9, abs=1e-11), key


def test_standard_errors_are_those_of_the_moments_of_the_blocks(rows_of):
    names = ["isoscore", "isoscore[unbiased]", "participation_ratio", "coordinate_spread", "average_cosine"]
    found, expected = (rows_of("normalize", large=large, names=names) for large in (True, False))
    for (measure, place), row in found.items():
        error = expected[measure, place]["standard_error"]
        if measure == "average_cosine":
            assert row["standard_error"] is None and error > 0
        else:
            assert row["standard_error"] == pytest.approx(error, rel=1e-6)
    centred = rows_of("center[each]", large=True, names=["isoscore"])
    assert all(row["standard_error"] is None for row in centred.values())


def test_a_named_measure_is_taken_or_refused(rows_of):
    found, expected = (rows_of("", large=large, names=["uniformity"], blocks=0) for large in (True, False))
    for key, row in found.items():
        assert row["value"] == pytest.approx(expected[key]["value"], rel=1e-9)
    with pytest.raises(InputError, match="silhouette needs all rows in memory"):
        rows_of("", large=True, names=["silhouette"])
    with pytest.raises(InputError, match="cluster_center needs its 5000 rows in memory, and they are streamed"):
        rows_of("cluster_center(3)", large=True)


def test_null_values_are_those_of_noise_of_that_size_and_scale(rows_of):
    names = ["participation_ratio", "modality_gap", "isotropy_i2", "matching_cosine"]
    found, again, expected = (rows_of("", large=large, names=names, blocks=0) for large in (True, True, False))
    for (measure, place), row in found.items():
        null, other = row["null_value"], expected[measure, place]["null_value"]
        assert null == again[measure, place]["null_value"]
        if measure == "matching_cosine":  # the mean of 5000 cosines, each of variance 1/8: .005
            assert 0 < abs(null) < 0.02
        else:  # a partition function of 5000 long rows hangs on the longest
            assert null == pytest.approx(other, rel=0.01 if measure == "participation_ratio" else 0.5)
    assert found["modality_gap", "both"]["null_value"] > 0.05  # image and text are not the same noise


def test_context_says_that_rows_were_streamed(sets, monkeypatch):
    monkeypatch.setattr(embeddings, "LARGE", 0)
    assert MeasuredSets(sets, ()).context()["streamed"] is True
    monkeypatch.setattr(embeddings, "LARGE", 2**60)
    assert "streamed" not in MeasuredSets(sets, ()).context()


def test_nan_is_found_on_the_way(sets, monkeypatch):
    monkeypatch.setattr(embeddings, "LARGE", 0)
    sets["image"].vectors[4200, 3] = np.nan
    image = next(measure_sets(MeasuredSets(sets, ()), None))
    assert image["value"] is None and "image has NaN or infinity in row 4200" in image["note"]


def test_maps_of_deficient_rank_are_those_of_the_rows_in_memory():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(5000, 3)) @ rng.normal(size=(3, 5))
    b = a @ rng.normal(size=(5, 5)) + rng.normal(size=(5000, 5))
    for step in (LeastSquares(), Procrustes()):
        with pytest.warns(RankWarning):
            expected = step.fit(a, b).W_.copy(), step.rank_
        with pytest.warns(RankWarning):
            streamed = step.fit(*(StreamedRows.of(torch.from_numpy(x)) for x in (a, b)))
        assert streamed.rank_ == expected[1] == 3
        assert np.allclose(streamed.W_, expected[0], atol=1e-10)


def test_shards_stay_on_disk_where_they_are_large(monkeypatch):
    parts = [np.ones((3, 2), np.float16), np.zeros((2, 2), np.float16)]
    assert isinstance(joined(parts), np.ndarray)
    monkeypatch.setattr(embeddings, "LARGE", 79)  # 5 × 2 numbers of 8 bytes are 80
    assert is_large((5, 2)) and not is_large((4, 2))
    found = joined(parts)
    assert isinstance(found, ShardedRows)
    assert found[1:4].tolist() == [[1, 1], [1, 1], [0, 0]]
    assert joined(parts[:1]) is parts[0]


def test_the_memory_is_that_of_the_container(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(embeddings, "MEMORY_LIMIT", limit)
    physical = memory()
    assert physical > 2**28
    limit.write_text("max\n")
    assert memory() == physical
    limit.write_text("1000000\n")
    assert memory() == 1_000_000

"""Sets too large for the memory are measured as they would be in it, from blocks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from clip_geometry import embeddings
from clip_geometry.embedding.engines import open_engine
from clip_geometry.embeddings import Embeddings, LazyRows, is_large, joined
from clip_geometry.measuring import sets as streaming
from clip_geometry.measuring.given import split_by
from clip_geometry.measuring.records import measure_sets
from clip_geometry.measuring.sets import MeasuredSets, stream
from clip_geometry.memory import memory
from clip_geometry.registry import InputError
from clip_geometry.steps import parse_pipeline
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
        "text": Embeddings(LazyRows([text[:100], text[100:]]), "text", ids[::-1].copy()),
    }


@pytest.fixture
def rows_of(sets, monkeypatch):
    """Rows by measure and place, streamed or in memory."""

    def measured(steps, *, large, names=None, blocks=10, held=2**60):
        monkeypatch.setattr(embeddings, "LARGE", 0 if large else 2**60)
        monkeypatch.setattr("clip_geometry.memory.MOST_HELD", held)
        result = MeasuredSets(sets, parse_pipeline(steps), blocks=blocks)
        assert result.streamed == large
        return {(row["measure"], row["at"].get("modality")): row for row in measure_sets(result, names)}

    return measured


QUICK = ["isoscore", "average_cosine", "modality_gap", "matching_cosine", "cka", "effective_rank", "inter_type_cosine"]
PIPELINES = [
    "",
    "scale(3),center[pooled],normalize",
    "whiten(5)[image]",
    "normalize,all_but_the_top(2)[each]",
    "normalize,procrustes[text-to-image]",
    "least_squares[image-to-text]",
]


@pytest.mark.parametrize("steps", PIPELINES)
def test_every_pipeline_streams_to_the_same_numbers(rows_of, steps):
    expected = rows_of(steps, large=False, names=QUICK, blocks=0)
    result = rows_of(steps, large=True, names=QUICK, blocks=0)
    assert result.keys() == expected.keys()
    for key, row in result.items():
        assert row["value"] == pytest.approx(expected[key]["value"], rel=1e-9, abs=1e-11), key
        assert (row["n"], row["d"]) == (expected[key]["n"], expected[key]["d"])


def test_what_is_left_out_says_why(rows_of):
    result = rows_of("normalize", large=True, held=0, blocks=0)
    notes = {measure: row["note"] for (measure, _), row in result.items() if row["value"] is None}
    assert notes["silhouette"].startswith("needs all rows in memory, where they would take 0.00064 GB of")
    assert notes["uniformity"] == (
        "its time grows with n² and the rows are streamed; name it in --measures to compute it anyway"
    )
    taken = {key for key, row in result.items() if row["value"] is not None}
    assert len(taken) > 30
    expected = rows_of("normalize", large=False, names=list(dict.fromkeys(name for name, _ in taken)), blocks=0)
    for key in taken:
        assert result[key]["value"] == pytest.approx(expected[key]["value"], rel=1e-9, abs=1e-11), key


def test_standard_errors_are_those_of_the_rows_in_memory(rows_of):
    """From the moments, means and spreads of the blocks: other sums of the same numbers, 1e-16 apart each."""
    names = ["isoscore", "isoscore[unbiased]", "participation_ratio", "coordinate_spread", "average_cosine"]
    names += ["modality_gap", "relative_modality_gap", "modality_silhouette[cosine]"]
    names += ["matching_cosine", "random_cosine"]
    result, expected = (rows_of("normalize", large=large, names=names) for large in (True, False))
    for (measure, place), row in result.items():
        error = expected[measure, place]["standard_error"]
        assert error > 0 and row["standard_error"] == pytest.approx(error, rel=1e-6), measure
        assert row["value"] == pytest.approx(expected[measure, place]["value"], rel=1e-9), measure
    centered = rows_of("center[each]", large=True, names=["isoscore", "average_cosine"])
    assert all(row["standard_error"] is None for row in centered.values())


def test_a_named_measure_is_taken_or_refused(rows_of):
    result, expected = (rows_of("", large=large, names=["uniformity"], blocks=0) for large in (True, False))
    for key, row in result.items():
        assert row["value"] == pytest.approx(expected[key]["value"], rel=1e-9)
    with pytest.raises(InputError, match="silhouette needs all rows in memory"):
        rows_of("", large=True, names=["silhouette"], held=0)
    with pytest.raises(InputError, match="cluster_center needs its 5000 rows in memory, but they are streamed"):
        rows_of("cluster_center(3)", large=True, held=0)


def test_what_needs_all_rows_gets_them_where_they_can_be_held(rows_of):
    """Retrieval and its null value, after a step that needs all rows, too."""
    steps, names = "cluster_center(3)[each]", ["retrieval.image_to_text.r_at_1", "average_cosine"]
    result, expected = (rows_of(steps, large=large, names=names, blocks=0) for large in (True, False))
    for key, row in result.items():
        assert row["value"] == pytest.approx(expected[key]["value"], rel=1e-9)
    row, other = (each["retrieval.image_to_text.r_at_1", "both"] for each in (result, expected))
    assert row["null_value"] == other["null_value"]


def test_null_values_are_those_of_noise_of_that_size_and_scale(rows_of):
    names = ["participation_ratio", "modality_gap", "isotropy_i2", "matching_cosine"]
    result, again, expected = (rows_of("", large=large, names=names, blocks=0) for large in (True, True, False))
    for (measure, place), row in result.items():
        null, other = row["null_value"], expected[measure, place]["null_value"]
        assert null == again[measure, place]["null_value"]
        if measure == "matching_cosine":  # the mean of 5000 cosines, each of variance 1/8: .005
            assert 0 < abs(null) < 0.02
        else:  # a partition function of 5000 long rows hangs on the longest
            assert null == pytest.approx(other, rel=0.01 if measure == "participation_ratio" else 0.5)
    assert result["modality_gap", "both"]["null_value"] > 0.05  # image and text are not the same noise


def test_progress_is_told_of_all_bytes_that_are_read(sets, monkeypatch):
    told = {}

    class Told:
        def __init__(self, description, rows, row_bytes):
            told[description], self.description = [rows, row_bytes, 0], description

        def __call__(self, count):
            told[self.description][2] += count

    monkeypatch.setattr(streaming, "PassProgress", Told)
    for rows in stream(sets, " (null)").values():
        assert sum(len(block) for block in rows.split(999)) == N
    assert told == {f"{modality} (null)": [N, 2 * D, N] for modality in ("image", "text")}


def test_nan_is_found_on_the_way(sets, monkeypatch):
    monkeypatch.setattr(embeddings, "LARGE", 0)
    sets["image"].vectors[4200, 3] = np.nan
    image = next(measure_sets(MeasuredSets(sets, ()), None))
    assert image["value"] is None and "image has NaN or infinity in row 4200" in image["note"]


def test_shards_stay_on_disk_where_they_are_large(monkeypatch):
    parts = [np.ones((3, 2), np.float16), np.zeros((2, 2), np.float16)]
    assert isinstance(joined(parts), np.ndarray)
    monkeypatch.setattr(embeddings, "LARGE", 79)  # 5 × 2 numbers of 8 bytes are 80
    assert is_large((5, 2)) and not is_large((4, 2))
    result = joined(parts)
    assert isinstance(result, LazyRows)
    assert result[1:4].tolist() == [[1, 1], [1, 1], [0, 0]]
    assert joined(parts[:1]) is parts[0]


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Writes limits into the files of a system with such lines in /proc/self/cgroup; gives the memory."""

    def told(lines, limits):
        monkeypatch.setattr("clip_geometry.memory.CGROUPS", tmp_path / "cgroup")
        monkeypatch.setattr("clip_geometry.memory.OWN_CGROUPS", tmp_path / "own")
        (tmp_path / "own").write_text("\n".join(lines))
        for name, limit in limits.items():
            (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "cgroup" / name).write_text(f"{limit}\n")
        return memory()

    return told


def test_the_memory_is_that_of_the_machine_where_nothing_limits_it(groups, tmp_path, monkeypatch):
    monkeypatch.setattr("clip_geometry.memory.OWN_CGROUPS", tmp_path / "none")
    physical = memory()
    assert physical > 2**28
    assert groups(["0::/"], {"memory.max": "max"}) == physical
    assert groups(["0::/job"], {"job/memory.max": 2**60}) == physical  # more than there is
    assert groups(["5:cpu:/a", "0::/gone"], {"cpu/a/memory.max": 2**20}) == physical


@pytest.mark.parametrize(
    ("lines", "limits"),
    [
        (["0::/"], {"memory.max": 2**20}),  # a container
        (["0::/slurm/job/step"], {"slurm/job/memory.max": 2**20, "slurm/job/step/memory.max": "max"}),
        (["0::/a/b"], {"a/memory.max": 2**21, "a/b/memory.max": 2**20}),
        (["0::/a/b"], {"a/memory.max": 2**20, "a/b/memory.max": 2**21}),
        (["4:cpu,memory:/docker/7", "0::/"], {"memory/docker/7/memory.limit_in_bytes": 2**20}),
        (["4:memory:/docker/7", "0::/"], {"memory/memory.limit_in_bytes": 2**20}),  # seen from within
    ],
)
def test_the_memory_is_that_of_the_container_or_the_job(groups, lines, limits):
    assert groups(lines, limits) == 2**20


@pytest.mark.parametrize("place", ["prompts", "few", "one item"])
def test_standard_errors_where_blocks_have_none_of_the_rows(sets, rows_of, place):
    """Prompts lie in no block, few texts not in each, and two captions of one image in one."""
    few = sets["text"].take(slice(4))
    sets["text"] = {
        "prompts": replace(few, item_id=None, labels=np.arange(4), pair_on="label"),
        "few": few,
        "one item": replace(few, item_id=few.item_id[[0, 0, 0, 0]]),
    }[place]
    result, expected = (rows_of("normalize", large=large, names=["isoscore"]) for large in (True, False))
    for key, row in result.items():
        if expected[key]["standard_error"] is None:
            assert row["standard_error"] is None
        else:
            assert row["standard_error"] == pytest.approx(expected[key]["standard_error"], rel=1e-6, abs=1e-12)
    assert (result["isoscore", "text"]["standard_error"] is None) == (place == "one item")


def test_moments_that_are_too_large_without_each_block_are_noted(rows_of, monkeypatch):
    assert "note" not in rows_of("", large=True, names=["isoscore"])["isoscore", "image"]
    monkeypatch.setattr("clip_geometry.geometry.statistics.moments.MOST_BYTES", 0)
    row = rows_of("", large=True, names=["isoscore"])["isoscore", "image"]
    assert row["standard_error"] is None and row["note"].startswith("no standard error: moments of")


def test_groups_of_large_sets_are_not_read_before_they_are_measured(sets, monkeypatch):
    expected = dict(split_by({"image": sets["image"]}, "label"))
    monkeypatch.setattr(embeddings, "LARGE", 0)
    halves = LazyRows([sets["image"].vectors[:101], sets["image"].vectors[101:]])
    for vectors in (sets["image"].vectors, halves):
        result = dict(split_by({"image": replace(sets["image"], vectors=vectors)}, "label"))
        assert result.keys() == expected.keys() == {0, 1, 2, 3}
        for label, part in result.items():
            rows, whole = part["image"].vectors, expected[label]["image"]
            assert isinstance(rows, LazyRows) and rows.shape == whole.vectors.shape
            assert np.array_equal(np.asarray(rows), whole.vectors)
            assert np.array_equal(rows[[700, 3]], whole.vectors[[700, 3]])
            assert part["image"].item_id.tolist() == whole.item_id.tolist()
            assert torch.equal(stream(part)["image"][:], torch.from_numpy(whole.vectors))


def test_an_engine_gives_the_numbers_of_memory_where_the_sets_would_fit(rng=np.random.default_rng(0)):
    """At 256 columns, from which on products of what is too large are float32: some 1e-9 away."""
    image = Embeddings(cone(3000, 256, rng).astype(np.float32), "image", np.arange(3000).astype(str))
    names = ["isoscore", "participation_ratio", "average_cosine"]
    with open_engine("local") as engine:
        result, expected = (
            MeasuredSets({"image": image}, parse_pipeline("normalize"), blocks=5, engine=each)
            for each in (engine, None)
        )
        assert result.streamed and not expected.streamed
        for row, other in zip(measure_sets(result, names), measure_sets(expected, names), strict=True):
            assert row["value"] == pytest.approx(other["value"], rel=1e-11)
            if row["standard_error"] is not None:
                assert row["standard_error"] == pytest.approx(other["standard_error"], rel=1e-7)

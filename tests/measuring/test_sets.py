import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes

from clip_geometry import Pipeline
from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry import (
    average_cosine,
    matching_cosine,
    measures,
    modality_gap,
    null_value,
    partition_isotropy,
    standard_error,
)
from clip_geometry.geometry.uncertainty import assign_blocks
from clip_geometry.measuring.given import split_by
from clip_geometry.measuring.records import measure_sets
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.measuring.views import Items
from clip_geometry.registry import InputError
from clip_geometry.steps import parse_pipeline
from support.clouds import cone


def embeddings(n, modality, seed, **columns):
    rows = cone(n, 5, np.random.default_rng(seed)).astype(np.float32)
    return Embeddings(rows, modality, **columns)


@pytest.fixture
def captioned():
    """Four images, two captions each, in another order."""
    image = embeddings(4, "image", 0, item_id=np.array(["a", "b", "c", "d"]), labels=np.array([0, 0, 1, 1]))
    text = embeddings(8, "text", 1, item_id=np.array(list("ddccbbaa")), metadata={"tone": np.array(["x", "y"] * 4)})
    return {"image": image, "text": text}


def rows_of(sets, names, steps="normalize", seed=0):
    return list(measure_sets(MeasuredSets(sets, parse_pipeline(steps), seed=seed), names))


def test_paired_measures_take_the_pairs_and_the_others_all_rows(captioned):
    image, text = captioned["image"].vectors, captioned["text"].vectors
    matching, cosine_image, cosine_text = rows_of(captioned, ["matching_cosine", "average_cosine"])
    i, j = [0, 0, 1, 1, 2, 2, 3, 3], [6, 7, 4, 5, 2, 3, 0, 1]
    assert matching["value"] == pytest.approx(float(matching_cosine(image[i], text[j])), rel=1e-6)
    assert matching["n"] == 8
    assert cosine_image["value"] == pytest.approx(float(average_cosine(image)), rel=1e-6)
    assert (cosine_image["n"], cosine_text["n"]) == (4, 8)


def test_random_pairs_are_pairs_of_different_items(captioned):
    """An image and the second of its own captions are no random pair: one caption an image, and n says so."""
    image, text = captioned["image"].vectors, captioned["text"].vectors
    for row in rows_of(captioned, ["random_cosine", "relative_modality_gap"]):
        expected = measures[row["measure"]](image, text[[6, 4, 2, 0]])
        assert row["value"] == pytest.approx(float(expected), rel=1e-6)
        assert row["n"] == 4


@pytest.mark.parametrize("steps", ["", "normalize,center[pooled]"])
def test_null_values_are_those_of_a_gaussian_through_the_same_steps(steps):
    sets = {"image": embeddings(12, "image", 0), "text": embeddings(9, "text", 1)}
    measured = MeasuredSets(sets, parse_pipeline(steps), seed=4)
    generator = torch.Generator().manual_seed(4)
    noise = {}
    for modality, each in sets.items():
        rows = torch.randn(len(each), 5, generator=generator, dtype=torch.float64).numpy()
        noise[modality] = np.sqrt(np.square(each.vectors.astype(float)).mean()) * rows
    x, y = Pipeline(steps).fit_transform(noise)[1].values()
    for name, expected in (
        ("modality_gap", modality_gap(x, y)),
        ("isotropy_i2", partition_isotropy(x).i2),
        ("average_cosine", average_cosine(x)),
    ):
        row = next(iter(measure_sets(measured, [name])))
        assert row["null_value"] == pytest.approx(float(expected), rel=1e-9)
        assert row["null_value"] != pytest.approx(row["value"], rel=1e-3)


def test_one_function_is_called_once_for_its_measures(captioned, monkeypatch):
    from clip_geometry.geometry import cone as cone_function

    calls = []
    names = ("cone_min_cosine", "cone_half_angle")

    def counted(rows):
        calls.append(len(rows))
        return cone_function(rows)

    for name in names:
        monkeypatch.setitem(vars(measures[name]), "function", counted)
    result = rows_of(captioned, names)
    assert len(result) == 4
    assert sorted(calls) == [4, 4, 8, 8]  # each set and its Gaussian


def test_variants_of_one_function_are_kept_apart(captioned):
    names = ["isotropy_i1", "isotropy_i1[canonical]", "silhouette", "silhouette[cosine]"]
    together = {(r["measure"], r["at"]["modality"]): r["value"] for r in rows_of(captioned, names)}
    alone = {(r["measure"], r["at"]["modality"]): r["value"] for name in names for r in rows_of(captioned, [name])}
    assert together == alone
    assert len(set(together.values())) == 6


def test_nulls_have_the_scale_of_all_rows():
    rows = np.ones((9000, 2), dtype=np.float32)
    rows[4096:] = 3
    rows[::2] *= -1
    (row,) = rows_of({"image": Embeddings(rows, "image")}, ["isotropy_i2"], steps="")
    scale = np.sqrt(np.square(rows.astype(float)).mean())
    assert row["null_value"] == pytest.approx(float(null_value("isotropy_i2", 9000, 2, scale=scale)), rel=1e-9)


def test_what_cannot_be_measured_is_noted_unless_named(captioned):
    one = {"image": embeddings(6, "image", 0)}
    notes = {row["measure"]: row["note"] for row in rows_of(one, None) if row["value"] is None}
    assert notes["modality_gap"] == "needs two modalities, but only image was given"
    assert notes["silhouette"].startswith("needs labels")
    unpaired = {"image": embeddings(6, "image", 0), "text": embeddings(5, "text", 1)}
    notes = {row["measure"]: row["note"] for row in rows_of(unpaired, None) if row["value"] is None}
    assert notes["matching_cosine"].startswith("needs pairs: 6 image rows and 5 text rows")
    assert "modality_gap" not in notes
    with pytest.raises(InputError, match="matching_cosine, both: needs pairs"):
        rows_of(unpaired, ["matching_cosine"])


def test_centering_each_modality_unasked_refuses_measures_across(captioned):
    notes = {row["measure"]: row.get("note") for row in rows_of(captioned, None, "center")}
    assert "write center[pooled]" in notes["modality_gap"]
    assert notes["isoscore"] is None
    (row,) = rows_of(captioned, ["modality_gap"], "center[each]")
    assert row["value"] == pytest.approx(0, abs=1e-9)
    (row,) = rows_of(captioned, ["modality_gap"], "center[pooled]")
    expected = modality_gap(captioned["image"].vectors, captioned["text"].vectors)
    assert row["value"] == pytest.approx(float(expected), rel=1e-9)


def test_class_prompts_do_not_keep_the_images_from_their_silhouette(captioned):
    prompts = embeddings(2, "text", 1, item_id=np.array(["class-0", "class-1"]), labels=np.arange(2), pair_on="label")
    sets = {"image": captioned["image"], "text": prompts}
    (row,) = rows_of(sets, ["silhouette"])
    assert row["at"] == {"modality": "image"}
    matching, random = rows_of(sets, ["matching_cosine", "random_cosine"])
    assert (matching["n"], random["n"]) == (4, 2)


def test_images_without_ids_beside_prompts_are_items_by_position(captioned):
    """Their blocks say nothing about which items these are: other images have the same."""
    prompts = embeddings(2, "text", 1, item_id=np.array(["class-0", "class-1"]), labels=np.arange(2), pair_on="label")
    result = [Items({"image": embeddings(4, "image", seed), "text": prompts}, blocks=2, seed=0) for seed in (0, 1)]
    assert result[0].of_rows["image"].tolist() == [0, 1, 2, 3] and result[0].of_rows["text"].tolist() == [-1, -1]
    assert len(result[0]) == 4 and result[0].identity["item_blocks"] == result[1].identity["item_blocks"]
    assert len({"ids", *(each.identity["items_from"] for each in result)}) == 3


def test_context_says_where_numbers_come_from(captioned):
    origin = {"model": "m", "dataset": "d", "split": "test", "model_options": {"seed": 1}}
    image = Embeddings(captioned["image"].vectors, "image", provenance=origin | {"data_options": {"size": 4}})
    text = Embeddings(captioned["text"].vectors, "text", provenance=origin | {"model": "m2"})
    result = MeasuredSets({"image": image, "text": text}, parse_pipeline("normalize,center[image]"), seed=7).context()
    assert (result["model"], result["dataset"], result["split"]) == ("m + m2", "d", "test")
    assert result["fitted_on"] == "d/test:image"
    assert (result["model_options"], result["data_options"]) == ({"seed": 1}, {"image": {"size": 4}, "text": {}})
    assert result["pipeline"] == ["normalize", "center[image]"]
    assert (result["seed"], result["dtype"]) == (7, "float32")


def test_split_by_columns(captioned):
    text = {"text": captioned["text"]}
    parts = dict(split_by(text, "tone"))
    assert list(parts) == ["x", "y"]
    assert parts["y"]["text"].item_id.tolist() == ["d", "c", "b", "a"]
    labeled = dict(split_by({"image": captioned["image"]}, "label"))
    assert {value: len(part["image"]) for value, part in labeled.items()} == {0: 2, 1: 2}
    lists = np.empty(4, dtype=object)
    lists[:] = [[1, 2]] * 4
    odd = {"image": Embeddings(np.eye(4), "image", metadata={"g": lists})}
    for sets, column, sentence in (
        (text, "breed", "text embeddings have no column 'breed' to group by; they have tone"),
        (odd, "g", r"column 'g' of image embeddings holds .* to group by"),
    ):
        with pytest.raises(InputError, match=sentence):
            list(split_by(sets, column))


# --- standard errors


def test_standard_errors_are_those_of_the_library():
    """Sets that pair by position lose the same rows of both."""
    sets = {"image": embeddings(60, "image", 0), "text": embeddings(60, "text", 1)}
    measured = MeasuredSets(sets, (), seed=3, blocks=10)
    x, y = sets["image"].vectors, sets["text"].vectors
    for name, arguments in (("isoscore", (x,)), ("modality_gap", (x, y)), ("matching_cosine", (x, y))):
        row = next(iter(measure_sets(measured, [name])))
        expected = standard_error(name, *arguments, blocks=10, seed=3)
        assert row["standard_error"] == pytest.approx(float(expected), rel=1e-9)
        assert row["standard_error"] > 0
    assert measured.context()["jackknife_blocks"] == 10


def test_an_image_and_its_captions_leave_together():
    """Five copies of every caption are not five times the data: the error must not shrink."""
    ids = np.arange(60).astype(str)
    image, text = embeddings(60, "image", 0, item_id=ids), embeddings(60, "text", 1, item_id=ids)
    fivefold = Embeddings(text.vectors.repeat(5, axis=0), "text", item_id=ids.repeat(5))
    for name in ("average_cosine", "matching_cosine", "modality_gap"):
        once, copied = (rows_of({"image": image, "text": each}, [name])[-1] for each in (text, fivefold))
        assert copied["standard_error"] == pytest.approx(once["standard_error"], rel=0.15)


def test_the_pipeline_is_fitted_anew_without_each_block():
    """Of centered rows the average cosine would vary; fitted anew, it stays at about −1/(n − 1)."""
    sets = {"image": embeddings(60, "image", 0)}
    steps = parse_pipeline("normalize,center,normalize")
    measured = MeasuredSets(sets, steps, seed=0, blocks=10)
    (row,) = measure_sets(measured, ["average_cosine"])
    block_of = assign_blocks(60, 10, 0).numpy()
    values = [
        float(
            average_cosine(Pipeline(steps).fit_transform({"image": sets["image"].vectors[block_of != b]})[1]["image"])
        )
        for b in range(10)
    ]
    assert row["standard_error"] == pytest.approx(float(np.sqrt(9 * np.var(values))), rel=1e-9)


def test_paired_steps_are_fitted_anew_on_the_pairs_that_are_left():
    ids = np.arange(40).astype(str)
    image, text = embeddings(40, "image", 0, item_id=ids), embeddings(40, "text", 1, item_id=ids[::-1].copy())
    steps = parse_pipeline("procrustes[text-to-image]")
    (row,) = measure_sets(MeasuredSets({"image": image, "text": text}, steps, blocks=8), ["matching_cosine"])
    block_of, values = assign_blocks(40, 8, 0).numpy(), []
    x, y = image.vectors.astype(float), text.vectors[::-1].astype(float)
    for block in range(8):
        kept = block_of != block
        turned = y[kept] @ orthogonal_procrustes(y[kept], x[kept])[0]
        values.append(float(matching_cosine(x[kept], turned)))
    assert row["standard_error"] == pytest.approx(float(np.sqrt(7 * np.var(values))), rel=1e-6)


def test_a_row_is_the_same_when_it_is_asked_for_again():
    sets = {"image": embeddings(60, "image", 0), "text": embeddings(60, "text", 1)}
    measured = MeasuredSets(sets, ())
    for name in ("retrieval.image_to_text.r_at_5", "modality_gap"):
        first, again = (measured.row(measures[name], "both") for _ in range(2))
        assert first == again and first["standard_error"] > 0


def test_where_there_is_no_standard_error(captioned, monkeypatch):
    sets = {"image": embeddings(60, "image", 0)}
    assert rows_of(sets, ["cone_min_cosine"])[0]["standard_error"] is None  # an extreme
    assert rows_of(captioned, ["isoscore"])[0]["standard_error"] is None  # four items, twenty blocks
    unasked = MeasuredSets(sets, (), blocks=0)
    assert next(iter(measure_sets(unasked, ["isoscore"])))["standard_error"] is None
    monkeypatch.setattr("clip_geometry.measuring.sets.QUADRATIC_ROWS", 50)
    labeled = {"image": embeddings(60, "image", 0, labels=np.arange(60) % 3)}
    assert rows_of(labeled, ["silhouette"])[0]["standard_error"] is None
    assert rows_of(labeled, ["silhouette[sqeuclidean]"])[0]["standard_error"] > 0


def test_prompts_of_classes_share_the_blocks_of_their_items():
    """The standard error of pairs on labels is that of the pairs outside of each block."""
    rng = np.random.default_rng(0)
    image = Embeddings(rng.normal(size=(60, 4)), "image", np.array([f"i{k}" for k in range(60)]), np.arange(60) % 3)
    text = Embeddings(rng.normal(size=(3, 4)), "text", np.array(list("abc")), np.arange(3), pair_on="label")
    (row,) = list(measure_sets(MeasuredSets({"image": image, "text": text}, (), blocks=6), ["matching_cosine"]))
    assert 0 < row["standard_error"] < 0.2

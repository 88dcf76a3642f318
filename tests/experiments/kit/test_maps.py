"""Tables whose rows are maps: fitted where they say, scored as the plain functions score."""

import re

import numpy as np
import pytest
import torch

from clip_geometry import Pipeline
from clip_geometry.config import validate
from clip_geometry.embeddings import pair
from clip_geometry.evaluate import contrastive_loss, linear_probe, zero_shot
from clip_geometry.registry import InputError
from clip_geometry.transforms import Normalize, Whiten
from clip_geometry_experiments.kit.base import experiments
from clip_geometry_experiments.run.runner import RunFolder
from clip_geometry_experiments.tyshchuk2023.generalization import class_generalization
from support.workspaces import CLASSES, D, FakeWorkspace

WHITEN = {"row": "whitened", "pipeline": ["normalize", "whiten(5)[pooled]"], "fit_on": "pairs"}
RAW = {"row": "raw"}
PROBE = {"name": "scenes", "prompt": "a {}"}


def made(name, folder, /, *maps, **changes):
    kind = experiments[name]
    data = {"train": "scenes", "test": {"name": "scenes", "split": "test", "size": 7}}
    if name != "clip_loss":
        data = {"probe": PROBE}
        if name != "generalization":
            data["pairs"] = {"name": "scenes", "split": "train"}
    values = {"name": "t", "experiment": name, "model": "scenes-clip/fresh", "blocks": 4, "maps": list(maps), **data}
    return kind(validate(kind.Config, values | changes, "test"), FakeWorkspace(folder))


def rows_of(planned):
    return [row for cell in planned.cells() for row in cell.compute()]


def value(rows, measure, **at):
    (row,) = (row for row in rows if row["measure"] == measure and at.items() <= row["at"].items())
    return row["value"]


def vectors(sets):
    return {name: each.vectors for name, each in sets.items()}


# --- where maps are fitted


def test_a_map_is_fitted_on_one_set_and_moves_another(tmp_path):
    planned = made("zero_shot", tmp_path, RAW, WHITEN)
    rows = rows_of(planned)
    fit_on, test = planned.sets("pairs"), planned.sets("test")
    unit = {name: Normalize().fit_transform(x) for name, x in vectors(fit_on).items()}
    whiten = Whiten(5).fit(np.concatenate([unit["image"], unit["text"]]))
    image, text = (whiten.transform(Normalize().fit_transform(test[name].vectors)) for name in ("image", "text"))
    for logits, measure in (("cosine", "zero_shot"), ("dot", "zero_shot[dot]")):
        expected = zero_shot(image, test["image"].labels, text, logits=logits)
        for number in ("top_1", "mean_per_class"):
            assert value(rows, f"{measure}.{number}", row="whitened") == pytest.approx(expected[number], abs=1e-12)
    whitened = next(row for row in rows if row["at"]["row"] == "whitened")
    assert whitened["fitted_on"] == "scenes/train:pooled" and whitened["d"] == 5 and whitened["n"] == len(test["image"])
    assert whitened["pipeline"] == ["normalize", "whiten(5)[pooled]"] and whitened["model"] == "fake"
    assert rows[0]["fitted_on"] is None


def test_what_is_fitted_on_prompts_moves_images_too(tmp_path):
    flat = {"row": "flat", "pipeline": ["normalize", "pca(3, center=false)[text]"], "fit_on": "prompts"}
    planned = made("zero_shot", tmp_path, flat)
    rows = rows_of(planned)
    assert rows[0]["fitted_on"] == "scenes/test:text" and rows[0]["d"] == 3
    images = {"row": "x", "pipeline": ["center[image]"], "fit_on": "prompts"}
    with pytest.raises(
        InputError, match=re.escape("the map 'x': it has center[image], but prompts has text rows only")
    ):
        rows_of(made("zero_shot", tmp_path, images))


def test_a_new_map_leaves_the_cells_of_the_others(tmp_path):
    few, more = made("zero_shot", tmp_path, RAW), made("zero_shot", tmp_path, RAW, {"row": "again"})
    renamed = made("zero_shot", tmp_path, RAW, name="other", title="x")
    (first,), (same, other) = ([cell.key for cell in each.cells()] for each in (few, more))
    assert first == same != other
    assert [cell.key for cell in renamed.cells()] == [first]
    trained = {"row": "w", "pipeline": ["whiten(2)[pooled]"], "fit_on": "train"}
    assert next(iter(made("zero_shot", tmp_path, RAW, trained).cells())).key == first  # other data are loaded now
    other_pairs = {"pairs": {"name": "scenes", "split": "train", "size": 5}}
    assert next(iter(made("zero_shot", tmp_path, RAW, **other_pairs).cells())).key == first
    raw, whitened = made("zero_shot", tmp_path, RAW, WHITEN).cells()
    assert [cell.key for cell in made("zero_shot", tmp_path, WHITEN, **other_pairs).cells()] != [whitened.key]
    assert raw.key == first


# --- the scores


def test_losses_are_taken_on_both_splits_in_batches(tmp_path):
    centered = {"row": "centered", "pipeline": ["normalize", "center[pooled]"], "fit_on": "train"}
    planned = made("clip_loss", tmp_path, RAW, centered, pairs_per_batch=16, logit_scale=20.0)
    rows = rows_of(planned)
    fitted = Pipeline("normalize,center[pooled]").fit(vectors(planned.sets("train")))
    for split in ("train", "test"):
        moved = fitted.transform(vectors(planned.sets(split)))
        expected = contrastive_loss(moved["image"], moved["text"], logit_scale=20.0, batch_size=16)
        for number in ("loss", "image_to_text", "text_to_image"):
            found = value(rows, f"contrastive_loss.{number}", row="centered", split=split)
            assert found == pytest.approx(float(expected[number]), rel=1e-9)
    assert all(row["at"]["batch"] == 16 and row["standard_error"] is None for row in rows)  # it does not hold
    assert all("note" not in row for row in rows)  # 80 pairs are five batches
    odd = rows_of(made("clip_loss", tmp_path, RAW, pairs_per_batch=32))
    assert odd[0]["note"] == "the last batch has 16 pairs"
    whole = made("clip_loss", tmp_path, RAW)
    assert rows_of(whole)[0]["at"]["batch"] == whole.workspace.n


def test_a_random_split_takes_the_test_pairs_from_the_training_pairs(tmp_path):
    planned = made("clip_loss", tmp_path, RAW, WHITEN | {"fit_on": "train"}, test=None, split={"share": 0.8, "seed": 3})
    whole = planned.workspace.embeddings(None, planned.config.train, limit=None, batch_size=1)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(3)).numpy()
    for role, drawn in (("train", order[:64]), ("test", order[64:])):
        found = planned.sets(role)
        np.testing.assert_array_equal(found["image"].vectors, whole["image"].vectors[drawn])
        i, j = pair(found["image"], found["text"])  # every image keeps its caption
        np.testing.assert_array_equal(found["text"].vectors[j], whole["text"].vectors[drawn[i]])
        assert len(i) == len(found["text"]) == len(drawn)
    rows = rows_of(planned)
    assert {row["split"] for row in rows} == {
        f"{part} part of a random 0.8 split, seed 3" for part in ("first", "last")
    }
    assert {row["n"] for row in rows} == {64, 16}
    assert rows[-1]["fitted_on"] == "scenes/first part of a random 0.8 split, seed 3:pooled"
    for wrong in ({"split": {"share": 0.8}}, {"test": None}):
        with pytest.raises(InputError, match="either test, a set of its own, or split"):
            made("clip_loss", tmp_path, RAW, **wrong)


def test_the_error_of_a_share_is_that_of_its_images(tmp_path):
    planned = made("linear_probe", tmp_path, RAW, WHITEN, solver="torch", C=10.0)
    rows = rows_of(planned)
    train, test = planned.sets("train")["image"], planned.sets("test")["image"]
    x, y = (Normalize().fit_transform(each.vectors).astype("float32") for each in (train, test))
    expected = linear_probe(x, train.labels, y, test.labels, C=10.0, solver="torch")
    assert value(rows, "linear_probe.top_1", row="raw") == expected["top_1"]
    (row,) = (row for row in rows if row["measure"] == "linear_probe.top_1" and row["at"]["row"] == "raw")
    p = row["value"]
    assert 0 < p < 1 and row["standard_error"] == pytest.approx((p * (1 - p) / len(test)) ** 0.5)
    assert row["note"].startswith("C = 10, torch, ") and "not converged" not in row["note"]
    (row,) = (row for row in rows if row["measure"] == "linear_probe.top_1" and row["at"]["row"] == "whitened")
    assert row["d"] == 5 and row["fitted_on"] == "scenes/train:pooled"


def test_generalization_is_the_mean_over_draws(tmp_path):
    least = {"row": "lstsq", "pipeline": ["normalize", "least_squares[text-to-image]"], "fit_on": "train"}
    planned = made("generalization", tmp_path, RAW, least, draws=3, seed=4)
    with pytest.warns(match="rank"):
        rows = rows_of(planned)
    train, (image, text) = planned.sets("train")["image"], planned.labeled("test")
    data = (train.vectors, train.labels, image.vectors, image.labels, text.vectors)
    with pytest.warns(match="rank"):
        found = [class_generalization(Pipeline(least["pipeline"]), *data, seed=4 + k)["new"] for k in range(3)]
    first, row = (row for row in rows if row["measure"] == "class_generalization.new" and row["at"]["row"] == "lstsq")
    assert row["value"] == pytest.approx(np.mean(found)) and len(set(found)) > 1 and "draw" not in row["at"]
    assert (first["value"], first["at"]["draw"]) == (pytest.approx(found[0]), 0)  # the published one is a single draw
    p, n = row["value"], len(image)
    assert row["standard_error"] == pytest.approx((np.var(found, ddof=1) / 3 + p * (1 - p) / n) ** 0.5)
    assert row["n"] == n / 2  # four of eight equal classes
    assert row["note"] == f"mean of 3 draws of the known classes, which scatter by {np.std(found, ddof=1):.4f}"
    assert row["fitted_on"] == "scenes/train: images and prompts of known classes"
    whole = zero_shot(image.vectors, image.labels, text.vectors)["top_1"]
    assert value(rows, "class_generalization.all", row="raw", draw=0) == pytest.approx(whole)
    once = rows_of(made("generalization", tmp_path, RAW, draws=1))
    known = next(row for row in once if row["measure"] == "class_generalization.known")
    assert known["note"] == "one draw of the known classes; ± is of the images"
    assert known["standard_error"] == pytest.approx((known["value"] * (1 - known["value"]) / (n / 2)) ** 0.5)
    (whole_row,) = (row for row in once if row["measure"] == "class_generalization.all")
    assert whole_row["n"] == n and whole_row["standard_error"] == pytest.approx((whole * (1 - whole) / n) ** 0.5)


# --- wrong configs


@pytest.mark.parametrize(
    ("maps", "sentence"),
    [
        ([RAW, RAW], "maps has 'raw' twice"),
        ([{"row": "w", "pipeline": ["whiten(2)[pooled]"]}], "the map 'w' has steps that learn; set fit_on"),
        ([{"row": "n", "fit_on": "pairs"}], "the map 'n' learns nothing, so fit_on = 'pairs' means nothing"),
        ([{**WHITEN, "fit_on": "pair"}], "the map 'whitened' is fitted on 'pair', which is not set"),
        ([{**WHITEN, "fit_on": "cifar"}], "expected one of pairs, train, test, prompts"),
    ],
)
def test_wrong_maps_are_one_sentence(maps, sentence, tmp_path):
    with pytest.raises(InputError, match=re.escape(sentence)):
        made("zero_shot", tmp_path, *maps)


def test_what_cannot_be_scored_is_one_sentence(tmp_path):
    apart = {"row": "apart", "pipeline": ["center"], "fit_on": "train"}
    with pytest.raises(InputError, match="the map 'apart': center was fitted on each modality separately"):
        rows_of(made("zero_shot", tmp_path, apart))
    with pytest.raises(InputError, match="the probe scenes needs a prompt"):
        made("zero_shot", tmp_path, RAW, probe={"name": "scenes"})
    with pytest.raises(InputError, match="the map 'whitened' is fitted on 'pairs', which is not set"):
        made("zero_shot", tmp_path, WHITEN, pairs=None)
    with pytest.raises(InputError, match="C is 'abc'; expected a positive number or 'validation'"):
        made("linear_probe", tmp_path, RAW, C="abc")
    assert CLASSES < D  # so that the maps above are not determined, and warn


# --- stored embeddings of labeled images and their class prompts


@pytest.fixture
def notebook(tmp_path):
    """The layout of the authors' notebook: one .pt tensor for each data set and role. 6 classes, d = 12."""
    rng = np.random.default_rng(0)
    classes = rng.normal(size=(6, 12))
    folder = tmp_path / "embeddings"

    def save(place, rows):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.as_tensor(rows), folder / place)

    for split, n in (("train", 80), ("test", 40)):
        labels = rng.permutation(np.arange(n) % 6)
        images = classes[labels] + rng.normal(size=(n, 12))
        save(f"CIFAR100{split}/image/CLIP_X.pt", images.astype(np.float32))
        save(f"CIFAR100{split}/label/CLIP_X.pt", labels)
        save(f"CIFAR100{split}/text/CLIP_X.pt", (classes + 1).astype(np.float32))
    for modality, name in (("image", "CLIP_X"), ("text", "CLIP_X_0")):
        save(f"coco_val2014/{modality}/{name}.pt", rng.normal(size=(50, 12)).astype(np.float32))
    return folder


def made_of_files(name, folder, /, *maps, **changes):
    kind = experiments[name]
    values = {"name": "t", "experiment": name, "blocks": 4, "maps": list(maps), **changes}
    return kind(validate(kind.Config, values, "test"), RunFolder(folder / "run", "cpu"))


def stored_probe(folder):
    files = {"image": "image", "labels": "label", "text": "text"}
    return {
        split: {key: str(folder / f"CIFAR100{split}" / place / "CLIP_X.pt") for key, place in files.items()}
        | {"dataset": "cifar100", "part": split, "encoder": "X"}
        for split in ("train", "test")
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda probe: probe.pop("train"), "the probe cifar100 has no train embeddings; set probe.train"),
        (lambda probe: probe["test"].pop("text"), "images? embeddings, their labels, and the prompts"),
        (lambda probe: probe.update(train="scenes"), "train of a stored probe is a data set"),
        (lambda probe: probe["test"].update(imag="x"), "unknown key 'imag'; did you mean 'image'"),
    ],
)
def test_a_stored_probe_that_lacks_something_is_one_sentence(notebook, tmp_path, change, message):
    probe = stored_probe(notebook)
    change(probe)
    turn = {"row": "turned", "pipeline": ["normalize", "procrustes[text-to-image]"], "fit_on": "train"}
    with pytest.raises(InputError, match=message):
        rows_of(made_of_files("zero_shot", tmp_path, turn, probe=probe))

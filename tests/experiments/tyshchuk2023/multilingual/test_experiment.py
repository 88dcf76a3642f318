"""Languages are compared on aligned captions; numbers and their errors are those of plain definitions."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from clip_geometry.config import validate
from clip_geometry.embeddings import Embeddings
from clip_geometry.evaluate import zero_shot
from clip_geometry.geometry import silhouette, standard_error
from clip_geometry.geometry.uncertainty import assign_blocks
from clip_geometry.registry import InputError
from clip_geometry.steps import parse_pipeline
from clip_geometry_experiments.kit.languages import LanguageSets, aligned, language_distance
from clip_geometry_experiments.run.runner import RunFolder, plan, resolve
from clip_geometry_experiments.tyshchuk2023.multilingual import Multilingual, MultilingualConfig

SCENES = {
    "name": "tiny",
    "experiment": "multilingual",
    "model": "scenes-clip/fresh",
    "captions": {"name": "scenes", "size": 24},
    "languages": ["en", "de", "ru"],
    "blocks": 6,
}
NUMBERS = ["pair_distance", "global_distance", "ratio", "within_source", "within_target"]


def experiment(folder, **changes):
    return Multilingual(validate(MultilingualConfig, SCENES | changes, "test"), RunFolder(folder / "run", "cpu"))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return experiment(tmp_path_factory.mktemp("scenes"))


@pytest.fixture(scope="module")
def by_default(tmp_path_factory):
    """Rows of the config as it is shipped, and of the untrained model in its place; of 100 captions, without errors."""
    found = []
    for changes in ({}, {"model": "scenes-clip/fresh"}):
        changes = {"captions.size": 100, "pipeline": [], "blocks": 0, **changes}
        values = resolve("tyshchuk2023/multilingual", changes, smoke=False)
        ((kind, config), *_) = plan(values, "test")
        folder = tmp_path_factory.mktemp("default") / "run"
        found.append((config, rows_of(kind(config, RunFolder(folder, "cpu")))))
    return found


def test_figure_14_shows_a_trained_model_whose_languages_coincide(by_default):
    """The paper: "point clouds are almost identical". Untrained, languages are clusters and translations far."""
    (config, rows), (fresh, untrained) = by_default
    assert not config.model.is_fresh and fresh.model.is_fresh
    for language in ("de", "fr", "ru"):
        silhouette, ratio = "language_silhouette[cosine]", "language_distance.ratio"
        # 500 captions: -0.002 and 0.045 to 0.072; untrained 0.03 to 0.3 and 0.95 or more
        assert abs(at(rows, silhouette, language)["value"]) < 0.02 < at(untrained, silhouette, language)["value"]
        assert at(rows, ratio, language)["value"] < 0.2 < 0.8 < at(untrained, ratio, language)["value"]
    assert at(rows, "language_silhouette", "all")["value"] < 0.01 < at(untrained, "language_silhouette", "all")["value"]


def rows_of(planned):
    return [row for cell in planned.cells() for row in cell.compute()]


def at(rows, measure, language):
    (row,) = (row for row in rows if row["measure"] == measure and row["at"]["language"] == language)
    return row


def cloud(n, language, seed=0, **columns):
    """n captions of n items, a cloud of five dimensions."""
    rows = np.random.default_rng(seed).normal(size=(n, 5)) + seed
    columns.setdefault("item_id", np.array([f"item {k}" for k in range(n)]))
    return Embeddings(rows.astype(np.float32), "text", language=language, **columns)


def compared(source, target, steps="", **options):
    return LanguageSets({"en": source, "de": target}, parse_pipeline(steps), {"de": "en"}, **options)


# --- the numbers


def test_rows_are_those_of_the_plain_functions(scenes):
    rows = rows_of(scenes)
    raw = {language: scenes.sets.embeddings[language].vectors for language in ("en", "de", "ru")}
    for language in ("de", "ru"):
        expected = language_distance(raw["en"], raw[language])
        for name in NUMBERS:
            row = at(rows, f"language_distance.{name}", language)
            assert row["value"] == pytest.approx(expected[name], rel=1e-12)
            assert row["at"] == {"source": "en", "language": language} and (row["n"], row["d"]) == (24, 512)
        both, labels = np.concatenate([raw["en"], raw[language]]), np.repeat([0, 1], 24)
        for name, metric in (("language_silhouette", "euclidean"), ("language_silhouette[cosine]", "cosine")):
            row = at(rows, name, language)
            assert row["value"] == pytest.approx(silhouette_score(both, labels, metric=metric), abs=1e-5)
            assert row["n"] == 48
    together = at(rows, "language_silhouette", "all")
    score = silhouette_score(np.concatenate([*raw.values()]), np.repeat([0, 1, 2], 24))
    assert together["value"] == pytest.approx(score, abs=1e-5) and together["n"] == 72
    assert len(rows) == 2 * 2 * len(NUMBERS) + 2 * 2 + 2


def test_standard_errors_are_the_jackknife_over_captions(scenes):
    """To 1e-4: products are float32, good to 1e-6, and an error is a difference of a hundredth of the value."""
    rows, sets = rows_of(scenes), scenes.sets
    x, y = sets.aligned("de")
    for name in NUMBERS:
        expected = standard_error(lambda x, y, name=name: language_distance(x, y)[name], x, y, blocks=6)
        found = at(rows, f"language_distance.{name}", "de")["standard_error"]
        assert found == pytest.approx(float(expected), rel=1e-4) and found > 0

    def apart(*parts):
        return silhouette(np.concatenate(parts), np.repeat(range(len(parts)), [len(part) for part in parts]))

    expected = standard_error(apart, *(each.vectors for each in sets.embeddings.values()), blocks=6)
    assert at(rows, "language_silhouette", "all")["standard_error"] == pytest.approx(float(expected), rel=1e-4)


def test_a_pipeline_is_fitted_on_all_languages_and_anew_without_each_block():
    source, target = cloud(20, "en"), cloud(20, "de", seed=3)
    sets = compared(source, target, "center[each],normalize", blocks=5, seed=2)
    assert sets.context()["fitted_on"] == "these rows:each"

    def ratio(kept):
        x, y = (each.vectors[kept] - each.vectors[kept].mean(0, dtype=np.float64) for each in (source, target))
        return language_distance(*(z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y)))["ratio"]

    row = at(sets.distance_rows("de"), "language_distance.ratio", "de")
    assert row["value"] == pytest.approx(ratio(slice(None)), rel=1e-9)
    block = assign_blocks(20, 5, 2).numpy()
    without = np.array([ratio(block != k) for k in range(5)])
    assert row["standard_error"] == pytest.approx(np.sqrt(4 / 5 * np.sum((without - without.mean()) ** 2)), rel=1e-6)


@pytest.mark.parametrize("blocks", [0, 21])
def test_too_few_captions_have_no_standard_error(blocks):
    sets = compared(cloud(20, "en"), cloud(20, "de", seed=3), blocks=blocks)
    assert {row["standard_error"] for row in sets.distance_rows("de") + sets.silhouette_rows()} == {None}


# --- which captions translate which


def test_the_kth_captions_of_an_item_translate_each_other():
    assert list(zip(*aligned(list("aabbc"), list("dbaba")), strict=True)) == [(2, 1), (0, 2), (3, 3), (1, 4)]


def test_captions_of_one_item_lie_in_one_block():
    ids = np.repeat([f"item {k}" for k in range(6)], 3)
    sets = compared(cloud(18, "en", item_id=ids), cloud(18, "de", seed=1, item_id=ids), blocks=6)
    assert sets.distance_rows("de")[0]["standard_error"] > 0
    left = sets._without_block(0).embeddings
    assert len(left["en"]) == len(left["de"]) == 15


# --- the run


def test_every_setting_makes_its_own_cells(tmp_path):
    changes = ({}, {"pipeline": ["normalize"]}, {"blocks": 5}, {"seed": 1}, {"limit": 8}, {"languages": ["de", "en"]})
    keys = [{cell.key for cell in experiment(tmp_path, **change).cells()} for change in changes]
    assert [len(each) for each in keys] == [5, 5, 5, 5, 5, 2]
    assert len(set.union(*keys)) == 27


# --- what cannot be compared


def test_steps_fitted_on_each_language_have_to_say_so(tmp_path):
    with pytest.raises(InputError, match=r"languages are compared with each other, but center was fitted .*\[pooled\]"):
        _ = experiment(tmp_path, pipeline=["center"]).sets


@pytest.fixture
def table(tmp_path):
    """Captions in two columns, which are the same texts."""
    path = tmp_path / "captions.tsv"
    path.write_text("en\tyy\n" + "".join(f"a {word}\ta {word}\n" for word in ("dog", "cat", "bus")), encoding="utf-8")
    return str(path)


def test_a_table_without_the_language(table, tmp_path):
    with pytest.raises(InputError, match=r"has no captions in 'zz'; its languages are en, yy"):
        list(experiment(tmp_path, captions=table, languages=["en", "zz"]).cells())


def test_the_same_texts_are_no_translation(table, tmp_path):
    with pytest.raises(InputError, match="captions in en and yy are the same texts, not translations"):
        rows_of(experiment(tmp_path, captions=table, languages=["en", "yy"]))


def test_a_model_or_data_set_without_texts(tmp_path, monkeypatch):
    image = replace(cloud(3, None), modality="image")
    monkeypatch.setattr(RunFolder, "embeddings", lambda *_, **__: {"image": image})
    with pytest.raises(InputError, match=r"scenes-clip/fresh gives no text embeddings of scenes; .*a text tower"):
        _ = experiment(tmp_path).sets


def test_rows_that_are_no_numbers_are_named():
    with pytest.raises(InputError, match="de"):
        compared(cloud(3, "en"), replace(cloud(3, "de"), vectors=np.full((3, 5), np.nan, np.float32)))


PROMPTS = {
    "model": "scenes-clip/fresh",
    "probe": {"name": "scenes", "split": "test", "size": 40},
    "trained": {"name": "scenes", "split": "train", "classes": "seen", "size": 400},
    "prompts": {"en": "A picture of a {}.", "ru": "Изображение: {}."},
}


def test_each_language_is_scored_by_its_own_prompts(tmp_path):
    """Images by one model, prompts by another; 16 of the 80 classes of scenes are held out."""
    planned = experiment(tmp_path, model={"model": "scenes-clip/fresh", "seed": 1}, zero_shot=PROMPTS)
    config, workspace = planned.config, planned.workspace
    images = workspace.embeddings(config.zero_shot.model, config.zero_shot.probe, limit=None, batch_size=64)["image"]
    labels = np.asarray(images.labels)
    held_out = np.isin(labels, (0, 4, 11, 15, 22, 26, 33, 37, 44, 48, 55, 59, 60, 66, 71, 77))
    rows = [row for row in rows_of(planned) if row["measure"] == "zero_shot.top_1"]
    found = {(row["at"]["language"], row["at"]["classes"]): row for row in rows}
    assert set(found) == {(language, kind) for language in ("en", "ru") for kind in ("seen", "held out")}
    for language in ("en", "ru"):
        data = config.zero_shot.prompted(language)
        texts = workspace.embeddings(config.model, data, limit=None, batch_size=64, only="text")["text"]
        classes = np.asarray(texts.vectors)[np.argsort(texts.labels)]
        for kind, chosen in (("seen", ~held_out), ("held out", held_out)):
            expected = zero_shot(np.asarray(images.vectors)[chosen], labels[chosen], classes)["top_1"]
            row = found[language, kind]
            assert row["value"] == pytest.approx(expected) and row["n"] == chosen.sum() and row["null_value"] == 1 / 80


def test_a_language_without_class_names_is_named(tmp_path):
    with pytest.raises(InputError, match="'es': input should be 'en', 'de', 'fr' or 'ru'"):
        experiment(tmp_path, zero_shot=PROMPTS | {"prompts": {"es": "Una imagen: {}."}})

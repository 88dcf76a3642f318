"""Languages are compared on aligned captions; numbers and their errors are those of plain definitions."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from clip_geometry import zero_shot
from clip_geometry.config import validate
from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry import silhouette, standard_error
from clip_geometry.geometry.uncertainty import deal
from clip_geometry.registry import InputError
from clip_geometry.results import Results
from clip_geometry.transforms import parse_pipeline
from clip_geometry_experiments.kit import languages as module
from clip_geometry_experiments.kit.languages import LanguageSets, language_distance
from clip_geometry_experiments.run.runner import RunFolder, plan, resolve, run
from clip_geometry_experiments.tyshchuk2023.multilingual import Multilingual, MultilingualConfig, figures

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


def test_rows_say_where_they_come_from(scenes):
    for row in rows_of(scenes):
        assert (row["model"], row["dataset"], row["split"], row["seed"]) == ("scenes-clip/fresh", "scenes", "test", 0)
        assert row["data_options"] == {"size": 24}  # the language is no option of them, it is where a number is taken
        assert row["pipeline"] == [] and row["fitted_on"] is None and row["jackknife_blocks"] == 6
        assert row["versions"]["clip-geometry"]


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
    assert sets.fitted_on == "these rows:each"

    def ratio(kept):
        x, y = (each.vectors[kept] - each.vectors[kept].mean(0, dtype=np.float64) for each in (source, target))
        return language_distance(*(z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y)))["ratio"]

    row = at(sets.distance_rows("de"), "language_distance.ratio", "de")
    assert row["value"] == pytest.approx(ratio(slice(None)), rel=1e-9)
    block = deal(20, 5, 2).numpy()
    without = np.array([ratio(block != k) for k in range(5)])
    assert row["standard_error"] == pytest.approx(np.sqrt(4 / 5 * np.sum((without - without.mean()) ** 2)), rel=1e-6)


@pytest.mark.parametrize("blocks", [0, 21])
def test_too_few_captions_have_no_standard_error(blocks):
    sets = compared(cloud(20, "en"), cloud(20, "de", seed=3), blocks=blocks)
    assert {row["standard_error"] for row in sets.distance_rows("de") + sets.silhouette_rows()} == {None}


def test_what_a_block_leaves_may_be_too_small():
    sets = compared(cloud(2, "en"), cloud(2, "de", seed=3), blocks=2)
    assert {row["standard_error"] for row in sets.distance_rows("de")} == {None}


def test_what_takes_n_squared_has_no_standard_error_of_many_rows(monkeypatch):
    monkeypatch.setattr(module, "QUADRATIC_ROWS", 39)
    sets = compared(cloud(20, "en"), cloud(20, "de", seed=3), blocks=5)
    assert all(row["standard_error"] for row in sets.distance_rows("de"))  # of 20 captions
    euclidean, cosine = sets.silhouette_rows("de")  # of 40 rows
    assert euclidean["standard_error"] is None and cosine["standard_error"] > 0
    monkeypatch.setattr(module, "QUADRATIC_ROWS", 19)
    assert not any(row["standard_error"] for row in sets.distance_rows("de"))


# --- which captions translate which


def test_the_kth_captions_of_an_item_translate_each_other():
    source = cloud(5, "en", item_id=np.array(list("aabbc")))
    target = cloud(5, "de", seed=1, item_id=np.array(list("dbaba")))
    i, j = compared(source, target).pairs("de")
    assert list(zip(i, j, strict=True)) == [(2, 1), (0, 2), (3, 3), (1, 4)]


def test_captions_of_one_item_lie_in_one_block():
    ids = np.repeat([f"item {k}" for k in range(6)], 3)
    sets = compared(cloud(18, "en", item_id=ids), cloud(18, "de", seed=1, item_id=ids), blocks=6)
    assert sets.distance_rows("de")[0]["standard_error"] > 0
    left = sets._without(0).embeddings
    assert len(left["en"]) == len(left["de"]) == 15


def test_sets_without_ids_are_aligned_by_position():
    i, j = compared(cloud(4, "en", item_id=None), cloud(4, "de", seed=1, item_id=None)).pairs("de")
    assert i.tolist() == j.tolist() == [0, 1, 2, 3]


@pytest.fixture
def wikicaps(tmp_path):
    """Three sets of images with captions in two languages each, in WikiCaps' layout."""
    words = {"de": "Hund Katze Haus Baum", "fr": "chien chat maison arbre", "ru": "собака кошка дом дерево"}
    folder = tmp_path / "wikicaps_v1.0"
    folder.mkdir()
    for k, (language, text) in enumerate(words.items()):
        english = ["dog", "cat", "house", "tree"]
        lines = [
            f"{language}{n}.jpg\t{word}\t{english[n]} {'of ' * k}stone" for n, word in enumerate(text.split()[: 4 - k])
        ]
        (folder / f"img_{language}-en.tok.lc.filtered.test").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def test_wikicaps_has_an_english_side_for_every_language(wikicaps, tmp_path):
    captions = {"name": "wikicaps", "path": str(wikicaps), "language": "de"}
    planned = experiment(tmp_path, captions=captions, languages=["en", "de", "fr", "ru"], blocks=0)
    rows = rows_of(planned)
    assert list(planned.sets.embeddings) == ["en", "de", "en beside fr", "fr", "en beside ru", "ru"]
    counts = [at(rows, "language_distance.ratio", language)["n"] for language in ("de", "fr", "ru")]
    assert counts == [4, 3, 2] and at(rows, "language_silhouette", "all")["n"] == 18
    assert at(rows, "language_distance.ratio", "ru")["at"] == {"source": "en", "language": "ru"}
    assert planned.facts()["captions with a translation"] == {"de": 4, "fr": 3, "ru": 2}
    assert rows[0]["data_options"] == {"path": str(wikicaps)}


# --- a small tower of Multilingual-CLIP


@pytest.fixture(scope="module")
def polyglot(tmp_path_factory):
    """A tower that reads every xx word as the en word it translates, and knows yy words as words of their own.

    Captions are all pairs of five words, in three columns of a table.
    """
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from torch import nn
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

    folder = tmp_path_factory.mktemp("mclip")
    english = ["dog", "cat", "house", "tree", "stone"]
    ids = {"[PAD]": 0, "[UNK]": 1}
    ids |= {f"{word}{ending}": k for ending, first in (("", 2), ("-yy", 7)) for k, word in enumerate(english, first)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Replace("-xx", "")
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(
        folder / "tower/base"
    )
    size = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 24, "intermediate_size": 40}
    config = XLMRobertaConfig(vocab_size=12, max_position_embeddings=8, type_vocab_size=1, pad_token_id=0, **size)
    config.save_pretrained(folder / "tower/base")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tower = nn.ModuleDict({"transformer": XLMRobertaModel(config), "LinearTransformation": nn.Linear(24, 10)})
        state = {name: value + 0.2 * torch.randn_like(value) for name, value in tower.state_dict().items()}
    save_file(state, folder / "tower/model.safetensors")
    settings = {"modelBase": "org/base", "transformerDimensions": 24, "numDims": 10, "model_type": "M-CLIP"}
    (folder / "tower/config.json").write_text(json.dumps(settings))
    lines = ["\t".join(f"{a}{ending} {b}{ending}" for ending in ("", "-xx", "-yy")) for a in english for b in english]
    (folder / "captions.tsv").write_text("\n".join(["en\txx\tyy", *lines]) + "\n", encoding="utf-8")
    return folder


def test_a_small_mclip_tower_shows_which_language_it_aligns(polyglot, tmp_path):
    """Where translations coincide the ratio is 0, and each silhouette is (b − a)/a with b = a (n − 1)/n: −1/n."""
    planned = experiment(
        tmp_path,
        model=f"mclip:{polyglot}/tower",
        captions=str(polyglot / "captions.tsv"),
        languages=["en", "xx", "yy"],
        blocks=5,
    )
    rows = rows_of(planned)
    aligned, foreign = (at(rows, "language_distance.ratio", language) for language in ("xx", "yy"))
    assert (aligned["n"], aligned["d"], aligned["model"]) == (25, 10, f"mclip:{polyglot}/tower")
    assert aligned["value"] < 1e-6 and aligned["standard_error"] < 1e-6
    assert foreign["value"] > 0.8 and foreign["standard_error"] > 0
    for name in ("language_silhouette", "language_silhouette[cosine]"):
        assert at(rows, name, "xx")["value"] == pytest.approx(-1 / 25, abs=1e-5)
        assert at(rows, name, "yy")["value"] > 0.03


# --- the run


def test_a_run_writes_rows_figures_and_a_report(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "umap_plane", lambda sets, seed: [(name, rows[:, :2]) for name, rows in sets])
    config = tmp_path / "tiny.yaml"
    config.write_text(json.dumps(SCENES))
    report = run(config, {}, runs=tmp_path / "runs", device="cpu")
    assert len(Results(report.parent / "results.jsonl").read()) == 26
    names = {f"{name}.{kind}" for name in ("language_ratio", "languages_umap") for kind in ("png", "svg")}
    assert {path.name for path in (report.parent / "figures").iterdir()} == names
    page = report.read_text()
    assert "freshly initialized" in page and "de 24, ru 24" in page and "24 in each of de, ru" in page
    before = (report.parent / "results.jsonl").read_bytes()
    monkeypatch.setattr(LanguageSets, "silhouette_rows", lambda *_: pytest.fail("a finished cell was computed again"))
    assert run(config, {}, runs=tmp_path / "runs", device="cpu") == report
    assert (report.parent / "results.jsonl").read_bytes() == before


def test_every_setting_makes_its_own_cells(tmp_path):
    changes = ({}, {"pipeline": ["normalize"]}, {"blocks": 5}, {"seed": 1}, {"limit": 8}, {"languages": ["de", "en"]})
    keys = [{cell.key for cell in experiment(tmp_path, **change).cells()} for change in changes]
    assert [len(each) for each in keys] == [5, 5, 5, 5, 5, 2]
    assert len(set.union(*keys)) == 27


def test_listing_cells_embeds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "embeddings", lambda *_, **__: pytest.fail("embedded"))
    assert len(list(experiment(tmp_path).cells())) == 5


def test_truncated_captions_are_shown(scenes, tmp_path):
    assert scenes.facts()["truncated captions"] == "none"
    planned = experiment(tmp_path, languages=["en", "de"])
    german = planned.sets.embeddings["de"]
    planned.sets.embeddings["de"] = replace(german, provenance={**german.provenance, "truncated": 3})
    assert planned.facts()["truncated captions"] == {"de": 3}


def test_labels_tell_the_runs_of_a_sweep_apart(scenes, tmp_path):
    assert scenes.label() == "scenes-clip/fresh, scenes (size 24), test, raw"
    assert experiment(tmp_path, pipeline=["normalize"]).label().endswith(", normalize")
    assert scenes.fresh_models() == ["scenes-clip/fresh"]


def test_a_limit_takes_the_first_items(tmp_path, scenes):
    limited = experiment(tmp_path, limit=10, languages=["en", "de"])
    found, whole = limited.sets.aligned("de")[1], scenes.sets.aligned("de")[1][:10]
    assert np.abs(found - whole).max() < 1e-5  # float32 rows of another batch differ in their last digits


# --- what cannot be compared


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"languages": ["en"]}, "key 'languages' is .*at least 2"),
        ({"languages": ["en", "de", "en"]}, "languages: en, de, en has a language twice"),
        ({"languages": ["en", "de", "es"]}, "scenes in 'es'.*'es': input should be 'en', 'de', 'fr' or 'ru'"),
        ({"pipeline": ["centre"]}, "did you mean 'center'"),
        ({"captions": "nowhere.tsv"}, "neither a data set nor an existing path"),
    ],
)
def test_wrong_configs_are_one_sentence(tmp_path, changes, says):
    with pytest.raises(InputError, match=says):
        experiment(tmp_path, **changes)


def test_steps_fitted_on_each_language_have_to_say_so(tmp_path):
    with pytest.raises(InputError, match=r"languages are compared with each other, but center was fitted .*\[pooled\]"):
        _ = experiment(tmp_path, pipeline=["center"]).sets


def test_a_table_without_the_language(polyglot, tmp_path):
    planned = experiment(tmp_path, captions=str(polyglot / "captions.tsv"), languages=["en", "zz"])
    with pytest.raises(InputError, match=r"has no captions in 'zz'; its languages are en, xx, yy"):
        list(planned.cells())


def test_the_same_texts_are_no_translation(polyglot, tmp_path):
    captions = {"name": str(polyglot / "captions.tsv"), "caption_column": "xx"}
    planned = experiment(tmp_path, captions=captions, languages=["en", "yy"])
    with pytest.raises(InputError, match="captions in en and yy are the same texts, not translations"):
        rows_of(planned)


def test_captions_of_other_items_do_not_compare():
    source = cloud(3, "en", item_id=np.array(list("abc")))
    sets = compared(source, cloud(3, "de", seed=1, item_id=np.array(list("cde"))))
    with pytest.raises(InputError, match="en and de have 1 captions in common, by their item ids; at least two"):
        sets.distance_rows("de")


def test_a_model_or_data_set_without_texts(tmp_path, monkeypatch):
    image = replace(cloud(3, None), modality="image")
    monkeypatch.setattr(RunFolder, "embeddings", lambda *_, **__: {"image": image})
    with pytest.raises(InputError, match=r"scenes-clip/fresh on scenes gives no text embeddings; .*a text tower"):
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
    assert planned.facts()["prompts"]["ru"] == "“Изображение: {}.”"


def test_a_language_without_class_names_is_named(tmp_path):
    with pytest.raises(InputError, match="'es': input should be 'en', 'de', 'fr' or 'ru'"):
        experiment(tmp_path, zero_shot=PROMPTS | {"prompts": {"es": "Una imagen: {}."}})


def test_accuracy_is_told_for_each_kind_of_classes():
    rows = [
        {"measure": "zero_shot.top_1", "value": value, "standard_error": 0.01, "n": 828, "null_value": 0.0125,
         "at": {"language": language, "classes": "held out"}}
        for language, value in (("en", 0.98), ("ru", 0.88))
    ]  # fmt: skip
    (said,) = figures.tell(rows)
    assert said == (
        "Prompts classify 0.980 ± 0.010 (English) and 0.880 ± 0.010 (Russian) of 828 unseen images of held-out classes "
        "correctly (chance 1.25%)."
    )

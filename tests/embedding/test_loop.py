import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import support.embed_fakes as fakes
from clip_geometry.embedding.store import read_store
from clip_geometry.embeddings import pair
from clip_geometry.registry import InputError
from support.embed_fakes import FakeConfig, FakeDatasetConfig, fake_dataset, run, vectors_of


def test_rows_are_the_encoders_and_in_the_order_of_the_data_set(loader, tmp_path):
    loader()
    manifest = run(tmp_path, fake_dataset(40, captions=2))
    sides = read_store(tmp_path)
    encoder = fakes.FakeEncoder(FakeConfig())
    image, text = sides["image"], sides["text"]
    for k in (0, 15, 16, 39):
        expected = encoder.image_features(encoder.preprocess(fakes.picture(k))[None])[0]
        assert image.vectors[k] == pytest.approx(expected.numpy(), rel=1e-5)
    expected = encoder.text_features(encoder.tokenize([fakes.caption(k) for k in range(80)]))
    assert text.vectors == pytest.approx(expected.numpy(), rel=1e-5)
    assert image.vectors.dtype == text.vectors.dtype == np.float32
    assert list(image.item_id[:2]) == ["img-0", "img-1"] and list(text.item_id[:3]) == ["img-0", "img-0", "img-1"]
    assert list(image.labels) == [k % 3 for k in range(40)]
    assert list(text.metadata["text"][:2]) == [fakes.caption(0), fakes.caption(1)]
    assert (image.language, text.language, text.labels) == (None, "en", None)
    assert manifest["sides"]["text"]["truncated"] == sum(len(fakes.caption(k)) > 12 for k in range(80))
    assert manifest["encoder"]["logit_scale"] == 14.28
    assert json.loads((tmp_path / "manifest.json").read_text())["sides"] == manifest["sides"]


def test_provenance_has_every_option_that_is_not_the_default(loader, tmp_path):
    loader()
    data = FakeDatasetConfig(split="train", language="de", prompt="ein {}", source=Path("a/b"))
    run(tmp_path, fake_dataset(config=data), FakeConfig(precision="bf16", batch_statistics=True, seed=0))
    for side in read_store(tmp_path).values():
        assert side.provenance["model_options"] == {"precision": "bf16", "batch_statistics": True}
        assert side.provenance["data_options"] == {"language": "de", "prompt": "ein {}", "source": "a/b"}


def test_a_finished_store_is_not_computed_again(loader, tmp_path):
    first = loader()
    manifest = run(tmp_path)
    assert first.batches == [("image", 4)] * 10 + [("text", 4)] * 10
    second = loader()
    assert run(tmp_path) == manifest
    assert second.encoders == []


def test_a_limit_is_a_view(loader, tmp_path):
    loader()
    run(tmp_path / "all", fake_dataset(40, captions=2))
    run(tmp_path / "grown", fake_dataset(40, captions=2), limit=10)
    small = vectors_of(tmp_path / "grown")
    assert {modality: len(rows) for modality, rows in small.items()} == {"image": 10, "text": 20}
    grown = loader()
    run(tmp_path / "grown", fake_dataset(40, captions=2), limit=20)
    assert grown.batches == [("image", 4)] * 5 + [("text", 4)] * 6  # one whole text shard is kept
    shrunk = loader()
    run(tmp_path / "grown", fake_dataset(40, captions=2), limit=5)
    assert shrunk.encoders == []
    assert len(read_store(tmp_path / "grown")["image"]) == 20
    for limit in (1, 10, 16, 17, 20):
        views = vectors_of(tmp_path / "all", limit=limit), vectors_of(tmp_path / "grown", limit=limit)
        assert [len(view["image"]) for view in views] == [limit, limit]
        assert [len(view["text"]) for view in views] == [2 * limit, 2 * limit]
        assert all(np.array_equal(views[0][modality], views[1][modality]) for modality in ("image", "text"))


def test_a_limited_view_counts_skipped_items_as_the_data_set_has_them(loader, tmp_path):
    loader()
    data = fake_dataset(40, corrupt={2, 16})
    run(tmp_path / "all", data, max_corrupt=0.1)
    run(tmp_path / "few", data, max_corrupt=0.2, limit=20)
    for limit, rows in ((2, 2), (3, 2), (17, 15), (20, 18)):
        assert len(read_store(tmp_path / "all", limit=limit)["image"]) == rows
        view = read_store(tmp_path / "few", limit=limit)["image"]
        assert np.array_equal(view.vectors, read_store(tmp_path / "all", limit=limit)["image"].vectors)
        assert view.provenance["skipped"] == limit - rows


def test_class_prompts_are_never_cut(loader, tmp_path):
    loader()
    data = fake_dataset(40)
    prompts = fakes.Side("text", ["a", "b", "c"], fakes.caption, labels=np.arange(3), pair_on="label", language="en")
    run(tmp_path, fakes.Dataset(data.config, "r1", data.image, prompts), limit=2)
    sides = read_store(tmp_path, limit=1)
    assert (len(sides["image"]), len(sides["text"])) == (1, 3)
    image, text = pair(*read_store(tmp_path).values())
    assert (list(image), list(text)) == ([0, 1], [0, 1])


@pytest.mark.parametrize(
    ("config", "data", "message"),
    [
        (FakeConfig(features="pooled"), {}, "encoder.features is 'projected' there and 'pooled' now"),
        (FakeConfig(seed=1), {}, "encoder.seed is 0 there and 1 now"),
        (None, {"config": FakeDatasetConfig(language="ru")}, "dataset.language is 'en' there and 'ru' now"),
        (None, {"revision": "r2"}, "dataset_revision is 'r1' there and 'r2' now"),
    ],
)
def test_another_recipe_in_the_same_folder_is_refused(loader, tmp_path, config, data, message):
    loader()
    run(tmp_path)
    with pytest.raises(InputError, match=message):
        run(tmp_path, fake_dataset(**data), config)


def test_another_shard_size_in_the_same_folder_is_refused_and_none_keeps_the_old(loader, tmp_path):
    loader()
    run(tmp_path, limit=20)
    with pytest.raises(InputError, match="has shards of 16 items, not 8"):
        run(tmp_path, shard_size=8)
    assert run(tmp_path, shard_size=None)["shard_size"] == 16


def test_a_folder_with_other_files_is_left_alone(loader, tmp_path):
    loader()
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(InputError, match=r"holds other files \(photo.jpg\): choose a new or empty folder"):
        run(tmp_path)
    with pytest.raises(InputError, match=r"cannot write to .*photo\.jpg: File exists"):
        run(tmp_path / "photo.jpg")
    with pytest.raises(InputError, match=r"cannot write to .*Not a directory"):
        run(tmp_path / "photo.jpg" / "deeper")


def test_rows_that_depend_on_their_batch_make_the_batch_size_part_of_the_recipe(loader, tmp_path):
    config = FakeConfig(batch_statistics=True)
    loader()
    manifest = run(tmp_path, fake_dataset(18), config=config)
    assert manifest["recipe"]["batch_size"] == 4
    assert manifest["sides"]["image"]["shards"][1]["batch_sizes"] == [[2, 1]]
    again = loader()
    assert run(tmp_path, fake_dataset(18), config=config) == manifest and again.encoders == []
    with pytest.raises(InputError, match="batch_size is 4 there and 8 now"):
        run(tmp_path, fake_dataset(18), config=config, batch_size=8)
    with pytest.raises(InputError, match="shard size 10 must be a multiple of the batch size 4"):
        run(tmp_path / "odd", fake_dataset(18), config=config, shard_size=10)


def test_the_default_shard_holds_whole_batches(loader, tmp_path):
    loader()
    assert run(tmp_path / "a", batch_size=100, shard_size=None)["shard_size"] == 4000
    assert run(tmp_path / "b", batch_size=5000, shard_size=None)["shard_size"] == 5000


def test_a_side_that_the_model_cannot_embed_is_left_out_with_a_notice(loader, tmp_path, capsys):
    loader(modalities=("text",))
    manifest = run(tmp_path)
    assert list(manifest["sides"]) == ["text"]
    assert (
        "the image side of fake is left out: fake:linear embeds text only, since it has no image tower"
        in capsys.readouterr().err
    )
    with pytest.raises(InputError, match="holds text embeddings, but no embeddings of modality 'image'"):
        read_store(tmp_path, modality="image")
    again = loader(modalities=("text",))
    assert run(tmp_path) == manifest and again.encoders == []


def test_no_common_side_is_an_error_that_leaves_the_folder_usable(loader, tmp_path):
    loader(modalities=("text",))
    with pytest.raises(
        InputError,
        match="fake has no modality that this model embeds: fake:linear embeds text only, since it has no image tower",
    ):
        run(tmp_path, fake_dataset(text=False))
    run(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "limit = 0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"shard_size": -1}, "shard_size = -1"),
        ({"max_corrupt": 1.5}, "max_corrupt = 1.5; expected a share between 0 and 1"),
    ],
)
def test_wrong_options(loader, tmp_path, options, message):
    loader()
    with pytest.raises(InputError, match=message):
        run(tmp_path, **options)


def test_an_empty_side_is_an_error(loader, tmp_path):
    loader()
    with pytest.raises(InputError, match="the image side of fake is empty"):
        run(tmp_path, fake_dataset(0))


def test_progress_counts_what_is_there_and_what_is_done(loader, tmp_path):
    loader()
    run(tmp_path, limit=20)
    seen = []

    @contextmanager
    def record(description, total, done=0):
        seen.append([description, total, done])
        yield lambda count: seen[-1].append(count)

    run(tmp_path, progress=record)
    assert seen == [[f"embedding fake ({side})", 40, 16, *[4] * 6] for side in ("image", "text")]

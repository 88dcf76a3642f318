"""timm's image towers: the rows of plain timm, its checkpoints, tags and names."""

import huggingface_hub
import pytest
import timm
import torch
from timm.data import create_transform, resolve_model_data_config

from clip_geometry.encoders import encoder_revision, load_encoder, resolve_encoder
from clip_geometry.registry import InputError
from support.encoding import load, pixels_of

# a convolutional network with batch norm, a ViT, one whose features are wider than its trunk, two classifiers
NAMES = ["test_resnet", "test_vit", "test_mambaout", "test_byobnet", "test_coatnet"]


@pytest.fixture
def save(tmp_path):
    """Saves a model of timm with its classifier of 7 classes; returns it and the file."""

    def save(name="test_resnet", suffix=".safetensors", wrap=lambda state: state, **options):
        from safetensors.torch import save_file

        torch.manual_seed(8)
        model = timm.create_model(name, **{"num_classes": 7, **options})
        path = tmp_path / f"model{suffix}"
        write = save_file if suffix == ".safetensors" else torch.save
        write(wrap(model.state_dict()), path)
        return model.eval(), path

    return save


def plain(model, images):
    """Rows of timm alone: its features, its transform."""
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    with torch.no_grad():
        return model(torch.stack([transform(image) for image in images]))


def rows(model, images, **options):
    encoder = load(model, **options)
    return encoder.image_features(pixels_of(encoder, images))


@pytest.mark.parametrize("name", NAMES)
def test_fresh_rows_are_timms_bit_for_bit(name, images):
    torch.manual_seed(3)
    model = timm.create_model(name, num_classes=0).eval()
    expected = plain(model, images)
    for features in ("projected", "pooled"):
        encoder = load(f"timm:{name}/fresh", seed=3, features=features)
        assert torch.equal(encoder.image_features(pixels_of(encoder, images)), expected)
        assert encoder.describe()["dim"] == {"image": expected.shape[1]}
    # what goes through worker processes as bytes, too
    cut = torch.stack([encoder.pixels.cut(image) for image in images])
    assert torch.equal(encoder.image_features(encoder.pixels.normalize(cut)), expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_is_loaded_without_its_classifier(name, images, save):
    model, path = save(name)
    model.reset_classifier(0)
    assert torch.equal(rows(f"timm:{name}@{path}", images), plain(model, images))


@pytest.mark.parametrize("classes", [0, 1000])
def test_checkpoints_may_be_pickled_wrapped_and_of_any_number_of_classes(classes, images, save):
    def wrap(state):
        return {"epoch": 3, "state_dict": {f"module.{name}": value for name, value in state.items()}}

    model, path = save("test_vit", ".pth", wrap, num_classes=classes)
    model.reset_classifier(0)
    assert torch.equal(rows(f"timm:test_vit@{path}", images), plain(model, images))


def test_a_name_with_a_tag_takes_the_tags_preprocessing(save):
    _, path = save("efficientnet_b0")
    for name in ("efficientnet_b0.ra_in1k", "efficientnet_b0.ra4_e3600_r224_in1k"):
        settings = resolve_model_data_config(timm.create_model(name, num_classes=0))
        expected = repr(create_transform(**settings, is_training=False))
        assert load(f"timm:{name}@{path}").describe()["preprocessing"] == expected
        assert (str(settings["crop_pct"]), settings["mean"][0]) in {("0.875", 0.485), ("0.9", 0.5)}


def test_a_tag_is_fetched_from_the_hub_and_loaded_as_timm_does(images, save, tmp_path, monkeypatch):
    model, _ = save("test_vit", num_classes=1000)
    asked = []

    def download(name, allow_patterns):
        asked.append((name, *allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    config = resolve_encoder("timm:test_vit/r160_in1k")
    assert asked == [] and not config.is_fresh
    encoder = load_encoder(config, device="cpu")
    model.reset_classifier(0)
    assert torch.equal(encoder.image_features(pixels_of(encoder, images)), plain(model, images))
    assert asked == [("timm/test_vit.r160_in1k", "model.safetensors")]
    assert encoder.describe()["weights"]["name"] == "model.safetensors" and encoder_revision(config)


def test_batch_norm_of_the_batch_makes_rows_depend_on_it(images):
    assert resolve_encoder("timm:test_resnet/fresh", batch_norm="batch").depends_on_batch
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=0).train()  # it has no other layer that training changes
    expected = plain(model, images)
    assert torch.equal(rows("timm:test_resnet/fresh", images, batch_norm="batch"), expected)
    assert not torch.allclose(rows("timm:test_resnet/fresh", images), expected)
    with pytest.raises(InputError, match="timm:test_vit/fresh has no batch norm layers; leave batch_norm at eval"):
        load("timm:test_vit/fresh", batch_norm="batch")


def test_the_revision_follows_the_file(save):
    _, path = save("test_vit")
    config = resolve_encoder(f"timm:test_vit@{path}")
    before = encoder_revision(config)
    path.write_bytes(path.read_bytes() + b"\n")
    assert encoder_revision(config) != before
    assert encoder_revision(resolve_encoder("timm:test_vit/fresh")) not in (before, None)

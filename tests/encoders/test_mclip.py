"""Multilingual-CLIP's towers in both layouts: the package's own forward, its pairs, its files, and refusals."""

import json
import os
import pickle
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from multilingual_clip.legacy_multilingual_clip import AVAILABLE_MODELS, MultilingualClip
from multilingual_clip.pt_multilingual_clip import MultilingualCLIP
from safetensors.torch import load_file

from clip_geometry.catalog import read_yaml
from clip_geometry.encoders import encoder_revision, load_encoder, mclip, resolve_encoder
from clip_geometry.encoders.mclip import paired_image_model
from clip_geometry.registry import InputError

PAIRS = read_yaml(Path(mclip.__file__).with_name("mclip.yaml"))
LINEAR = "M-BERT Distil 40 Linear Weights.pkl"
TEXTS = ["cat", "a photo of the red bus", "dog on left", "small blue circle on a large red circle"]


@pytest.fixture
def folder(mclip_folder, tmp_path):
    return shutil.copytree(mclip_folder, tmp_path / "tower")


@pytest.fixture
def legacy(legacy_mclip_folder, tmp_path):
    return shutil.copytree(legacy_mclip_folder, tmp_path / "legacy")


def load(folder, **options):
    return load_encoder(f"mclip:{folder}", device="cpu", **options)


def rows_of(folder, texts=TEXTS, **options):
    encoder = load(folder, **options)
    return encoder.text_features(encoder.tokenize(texts))


# --- the package's own forward


def test_the_current_layout_gives_what_the_package_gives(mclip_folder, monkeypatch):
    """Its class, built without from_pretrained, which raises on transformers 5; its forward as it is."""
    base = transformers.AutoConfig.from_pretrained(mclip_folder / "base")
    build = transformers.AutoModel.from_config
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", lambda name: build(base))
    package = MultilingualCLIP(
        MultilingualCLIP.config_class.from_dict(json.loads((mclip_folder / "config.json").read_text()))
    )
    package.load_state_dict(load_file(mclip_folder / "model.safetensors"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(mclip_folder / "base")
    with torch.no_grad():
        expected = package.eval()(TEXTS, tokenizer)
    assert expected.shape == (4, 10) and torch.pdist(expected).min() > 0.3  # the texts differ
    assert (rows_of(mclip_folder) - expected).abs().max() < 1e-6


def test_the_legacy_layout_gives_what_the_package_gives(legacy_mclip_folder):
    name = str(legacy_mclip_folder)
    package = MultilingualClip(model_name=name, tokenizer_name=name, head_name=LINEAR, weights_dir=f"{name}/")
    with torch.no_grad():
        expected = package.eval()(TEXTS)
    assert expected.shape == (4, 10) and torch.pdist(expected).min() > 0.3  # the texts differ
    assert (rows_of(legacy_mclip_folder) - expected).abs().max() < 1e-6


@pytest.mark.parametrize("layout", ["mclip_folder", "legacy_mclip_folder"])
def test_pooled_rows_are_those_before_the_linear_layer(layout, request):
    folder = request.getfixturevalue(layout)
    linear = load(folder).head
    pooled = rows_of(folder, features="pooled")
    assert pooled.shape == (4, 24)
    with torch.no_grad():
        torch.testing.assert_close(linear(pooled), rows_of(folder))


# --- pairs


def test_every_pair_is_a_model_that_open_clip_has():
    import open_clip

    columns = {"RN50x4-quickgelu": 640, "ViT-B-16-plus-240": 640, "ViT-B-32-quickgelu": 512, "ViT-L-14-quickgelu": 768}
    for name in PAIRS:
        image_model = resolve_encoder(paired_image_model(f"mclip:{name}")).model
        architecture = image_model.removeprefix("open_clip:").partition("/")[0]
        settings = open_clip.get_model_config(architecture)
        assert settings is not None and settings["embed_dim"] == columns[architecture]


def test_every_legacy_model_of_the_package_has_a_pair():
    assert {entry["model_name"] for entry in AVAILABLE_MODELS.values()} <= PAIRS.keys()
    assert paired_image_model("mclip:M-CLIP/M-BERT-Distil-40") == "open_clip:RN50x4-quickgelu/openai"


@pytest.mark.parametrize("layout", ["mclip_folder", "legacy_mclip_folder"])
def test_a_folder_states_its_own_pair(layout, request, tmp_path):
    folder = shutil.copytree(request.getfixturevalue(layout), tmp_path / "copy")
    assert load(folder).describe()["image_model"] is None
    with pytest.raises(InputError, match='names no image model: add "image_model": "open_clip:NAME/TAG" to its config'):
        paired_image_model(f"mclip:{folder}")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "image_model": "open_clip:RN50/openai"}))
    assert paired_image_model(f"mclip:{folder}") == "open_clip:RN50/openai"
    assert load(folder).describe()["image_model"] == "open_clip:RN50/openai"


def test_models_without_a_pair_are_one_sentence():
    with pytest.raises(InputError, match=r"sentence:x has no paired image model: only towers of Multilingual-CLIP"):
        paired_image_model("sentence:x")
    with pytest.raises(InputError, match=r"no image model is known for mclip:org/tower; expected mclip: and one of M-"):
        paired_image_model("mclip:org/tower")


# --- what is fetched from the hub


@pytest.fixture
def hub(monkeypatch, mclip_folder, tmp_path):
    """A hub with org/tower and org/base, where a repository holds only what was asked for; records the requests."""
    shutil.copytree(mclip_folder, tmp_path / "hub" / "org" / "tower", ignore=shutil.ignore_patterns("base"))
    shutil.copytree(mclip_folder / "base", tmp_path / "hub" / "org" / "base")
    asked = []

    def download(name, allow_patterns):
        asked.append((name, tuple(allow_patterns)))
        return str(tmp_path / "hub" / name)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


def test_the_base_is_only_ever_its_config_and_tokenizer(hub, mclip_folder):
    assert resolve_encoder("mclip:org/tower") and hub == []
    assert torch.equal(rows_of("org/tower"), rows_of(mclip_folder))
    assert {patterns for name, patterns in hub if name == "org/base"} == {("*.json", "*.txt", "*.model")}
    assert ("org/tower", ("model.safetensors",)) in hub


def test_a_tower_with_its_own_tokenizer_needs_only_the_config_of_the_base(hub, mclip_folder, tmp_path):
    for path in (tmp_path / "hub" / "org" / "base").glob("*token*"):
        shutil.move(path, tmp_path / "hub" / "org" / "tower")
    assert torch.equal(rows_of("org/tower"), rows_of(mclip_folder))
    assert {patterns for name, patterns in hub if name == "org/base"} == {("config.json",)}


def test_the_revision_does_not_change_when_the_cache_gains_a_file(hub, tmp_path):
    for path in (tmp_path / "hub" / "org" / "base").glob("*token*"):
        shutil.move(path, tmp_path / "hub" / "org" / "tower")
    config = resolve_encoder("mclip:org/tower")
    before = encoder_revision(config)
    (tmp_path / "hub" / "org" / "base" / "tokenizer.json").write_text("{}")
    assert encoder_revision(config) == before
    path = tmp_path / "hub" / "org" / "base" / "config.json"
    path.write_text(path.read_text() + "\n")
    assert encoder_revision(config) != before


def test_a_legacy_tower_of_the_hub_takes_its_linear_layer_from_a_file(hub, legacy_mclip_folder, tmp_path):
    target = shutil.copytree(legacy_mclip_folder, tmp_path / "hub" / "org" / "legacy")
    linear = shutil.move(target / LINEAR, tmp_path / "linear.pkl")
    config = resolve_encoder("mclip:org/legacy")
    with pytest.raises(InputError, match=r"legacy layout.* a separate file: give it with linear=PATH"):
        load_encoder(config, device="cpu")
    assert torch.equal(rows_of("org/legacy", linear=str(linear)), rows_of(legacy_mclip_folder))


# --- files


def test_pickled_weights_load(folder):
    expected = rows_of(folder)
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    # as older versions of transformers wrote them, with a buffer; and without the pooler, which is not used
    state = {name: value for name, value in state.items() if not name.startswith("transformer.pooler.")}
    state["transformer.embeddings.position_ids"] = torch.arange(14)[None]
    torch.save(state, folder / "pytorch_model.bin")
    assert torch.equal(rows_of(folder), expected)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_linear_layers_are_read_whatever_the_protocol_of_the_pickle(legacy, protocol):
    expected = rows_of(legacy)
    arrays = pickle.loads((legacy / LINEAR).read_bytes())
    written = pickle.dumps(arrays, protocol=protocol)
    for written_by in (written, written.replace(b"numpy._core", b"numpy.core")):  # numpy 2 and 1
        if protocol < 4 or written_by == written:  # protocol 4 counts the letters of a name
            (legacy / LINEAR).write_bytes(written_by)
            assert torch.equal(rows_of(legacy), expected)


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            [ones(24, 10), ones(9)],
            r"holds \[\(24, 10\), \(9,\)\]; expected .* the pickled arrays \(24, d\) and \(d,\)",
        ),
        ([ones(10, 24), ones(10)], "holds .*; expected a linear layer: the pickled arrays"),
        ([ones(24, 10)], "expected a linear layer"),
        ({"weight": 1}, "holds something else"),
        ([ones(24, 10, dtype=int), ones(10)], "expected a linear layer"),
        ([np.array(["a"], object)], "expected a linear layer"),
    ],
)
def test_linear_layers_that_do_not_fit_are_one_sentence(legacy, content, sentence):
    (legacy / LINEAR).write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=sentence):
        load(legacy)


def test_files_of_linear_layers_that_are_none(folder, legacy, tmp_path):
    for content, sentence in (
        (b"nonsense", "is not a pickled list of arrays: "),
        (pickle.dumps([os.mkdir]), r"posix\.mkdir is refused"),
    ):
        (legacy / LINEAR).write_bytes(content)
        with pytest.raises(InputError, match=sentence):
            load(legacy)
    with pytest.raises(InputError, match=r"none\.pkl does not exist; a file with the weights of a linear layer was"):
        load(legacy, linear=str(tmp_path / "none.pkl"))
    with pytest.raises(InputError, match="has its linear layer among its weights; leave linear out"):
        load(folder, linear=str(legacy / LINEAR))

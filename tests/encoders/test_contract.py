"""The contract of every encoder: one table over the whole registry, each family in a tiny form."""

import json
import random
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from clip_geometry.encoders import config_class, encoder_revision, load_encoder, models, resolve_encoder
from clip_geometry.encoders.base import EncoderConfig, encoders
from clip_geometry.registry import InputError
from support.encoding import load, pixels_of

KEYS = {"weights", "dim", "parameters", "activation", "preprocessing", "tokenizer", "context_length"}
KEYS |= {"logit_scale", "logit_bias"}


@dataclass(frozen=True)
class Family:
    """A tiny model of a family and what is expected of it.

    name: with {} for the folder or file that the fixture `source` gives. facts: a part of what it says about itself.
    files: each is part of the revision. fresh: options to initialize it, None where it has weights only. saved: its
    weights are safetensors in transformers' layout, which may also be pickled or of half precision. keys: of
    describe(), besides those of all families.
    """

    name: str
    facts: dict[str, Any]
    source: str | None = None
    texts: tuple[str, ...] = ("a photo of a cat", "two dogs on a red sofa", "a bus")
    files: tuple[str, ...] = ()
    fresh: dict[str, Any] | None = None
    saved: bool = False
    keys: set[str] = field(default_factory=set)


CLIP = {"activation": "GELU", "logit_scale": pytest.approx(1 / 0.07), "logit_bias": None, "context_length": 16}
BOTH, TEXT = {"image": 24, "text": 24}, {"preprocessing": None, "logit_scale": None, "logit_bias": None}
BERT = {"dim": {"text": 24}, "context_length": 14, "activation": "GELU", **TEXT}
LEGACY = "M-BERT Distil 40 Linear Weights.pkl"
FOLDER = ("open_clip_config.json", "tokenizer.json", "open_clip_pytorch_model.bin")

# a new family needs a row here
MINIMAL = {
    "open_clip": Family("open_clip:tiny-vit/fresh", {"dim": BOTH, "tokenizer": "SimpleTokenizer", **CLIP}, fresh={}),
    "open_clip, biased": Family("open_clip:tiny-biased/fresh", {"dim": BOTH, **CLIP, "logit_bias": -7.5}, fresh={}),
    "open_clip, resnet": Family("open_clip:tiny-resnet/fresh", {**CLIP, "activation": "GELU, ReLU"}, fresh={}),
    "open_clip, timm": Family("open_clip:tiny-timm/fresh", {"dim": BOTH, **CLIP}, fresh={}),
    "open_clip, quick": Family("open_clip:tiny-vit-quickgelu/fresh", {**CLIP, "activation": "QuickGELU"}, fresh={}),
    "hf-hub": Family("hf-hub:org/tiny", {"dim": BOTH, **CLIP}, "hub_model"),
    "local-dir": Family("local-dir:{}", {"dim": BOTH, **CLIP}, "with_weights", files=FOLDER, fresh={"fresh": True}),
    "scenes-clip": Family("scenes-clip/fresh", {"dim": {"image": 512, "text": 512}}, fresh={}),
    "hf-clip": Family(
        "hf-clip:{}",
        {"dim": {"image": 20, "text": 20}, "activation": "quick_gelu", "context_length": 14, "logit_bias": None}
        | {"logit_scale": pytest.approx(20.0855, rel=1e-4)},
        "hf_clip_folder",
        files=("preprocessor_config.json", "tokenizer.json", "model.safetensors"),
        fresh={"fresh": True},
        saved=True,
    ),
    "ruclip": Family(
        "ruclip:{}",
        {"dim": {"image": 20, "text": 20}, "activation": "QuickGELU", "context_length": 14, "logit_bias": None}
        | {"tokenizer": "RuClipTokenizer"},
        "ruclip_folder",
        files=("config.json", "bpe.model", "pytorch_model.bin"),
    ),
    "hf-text": Family(
        "hf-text:{}",
        BERT,
        "bert_folder",
        files=("config.json", "tokenizer_config.json", "model.safetensors"),
        fresh={"fresh": True},
        saved=True,
    ),
    "mclip": Family(
        "mclip:{}",
        {"dim": {"text": 10}, "context_length": 12, "activation": "GELU", "image_model": None, **TEXT},
        "mclip_folder",
        files=("config.json", "base/config.json", "base/tokenizer.json", "model.safetensors"),
        saved=True,
        keys={"image_model"},
    ),
    "mclip, legacy": Family(
        "mclip:{}",
        {"dim": {"text": 10}, "context_length": 14, "image_model": None, **TEXT},
        "legacy_mclip_folder",
        files=("config.json", "tokenizer.json", "model.safetensors", LEGACY),
        saved=True,
        keys={"image_model"},
    ),
    "sentence": Family(
        "sentence:{}",
        {"dim": {"text": 10}, "context_length": 12, "modules": ["Transformer", "Pooling", "Dense"], **TEXT},
        "sentence_folder",
        files=("modules.json", "sentence_bert_config.json", "1_Pooling/config.json", "2_Dense/model.safetensors"),
        saved=True,
        keys={"modules", "prompt"},
    ),
    "timm": Family(
        "timm:test_vit_relpos/fresh",
        {
            "dim": {"image": 96},
            "activation": "GELU, ReLU",
            "tokenizer": None,
            "context_length": None,
            "logit_scale": None,
        },
        fresh={},
    ),
    "words": Family(
        "words:{}",
        {"dim": {"text": 6}, "context_length": None, "parameters": 84},
        "words_file",
        texts=("cat", "bus", "red"),
        files=("vectors.npy", "vectors.json"),
    ),
}
# some are of the experiments
INSTALLED = {key: row for key, row in MINIMAL.items() if key.partition(",")[0] in encoders}


@pytest.fixture(scope="module")
def hub_model(with_weights):
    """A hub whose only model is that folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub, "snapshot_download", lambda name, allow_patterns: str(with_weights))
        yield with_weights


@pytest.fixture(scope="module")
def name(request):
    """From a row of the table to the name of its model; source: another folder than the row's fixture."""

    def name(family, source=None):
        return family.name.format(source or (family.source and request.getfixturevalue(family.source)))

    return name


def rows_with(field):
    return [
        pytest.param(family, id=key) for key, family in INSTALLED.items() if getattr(family, field) not in (None, ())
    ]


def rows_of(encoder, images, texts):
    """Modality → features of these items."""
    rows = {}
    if "image" in encoder.modalities:
        rows["image"] = encoder.image_features(pixels_of(encoder, images))
    if "text" in encoder.modalities:
        rows["text"] = encoder.text_features(encoder.tokenize(texts))
    return rows


@pytest.fixture(scope="module", params=INSTALLED)
def family(request):
    return INSTALLED[request.param]


@pytest.fixture(scope="module")
def encoder(family, name):
    return load(name(family))


def test_every_family_is_in_the_table():
    several_rows = {"hidden-states"}  # per input: tests/encoders/test_hidden_states*.py
    assert {key.partition(",")[0] for key in INSTALLED} == encoders.keys() - several_rows


def test_a_missing_modality_is_one_sentence(encoder):
    for modality in {"image", "text"} - encoder.modalities:
        with pytest.raises(InputError, match=f"embeds (image|text) only, since it has no {modality} tower$"):
            encoder.require(modality)
    for modality in encoder.modalities:
        encoder.require(modality)


def test_preprocess_gives_images_of_one_size(encoder, images):
    if "image" not in encoder.modalities:
        return
    others = [Image.new("L", (90, 20), 30), images[0].convert("P"), images[1].resize((7, 80))]
    pixels = [encoder.preprocess(image) for image in (*images, *others)]
    assert {each.shape for each in pixels} == {pixels[0].shape}
    assert pixels[0].ndim == 3 and pixels[0].shape[0] == 3
    assert {(each.dtype, each.device.type) for each in pixels} == {(torch.float32, "cpu")}


def test_truncated_texts_are_counted_to_the_token(encoder, family):
    if "text" not in encoder.modalities:
        return
    length = encoder.describe()["context_length"]
    assert encoder.tokenize(family.texts).truncated == 0
    if length is None:  # nothing is ever truncated
        return
    if encoder.config.model == "scenes-clip/fresh":  # whose tokens are smaller than words
        assert encoder.tokenize(["a photo of a cat", "cat " * 200, "a red bus " * 100]).truncated == 2
        return
    texts = [" ".join(["cat"] * words) for words in (0, 1, length - 3, length - 2, length - 1, 3 * length)]
    assert encoder.tokenize(texts).truncated == 2  # start and end are two more tokens
    assert [encoder.tokenize([text]).truncated for text in texts] == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("options", [{}, {"features": "pooled"}, {"precision": "bf16"}, {"precision": "fp16"}])
def test_features_are_finite_raw_float32_rows_on_the_cpu(encoder, images, family, options):
    if "precision" in options and "biased" in encoder.config.model:
        return  # open_clip cannot build it in half precision
    exact = rows_of(encoder, images, family.texts)
    other = load(encoder.config.model, **options) if options else encoder
    dim = other.describe()["dim"]
    assert dim.keys() == other.modalities <= {"image", "text"}
    for modality, rows in rows_of(other, images, family.texts).items():
        assert rows.shape == ({"image": len(images), "text": len(family.texts)}[modality], dim[modality])
        assert (rows.dtype, rows.device.type, rows.requires_grad) == (torch.float32, "cpu", False)
        assert rows.isfinite().all()
        assert (rows.norm(dim=1) - 1).abs().min() > 1e-3  # never normalized
        assert torch.unique(rows, dim=0).shape == rows.shape
        if "precision" in options:  # a choice near float32
            assert 0 < (exact[modality] - rows).abs().max() < 0.1 * rows.abs().max()


def test_rows_are_reproducible_and_do_not_depend_on_the_batch(encoder, images, family):
    first = rows_of(encoder, images, family.texts)
    again = rows_of(load_encoder(encoder.config, device="cpu"), images, family.texts)
    single = rows_of(encoder, images[1:2], family.texts[1:2])
    assert not encoder.config.depends_on_batch
    for modality, rows in first.items():
        assert torch.equal(rows, again[modality])
        torch.testing.assert_close(rows[1:2], single[modality])


def test_the_description_is_json_with_the_expected_facts(encoder, family, name):
    facts = encoder.describe()
    assert json.loads(json.dumps(facts)) == facts
    assert facts.keys() == KEYS | family.keys
    assert facts | family.facts == facts
    assert facts["parameters"] > 0 and (encoder.config.is_fresh or len(facts["weights"]["sha256"]) == 64)
    if hasattr(encoder, "model"):
        assert facts["parameters"] == sum(parameter.numel() for parameter in encoder.model.parameters())
    assert "/" not in (facts["tokenizer"] or "") and "/" not in facts["weights"]["name"]  # no path of this machine


def test_the_config_is_the_familys_and_survives_json(encoder, family, name):
    config = resolve_encoder(name(family))
    assert encoder.config == config
    assert resolve_encoder(**json.loads(config.model_dump_json())) == config
    assert type(config) is config_class(config.model)


# --- the revision


def test_the_revision_is_stable(encoder, images, family):
    before = encoder_revision(encoder.config)
    rows_of(encoder, images, family.texts)
    assert isinstance(before, str) and before
    assert encoder_revision(resolve_encoder(encoder.config.model)) == before


@pytest.mark.parametrize("family", rows_with("files"))
def test_the_revision_depends_on_every_file_and_not_on_the_place(family, name, request, tmp_path):
    source = Path(request.getfixturevalue(family.source))
    folder = shutil.copytree(source.parent if source.is_file() else source, tmp_path / "copy")
    model = name(family, folder / source.name if source.is_file() else folder)
    before = encoder_revision(resolve_encoder(model))
    assert encoder_revision(resolve_encoder(name(family))) == before
    for file in family.files:
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content + b"\n")
        assert encoder_revision(resolve_encoder(model)) != before, file
        (folder / file).write_bytes(content)
    assert encoder_revision(resolve_encoder(model)) == before


# --- weights


@pytest.mark.parametrize("family", [pytest.param(f, id=key) for key, f in INSTALLED.items() if f.saved])
def test_weights_may_be_pickled_or_of_half_precision(family, name, request, tmp_path, images):
    folder = shutil.copytree(request.getfixturevalue(family.source), tmp_path / "copy")
    expected = rows_of(load(name(family)), images, family.texts)
    states = {path: load_file(path) for path in folder.rglob("*.safetensors")}
    for path, state in states.items():
        torch.save(state, path.with_name("pytorch_model.bin"))
        path.unlink()
    for modality, rows in rows_of(load(name(family, folder)), images, family.texts).items():
        assert torch.equal(rows, expected[modality])
    for path, state in states.items():
        save_file({key: value.half() for key, value in state.items()}, path, metadata={"format": "pt"})
    half = load(name(family, folder))
    assert {parameter.dtype for parameter in half.model.parameters()} == {torch.float32}
    for modality, rows in rows_of(half, images, family.texts).items():
        assert 0 < (rows - expected[modality]).abs().max() < 0.01 * rows.abs().max()


def parameters(model, **options):
    return dict(load(model, **options).model.state_dict())


@pytest.mark.parametrize("family", rows_with("fresh"))
def test_a_fresh_models_seed_decides_and_the_global_generators_are_left_alone(family, name):
    torch.manual_seed(11)
    before = torch.get_rng_state(), random.getstate()
    first = parameters(name(family), **family.fresh, seed=1)
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    torch.manual_seed(12)
    again, other = (parameters(name(family), **family.fresh, seed=seed) for seed in (1, 2))
    assert all(torch.equal(value, again[key]) for key, value in first.items())
    random_ones = {key for key, value in first.items() if value.unique().numel() > 9}  # not ones, zeros, buffers
    ids = {key for key in random_ones if key.endswith(("position_ids", "num_batches_tracked"))}
    assert len(random_ones) > 9 and not any(torch.equal(first[key], other[key]) for key in random_ones - ids)


@pytest.mark.parametrize("family", rows_with("fresh"))
def test_zero_bias_zeroes_every_bias_and_nothing_else(family, name):
    plain, zeroed = (parameters(name(family), **family.fresh, seed=4, zero_bias=zero) for zero in (False, True))
    biases = {key for key in plain if key.endswith("bias") and key != "logit_bias"}
    as_initialized = sum(bool(plain[key].any()) for key in biases)
    assert as_initialized == 0 if family.name.startswith("hf-") else as_initialized >= 4  # open_clip's MLPs
    for key, value in plain.items():
        assert not zeroed[key].any() if key in biases else torch.equal(zeroed[key], value), key


@pytest.mark.parametrize("family", rows_with("fresh"))
def test_a_fresh_model_needs_no_weights_and_says_what_it_is(family, name, request, tmp_path):
    bare = None
    if family.source is not None:
        bare = shutil.copytree(request.getfixturevalue(family.source), tmp_path / "bare")
        for path in [*bare.glob("*.safetensors"), *bare.glob("*.bin")]:
            path.unlink()
        with pytest.raises(InputError, match="has no weights"):
            resolve_encoder(name(family, bare))
        with_weights = resolve_encoder(name(family))
        assert not with_weights.is_fresh
        for option in ({"seed": 1}, {"zero_bias": True}):
            with pytest.raises(InputError, match="for freshly initialized models, but this model has weights"):
                resolve_encoder(name(family), **option)
        assert encoder_revision(with_weights) != encoder_revision(resolve_encoder(name(family), **family.fresh))
    encoder = load(name(family, bare), **family.fresh, seed=3)
    assert encoder.config.is_fresh and encoder_revision(encoder.config)
    assert encoder.describe()["weights"] == {"name": "fresh", "seed": 3, "zero_bias": False}


# --- documentation


@pytest.mark.parametrize("name", list(encoders))
def test_every_family_and_option_is_explained(name):
    entry = encoders[name]
    pattern, summary = entry.headline
    assert re.match(rf"{name}[:/]", pattern) and summary and entry.headline in models().families
    classes = [kind for kind in entry.config.__mro__ if issubclass(kind, EncoderConfig)]
    explained = " ".join(kind.__doc__ or "" for kind in classes)
    for option in entry.config.model_fields:
        assert re.search(rf"\b{option}\b", explained), option

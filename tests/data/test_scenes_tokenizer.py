"""The shipped tokenizer and the small architecture, loaded as open_clip loads them."""

import importlib.metadata
import importlib.util
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import clip_geometry
from clip_geometry.data.scenes import ScenesConfig, caption, load
from clip_geometry.data.scenes.draw import CAPTIONS, sample

FOLDER = Path(clip_geometry.__file__).parent / "assets/scenes-clip"
SCRIPT = Path(__file__).parents[2] / "scripts/build_scenes_tokenizer.py"
LANGUAGES = ("en", "de", "fr", "ru")
PAD, START, END = 0, 1, 3999


@cache
def tokenizer():
    import open_clip

    return open_clip.get_tokenizer(f"local-dir:{FOLDER}")


@cache
def model():
    import open_clip

    torch.manual_seed(0)
    built, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{FOLDER}")
    return built.eval(), preprocess


def text_config():
    return json.loads((FOLDER / "open_clip_config.json").read_text())["model_cfg"]["text_cfg"]


def captions(scenes: int = 250):
    some = [sample(11, "test", k) for k in range(scenes)]
    return [caption(scene, n, language) for scene in some for n in range(CAPTIONS) for language in LANGUAGES]


def test_vocabulary_and_special_tokens():
    inner = tokenizer().tokenizer
    assert len(inner) == text_config()["vocab_size"] == 4000
    assert sorted(inner.get_vocab().values()) == list(range(4000))
    assert (inner.pad_token_id, inner.bos_token_id, inner.eos_token_id) == (PAD, START, END)
    assert (text_config()["pad_id"], text_config()["eos_id"]) == (PAD, END)
    assert (FOLDER / "tokenizer.json").stat().st_size < 400_000


def test_captions_fit_and_end_where_the_arg_max_is():
    ids = tokenizer()(captions())
    assert ids.shape[1] == text_config()["context_length"] == 40
    length = (ids != PAD).sum(dim=1)
    assert length.max() <= 36
    assert (ids[:, 0] == START).all()
    assert (ids == END).sum(dim=1).eq(1).all()
    assert torch.equal(ids.argmax(dim=1), length - 1)
    assert all((row[n:] == PAD).all() for row, n in zip(ids, length, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        *captions(3)[::7],
        "Two dogs run along the beach, near a wooden bridge!",
        "Zwei Hunde laufen über die Straße — 12 Äpfel",
        "Deux garçons mangent un gâteau à l'hôtel ; où est l'œuf ?",
        "Две собаки бегут по пляжу, ещё подъезд",
        "日本語 🙂 x²",
    ],
)
def test_round_trip_in_lower_case_without_unknown_tokens(text):
    inner = tokenizer().tokenizer
    ids = inner(text).input_ids
    assert inner.unk_token_id not in ids
    assert inner.decode(ids, skip_special_tokens=True).strip() == text.lower()
    assert inner(text.upper().replace("SS", "ß")).input_ids == inner(text.replace("SS", "ß").lower()).input_ids


def test_preprocessing_only_normalises_with_the_statistics_of_scenes():
    _, preprocess = model()
    data = load(ScenesConfig(size=400, split="train"))
    pixels = np.stack([np.asarray(data.image.load(k)) for k in range(400)]) / 255
    ready = torch.stack([preprocess(data.image.load(k)) for k in range(5)])
    settings = json.loads((FOLDER / "open_clip_config.json").read_text())["preprocess_cfg"]
    expected = (pixels[:5] - settings["mean"]) / settings["std"]
    np.testing.assert_allclose(ready.permute(0, 2, 3, 1).numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(pixels.mean(axis=(0, 1, 2)), settings["mean"], atol=0.02)
    np.testing.assert_allclose(pixels.std(axis=(0, 1, 2)), settings["std"], atol=0.02)


def test_the_script_builds_the_shipped_tokenizer():
    if not SCRIPT.exists():
        pytest.skip("scripts/ is not part of an installed package")
    for package, version in re.findall(
        r"(babel|emoji|tokenizers)\s+(\d+\.\d+\.\d+)", (FOLDER / "README.md").read_text()
    ):
        found = importlib.util.find_spec(package) and importlib.metadata.version(package)
        if found != version:
            pytest.skip(f"needs {package} {version} and finds {found or 'none'}")
    spec = importlib.util.spec_from_file_location("build_scenes_tokenizer", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.train().to_str(pretty=False) == (FOLDER / "tokenizer.json").read_text(encoding="utf-8")

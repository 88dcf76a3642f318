"""Names and options: what is known resolves, what is not is one sentence with the near name, before any download."""

import subprocess
import sys
from pathlib import Path

import open_clip
import pytest
import yaml

from clip_geometry.encoders import load_encoder, models, resolve_encoder
from clip_geometry.registry import InputError

WRONG = [
    *yaml.safe_load(Path(__file__).with_name("wrong_names.yaml").read_text()),
    ["é\n:" + "x" * 999, {}, "unknown encoder 'é\\n'"],
    ["open_clip:" + "x" * 999, {"sed": 1}, "unknown key 'sed'"],
]


@pytest.mark.parametrize(("model", "options", "sentence"), WRONG)
def test_wrong_names_and_options_are_one_sentence(model, options, sentence):
    with pytest.raises(InputError) as caught:
        resolve_encoder(model, **options)
    assert sentence in str(caught.value)
    assert str(caught.value).isprintable() and len(str(caught.value)) <= 400


def test_options_beside_a_config_are_refused():
    with pytest.raises(InputError, match="seed cannot be given with a config; give the options to resolve_encoder"):
        load_encoder(resolve_encoder("scenes-clip/fresh"), seed=1)


def test_every_tag_of_open_clip_resolves_or_is_a_mismatch():
    for name, tag in open_clip.list_pretrained():
        try:
            resolve_encoder(f"open_clip:{name}/{tag}")
        except InputError as error:
            assert "is built with" in str(error)


def test_models_lists_families_and_all_tags_of_open_clip():
    families, architectures = models()
    assert {pattern.split(":")[0] for pattern, _ in families} >= {"open_clip", "hf-hub", "local-dir", "hf-clip"}
    assert all(summary for _, summary in families)
    pairs = {(name, tag) for name, tags in architectures.items() for tag in tags}
    assert pairs == set(open_clip.list_pretrained())
    assert set(architectures) >= {name for name in open_clip.list_models() if not name.startswith("tiny-")}


def test_importing_and_listing_loads_neither_open_clip_nor_transformers():
    program = (
        "import sys; from clip_geometry.encoders import models, resolve_encoder; models();"
        "print([m for m in ('open_clip', 'transformers', 'torchvision') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

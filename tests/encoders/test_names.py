"""Names and options: what is known resolves, what is not is one sentence with the near name, before any download."""

import subprocess
import sys

import open_clip
import pytest

from clip_geometry.encoders import models, resolve_encoder
from clip_geometry.registry import InputError


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        ("open_clpi:ViT-B-32/openai", {}, "unknown encoder 'open_clpi'; did you mean 'open_clip'"),
        (
            "ViT-B-32",
            {},
            "'ViT-B-32' is no family and a name with a colon between; expected one of hf-text, mclip, open",
        ),
        ("é\n:" + "x" * 999, {}, "unknown encoder 'é\\n'"),
        (3, {}, "model 3 is no family"),
        ("open_clip:" + "x" * 999, {"sed": 1}, "unknown key 'sed'"),
        ("open_clip:ViT-B-32@", {}, "names no weights; expected open_clip:NAME/TAG"),
        ("open_clip:ViT-B-32", {}, "names no weights; expected open_clip:NAME/TAG"),
        ("open_clip:ViT-B-33/openai", {}, "open_clip has no model 'ViT-B-33'; did you mean 'ViT-B-32'"),
        ("open_clip:ViT-B-32/laion2b-s34b-b79k", {}, "did you mean 'laion2b_s34b_b79k'"),
        ("open_clip:tiny-vit/zzz", {}, "has no weights 'zzz'; it has fresh"),
        ("open_clip:ViT-B-32/frsh", {}, "did you mean 'fresh'"),
        ("open_clip:tiny-vit/fresh", {"sed": 1}, "unknown key 'sed'; did you mean 'seed'"),
        ("open_clip:tiny-vit/fresh", {"seed": "1"}, "key 'seed' is '1'"),
        ("open_clip:tiny-vit/fresh", {"seed": -1}, "key 'seed' is -1"),
        ("open_clip:tiny-vit/fresh", {"batch_norm": "train"}, "key 'batch_norm' is 'train'"),
        ("open_clip:tiny-vit/fresh", {"quick_gelu": True}, "quick_gelu is for open_clip:NAME@PATH"),
        ("open_clip:ViT-B-32-quickgelu/openai", {"seed": 1}, "seed and zero_bias are for freshly initialised"),
        ("hf-hub:laion/CLIP", {"seed": 1}, "unknown key 'seed'"),
        ("hf-hub:CLIP", {}, "expected hf-hub:ORG/NAME"),
        ("hf-clip:/no/such/folder", {}, "neither an existing folder nor a name ORG/NAME"),
        ("hf-clip:", {}, "'' is neither an existing folder nor a name ORG/NAME"),  # and not the current folder
        ("open_clip:ViT-B-32/openai", {}, "is built with GELU; use open_clip:ViT-B-32-quickgelu/openai"),
        ("hf-clip:openai/clip", {"pooling": "cls"}, "unknown key 'pooling'"),
        ("local-dir:/no/such/folder", {}, "model folder /no/such/folder does not exist"),
        ("scenes-clip/trained", {}, "scenes-clip/fresh"),
    ],
)
def test_wrong_names_and_options_are_one_sentence(model, options, sentence):
    with pytest.raises(InputError) as caught:
        resolve_encoder(model, **options)
    assert sentence in str(caught.value)
    assert str(caught.value).isprintable() and len(str(caught.value)) <= 400


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

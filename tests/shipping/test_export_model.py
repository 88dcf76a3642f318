"""Exported models against transformers and sentence-transformers, which load them without this package."""

import json
import os
import re

import numpy as np
import pytest
import torch
from PIL import Image

import clip_geometry as cg
from clip_geometry.encoders.hub import folder_of
from clip_geometry.registry import InputError
from support import teach_text, train_clip

TOLERANCE = 1e-5  # float32: the largest value seen is 3e-6, of rows of length 1 to 10
TEXTS = ["a red circle", "  Two  blue\nSquares, left of a STAR!", "über кот 猫 😀, it's 1234", "long " * 100]
VIT = {"image_size": 32, "patch_size": 8, "layers": 2, "width": 48, "head_width": 16}
TEXT = {"context_length": 20, "vocab_size": 4000, "hf_tokenizer_name": "scenes-clip", "width": 32, "heads": 2}
TEXT |= {"layers": 2, "pad_id": 0, "eos_id": 3999}
PLAIN = {"context_length": 24, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}  # open_clip's own tokenizer
TIMM = {"image_size": 64, "timm_model_name": "test_byobnet", "timm_pool": "avg", "timm_proj": "linear"}
TIMM_VIT = {"image_size": 160, "timm_model_name": "test_vit", "timm_pool": "token", "timm_proj": "linear"}
GELU = {"act_kwargs": {"approximate": "tanh"}, "norm_kwargs": {"eps": 1e-3}}


def architecture(vision=None, text=None, **changes):
    return {"embed_dim": 24, "vision_cfg": {**VIT, **(vision or {})}, "text_cfg": {**TEXT, **(text or {})}, **changes}


EXPRESSIBLE = {
    "vit": architecture(),
    "quick_gelu": architecture(quick_gelu=True),
    "tanh and eps": architecture(GELU, GELU),
    "mlp ratio": architecture({"mlp_ratio": 2.5}, {"mlp_ratio": 1.5}),
    "eos": architecture(text={"pool_type": "eos"}),
    "more tokens than words": architecture(text={"vocab_size": 4100}),
    "text module": architecture(custom_text=True),
    "linear projection": architecture(text={"proj_bias": False}, custom_text=True),
    "siglip": architecture(init_logit_bias=-10.0),
    "own tokenizer": {"embed_dim": 24, "vision_cfg": VIT, "text_cfg": PLAIN},
    "timm": {"embed_dim": 24, "vision_cfg": TIMM, "text_cfg": TEXT},
    "timm vit": {"embed_dim": 24, "vision_cfg": TIMM_VIT, "text_cfg": TEXT},
}
INEXPRESSIBLE = {
    "resnet": (architecture({"layers": [1, 1, 1, 1], "width": 8, "head_width": 32, "image_size": 64}), "ResNet"),
    "no mask": (architecture(text={"no_causal_mask": True}, custom_text=True), "rows of texts would differ"),
    "last token": (architecture(text={"pool_type": "last"}), "rows of texts would differ"),
    "average": (architecture({"pool_type": "avg"}), "rows of images would differ"),
    "no norm before": (architecture({"no_ln_pre": True}), "CLIPModel has vision_model.pre_layrnorm.bias"),
    "layer scale": (architecture({"ls_init_value": 0.1}), "has vision_model.encoder.layers.0.ls_1"),
    "biased": (architecture(text={"proj_bias": True}), "has text_projection.bias"),
    "class token": (architecture(text={"embed_cls": True}, custom_text=True), "has cls_emb"),
    "timm mlp": ({"embed_dim": 24, "vision_cfg": {**TIMM, "timm_proj": "mlp"}, "text_cfg": TEXT}, "more than a linear"),
    "oblong": (architecture({"image_size": [32, 48]}), "32 × 48 pixels"),
    "no upper case": (architecture(text={"tokenizer_kwargs": {"clean": "canonicalize"}}), "would give other tokens"),
}


def encoder_of(folder, model_cfg, **preprocess):
    """An encoder of this architecture, none of whose parameters has the value that it begins with."""
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((folder_of("scenes-clip") / name).read_bytes())
    preprocess = {"mean": [0.6, 0.5, 0.4], "std": [0.2, 0.25, 0.3], **preprocess}
    config = {"model_cfg": model_cfg, "preprocess_cfg": {"size": model_cfg["vision_cfg"]["image_size"], **preprocess}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    encoder = cg.load_encoder(cg.resolve_encoder(f"local-dir:{folder}", fresh=True, seed=3), "cpu")
    generator = torch.Generator().manual_seed(0)
    for name, value in encoder.model.state_dict().items():
        if value.is_floating_point() and not name.startswith("logit_"):
            value.add_(0.05 * torch.rand(value.shape, generator=generator))  # above 0: a variance may stay one
    return encoder


def pictures(side, count=3):
    pixels = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return [Image.fromarray(each) for each in pixels]


def own_rows(encoder, images=()):
    rows = {"text": encoder.text_features(encoder.tokenize(TEXTS)).numpy()}
    if images:
        rows["image"] = encoder.image_features(torch.stack([encoder.preprocess(each) for each in images])).numpy()
    return rows


def by_transformers(folder, images):
    import transformers

    kind = getattr(transformers, json.loads((folder / "config.json").read_text())["architectures"][0])
    model, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    inputs = transformers.AutoProcessor.from_pretrained(folder)(
        text=TEXTS, images=images, return_tensors="pt", padding=True, truncation=True
    )
    with torch.no_grad():
        text = model.get_text_features(inputs["input_ids"], inputs["attention_mask"]).pooler_output
        image = model.get_image_features(inputs["pixel_values"]).pooler_output
        scale = float(model(**inputs).logits_per_image.abs().max() and model.logit_scale)
    return {"text": text.numpy(), "image": image.numpy()}, scale


def by_sentence_transformers(folder, images=()):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu", trust_remote_code=False)
    assert model.similarity_fn_name == "cosine"
    rows = {"text": model.encode(TEXTS)}
    return {**rows, "image": model.encode(images)} if images else rows


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name] == pytest.approx(
            expected[name], abs=TOLERANCE * max(1.0, float(np.abs(expected[name]).max()))
        )


@pytest.mark.parametrize("case", EXPRESSIBLE)
def test_rows_of_transformers_and_of_sentence_transformers(tmp_path, case):
    encoder = encoder_of(tmp_path / "source", EXPRESSIBLE[case])
    folder = cg.export_model(encoder, tmp_path / "out")
    images = pictures(encoder.pixels.size[0])
    expected = own_rows(encoder, images)
    assert np.abs(expected["text"][0] - expected["text"][1]).max() > 0.01  # towers that do not ignore their input
    rows, scale = by_transformers(folder, images)
    assert_same(rows, expected)
    assert scale == pytest.approx(float(encoder.model.logit_scale.detach()))
    assert_same(by_sentence_transformers(folder, images), expected)
    card = (folder / "README.md").read_text()
    assert ("bias of −10" in card or "bias of -10" in card) == (case == "siglip")
    assert "a random initialization with seed 3" in card


@pytest.mark.parametrize("case", INEXPRESSIBLE)
def test_what_transformers_cannot_express_is_refused(tmp_path, case):
    model_cfg, message = INEXPRESSIBLE[case]
    encoder = encoder_of(tmp_path / "source", model_cfg)
    with pytest.raises(InputError, match=re.escape(message)):
        cg.export_model(encoder, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("name", ["scenes-clip/fresh", "local-dir:shipped/scenes-trained"])
def test_the_models_of_the_package(tmp_path, name):
    folder = cg.export_model(name, tmp_path / "out")
    encoder, images = cg.load_encoder(cg.resolve_encoder(name), "cpu"), pictures(64)
    expected = own_rows(encoder, images)
    assert_same(by_transformers(folder, images)[0], expected)
    assert_same(by_sentence_transformers(folder, images), expected)
    if name == "scenes-clip/fresh":  # a CLIPModel, which this package loads too
        again = cg.load_encoder(cg.resolve_encoder(f"hf-clip:{folder}"), "cpu")
        assert_same(own_rows(again, images), expected)
    else:
        assert (folder / "SOURCE.md").read_text() == (folder_of("scenes-trained") / "README.md").read_text()


@pytest.mark.parametrize("preprocess", [{}, {"resize_mode": "squash", "interpolation": "bilinear"}])
def test_pixels_and_tokens_of_the_processor(tmp_path, preprocess):
    """Images of the model's size: the same float32 up to the rounding of the arithmetic. Others: transformers resizes
    tensors, off by up to 2 of 255; its backend "pil" resizes as the source does. Both crop from half of what exceeds,
    rounded down, where torchvision rounds to even: of the 19 rows of (160, 100), from row 9 instead of 10."""
    from transformers import AutoProcessor

    encoder = encoder_of(tmp_path / "source", architecture(), **preprocess)
    folder = cg.export_model(encoder, tmp_path / "out")
    processor = AutoProcessor.from_pretrained(folder)
    pil = AutoProcessor.from_pretrained(folder, backend="pil")
    std = torch.tensor([0.2, 0.25, 0.3])[:, None, None]
    rng = np.random.default_rng(1)
    for size in [(32, 32), (64, 64), (64, 96), (160, 100), (50, 40), (480, 640), (17, 17)]:
        image = Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8))
        theirs, exact = (each(images=image, return_tensors="pt")["pixel_values"][0] for each in (processor, pil))
        if size == (160, 100) and not preprocess:
            image = encoder.transform.transforms[0](image).crop((0, 9, 32, 41))
        ours = encoder.preprocess(image)
        levels = (ours - theirs).abs() * std * 255
        assert levels.max() < 2.001 and (levels > 0.5).float().mean() < 0.3
        assert (ours - exact).abs().max() < 1e-6
        assert size != (32, 32) or (ours - theirs).abs().max() < 1e-6
    ids = processor(text=TEXTS, padding="max_length", truncation=True, return_tensors="pt")["input_ids"]
    assert torch.equal(ids, encoder.tokenize(TEXTS).inputs)


def test_a_distilled_text_tower(tmp_path):
    """transformers loads the transformer, sentence-transformers and `sentence:` all of it."""
    from transformers import AutoModel, AutoTokenizer

    name = "mclip:shipped/scenes-multilingual"
    folder = cg.export_model(name, tmp_path / "out")
    expected = own_rows(cg.load_encoder(cg.resolve_encoder(name), "cpu"))
    assert_same(by_sentence_transformers(folder), expected)
    assert_same(own_rows(cg.load_encoder(cg.resolve_encoder(f"sentence:{folder}"), "cpu")), expected)
    tokens = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state
    mask = tokens["attention_mask"][..., None]
    pooled = cg.load_encoder(cg.resolve_encoder(name, features="pooled"), "cpu")
    assert ((hidden * mask).sum(1) / mask.sum(1)).numpy() == pytest.approx(own_rows(pooled)["text"], abs=TOLERANCE)
    assert "`local-dir:shipped/scenes-trained`" in (folder / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["train_clip", "teach_text"])
def test_models_of_runs(tmp_path, kind):
    """The folder of a run is enough, and the card has the run's config."""
    if kind == "train_clip":
        train_clip.ran(tmp_path, architecture="vit", data=train_clip.TINY["data"] | {"size": 40})
    else:
        teach_text.ran(tmp_path)
    [source] = (tmp_path / "runs").glob("*/models/*")
    folder = cg.export_model(source, tmp_path / "out", license="mit")
    prefix, images = ("local-dir", pictures(64)) if kind == "train_clip" else ("mclip", ())
    expected = own_rows(cg.load_encoder(cg.resolve_encoder(f"{prefix}:{source}"), "cpu"), images)
    assert_same(by_sentence_transformers(folder, images), expected)
    assert (folder / "training.yaml").read_text() == (source.parents[1] / "config.yaml").read_text()
    card = (folder / "README.md").read_text()
    assert "license: mit\n" in card and "training.yaml is its whole config" in card


@pytest.mark.parametrize("name", ["local-dir:shipped/scenes-trained", "mclip:shipped/scenes-multilingual"])
def test_the_code_of_the_card_runs(tmp_path, monkeypatch, name):
    pytest.importorskip("sentence_transformers")
    folder = cg.export_model(name, tmp_path / "out")
    pictures(64)[0].save(tmp_path / "image.png")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        names = {"Image": Image}
        exec(block.replace("FOLDER", str(folder)), names)
        assert "texts" not in names or names["texts"].shape == (2, 256)


def test_what_cannot_be_exported(tmp_path):
    for option, message in (
        ({"precision": "bf16"}, "precision=bf16 and f"),
        ({"features": "pooled"}, "features=pooled on"),
    ):
        encoder = cg.load_encoder(cg.resolve_encoder("scenes-clip/fresh", **option), "cpu")
        with pytest.raises(InputError, match=message):
            cg.export_model(encoder, tmp_path / "x")
    with pytest.raises(InputError, match="is no model of open_clip, with open_clip_config"):
        cg.export_model(tmp_path, tmp_path / "x")
    with pytest.raises(InputError, match="absent is no folder; expected that of a model"):
        cg.export_model(tmp_path / "absent", tmp_path / "x")
    folder = cg.export_model("mclip:shipped/scenes-multilingual", tmp_path / "out")
    with pytest.raises(InputError, match="others, transformers loads as they are"):
        cg.export_model(folder, tmp_path / "x")
    with pytest.raises(InputError, match="which are exported; a folder for hf-clip:"):
        cg.export_model(f"sentence:{folder}", tmp_path / "x")
    with pytest.raises(InputError, match="out is not empty, and nothing is overwritten"):
        cg.export_model("mclip:shipped/scenes-multilingual", folder)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("clip_geometry.shipping.models.render", lambda *_, **__: os.read(-1, 1))
    with pytest.raises(InputError, match="cannot write to"):
        cg.export_model("scenes-clip/fresh", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []

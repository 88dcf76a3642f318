"""Pooled features through the model's own projection are its projected features; the model is left as it was."""

import json

import numpy as np
import open_clip
import pytest
import torch

from clip_geometry import Pipeline
from clip_geometry.encoders import load_encoder
from clip_geometry.registry import InputError
from support.encoding import pixels_of


def load(name, features):
    return load_encoder(f"open_clip:{name}/fresh", device="cpu", features=features, seed=1)


PROJECTIONS = [
    ("tiny-vit", lambda m, x: x @ m.visual.proj, lambda m, x: x @ m.text_projection, (48, 32)),
    ("tiny-resnet", lambda m, x: m.visual.attnpool.c_proj(x), lambda m, x: x @ m.text_projection, (256, 32)),
    ("tiny-biased", lambda m, x: x @ m.visual.proj, lambda m, x: m.text.text_projection(x), (48, 32)),
    ("tiny-coca", lambda m, x: x @ m.visual.proj, lambda m, x: x @ m.text.text_projection, (24, 32)),
    ("tiny-timm", lambda m, x: m.visual.head(x), lambda m, x: x @ m.text_projection, (64, 32)),
    ("tiny-timm-mlp", lambda m, x: m.visual.head(x), lambda m, x: x @ m.text_projection, (64, 32)),
    ("tiny-timm-classifier", lambda m, x: m.visual.trunk.head(x), lambda m, x: x @ m.text_projection, (64, 32)),
]


@pytest.mark.parametrize(("name", "project_image", "project_text", "widths"), PROJECTIONS)
def test_projecting_the_pooled_features_gives_the_projected(
    name, project_image, project_text, widths, images, captions
):
    projected, pooled = load(name, "projected"), load(name, "pooled")
    before = {key: value.clone() for key, value in pooled.model.state_dict().items()}
    pixels = pixels_of(pooled, images)
    image, text = pooled.image_features(pixels), pooled.text_features(pooled.tokenize(captions))
    assert (image.shape, text.shape) == ((4, widths[0]), (3, widths[1]))
    assert pooled.describe()["dim"] == {"image": widths[0], "text": widths[1]}
    with torch.no_grad():
        expected_image = projected.image_features(pixels)
        torch.testing.assert_close(project_image(pooled.model, image), expected_image, rtol=1e-4, atol=1e-5)
        expected_text = projected.text_features(projected.tokenize(captions))
        torch.testing.assert_close(project_text(pooled.model, text), expected_text, rtol=1e-4, atol=1e-5)
        if name != "tiny-timm-mlp":
            for modality, rows, expected in (("image", image, expected_image), ("text", text, expected_text)):
                head = torch.from_numpy(pooled.heads()[modality])
                rows = torch.cat([rows.double(), torch.ones(len(rows), 1)], 1)[:, : len(head)]  # with a bias
                torch.testing.assert_close((rows @ head).float(), expected, rtol=1e-4, atol=1e-5)
        # both can be had from one instance
        assert torch.equal(pooled.model.encode_image(pixels, normalize=False), expected_image)
    for key, value in pooled.model.state_dict().items():  # parameters that CoCa leaves uninitialized may hold NaN
        assert torch.equal(value.nan_to_num(), before[key].nan_to_num())
    assert not any(module._forward_pre_hooks for module in pooled.model.modules())


def test_a_tower_without_a_projection_has_no_pooled_features(images, captions):
    encoder = load("tiny-timm-bare", "pooled")
    pixels = pixels_of(encoder, images)
    with pytest.raises(InputError, match="the image tower of open_clip:tiny-timm-bare/fresh ends without a projection"):
        encoder.image_features(pixels)
    assert encoder.text_features(encoder.tokenize(captions)).shape == (3, 32)
    assert encoder.describe()["dim"] == {"image": None, "text": 32}
    with pytest.raises(InputError, match="the image tower of open_clip:tiny-timm-bare/fresh ends without a projection"):
        encoder.heads()
    with pytest.raises(InputError, match="tiny-timm-mlp/fresh ends in a Mlp, which is not a linear projection"):
        load("tiny-timm-mlp", "pooled").heads()


def test_a_hugging_face_text_tower_is_fresh_and_has_pooled_features(
    tmp_path, tokenizer_folder, vision_config, captions
):
    """As in roberta-ViT-B-32: the base transformer is built from its config, its weights are never looked for."""
    from transformers import BertConfig

    base = tmp_path / "base"
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40}
    BertConfig(vocab_size=40, max_position_embeddings=16, **size).save_pretrained(base)
    text = {"hf_model_name": str(base), "hf_tokenizer_name": str(tokenizer_folder), "context_length": 12}
    config = {"embed_dim": 24, "vision_cfg": vision_config, "text_cfg": text}
    (tmp_path / "tiny-bert.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "tiny-bert.json")

    projected, pooled = load("tiny-bert", "projected"), load("tiny-bert", "pooled")
    rows = pooled.text_features(pooled.tokenize(captions))
    assert pooled.describe()["dim"] == {"image": 48, "text": 32}
    with torch.no_grad():
        expected = pooled.model.text.proj(rows)
    torch.testing.assert_close(projected.text_features(projected.tokenize(captions)), expected)
    assert torch.equal(rows, load("tiny-bert", "pooled").text_features(pooled.tokenize(captions)))


# --- heads


def features_of(encoder, images, captions):
    found = encoder.image_features(pixels_of(encoder, images)), encoder.text_features(encoder.tokenize(captions))
    return dict(zip(("image", "text"), (x.double().numpy() for x in found), strict=True))


def test_isoclip_of_stored_embeddings_is_the_authors_of_pooled_features(images, captions):
    heads = load("tiny-vit", "projected").heads()
    fitted = Pipeline("isoclip(3, 2)").fit(heads, origin="the heads of open_clip:tiny-vit/fresh")
    projected, pooled = (features_of(load("tiny-vit", kind), images, captions) for kind in ("projected", "pooled"))
    moved = fitted.transform(projected)
    u, s, vt = np.linalg.svd(heads["image"] @ heads["text"].T, full_matrices=False)
    for modality, directions in (("image", u), ("text", vt.T)):
        kept = directions[:, 3 : (s > 1e-9).sum() - 2]  # the towers are wider than the embeddings
        expected = pooled[modality] @ kept @ kept.T @ heads[modality]
        assert np.allclose(moved[modality], expected, rtol=1e-3, atol=1e-5)  # embeddings and features are float32
        assert not np.allclose(moved[modality], projected[modality], rtol=0.1, atol=1e-3)


def test_other_families_do_not_hand_them_out(hf_clip_folder):
    encoder = load_encoder(f"hf-clip:{hf_clip_folder}", device="cpu")
    with pytest.raises(InputError, match=r"the projection heads of hf-clip:.* cannot be read; give a model of"):
        encoder.heads()

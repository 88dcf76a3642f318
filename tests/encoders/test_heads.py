"""The projection heads of open_clip's models: pooled features times a head are the projected features."""

import numpy as np
import pytest

from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.registry import InputError
from clip_geometry.transforms import Pipeline
from support.encoding import pixels_of


def load(name, features="projected"):
    return load_encoder(resolve_encoder(f"open_clip:{name}/fresh", features=features, seed=1), device="cpu")


def features_of(encoder, images, captions):
    found = encoder.image_features(pixels_of(encoder, images)), encoder.text_features(encoder.tokenize(captions))
    return dict(zip(("image", "text"), (x.double().numpy() for x in found), strict=True))


@pytest.mark.parametrize("name", ["tiny-vit", "tiny-resnet", "tiny-biased", "tiny-timm", "tiny-timm-classifier"])
def test_pooled_features_times_the_head(name, images, captions):
    encoder = load(name)
    projected, pooled = (features_of(load(name, kind), images, captions) for kind in ("projected", "pooled"))
    for modality, head in encoder.heads().items():
        f = pooled[modality]
        f = np.column_stack([f, np.ones(len(f))]) if len(head) == f.shape[1] + 1 else f
        assert head.dtype == np.float64 and np.allclose(f @ head, projected[modality], rtol=1e-4, atol=1e-5)


def test_isoclip_of_stored_embeddings_is_the_authors_of_pooled_features(images, captions):
    heads = load("tiny-vit").heads()
    fitted = Pipeline("isoclip(3, 2)").fit(heads, origin="the heads of open_clip:tiny-vit/fresh")
    projected, pooled = (features_of(load("tiny-vit", kind), images, captions) for kind in ("projected", "pooled"))
    moved = fitted.transform(projected)
    u, s, vt = np.linalg.svd(heads["image"] @ heads["text"].T, full_matrices=False)
    for modality, directions in (("image", u), ("text", vt.T)):
        kept = directions[:, 3 : (s > 1e-9).sum() - 2]  # the towers are wider than the embeddings
        expected = pooled[modality] @ kept @ kept.T @ heads[modality]
        assert np.allclose(moved[modality], expected, rtol=1e-3, atol=1e-5)  # embeddings and features are float32
        assert not np.allclose(moved[modality], projected[modality], rtol=0.1, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny-timm-bare", "the image tower of open_clip:tiny-timm-bare/fresh ends without a projection"),
        (
            "tiny-timm-mlp",
            "the image tower of open_clip:tiny-timm-mlp/fresh ends in a Mlp, which is no linear projection",
        ),
    ],
)
def test_towers_without_a_linear_head(name, message):
    with pytest.raises(InputError, match=message):
        load(name).heads()


def test_other_families_do_not_hand_them_out(hf_clip_folder):
    encoder = load_encoder(resolve_encoder(f"hf-clip:{hf_clip_folder}"), device="cpu")
    with pytest.raises(InputError, match=r"the projection heads of hf-clip:.* are not read; those of open_clip models"):
        encoder.heads()

"""Weights from files: the same embeddings bit for bit, and every wrong file is one sentence."""

import json

import open_clip
import pytest
import torch
from safetensors.torch import save_file

from clip_geometry.encoders import resolve_encoder
from clip_geometry.registry import InputError
from support.encoding import embed, load


def save(state, path):
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


def state_of(model, **options):
    return {name: value.clone() for name, value in load(model, **options).model.state_dict().items()}


@pytest.mark.parametrize(
    ("name", "filename"),
    [("tiny-vit", "w.safetensors"), ("tiny-resnet", "w.pt"), ("tiny-biased", "w.safetensors"), ("tiny-coca", "w.pt")],
)
def test_a_checkpoint_gives_the_same_embeddings(tmp_path, images, captions, name, filename):
    fresh = load(f"open_clip:{name}/fresh", seed=9)
    path = save(fresh.model.state_dict(), tmp_path / filename)
    loaded = load(f"open_clip:{name}@{path}", quick_gelu=False)
    for x, y in zip(embed(fresh, images, captions), embed(loaded, images, captions), strict=True):
        assert torch.equal(x, y)
    weights = loaded.describe()["weights"]
    assert weights["name"] == filename and len(weights["sha256"]) == 64
    assert loaded.describe()["logit_scale"] == fresh.describe()["logit_scale"]


@pytest.mark.parametrize("filename", ["open_clip_model.safetensors", "open_clip_pytorch_model.bin", "my.pt"])
def test_a_folder_gives_the_same_embeddings(model_folder, images, captions, filename):
    fresh = load(f"local-dir:{model_folder}", fresh=True, seed=6)
    save(fresh.model.state_dict(), model_folder / filename)
    loaded = load(f"local-dir:{model_folder}")
    for x, y in zip(embed(fresh, images, captions), embed(loaded, images, captions), strict=True):
        assert torch.equal(x, y)
    facts = loaded.describe()
    assert facts["weights"]["name"] == filename
    assert "mean=(0.5, 0.4, 0.3)" in facts["preprocessing"] or "mean=[0.5, 0.4, 0.3]" in facts["preprocessing"]
    assert "small-words" in facts["tokenizer"] and str(model_folder) not in json.dumps(facts)


def test_the_activation_of_a_checkpoint_is_asked_for_and_used(tmp_path, images, captions):
    path = save(state_of("open_clip:tiny-vit/fresh", seed=1), tmp_path / "w.pt")
    with pytest.raises(InputError, match=r"does not state its activation; add quick_gelu=true .* or quick_gelu=false"):
        resolve_encoder(f"open_clip:tiny-vit@{path}")
    with pytest.raises(InputError, match="is built with QuickGELU; for quick_gelu=false, use tiny-vit"):
        resolve_encoder(f"open_clip:tiny-vit-quickgelu@{path}", quick_gelu=False)
    plain = load(f"open_clip:tiny-vit@{path}", quick_gelu=False)
    quick = load(f"open_clip:tiny-vit@{path}", quick_gelu=True)
    named = load(f"open_clip:tiny-vit-quickgelu@{path}")
    activations = [encoder.describe()["activation"] for encoder in (plain, quick, named)]
    assert activations == ["GELU", "QuickGELU", "QuickGELU"]
    rows = [embed(encoder, images, captions)[0] for encoder in (plain, quick, named)]
    assert torch.equal(rows[1], rows[2])
    assert (rows[0] - rows[1]).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tiny-vit-deep", r"Missing key\(s\) in state_dict: \""),
        ("tiny-vit-wide", "size mismatch for positional_embedding|size mismatch for visual"),
        ("tiny-vit-larger", r"size mismatch for visual.positional_embedding: .*\[17, 48\]"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_one_sentence(tmp_path, name, sentence):
    path = save(state_of("open_clip:tiny-vit/fresh"), tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=sentence):
        load(f"open_clip:{name}@{path}", quick_gelu=False)


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
def test_files_that_are_none(tmp_path):
    with pytest.raises(InputError, match=r"no\.pt does not exist; a checkpoint file was expected"):
        resolve_encoder(f"open_clip:tiny-vit@{tmp_path}/no.pt", quick_gelu=False)
    with pytest.raises(InputError, match="is a directory; a checkpoint file was expected"):
        resolve_encoder(f"open_clip:tiny-vit@{tmp_path}", quick_gelu=False)
    torch.save([torch.ones(2)], tmp_path / "list.pt")
    with pytest.raises(InputError, match="does not hold a state dict"):
        load(f"open_clip:tiny-vit@{tmp_path}/list.pt", quick_gelu=False)
    traced = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))
    torch.jit.save(traced, tmp_path / "script.pt")
    with pytest.raises(InputError, match="a TorchScript archive"):
        load(f"open_clip:tiny-vit@{tmp_path}/script.pt", quick_gelu=False)


def test_a_folder_with_several_checkpoints_is_refused(model_folder):
    for name in ("a.pt", "b.pt"):
        save(load("open_clip:tiny-vit/fresh").model.state_dict(), model_folder / name)
    with pytest.raises(InputError, match=r"has several checkpoints \(a\.pt, b\.pt\)"):
        resolve_encoder(f"local-dir:{model_folder}")


def test_open_clip_itself_reads_the_folder(model_folder, images):
    """The layout is open_clip's own: it loads the same folder to the same features."""
    fresh = load(f"local-dir:{model_folder}", fresh=True, seed=6)
    save(fresh.model.state_dict(), model_folder / "open_clip_model.safetensors")
    model, transform = open_clip.create_model_from_pretrained(f"local-dir:{model_folder}")
    with torch.no_grad():
        expected = model.eval().encode_image(torch.stack([transform(image) for image in images]))
    loaded = load(f"local-dir:{model_folder}")
    assert torch.equal(loaded.image_features(torch.stack([loaded.preprocess(i) for i in images])), expected)

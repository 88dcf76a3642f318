"""transformers' models as they are initialised: the seed decides, no weights are read, biases are zero already."""

import json

import pytest
import torch

from clip_geometry.encoders import encoder_revision, load_encoder, resolve_encoder
from clip_geometry.registry import InputError


@pytest.fixture(params=["hf-clip", "hf-text"])
def name(request, hf_clip_folder, bert_folder):
    return f"{request.param}:{hf_clip_folder if request.param == 'hf-clip' else bert_folder}"


def parameters(name, **options):
    model = load_encoder(resolve_encoder(name, **options), device="cpu").model
    return {key: value.detach() for key, value in model.named_parameters()}


def test_the_seed_decides_and_the_global_generator_is_left_alone(name):
    before = torch.get_rng_state()
    loaded, first = parameters(name), parameters(name, fresh=True)
    again, other = parameters(name, fresh=True), parameters(name, fresh=True, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert loaded.keys() == first.keys()
    for key, value in first.items():
        assert torch.equal(value, again[key])
        if value.ndim > 1:
            assert not torch.equal(value, other[key])


def test_biases_are_zero_as_initialised(name):
    plain, zeroed = (parameters(name, fresh=True, zero_bias=zero) for zero in (False, True))
    assert all(torch.equal(value, zeroed[key]) for key, value in plain.items())
    assert not any(value.any() for key, value in plain.items() if key.endswith("bias"))


def test_no_weights_are_needed(name, tmp_path, request):
    import shutil
    from pathlib import Path

    family, _, folder = name.partition(":")
    bare = shutil.copytree(folder, tmp_path / "bare")
    for file in Path(bare).glob("*.safetensors"):
        file.unlink()
    encoder = load_encoder(resolve_encoder(f"{family}:{bare}", fresh=True, seed=3), device="cpu")
    assert encoder.config.is_fresh
    assert json.loads(json.dumps(encoder.describe()))["weights"] == {"name": "fresh", "seed": 3, "zero_bias": False}
    assert encoder_revision(encoder.config)
    with pytest.raises(InputError, match="has no weights"):
        load_encoder(resolve_encoder(f"{family}:{folder}".replace(str(folder), str(bare))), device="cpu")


def test_seed_and_zero_bias_are_for_fresh_models(name):
    assert encoder_revision(resolve_encoder(name)) != encoder_revision(resolve_encoder(name, fresh=True))
    for option in ({"seed": 1}, {"zero_bias": True}):
        with pytest.raises(InputError, match="for freshly initialised models, this one has weights"):
            resolve_encoder(name, **option)

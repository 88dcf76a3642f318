"""Devices, exact float32, pixels of any mode, a missing modality, and a hub that cannot be reached."""

import json
import os
import subprocess
import sys

import pytest
import torch

from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.runtime import inference, resolve_device
from clip_geometry.registry import InputError
from support.encoding import pixels_of


def test_auto_takes_a_gpu_if_there_is_one():
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device("cpu").type == "cpu"
    with pytest.raises(InputError, match="device is 'gpu'; expected auto, cpu, cuda"):
        resolve_device("gpu")
    with pytest.raises(InputError, match="'cuda:99' was requested, but PyTorch sees"):
        resolve_device("cuda:99")


def test_tf32_is_off_inside_and_as_the_caller_had_it_outside():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        with inference():
            assert matmul.fp32_precision == "ieee"
            assert torch.backends.cudnn.conv.fp32_precision == "ieee"
            assert not torch.is_grad_enabled()
        assert matmul.fp32_precision == "tf32"
        with pytest.raises(KeyError), inference():
            raise KeyError
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", ["ViT-B-32", "RN50"])
def test_a_gpu_gives_what_the_cpu_gives(name, images, captions):
    rows = []
    for device in ("cpu", "cuda"):
        encoder = load_encoder(f"open_clip:{name}/fresh", device=device)
        pixels = pixels_of(encoder, images)
        rows.append((encoder.image_features(pixels), encoder.text_features(encoder.tokenize(captions))))
    for cpu, gpu in zip(*rows, strict=True):
        assert gpu.device.type == "cpu"
        assert (cpu - gpu).norm() < 1e-5 * cpu.norm()


UNREACHABLE = """
import json, time
from clip_geometry.encoders import encoder_revision, load_encoder, resolve_encoder
from clip_geometry.registry import InputError
import open_clip, transformers
said = []
for model in MODELS:
    config = resolve_encoder(model)
    for attempt in (encoder_revision, load_encoder):
        start = time.perf_counter()
        try:
            attempt(config)
        except InputError as error:
            said.append([model, str(error), time.perf_counter() - start])
print(json.dumps(said))
"""
MODELS = [
    "open_clip:ViT-B-32-quickgelu/openai",
    "open_clip:ViT-B-16-SigLIP/webli",
    "open_clip:ViTamin-S/datacomp1b",
    "open_clip:ViT-B-16-SigLIP/fresh",
    "open_clip:roberta-ViT-B-32/fresh",
    "hf-hub:laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
    "hf-clip:openai/clip-vit-base-patch32",
]


@pytest.mark.slow
def test_an_unreachable_hub_is_one_sentence_at_once(tmp_path):
    """A process of its own, whose hub is a closed port and whose cache is empty."""
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    program = UNREACHABLE.replace("MODELS", repr(MODELS))
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    # a fresh model has a revision without any download
    assert [model for model, *_ in said] == [m for m in MODELS for _ in range(1 if m.endswith("fresh") else 2)]
    for model, sentence, seconds in said:
        assert "could not be fetched from huggingface.co" in sentence, model
        assert "give a local file or folder instead" in sentence and "\n" not in sentence
        assert seconds < 10, model
    assert "Traceback" not in done.stderr

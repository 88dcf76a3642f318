"""What type checkers and editors see of the package."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """import numpy as np
import torch
import clip_geometry as cg

image = np.zeros((10, 4))
reveal_type(cg.geometry.modality_gap(image, image))
reveal_type(cg.geometry.modality_gap(torch.zeros(3, 4), torch.zeros(3, 4)))
reveal_type(cg.transforms.Procrustes().fit(image, image))
reveal_type(cg.transforms.Procrustes().fit(image, image).transform(image))
reveal_type(cg.read("x.npy"))
reveal_type(cg.Pipeline("normalize").fit({"image": image}))
reveal_type(cg.geometry.measures)
reveal_type(cg.measure(image))
reveal_type(cg.measure(image)["isoscore"].value)
"""
SEEN = [
    "float",
    "torch._tensor.Tensor",
    "clip_geometry.transforms.paired.Procrustes",
    "numpy.ndarray[",
    "dict[str, clip_geometry.embeddings.Embeddings]",
    "clip_geometry.transforms.pipeline.Pipeline",
    "clip_geometry.registry.Registry[clip_geometry.geometry.measure.Measure]",
    "clip_geometry.measuring.measurement.Measurement",
    "float",
]


@pytest.mark.slow
def test_mypy_sees_the_types_of_a_short_program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = [line.partition('"')[2] for line in done.stdout.splitlines() if "Revealed type" in line]
    assert "Success" in done.stdout, done.stdout + done.stderr
    assert len(found) == len(SEEN)
    assert all(line.startswith(expected) for line, expected in zip(found, SEEN, strict=True)), found

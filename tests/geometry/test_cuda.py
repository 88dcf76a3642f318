"""On a GPU: measures of tensors that live there, their gradients, and the fused kernel as it is compiled."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from clip_geometry.geometry import measures
from support.clouds import MEASURES, arguments

DEVICE = "cuda"
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)


def on(device, sets, dtype=torch.float64):
    tensors = [torch.as_tensor(np.ascontiguousarray(each), device=device) for each in sets]
    return [each.to(dtype) if each.is_floating_point() else each for each in tensors]


@pytest.mark.parametrize("cloud", ["plain", "spectrum over four decades", "fewer rows than dimensions"])
@pytest.mark.parametrize("name", MEASURES)
def test_measures_are_those_of_the_cpu(name, cloud):
    """float64; another order of summation costs the last digits of the small eigenvalues."""
    measure = measures[name]
    if "[rows]" in name and cloud == "fewer rows than dimensions":
        pytest.skip("a null space has no distinguished basis")
    sets = arguments(measure, cloud)
    value = measure(*on(DEVICE, sets))
    assert float(value) == pytest.approx(float(measure(*on("cpu", sets))), rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("name", [name for name, measure in MEASURES.items() if measure.smooth])
def test_gradients_are_those_of_the_cpu(name):
    gradients = []
    for device in ("cpu", DEVICE):
        sets = on(device, arguments(measures[name], "plain"))
        sets[0].requires_grad_()
        value = measures[name](*sets)
        if not value.requires_grad:  # it has none, wherever it is
            pytest.skip("no gradient")
        value.backward()
        gradients.append(sets[0].grad.cpu())
    assert (gradients[0] - gradients[1]).norm() <= 1e-7 * gradients[0].norm() + 1e-12


KERNEL = f"""
import numpy as np, torch
import clip_geometry as cg
from clip_geometry.geometry.distances import by_class

rng = np.random.default_rng(0)
labels = np.arange(3001) * 7 % 11 % 4
rows = rng.normal(size=(3001, 96)) + 5 * rng.normal(size=96) + 0.5 * rng.normal(size=(4, 96))[labels]
rows, labels = (torch.as_tensor(each, device={DEVICE!r}) for each in (rows.astype(np.float32), labels))
exact = cg.geometry.silhouette_samples(rows.cpu().double(), labels.cpu())
by_class.WORTH_IT = 0
found = cg.geometry.silhouette_samples(rows, labels).cpu()
print(abs(float(found.mean() - exact.mean())), float((found - exact).square().mean().sqrt()))
"""


def test_the_compiled_kernel_keeps_float32s_digits(tmp_path):
    """In a process of its own, where nothing checks types: Triton compiles what it reads of a function."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", KERNEL], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert np.array(ran.stdout.split(), float).max() < 1e-6

"""The GPU's kernel: its cases in Triton's interpreter, that it compiles for Hopper, and who takes it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from clip_geometry.geometry import silhouette
from clip_geometry.geometry._kernels import fused_distances
from clip_geometry.geometry._kernels.fused_distances import WORTH_IT, fused_is_possible
from clip_geometry.registry import InputError

CASES = Path(__file__).with_name("interpreted_fused_distances.py")
COMPILED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from clip_geometry.geometry._kernels.fused_distances import _tiles, lift_of
from clip_geometry.geometry._kernels.fused_operands import FORMS
from clip_geometry.geometry._kernels.distance_sums import distance_sums

tiles = _tiles(FORMS["fp16x3"])
types = {"high": "*fp16", "low": "*fp16", "norms": "*fp32", "exact": "*fp32", "units": "*fp32", "codes": "*i32",
         "bounds": "*i32", "spans": "*i32", "out": "*fp64",
         "classes": "i32", "share": "fp32", "least": "fp32", "d": "i32"}
constants = {"BLOCK_M": tiles.rows, "BLOCK_N": tiles.columns, "BLOCK_K": tiles.dimensions, "SPLIT": True,
             "WITHIN": False, "PRECISION": "ieee", "LIFT": lift_of(512)}
aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(types) if "*" in types[name] or name == "d"}
source = ASTSource(distance_sums, {**types, **dict.fromkeys(constants, "constexpr")}, constants, aligned)
options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
compiled = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
print(compiled.metadata.shared, compiled.asm["ttir"], compiled.asm["ttgir"], compiled.asm["ptx"])
"""


def run(*command, tmp_path, **environment):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(tmp_path), **environment}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_the_kernel_in_the_interpreter(tmp_path):
    """In a process of its own: Triton is either interpreted or not, from its import on."""
    pytest.importorskip("triton", reason="the kernel is a Triton one")
    options = ("-q", "-p", "no:cacheprovider", "--rootdir", str(CASES.parents[2]))
    ran = run("-m", "pytest", *options, str(CASES), tmp_path=tmp_path, TRITON_INTERPRET="1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "skipped" not in ran.stdout


def test_the_kernel_compiles_for_the_tensor_cores_of_hopper(tmp_path):
    """Without a GPU: the interpreter checks no types and no shared memory."""
    pytest.importorskip("triton", reason="the kernel is a Triton one")
    ran = run("-c", COMPILED, tmp_path=tmp_path, TRITON_INTERPRET="0")
    assert ran.returncode == 0, ran.stderr
    assert ".target sm_90a" in ran.stdout
    assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16" in ran.stdout
    assert int(ran.stdout.split()[0]) <= 99 * 1024  # of any GPU from Ampere on
    # where the rows of a tile begin, and those of its columns: a million rows of 4096 are more than 2³¹ entries
    assert len(re.findall(r"arith\.muli .* : i64", ran.stdout.partition("ttg.")[0])) == 2
    # each chain of three products begins at 0, and the tensor cores add nothing to the sum of all
    products = re.findall(r"(%\S+) = ttng\.warp_group_dot \S+ \S+ (%\S+) ", ran.stdout)
    assert len(products) == 3 and products[0][1].startswith("%cst")


class OnGpu:
    """Rows that say they are on a GPU."""

    is_cuda, device, requires_grad = True, torch.device("cuda"), False

    def __init__(self, n=WORTH_IT, dtype=torch.float32):
        self.n, self.dtype = n, dtype

    def __len__(self):
        return self.n


@pytest.mark.parametrize(
    ("capability", "cuda", "given", "possible"),
    [
        ((9, 0), "13.0", {}, True),
        ((8, 0), "13.0", {"dtype": torch.float16}, True),
        ((7, 5), "13.0", {}, False),  # Triton's least
        ((9, 0), None, {}, False),  # AMD's
        ((9, 0), "13.0", {"n": WORTH_IT - 1}, False),
        ((9, 0), "13.0", {"dtype": torch.float64}, False),
    ],
)
def test_large_float32_sets_on_a_gpu_take_the_kernel(capability, cuda, given, possible, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(fused_distances, "_kernel", lambda: object())
    decide = getattr(fused_is_possible, "__wrapped__", fused_is_possible)  # without the check of types
    assert decide(OnGpu(**given)) == possible


def test_without_triton_rows_are_measured_as_elsewhere(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "clip_geometry.geometry._kernels.distance_sums", raising=False)
    assert fused_distances._kernel() is None
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(InputError, match="expected Triton"):
        silhouette(np.eye(4, dtype="float32"), [0, 0, 1, 1], products="ieee")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"products": "fp8"},
            "products 'fp8' is unknown; known are 'fp16x3', 'tf32x3', 'ieee', 'tf32', 'fp16', 'bf16'",
        ),
        ({"products": "tf32"}, "asked for of rows on cpu; expected Triton and rows on an NVIDIA GPU"),
        ({"products": "tf32", "metric": "cosine"}, "only 'euclidean' has a choice"),
    ],
)
def test_products_that_cannot_be_had(options, message):
    with pytest.raises(InputError, match=message):
        silhouette(np.eye(4, dtype="float32"), [0, 0, 1, 1], **options)

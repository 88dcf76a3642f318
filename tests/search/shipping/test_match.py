"""Match models in other programs: the script and the ONNX models give our probabilities."""

import runpy
import subprocess
import sys

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.registry import InputError
from clip_geometry.search.shipping import write_match

TOP, SEARCH = np.array([[0.8, 0.6, 0.5], [0.7, 0.69, 0.5]]), {"mean": [0.1, 0.2], "std": [0.2, 0.25]}


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    item = rng.normal(size=(300, 16))
    return cg.match(*(item + 0.7 * rng.normal(size=(300, 16)) for _ in range(2)))


def test_the_script_gives_the_same_and_imports_numpy_only(fitted, tmp_path):
    write_match(fitted, "numpy", tmp_path / "out")
    script = runpy.run_path(str(tmp_path / "out" / "match.py"))
    for direction, model in fitted.items():
        for m in (50, 300, 10_000):
            expected = model.probability(TOP, **SEARCH, m=m)
            np.testing.assert_allclose(script["probability"](direction, TOP, *SEARCH.values(), m), expected, rtol=1e-12)
            assert script["cutoff"](direction, 0.05, m) == pytest.approx(model.cutoff(0.05, m=m), rel=1e-12)
        assert script["cutoff"](direction) == pytest.approx(model.cutoff(), rel=1e-12)
    program = "import match, sys; assert not {'torch', 'clip_geometry'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "out", check=True)


@pytest.mark.parametrize(
    ("top", "rate", "message"),
    [
        (TOP[:, :1], 0.05, "top: expected"),
        (TOP[:, ::-1], 0.05, "top: expected"),
        (100 * TOP, 0.05, "top: expected"),
        (TOP, 5, "false_accepts: expected"),
    ],
)
def test_the_script_refuses_what_are_no_cosines_in_order(fitted, tmp_path, top, rate, message):
    write_match(fitted, "numpy", tmp_path / "out")
    script = runpy.run_path(str(tmp_path / "out" / "match.py"))
    with pytest.raises(ValueError, match=message):
        script["probability"]("image_to_text", top, *SEARCH.values(), 300)
        script["cutoff"]("image_to_text", rate)


def test_onnx_gives_the_same(fitted, tmp_path):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    write_match(fitted, "onnx", tmp_path / "out")
    for direction, model in fitted.items():
        session = onnxruntime.InferenceSession(tmp_path / "out" / f"{direction}.onnx")
        inputs = {"top": TOP[:, :2], **SEARCH, "m": [300]}
        (found,) = session.run(None, {name: np.float32(value) for name, value in inputs.items()})
        np.testing.assert_allclose(found, model.probability(TOP, **SEARCH, m=300), atol=1e-5)  # float32


def test_what_cannot_be_shipped_is_a_sentence(fitted, tmp_path):
    with pytest.raises(InputError, match="--to 'faiss' stores rows, and match models have none; choose numpy or onnx"):
        write_match(fitted, "faiss", tmp_path / "out")
    nothing = cg.match(*np.random.default_rng(0).normal(size=(2, 100, 16)))
    with pytest.raises(InputError, match="the model of image_to_text has no probabilities that identify matches"):
        write_match(nothing, "numpy", tmp_path / "out")
    assert not (tmp_path / "out").exists()

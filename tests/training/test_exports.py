"""What `clip_geometry.training` exports: lazily, with examples that run, and one sentence for a missing package."""

import doctest
import subprocess
import sys
import warnings

import pytest

import clip_geometry
from clip_geometry import training
from clip_geometry.registry import InputError

NEEDS = {
    "GeometryEvaluator": "sentence_transformers",
    "LightningGeometry": "lightning",
    "GeometryCallback": "accelerate",
}


@pytest.mark.parametrize("name", training.__all__)
def test_the_example_runs(name, tmp_path, monkeypatch):
    for package in ("torchmetrics", NEEDS.get(name, "torchmetrics")):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    exported = getattr(training, name)
    module = sys.modules[exported.__module__]
    tests = [
        test for test in doctest.DocTestFinder(recurse=False).find(exported, name, module, globs={}) if test.examples
    ]
    assert len(tests) == 1
    said = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        failed, tried = runner.run(tests[0], out=said.append)
    assert tried and not failed, "".join(said)


def test_importing_is_light():
    heavy = ("torch", "torchmetrics", "lightning", "transformers", "sentence_transformers")
    code = f"import sys, clip_geometry.training; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "package", "install"),
    [
        ("EmbeddingGeometry", "torchmetrics", "torchmetrics"),
        ("GeometryMonitor", "torchmetrics", "torchmetrics"),
        ("LightningGeometry", "lightning", "lightning"),
        ("GeometryEvaluator", "sentence_transformers", "sentence-transformers"),
    ],
)
def test_a_missing_package_is_one_sentence(name, package, install, monkeypatch):
    for module in [each for each in sys.modules if each.startswith("clip_geometry.training.")]:
        monkeypatch.delitem(sys.modules, module)
    for module in [each for each in sys.modules if each == package or each.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    vars(training).pop(name, None)  # which is kept from its first use on
    with pytest.raises(InputError) as error:
        getattr(training, name)
    assert str(error.value) == f"{name} needs {package}, which is not installed: pip install {install}"


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(training, "EmbeddingGeometri")
    assert "EmbeddingGeometry" not in dir(clip_geometry)  # it needs an extra

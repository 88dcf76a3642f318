"""The examples in the docstrings of the exported names run and print what they say."""

import doctest
import sys

import pytest

import clip_geometry
from support.public import PUBLIC


def examples():
    """(name, its doctest) of every exported name, and the names without one."""
    finder, found, without = doctest.DocTestFinder(recurse=False), [], set()
    for name, exported in PUBLIC.items():
        module = sys.modules[getattr(exported, "__module__", None) or clip_geometry.__name__]
        documented = (callable(exported) and getattr(exported, "__doc__", None)) or ""
        if ">>>" in documented:
            found.extend(pytest.param(test, id=name) for test in finder.find(exported, name, module, globs={}))
        elif callable(exported):
            without.add(name)
    return found, without


EXAMPLES, WITHOUT = examples()
SHOWN_ELSEWHERE = {  # in the how-to pages on adding something, and where they are returned
    *("Dataset", "DatasetConfig", "Encoder", "EncoderConfig", "Tokens"),
    *("Transform", "PairedTransform", "OntoTransform", "register", "add_evaluator"),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert tried and not failed, "".join(said)


def test_every_exported_name_has_an_example():
    assert WITHOUT == SHOWN_ELSEWHERE, f"exported names without an example: {sorted(WITHOUT)}"

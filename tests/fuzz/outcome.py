"""The property that everything here has: a call gives a value that may be believed, or refuses in one sentence."""

import inspect
import math
import re
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import chdir, contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from sklearn.exceptions import ConvergenceWarning

from clip_geometry.geometry import measures
from clip_geometry.registry import InputError
from clip_geometry.transforms import RankWarning

ROUNDING = 1e-9  # of bounds


def fuzzed(examples, **strategies):
    """`given`, with so many examples in the default profile and 50 times as many under -m fuzz."""
    times = settings.default.max_examples
    assert times in (1, 50), "the folder of this test has no conftest.py that loads a profile of fuzz/profiles.py"
    return lambda test: settings(max_examples=examples * times)(given(**strategies)(test))


def outcome(call, *arguments, refusals=(), **keywords):
    """What the call gives, all of its numbers finite; None where it refused in one sentence.

    Any other exception, a warning that is not ours and a sentence that is none of one line fail. refusals: exceptions
    that the call may raise besides, as its docstring says.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RankWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)  # of classifiers, which say that they give it
        try:
            return call(*arguments, **keywords)
        except refusals:
            return None
        except InputError as error:
            require_sentence(str(error))
        except TypeError as error:  # Python's own, of an argument that is missing or unknown
            require_sentence(str(error))
            if not re.search(r"argument(s|:)?\b.*'\w+'|'\w+' is an invalid keyword argument", str(error)):
                raise
    return None


def require_sentence(text):
    assert text.isprintable() and 0 < len(text) <= 400, f"{len(text)} characters: {text!r}"
    assert " at 0x" not in text, text


def require_finite(value):
    """Fails for NaN and infinity anywhere in numbers, arrays, tensors, mappings, sequences and data classes."""
    if isinstance(value, torch.Tensor):
        value = value.detach().double().numpy() if value.is_floating_point() else None
    if isinstance(value, float | np.ndarray):
        assert np.asarray(value).dtype.kind not in "fc" or np.isfinite(value).all(), value
    elif isinstance(value, Mapping):
        require_finite(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            require_finite(part)
    elif is_dataclass(value):
        require_finite([getattr(value, field.name) for field in fields(value)])


def require_ranges(function, options, value, d):
    """Fails where a registered number of this function, with these options, is outside its range."""
    usual = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
    registered = [measure for measure in measures.values() if measure.function is function]
    for measure in registered:
        if not all(
            {**usual, **measure.options}[key] is {**usual, **options}[key] for m in registered for key in m.options
        ):
            continue
        try:
            number = float(torch.as_tensor(measure.pick(value), dtype=torch.float64).detach())
        except KeyError:  # accuracy among five of three classes, say
            continue
        low, high = (d if bound == "d" else bound for bound in measure.range)
        assert math.isfinite(number), f"{measure.name} is {number}"
        slack = ROUNDING * max(1, abs(number))
        assert low - slack <= number <= high + slack, f"{measure.name} is {number}, not from {low} to {high}"


@contextmanager
def sandbox(files, *targets):
    """A folder with these files (name → bytes), which is the current one; fails where anything but a target, a name in
    it, is written into it or beside it."""
    with tempfile.TemporaryDirectory() as around:
        folder = Path(around, "here")
        write(folder, files)
        before = listing(around)
        with chdir(folder):
            yield folder
        after = {name: mark for name, mark in listing(around).items() if name.parts[1:2] not in [(t,) for t in targets]}
        assert after == before, after.items() ^ before.items()


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def listing(folder):
    return {
        path.relative_to(folder): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in Path(folder).rglob("*")
        if not path.is_dir()
    }


def contents(folder):
    """The files in a folder as `write` takes them."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

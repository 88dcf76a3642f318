"""Calls every public function with wrong arguments, and prints what is not an InputError.

A program of its own: in tests, jaxtyping checks annotations before the functions check their arguments.
"""

import inspect
import os
import sys
import warnings

import numpy as np

import clip_geometry as cg
from support.public import PUBLIC

WRONG = [
    None,
    3,
    -1.5,
    float("nan"),
    "x",
    "",
    b"x",
    [],
    [1, 2],
    {"image": 3},
    object(),
    np.zeros((0, 3)),
    np.array(3.0),
]
X = np.random.default_rng(0).normal(size=(12, 4))
GIVEN = {"to": "parquet", "modality": "image", "zeta": 0.2}  # keywords without a default
FAST = {"umap": False, "splits": 2}
TRAINING = ("CollapseAlarm", "EmbeddingGeometry", "GeometryEvaluator", "GeometryMonitor", "plot_training")
# base classes for encoders, data sets and transforms of other packages, which pydantic and abc check; and
# registrations, which would stay where they succeed
NOT_CALLED = {
    *("DatasetConfig", "EncoderConfig", "Encoder", "Dataset", "Tokens"),
    *("register", "add_measure", "add_evaluator", "MatchModel"),
}


def functions():
    training = {name: getattr(cg.training, name) for name in TRAINING}
    for name, public in (PUBLIC | training).items():
        is_error = isinstance(public, type) and issubclass(public, Exception)
        if callable(public) and not is_error and name not in NOT_CALLED:
            yield name, public


def calls(function):
    """Arguments of which one, or all positional ones, are wrong."""
    parameters = inspect.signature(function).parameters.values()
    needed = [each for each in parameters if each.default is each.empty]
    keywords = {each.name: GIVEN[each.name] for each in needed if each.kind is each.KEYWORD_ONLY}
    keywords |= {each.name: FAST[each.name] for each in parameters if each.name in FAST}
    count = sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in needed)
    optional = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY or each.default is not each.empty]
    for wrong in WRONG:
        yield [wrong] * count, keywords
        for k in range(count):
            yield [X] * k + [wrong] + [X] * (count - k - 1), keywords
        for name in optional:
            yield [X] * count, {**keywords, name: wrong}


def main():
    os.chdir(sys.argv[1])
    warnings.simplefilter("ignore")
    count = 0
    for name, function in functions():
        for given, keywords in calls(function):
            count += 1
            try:
                function(*given, **keywords)
            except cg.InputError:
                pass
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error} ({given}, {keywords})"[:400].replace("\n", " "))
    print(count)


if __name__ == "__main__":
    main()

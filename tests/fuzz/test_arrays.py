"""Rows and settings of every kind through every public function of arrays."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import clip_geometry as cg
from clip_geometry.geometry import measures
from clip_geometry.steps import transforms
from fuzz.outcome import fuzzed, outcome, require_finite, require_ranges
from fuzz.strategies import LONG, SCALES, SIZES, WIDTHS, arrays, junk, labels, often, rarely, rows
from support.public import PUBLIC

FUNCTIONS = {
    **{each.function.__name__: each.function for each in cg.geometry.measures.values()},
    **{name: PUBLIC[name] for name in ("conformity", "coordinate_std", "ensemble", "isoscore_star", "average_cosine")},
    **{name: PUBLIC[name] for name in ("partition_isotropy", "partition_over", "silhouette_samples")},
    "singular_values": cg.geometry.singular_values,
}
SLOW = {"modality_separability": 2, "linear_probe": 4}
LABELS = {"labels", "types", "train_y", "test_y", "fit_labels", "classes"}
USUAL = {  # of settings by their name, or by the type of their default
    "k": [1, 2, 3, (1, 2), 10],
    "pairs": [None, np.array([[0, 1, 2], [0, 1, 2]])],
    "C": [1.0, [0.1, 1.0], "cross-validated"],
    "known": [0.5, [0, 1]],
    "zeta": [0, 0.2, 1.0],
    "metric": ["euclidean", "sqeuclidean", "cosine"],
    "index": ["cross", "mixed"],
    "logits": ["cosine", "dot", "neg_distance"],
    "transform": [None, "center", "normalize,pca(1)"],
    str: ["inter", "invariant", "canonical", "rows", "mackay", "levina-bickel", "cai2021", "sklearn", "torch"],
    bool: [True, False],
    int: [0, 1, 2, 7, 0.1, 0.5, 2.0, 20],
}


@st.composite
def calls(draw, function):
    """(arguments, settings) of a function, by the names of its parameters; mostly of one size."""
    n, d = draw(often(SIZES, st.just(110))), draw(WIDTHS)
    given, settings = {}, {}
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        if name in LABELS:
            given[name] = draw(often(st.just(np.arange(n) % 3), labels(n)) if "class_text" in parameters else labels(n))
        elif name == "class_text":
            given[name] = draw(rows(3, d))
        elif name == "covariance":
            root = draw(arrays(d, d, [np.float64])).clip(-1e150, 1e150)
            given[name] = root.T @ root
        elif name in USUAL or parameter.kind == parameter.KEYWORD_ONLY:
            usual = USUAL.get(name, USUAL.get(type(parameter.default), USUAL[int]))
            if parameter.default is parameter.empty or draw(rarely(4)):
                settings[name] = draw(often(st.sampled_from(usual), junk, 5))
        else:
            given[name] = draw(rows(n, d))
    if draw(rarely(60)):
        settings["unknown_setting"] = 1
    return given, settings


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function = FUNCTIONS[name]

    @fuzzed(SLOW.get(name, 6), call=calls(function))
    def holds(call):
        given, settings = call
        value = outcome(function, **given, **settings)
        if value is not None:
            require_finite(value)
            require_ranges(function, settings, value, np.shape(next(iter(given.values())))[-1])

    holds()


QUICK = [*cg.geometry.measures, *(measure for measure in measures.values() if measure.function.__name__ not in SLOW)]
ODD = junk.filter(lambda value: not callable(value))  # the errors of a function of the user's are its own
MEASURES, OTHER = often(st.sampled_from(QUICK), ODD), often(rows(12, 3), labels(12), 2)
DRAWS = often(st.integers(0, 4), st.sampled_from(["1", -1, 10**30, 2.5, None]))
COUNTS = often(st.integers(0, 13), junk)
NULL = {"n_text": COUNTS, "labels": labels(10), "scale": often(st.sampled_from(SCALES), junk), "draws": DRAWS}


@fuzzed(25, measure=MEASURES, n=COUNTS, d=COUNTS, options=st.fixed_dictionaries({}, optional={**NULL, "seed": junk}))
def test_null_value(measure, n, d, options):
    require_finite(outcome(cg.geometry.null_value, measure, n, d, **options))


@fuzzed(25, measure=MEASURES, x=rows(12, 3), y=OTHER, blocks=COUNTS)
def test_standard_error(measure, x, y, blocks):
    require_finite(outcome(cg.geometry.standard_error, measure, x, blocks=blocks))
    require_finite(outcome(cg.geometry.standard_error, measure, x, y, blocks=blocks))


TAILS = often(st.sampled_from(["two-sided", "greater", "less"]), junk)


@fuzzed(25, measure=MEASURES, x=rows(12, 3), y=OTHER, draws=DRAWS, alternative=TAILS)
def test_permutation_test(measure, x, y, draws, alternative):
    found = outcome(cg.geometry.permutation_test, measure, x, y, draws=draws, alternative=alternative)
    require_finite(found)
    assert found is None or 0 < found.p_value <= 1


@fuzzed(25, x=rows(d=3), y=rows(d=3))
def test_moments(x, y):
    a, b = outcome(cg.Moments.of, x), outcome(cg.Moments.of, y)
    for found in filter(None, (a, b, a and b and outcome(lambda: a + b))):
        require_finite(found)
        for measure in (cg.geometry.participation_ratio, cg.geometry.isoscore, cg.geometry.effective_rank):
            value = outcome(measure, found)
            require_ranges(measure, {}, value, found.d) if value is not None else None


STEPS = st.builds(
    "{}{}{}".format,
    st.sampled_from([*transforms, "", "normalise", "whiten(", LONG, "é\x1b[1m"]),
    st.sampled_from(
        ["", *map("({})".format, ["0", "1", "2", "2.5", "-1", "9" * 20, "nan", "true", "none", "k=2", "x=1"])]
    ),
    st.sampled_from(
        ["", "", "[pooled]", "[image]", "[text]", "[each]", "[text-to-image]", "[image-to-text]", "[both]"]
    ),
)
SETS = st.fixed_dictionaries({"image": rows(8, 3), "text": rows(8, 3)}, optional={"any": rows(8, 3)})
PAIRS = st.sampled_from([None, (np.arange(8), np.arange(8))])


@fuzzed(
    60,
    steps=often(st.lists(STEPS, max_size=4), junk, 30),
    joined=st.booleans(),
    sets=often(SETS, junk, 30),
    pairs=often(PAIRS, junk),
    moved=rows(5, 3),
)
def test_pipelines(steps, joined, sets, pairs, moved):
    steps = ",".join(map(str, steps)) if joined and isinstance(steps, list) else steps
    pipeline = outcome(cg.Pipeline, steps)
    fitted = pipeline and outcome(pipeline.fit, sets, pairs)
    if fitted and pipeline.steps:
        require_finite(outcome(fitted.transform, {"image": moved}))
        affine = outcome(fitted.affine, "image")
        require_finite(affine and outcome(affine, moved))


@fuzzed(25, x=arrays(8, 3, [np.float32]), hidden=often(st.none(), junk), mask=often(st.none(), junk), weight=junk)
def test_losses(x, hidden, mask, weight):
    states = torch.from_numpy(x).requires_grad_()
    for make in (cg.training.CosReg, cg.training.IStar):
        outcome(make, weight)
        value = outcome(make(0.5), [states, states] if hidden is None else hidden, mask)
        if hidden is None and value is not None and np.abs(x).max(initial=0) < 1e15:  # beyond, a step is skipped
            value.backward()
            require_finite([value, states.grad])


@fuzzed(
    25,
    vectors=rows(6, 2),
    modality=often(st.sampled_from(["image", "text"]), junk),
    item_id=often(st.sampled_from([None, np.array(list("abcdef"), dtype=object), list("aabbcc")]), labels(6)),
    pair_on=often(st.sampled_from(["item_id", "label"]), junk),
    of=labels(6),
)
def test_embeddings_and_pairs(vectors, modality, item_id, pair_on, of):
    a = outcome(cg.Embeddings, vectors, modality, item_id=item_id, labels=of, pair_on=pair_on)
    b = outcome(cg.Embeddings, vectors, "text", item_id=item_id, labels=of)
    if a is not None and b is not None:
        found = outcome(cg.pair, a, b)
        assert found is None or len(found[0]) == len(found[1]) > 0

"""The figures of fresh models draw the numbers of their rows, and captions say what these are."""

import numpy as np
import pytest

from clip_geometry_experiments.tyshchuk2023.initialization.figures import layer_curves, table_of, tell

pytestmark = pytest.mark.usefixtures("unrendered")

OPERATIONS = ["attention normalisation", "attention", "attention residual", "mlp normalisation", "mlp", "mlp residual"]


def row(model="a/fresh", modality="text", seed=0, zero=False, mode=None, value=0.5, layer=None, operation=None, **more):
    at = {"modality": modality} | ({} if layer is None else {"layer": layer, "operation": operation})
    options = {"seed": seed, "zero_bias": zero} | ({} if mode is None else {"batch_norm": mode})
    about = {"dataset": "a set", "data_options": {"size": 9}, "n": 9, "batch_size": 9}
    origin = {"measure": "average_cosine", "model": model, "model_options": options, "cell": f"{model}{options}{at}"}
    return {**about, **origin, "value": value, "at": at, **more}


def tower(seed=0, zero=False, shift=0.0):
    """Rows of a text tower of one block."""
    about = {"seed": seed, "zero": zero}
    rows = [row(layer=0, operation="embedding", value=0.9, **about)]
    for k, name in enumerate(OPERATIONS):
        rows.append(row(layer=1, operation=name, value=0.4 + k / 100 + shift, **about))
    rows.append(row(layer=2, operation="projection", value=0.5 + shift, **about))
    return [row(value=0.5 + shift, **about), *rows]


def test_a_curve_is_the_mean_over_seeds_at_the_place_of_its_operation():
    """Attention lies half way, the MLP at the end of its block."""
    figure = layer_curves(table_of([*tower(0), *tower(1, shift=0.1), *tower(0, zero=True, shift=0.2)]))
    lines = {line.get_gid(): line.get_xydata() for line in figure.axes[0].lines}
    expected = {
        "stream:text": [(0, 0.9), (0.5, 0.47), (1, 0.5), (2, 0.55)],
        "MLP branch:text": [(1, 0.49)],
        "attention branch:text": [(0.5, 0.46)],
        "without:text": [(0, 0.9), (0.5, 0.62), (1, 0.65), (2, 0.7)],
    }
    assert set(lines) == set(expected)
    for name, points in expected.items():
        assert lines[name] == pytest.approx(np.array(points)), name


def test_the_summary_has_the_cones_with_and_without_biases():
    rows = [each for seed in (0, 1) for zero in (False, True) for each in tower(seed, zero, 0.02 * seed)]
    rows[0]["null_value"] = -0.002
    cones, zero = tell(rows)
    assert "average cosine of 0.5100 ± 0.0141; isotropic rows have 0.002 at most (± over 2 seeds)." in cones
    assert zero.startswith("With all biases zero two random texts have an average cosine of 0.5100 ± 0.0141")

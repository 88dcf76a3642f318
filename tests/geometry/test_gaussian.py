"""Values on isotropic Gaussian rows that depend on n, d or the number of classes, against theory.

Values that depend on d alone are in the registry, and test_contract.py checks those.
"""

import math

import numpy as np
import pytest
from scipy.special import gammaln, iv

from clip_geometry.geometry import null_value
from support.clouds import MEASURES

CLASSES = 4


def by_class(n):
    return np.arange(n) % CLASSES


def potential(d, t=2.0):
    """log E exp(−t‖u − v‖²) of directions: exp(−2t) times the moment generating function of a cosine at 2t."""
    order, slope = d / 2 - 1, 2 * t
    return -2 * t + gammaln(d / 2) + order * math.log(2 / slope) + math.log(iv(order, slope))


# measure → n, d, options of null_value, expected, tolerance; rows of labels are assigned to four classes
THEORY = {
    "uniformity": (1500, 8, {}, potential(8), 0.02),
    "cross_uniformity": (1500, 8, {}, potential(8), 0.02),
    # class means of m rows have variance 1/m along C − 1 directions, in each of which rows have (m − 1)/m
    "nc1": (200, 400, {"labels": by_class(200)}, 49 * 3 / 400, 0.05),
    "nc2_norm": (40, 4000, {"labels": by_class(40)}, 0, 0.03),
    "nc2_angle": (40, 4000, {"labels": by_class(40)}, 0, 0.03),
    "nc3": (40, 4000, {"labels": by_class(40)}, 2**0.5, 0.03),
    "nc4": (2000, 200, {"labels": by_class(2000), "draws": 4}, 1 - 1 / CLASSES, 0.12),
    "nesum": (4000, 3, {}, 3, 0.25),
    # unit rows of three dimensions lie on a surface
    "two_nn": (2000, 3, {"prepare": lambda rows: rows / rows.norm(dim=1, keepdim=True)}, 2, 0.15),
    "lid": (2000, 3, {"prepare": lambda rows: rows / rows.norm(dim=1, keepdim=True)}, 2, 0.15),
    # a neighborhood of perplexity 30 weighs like 25 rows: two labels count 1/(1/2 + 1/2/25)
    "ilisi": (1000, 6, {}, 0.92, 0.03),
    "clisi": (1000, 6, {}, 0.08, 0.03),
}
# family → the test that has it, or why there is no theory
ELSEWHERE = {
    "rayleigh": "test_isotropy.py",
    "bingham": "test_isotropy.py",
    "sphericity": "test_isotropy.py",
    "gap_shift_share": "a ratio of two values that tend to 0",
    "modality_gap": "of directions: two means of noise have any",
    "hubness": "grows with d",
    "robin_hood": "grows with d",
    "antihub_share": "grows with d",
}


@pytest.mark.parametrize("name", THEORY)
def test_gaussian_rows_have_the_value_of_theory(name):
    n, d, options, expected, tolerance = THEORY[name]
    assert null_value(name, n, d, **options) == pytest.approx(expected, abs=tolerance)


def test_every_measure_has_a_gaussian_value():
    families = {name.partition("[")[0] for name, measure in MEASURES.items() if measure.at_gaussian is None}
    assert families <= {*THEORY, *ELSEWHERE}

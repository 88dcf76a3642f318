"""What is said of a training is what its curves do, with ties and the null of shuffled labels."""

import numpy as np

from clip_geometry_experiments.mickus2024.classify.figures import sentences

RISES = np.array([[0.0, 0.1, 0.3], [0.0, 0.2, 0.4]])
FALLS = np.array([[0.3, 0.2, 0.05], [0.3, 0.1, 0.04]])
CURVES = {
    ("silhouette", "trained", "input"): RISES,
    ("isoscore", "trained", "input"): FALLS,
    ("classify.accuracy", "trained", "output"): 0.5 + RISES,
    ("classify.accuracy", "held out", "output"): 0.4 + RISES,
}
SHUFFLED = {("silhouette", "shuffled labels", "input"): RISES, ("isoscore", "shuffled labels", "input"): -RISES}


def test_a_run_has_its_change_its_correlation_and_its_accuracy():
    change, pearson, accuracy = sentences({"": {**CURVES, **SHUFFLED}})
    assert "the silhouette of the classes rises (0 to 0.3500) and IsoScore falls (0.3000 to 0.0450)" in change
    r = np.array([np.corrcoef(x, y)[0, 1] for x, y in zip(RISES, FALLS, strict=True)])
    assert (
        f"a correlation of −{abs(r.mean()):.2f} ± {r.std(ddof=1):.2f}; with randomly permuted labels it is −1.00"
        in pearson
    )
    assert "0.85 ± 0.07 on trained examples and 0.75 ± 0.07 on held-out examples." in accuracy


def test_a_change_within_two_standard_errors_over_the_seeds_is_none():
    undecided = {**CURVES, ("silhouette", "trained", "input"): np.array([[0.0, 0.1, 0.3], [0.0, 0.1, -0.2]])}
    assert "silhouette of the classes does not change beyond the error" in sentences({"": undecided})[0]

"""How often value ± 1.96 standard errors holds the expected value, for every measure that prints ±.

python tests/measuring/test_coverage.py OUT.jsonl: all of it, for docs/null_value.md; an hour on one core, resumable.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry import by_group, measures
from clip_geometry.measuring.sets import CORE, MeasuredSets
from clip_geometry.registry import InputError
from support.structured import KINDS, drawn, noise

# on unit rows they are one another, or linear in one another
SAME = {"modality_silhouette[cosine]", "silhouette[cosine]", "participation_ratio", "isoscore", "alignment"}
NAMES = [
    name
    for name in dict.fromkeys([*(each.name for each in by_group()), *CORE])
    if measures[name].smooth and not measures[name].shares and name not in SAME
]
CHEAP = [name for name in NAMES if not measures[name].quadratic]
FEW = ["average_cosine", "modality_gap", "matching_cosine", "isoscore[unbiased]", "silhouette[sqeuclidean]"]


def estimates(kind, n, seed, names):
    """Measure → value and standard error in one draw of n items."""
    rng = np.random.default_rng([seed, n])
    image, text, labels = noise(n, rng) if kind == "noise" else drawn(kind, n, rng)
    sets = {"image": Embeddings(image, "image", None, labels), "text": Embeddings(text, "text", None, labels)}
    measured, found = MeasuredSets(sets, (), seed=seed), {}
    for name in names:
        place = "both" if measures[name].inputs.across else "image"
        try:
            error = measured.errors(measures[name], place).get("standard_error")
            found[name] = measured.value(measures[name], place), error
        except InputError:  # a class without two rows
            continue
    return found


def summary(draws):
    """Measure → mean, true standard deviation, mean standard error over it, coverage, number of draws."""
    found = {}
    for name in dict.fromkeys(name for each in draws for name in each):
        values, errors = np.array([each[name] for each in draws if name in each], dtype=float).T
        spread = values.std(ddof=1)
        covered = np.mean(np.abs(values - values.mean()) <= 1.96 * errors)
        found[name] = values.mean(), spread, np.sqrt(np.square(errors).mean()) / spread, covered, len(values)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "n"), [*((kind, 100) for kind in KINDS), ("cone", 300)])
def test_every_error_covers_the_expected_value(kind, n):
    """In 90 to 98% of the intervals, and two deviations (3.1% of 200 draws) beyond: the simulation is no finer."""
    names = NAMES if n == 100 else CHEAP
    found = summary([estimates(kind, n, seed, names) for seed in range(200)])
    outside = {name: row for name, row in found.items() if not 0.90 - 0.031 <= row[3] <= 0.98 + 0.015}
    assert not outside
    assert np.median([row[3] for row in found.values()]) == pytest.approx(0.94, abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_the_core_cover_the_expected_value(kind):
    """The same of means and moments, in 120 draws of 100 items (two deviations are 5.5% below and 2.5% above)."""
    found = summary([estimates(kind, 100, seed, FEW[:4]) for seed in range(120)])
    assert all(0.90 - 0.055 <= row[3] <= 0.98 + 0.015 for row in found.values()), found


def test_without_structure_the_errors_are_too_large():
    """By a factor of 1.3 to 2 where the first-order effect of a row vanishes, as docs/null_value.md says."""
    found = summary([estimates("noise", 100, seed, ["average_cosine", *FEW[3:]]) for seed in range(60)])
    assert all(1.2 < row[2] < 2.1 for row in found.values()), found


@pytest.mark.parametrize("name", ["conformity_std", "isotropy_i1", "mutual_knn", "retrieval.image_to_text.median_rank"])
def test_measures_whose_jackknife_does_not_hold_have_no_error(name):
    """In simulations their intervals hold in 87%, 87% and 99% of draws; the median of ranks is not smooth at all."""
    image, text, _ = drawn("cone", 60, np.random.default_rng(0))
    sets = {"image": Embeddings(image, "image"), "text": Embeddings(text, "text")}
    place = "both" if measures[name].inputs.across else "image"
    assert MeasuredSets(sets, ()).errors(measures[name], place) == {}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    done = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in done]
    plan = [*((kind, 100, 200, NAMES) for kind in (*KINDS, "noise")), ("cone", 300, 120, CHEAP)]
    plan += [("clusters", 300, 120, CHEAP), ("hubs", 300, 120, CHEAP), ("cone", 2000, 100, FEW)]
    with path.open("a") as file:
        for kind, n, count, names in plan:
            start = sum(row[:2] == [kind, n] for row in rows)
            for seed in range(start, count):
                rows.append([kind, n, estimates(kind, n, seed, names)])
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
    for kind, n, *_ in plan:
        for name, row in summary([draw for *at, draw in rows if at == [kind, n]]).items():
            print(f"{kind:9} {n:5} {name:36} {row[0]:9.4f} {row[1]:8.5f} {row[2]:5.2f} {row[3]:.3f} {row[4]}")

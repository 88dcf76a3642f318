"""What the states of a training under a classifier say about clusters and isotropy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from clip_geometry.display.numbers import fixed, number
from clip_geometry_experiments.mickus2024.classify.figures import Curves, Relation, first_relation, words

ACCURACY = "classify.accuracy"


def sentences(runs: Mapping[str, Curves]) -> list[str]:
    """Whether clusters grow, what isotropy does meanwhile, how both correlate, and whether the task is learned.

    Args:
        runs: Name of a run → its curves; errors are standard deviations over seeds.
    """
    relations = {name: each for name, curves in runs.items() if (each := first_relation(curves)) is not None}
    if not relations:
        return []
    if len(runs) > 1:
        changes = {name: _changes(each) for name, each in relations.items()}
        rises = {kind: [name for name, each in changes.items() if each[kind] > 0] for kind in Relation._fields}
        falls = {kind: [name for name, each in changes.items() if each[kind] < 0] for kind in Relation._fields}
        ranked = sorted((r[0], name, _text(*r)) for name, each in relations.items() if (r := _pearson(each)))
        return [
            words("runs_changes", rises, falls, len(relations)),
            *([words("runs_pearson", ranked)] if ranked else []),
        ]
    ((name, relation),) = relations.items()
    curves, seeds = runs[name], len(relation.silhouette)
    ends = {kind: [number(float(values[:, k].mean())) for k in (0, -1)] for kind, values in relation._asdict().items()}
    r, null = _pearson(relation), first_relation(curves, "shuffled labels")
    r_null = _pearson(null) if null is not None else None
    found = [words("change", ends, _changes(relation), seeds)]
    if r:
        found.append(words("pearson", _text(*r), _text(*r_null) if r_null else None, seeds))
    accuracies = {place[1]: _text(*_spread(values[:, -1])) for place, values in curves.items() if place[0] == ACCURACY}
    return found + ([words("accuracies", accuracies)] if accuracies else [])


def _changes(relation: Relation) -> dict[str, int]:
    """1 where a curve rises, −1 where it falls, 0 where the change is within two standard errors over the seeds."""
    signs = {}
    for kind, values in relation._asdict().items():
        change = values[:, -1] - values[:, 0]
        error = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else 0.0
        signs[kind] = int(np.sign(change.mean())) if abs(change.mean()) > 2 * error else 0
    return signs


def _pearson(relation: Relation) -> tuple[float, float] | None:
    """Mean over seeds and standard deviation of the correlation over the states; None where it is undefined."""
    pairs = zip(relation.silhouette, relation.isoscore, strict=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.array([np.corrcoef(x, y)[0, 1] if len(x) > 1 else np.nan for x, y in pairs])
    return _spread(found) if np.isfinite(found).all() else None


def _spread(values: Any) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _text(mean: float, deviation: float) -> str:
    return f"{fixed(mean, 2)} ± {fixed(deviation, 2)}" if deviation else fixed(mean, 2)
